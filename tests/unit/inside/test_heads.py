"""What heads know of a treebank: equal to plain loops, right where the answer is known, and what is bad input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import planted_heads
import tiny
from bertline.cli.inside import heads
from bertline.encoders.head_measures import ALL, OFFSETS, AttentionParser, Treebank, halves, head_hits, offset_hits
from bertline.encoders.loading import load_encoder
from bertline.foundation.errors import ArtifactError, ConfigError, DataError
from bertline.inference.loading import load_folder
from bertline.inside.heads import (
    ablate_classifier,
    ablate_language_model,
    draw_heads,
    measure_heads,
    table_of,
    without_head,
)
from bertline.tasks.treebank import ParsedSentence, read_treebank

ROOT = Path(__file__).resolve().parents[3]

SIZES = {"initializer_range": 0.5, "max_position_embeddings": 24}


@pytest.fixture
def dev(tmp_path):
    return planted_heads.write_treebank(tmp_path / "dev.conllu", 150, seed=1)


@pytest.fixture
def test(tmp_path):
    return planted_heads.write_treebank(tmp_path / "test.conllu", 120, seed=2)


@pytest.fixture
def folder(tmp_path):
    return tiny.write_encoder(tmp_path / "encoder", heads=True, words=planted_heads.WORDS, **SIZES)


def maps_of(encoder):
    def maps(ids):
        with torch.no_grad():
            layers = encoder.forward_in_detail(ids, torch.zeros_like(ids), torch.ones_like(ids)).layers
        return [head for layer in layers for head in layer.probabilities[0].tolist()]

    return maps


def test_hits_equal_those_of_plain_loops_whatever_a_sentence_is_batched_with(folder, dev):
    encoder, tokenizer = load_encoder(folder).eval(), planted_heads.tokenizer(folder)
    sentences = read_treebank(dev)[:40]
    treebank = Treebank.of(sentences, tokenizer, max_length=24)
    expected = planted_heads.naive_hits(maps_of(encoder), tokenizer, sentences)
    assert 0.05 < expected.mean() < 0.5  # neither all nor none
    assert (head_hits(encoder, treebank, treebank.batches()) == expected).all()
    assert (head_hits(encoder, treebank, [[index] for index in range(40)]) == expected).all()
    for one, start in zip(sentences, treebank.starts, strict=False):
        for place, head in enumerate(one.heads, start=1):
            at_edge = [min(max(place + offset, 1), len(one.words)) for offset in OFFSETS]
            inwards = [place - 1 if offset > 0 else place + 1 for offset in OFFSETS]
            guesses = [inner if guess == place else guess for guess, inner in zip(at_edge, inwards, strict=True)]
            expected = [head > 0 and guess == head for guess in guesses]
            assert offset_hits(treebank)[start + place - 1].tolist() == expected


@pytest.fixture
def content(tmp_path, dev, test):
    return measure_heads(planted_heads.planted(tmp_path / "planted"), dev, test, min_examples=50)


def test_a_head_that_knows_a_relation_is_found_with_its_direction_and_beats_every_offset(content):
    rows = content["relations"]
    assert set(rows) == {ALL, "obj", "det", "dep"}
    found = {name: (row["head"]["layer"], row["head"]["head"], row["head"]["direction"]) for name, row in rows.items()}
    assert found["obj"] == (1, 2, "d>h") and found["det"] == (2, 1, "h>d")
    for name in ("obj", "det"):
        assert rows[name]["head"]["accuracy"] == 1 and rows[name]["head"]["interval"][1] == 1
        assert 0.5 < rows[name]["head"]["interval"][0] < 0.9  # of few documents
        assert rows[name]["grid"][found[name][0] - 1][found[name][1] - 1] == 1
        assert rows[name]["verdict"] == "better"
    assert rows["obj"]["random_weights"]["accuracy"] < 0.9 and rows["dep"]["verdict"] != "better"  # no head knows it
    assert rows["obj"]["published_bert_base"] == 86.8 and rows["dep"]["published_bert_base"] is None


def test_the_parser_finds_what_some_head_knows(content, test):
    relations = [relation for one in read_treebank(test) for relation in one.relations]
    known = sum(relation in ("obj", "det") for relation in relations) / len(relations)
    parsing = content["parsing"]
    assert parsing["encoder"]["accuracy"] > max(known, parsing["random_weights"]["accuracy"] + 0.2)
    assert parsing["next_word"]["accuracy"] == pytest.approx(np.mean([
        head == (place + 1 if place < len(one.heads) else place - 1)
        for one in read_treebank(test) for place, head in enumerate(one.heads, start=1)
    ]), abs=1e-4)  # fmt: skip


def test_the_parser_scores_roots_by_special_tokens_and_never_a_word_itself_or_what_is_no_word():
    parser, attention = AttentionParser(1), torch.rand(1, 1, 5, 5)
    parser.weights.data[0] = 1.0
    scores = parser(attention, np.array([[True, True, False]]))[0]
    torch.testing.assert_close(scores[:, 0], attention[0, 0, 2:, :2].sum(-1))
    assert scores[0, 2] == attention[0, 0, 2, 3] and scores[0, 1] == scores[1, 2] == scores[0, 3] == -torch.inf


def test_one_file_is_cut_between_two_documents(dev):
    first, second = halves(read_treebank(dev))
    assert abs(len(first) - len(second)) <= 15
    assert not {one.document for one in first} & {one.document for one in second}
    alone = [ParsedSentence("a", ("b",), (0,), ("root",))] * 5
    assert tuple(map(len, halves(alone))) == (2, 3)


def test_a_table_fits_80_columns_and_a_picture_is_drawn(content, tmp_path):
    lines = table_of(content).splitlines()
    assert max(map(len, lines)) <= 80
    row = next(line for line in lines if line.startswith("obj"))
    assert "1-2 d>h 100.0" in row and row.endswith("beats offset")
    maps = [axes for axes in draw_heads(content["relations"]).axes if axes.images]
    assert [axes.get_title().split(",")[0] for axes in maps] == [*content["relations"]]
    assert [axes.images[0].get_array().tolist() for axes in maps] == [
        row["grid"] for row in content["relations"].values()
    ]


def test_sentences_that_the_model_cannot_read_are_counted_and_if_none_is_left_this_is_an_error(tmp_path, dev, capsys):
    model = planted_heads.planted(tmp_path / "planted")
    model.max_length = 9
    found = measure_heads(model, dev, min_examples=10)
    left_out = found["sentences_left_out"]
    assert left_out == sum(len(one.words) > 6 for one in read_treebank(dev)) > 0  # "things" has two tokens
    assert f"{left_out} sentences are longer than the 9 tokens" in capsys.readouterr().err
    model.max_length = 4
    with pytest.raises(DataError, match="no sentence of at most 4 tokens"):
        measure_heads(model, dev)
    few = planted_heads.write_treebank(tmp_path / "few.conllu", 20, seed=1)
    with pytest.raises(DataError, match=r"few\.conllu: dev and test need 12 sentences each"):
        measure_heads(planted_heads.planted(tmp_path / "again"), few)


def test_a_wrapped_family_is_measured_and_keeps_its_heads(tmp_path, dev):
    transformers = pytest.importorskip("transformers")
    size = len(tiny.SPECIAL) + len(planted_heads.WORDS)
    sizes = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 37}
    config = transformers.ElectraConfig(vocab_size=size, embedding_size=12, **sizes)
    transformers.ElectraModel(config).save_pretrained(tmp_path / "electra")
    tiny.write_vocabulary(tmp_path / "electra", planted_heads.WORDS)
    model = load_folder(str(tmp_path / "electra"), device="cpu")
    assert np.shape(measure_heads(model, dev, min_examples=50)["relations"]["obj"]["grid"]) == (3, 4)
    with pytest.raises(ArtifactError, match="heads can be .* BERT's layers alone"), without_head(model.encoder, 0, 0):
        pass


def test_without_a_head_a_layer_computes_as_if_that_head_said_nothing_and_has_it_again_afterwards(folder, monkeypatch):
    encoder = load_encoder(folder).eval()
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    ids = torch.arange(6, 14)[None]
    layer, calls = encoder.layers[1], []
    after = layer._after_attention
    monkeypatch.setattr(
        layer, "_after_attention", lambda states, context: calls.append((states, context)) or after(states, context)
    )
    with torch.no_grad():
        whole = encoder.forward_in_detail(ids, ids * 0).hidden_states[-1]
        states, context = calls[0]
        silent = context.clone()
        silent[:, 2] = 0
        with without_head(encoder, 1, 2):
            found = encoder.forward_in_detail(ids, ids * 0).hidden_states[-1]
    torch.testing.assert_close(found, after(states, silent))
    assert not torch.allclose(found, whole)
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())


def test_the_loss_of_masked_tokens_changes_with_a_head_but_not_with_one_that_says_nothing(folder, dev):
    model = load_folder(str(folder), device="cpu")
    silenced = model.encoder.layers[0]
    with torch.no_grad():  # the values of head 1-3 are zero
        silenced.query_key_value.weight[64 + 16 : 64 + 24] = 0
    found = ablate_language_model(model, read_treebank(dev), 60)
    assert found["texts"] == 60 and len(found["without"]) == 8
    by_head = {(one["layer"], one["head"]): one for one in found["without"]}
    assert by_head[1, 3]["score"] == found["with_all"] and by_head[1, 3]["without_it"] == "not shown"
    assert sum(one["score"] != found["with_all"] for one in found["without"]) == 7
    assert ablate_language_model(model, read_treebank(dev), 60) == found  # the same masks
    short = [ParsedSentence("one", ("verb",), (0,), ("root",))]
    with pytest.raises(DataError, match="none of the tokens of 1 sentences was masked"):
        ablate_language_model(model, short, 1)


def test_a_classifier_is_scored_without_each_head(tmp_path, folder):
    words = planted_heads.WORDS
    task = load_folder(
        str(tiny.write_classifier(tmp_path / "task", ("a", "b"), seed=4, words=words, **SIZES)), device="cpu"
    )
    texts = [f"filler{number} verb filler{number * 7 % 9} which" for number in range(9)] * 3
    labels = [one.label for one in task.predict(texts)]
    rows = tmp_path / "rows.csv"
    rows.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in zip(texts, labels, strict=True)))
    found = ablate_classifier(task, rows, 20)
    assert (found["texts"], found["with_all"], len(found["without"])) == (20, 1.0, 8)
    assert min(one["score"] for one in found["without"]) < 1
    for content, message in (
        ("text\na\n", r"rows\.csv must be a table with the columns text and label"),
        ("text,label\na,other\n", "has the label 'other'; .* knows a, b"),
    ):
        rows.write_text(content)
        with pytest.raises(DataError, match=message):
            ablate_classifier(task, rows, 20)
    with pytest.raises(ArtifactError, match="is no classifier"):
        ablate_classifier(load_folder(str(folder), device="cpu"), rows, 20)
    with pytest.raises(ArtifactError, match="no masked language model head"):
        ablate_language_model(task, [], 20)


def test_the_command_writes_what_it_prints(folder, dev, tmp_path, capsys):
    asked = yaml.safe_load((ROOT / "conf/heads.yaml").read_text())
    asked |= {"treebank": str(dev), "model_folder": str(folder), "out": str(tmp_path / "out")}
    heads.__wrapped__(asked | {"min_examples": 50, "ablate": 20})
    said = capsys.readouterr().out
    content = json.loads((tmp_path / "out" / "heads.json").read_text())
    assert "dev.conllu is cut in two" in said and table_of(content) in said
    obj = content["relations"]["obj"]["head"]["accuracy"]
    assert f"obj {100 * obj:.1f} (86.8)" in " ".join(said.split())
    assert len(content["ablation"][0]["without"]) == 8 and "of 8 heads change it beyond noise" in said
    assert (tmp_path / "out" / "heads.png").exists()
    for wrong in ({"rows": "x.csv", "ablate": 20}, {"classifier": str(folder), "rows": "x.csv"}):
        with pytest.raises(ConfigError, match="and ablate=100 go together"):
            heads.__wrapped__(asked | wrong)


def line(place, head, relation, word="word"):
    return f"{place}\t{word}\t_\tX\t_\t_\t{head}\t{relation}\t_\t_\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (line(1, "_", "_") + line(2, "_", "_"), r"bad\.conllu:1: head and relation are '_' and '_'; a parsed treebank"),
        (line(1, 0, "root") + line(2, 3, "obj"), r"bad\.conllu:2: head and relation are '3' .* 1 to 2, or 0 \(root\)"),
        (line(1, 0, "root") + line(3, 1, "obj"), r"bad\.conllu:2: expected ten columns of word 2, found '3"),
        ("# text = a\n1 word\n", r"bad\.conllu:2: expected ten columns of word 1"),
        ("# only a comment\n\n", r"bad\.conllu has no words"),
    ],
)
def test_what_is_no_treebank_is_named_by_file_and_line(tmp_path, text, message):
    path = tmp_path / "bad.conllu"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_treebank(path)


def test_a_treebank_is_read_without_multiword_tokens_and_empty_nodes_and_may_have_cycles(tmp_path, dev):
    assert "an empty node" in dev.read_text() and all(
        " " not in word for one in read_treebank(dev) for word in one.words
    )
    assert len({one.document for one in read_treebank(dev)}) == 10
    path = tmp_path / "cycle.conllu"
    path.write_text(line(1, 2, "dep") + line(2, 1, "nmod:poss"))
    assert read_treebank(path) == [ParsedSentence("cycle.conllu:1", ("word",) * 2, (2, 1), ("dep", "nmod:poss"))]
