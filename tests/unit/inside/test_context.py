"""What context does to a word, on encoders whose weights are set so that the answers are known."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import tiny
from bertline.cli.inside import context as run
from bertline.foundation.errors import ArtifactError, ConfigError, DataError, MachineError
from bertline.inference.loading import load_folder
from bertline.inference.model import LoadedModel
from bertline.inside import context
from bertline.inside.context import MeasuredTable

ROOT = Path(__file__).resolve().parents[3]

WORDS = ("the", "river", "money", "bank", "plant")
POSITIONS = 11
SIZE = 2 * (len(WORDS) + POSITIONS)


@pytest.fixture(scope="session")
def reader_of_neighbour(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], LoadedModel]:
    """An encoder of one layer and one head, which adds to each token the word at a distance of -1 or 1, 3 times.

    Each word and each position has a pair of channels of its own, (1, -1), so that LayerNorm changes nothing but scale.
    """

    def make(distance: int) -> LoadedModel:
        sizes = {"hidden_size": SIZE, "num_hidden_layers": 1, "num_attention_heads": 1}
        folder = tmp_path_factory.mktemp("planted")
        tiny.write_encoder(folder, heads=True, words=WORDS, max_position_embeddings=POSITIONS, **sizes)
        model = load_folder(str(folder), device="cpu")
        pairs = torch.zeros(SIZE // 2, SIZE)
        pairs[torch.arange(SIZE // 2), ::2] = torch.eye(SIZE // 2)
        pairs[torch.arange(SIZE // 2), 1::2] = -torch.eye(SIZE // 2)
        words, positions = pairs[: len(WORDS)], pairs[len(WORDS) :]
        with torch.no_grad():
            for name, parameter in model.model.named_parameters():
                if "norm" not in name:
                    parameter.zero_()
            bert, layer = model.model.bert, model.model.bert.layers[0]
            bert.embeddings.word_embeddings.weight[len(tiny.SPECIAL) :] = words
            bert.embeddings.position_embeddings.weight[:] = positions
            query, key, value = layer.query_key_value.weight.view(3, SIZE, SIZE)
            asked = torch.roll(positions, -distance, dims=0)
            query[:] = 10 * asked.T @ positions
            key[:] = positions.T @ positions / 2
            value[:] = words.T @ words / 2
            layer.attention_output.weight[:] = 3 * torch.eye(SIZE)
            model.model.mlm_head.transform.weight[:] = torch.eye(SIZE)
        return model

    return make


@pytest.fixture
def random_model(tmp_path: Path) -> LoadedModel:
    folder = tiny.write_encoder(tmp_path / "random", heads=True, words=(*WORDS, "##s", "."), initializer_range=0.5)
    return load_folder(str(folder), device="cpu")


def by(measured: MeasuredTable, key: str) -> dict[str, dict[str, Any]]:
    json.dumps(measured, allow_nan=False)  # as it is kept: Python's own numbers, none missing
    return {str(row[key]): row for row in measured.rows}


def test_a_sense_that_lies_in_the_word_before_is_found_by_the_layer_that_reads_it_alone(reader_of_neighbour) -> None:
    sentences = {
        "water": ["river bank money", "the river Bank money", "the the river bank money"],
        "wealth": ["money bank river", "the money bank river", "the the money bank river"],
    }
    rows = by(context.senses(reader_of_neighbour(-1), "bank", sentences), "vectors")
    # The other words are the same, and so is the place: without their order, the nearest is of the other sense.
    assert rows["static"] == {"vectors": "static", "within": 1, "between": 1, "accuracy": 0.5} | {
        key: pytest.approx(1) for key in ("within", "between")
    }
    assert rows["other words"]["accuracy"] == rows["layer 0"]["accuracy"] == 0
    assert rows["layer 1"]["accuracy"] == 1
    assert rows["layer 0"]["within"] < rows["layer 0"]["between"]
    assert rows["layer 1"]["within"] > rows["layer 1"]["between"] + 0.5


def wic_row(word: str, first: str, second: str, same: bool) -> context.WicRow:
    spans = tuple((text.index(word), text.index(word) + len(word)) for text in (first, second))
    return word, (first, second), spans, same  # type: ignore[return-value]


def test_wic_chooses_the_layer_that_knows_and_scores_it_on_other_words(reader_of_neighbour) -> None:
    rows = [
        wic_row(word, f"{start}{a} {word} {b}", f"{end}{c} {word} {d}", (a, b) == (c, d))
        for word in ("bank", "plant")
        for start in ("", "the ")
        for end in ("", "the the ")
        for a, b in (("river", "money"), ("money", "river"))
        for c, d in (("river", "money"), ("money", "river"))
    ]
    measured = context.wic(reader_of_neighbour(-1), rows)
    table, facts = by(measured, "vectors"), measured.facts
    assert (facts["rows"], facts["test_rows"], facts["chosen"], facts["gain"]) == (16, 16, "layer 1", 0.5)
    assert table["layer 1"]["test"] == 1 and table["layer 1"]["interval"] is None  # one word is no sample of words
    assert [table[name]["test"] for name in ("most frequent answer", "static", "other words", "layer 0")] == [0.5] * 4
    # With rows of its own to be scored on, a word may be in both; their answers play no part in the choice.
    swapped = [(*row[:3], not row[3]) for row in rows]
    assert by(context.wic(reader_of_neighbour(-1), rows, swapped), "vectors")["layer 1"]["test"] == 0
    # The most frequent answer is that of the rows to choose on.
    alike, unlike = ([row for row in rows if row[3] is answer] for answer in (True, False))
    table = by(context.wic(reader_of_neighbour(-1), [*alike, *unlike, *unlike], alike), "vectors")
    assert table["most frequent answer"]["test"] == 0
    with pytest.raises(DataError, match="at least two words"):
        context.wic(reader_of_neighbour(-1), rows[:16])


def test_wic_compares_with_the_simple_method_that_was_best_where_all_is_chosen(reader_of_neighbour) -> None:
    pairs = [(a, b) for a in ("river", "money") for b in ("river", "money")]
    rows = [wic_row("bank", f"{a} bank {a}", f"{b} bank {b}", a == b) for a, b in pairs]
    # The other words tell all here, and nothing on the test rows, where only the most frequent answer is left.
    measured = context.wic(reader_of_neighbour(-1), rows, [(*row[:3], not row[3]) for row in rows])
    table = by(measured, "vectors")
    assert (table["other words"]["where_chosen"], table["other words"]["test"]) == (1, 0)
    assert table["most frequent answer"]["test"] == 0.5
    assert measured.facts["strongest_simple"] == "other words"


def test_who_reads_the_right_neighbour_loses_all_without_it_and_who_reads_the_left_one_nothing(
    reader_of_neighbour,
) -> None:
    documents = [[f"{word} {word}" for word in ("river", "money", "bank", "plant")] * 30]
    right = by(context.blanks(reader_of_neighbour(1), documents), "reads")
    assert 0.35 < right["both sides"]["accuracy"] < 0.65  # the first of the two words
    # Where no token is behind the blank at all, its attention is uniform, which finds the copy at the left.
    assert right["left"]["accuracy"] == pytest.approx(1 - right["both sides"]["accuracy"])
    for name in ("left, [SEP]", "left, [MASK]s"):
        assert right[name]["accuracy"] == 0
        assert right[name]["lost"] == pytest.approx(right["both sides"]["accuracy"])
        assert right[name]["lost_interval"][0] > 0.2
        assert right[name]["more_nats"] > 0
    left = by(context.blanks(reader_of_neighbour(-1), documents), "reads")
    for name in ("left, [SEP]", "left", "left, [MASK]s"):
        # Only the second of the two words has its copy at the left.
        assert left[name]["lost"] == 0 and left[name]["more_nats"] == pytest.approx(0, abs=1e-5)
    # Each of the four words is 59 of the other 239; the mass of unseen words is that of one.
    expected = -np.log((1 - 1 / 240) * 59 / 239 + 1 / 240 / (len(tiny.SPECIAL) + len(WORDS)))
    assert left["unigram"]["nats"] == pytest.approx(expected)
    assert left["unigram"]["accuracy"] == pytest.approx(0.25, abs=0.1)


def test_blanks_are_filled_as_fill_mask_does(random_model: LoadedModel) -> None:
    measured = context.blanks(random_model, [["the Bank."] * 30], most=25)
    guesses = [
        {guess.token: guess.probability for guess in random_model.fill_mask(text, top_k=99)[0]}[word]
        for text, word in (("[MASK] bank.", "the"), ("the [MASK].", "bank"))
    ]
    number = measured.facts["blanks"]
    assert number == 25
    expected = {-(k * np.log(guesses[0]) + (number - k) * np.log(guesses[1])) / number for k in range(number + 1)}
    assert min(abs(measured.rows[0]["nats"] - one) for one in expected) < 1e-5
    # No part of a word is a blank, and nothing else than words.
    with pytest.raises(DataError, match="0 of 30 sentences have a word to fill; expected 20"):
        context.blanks(random_model, [["banks . 3 ..."] * 30])
    with pytest.raises(DataError, match="19 of 19 sentences have a word to fill; expected 20"):
        context.blanks(random_model, [["the bank."]] * 19)
    assert context.blanks(random_model, [["the bank."]] * 20).facts["blanks"] == 20


def test_vectors_of_places_are_those_of_word_vectors_and_of_the_window_around_a_place(
    random_model: LoadedModel,
) -> None:
    texts = ["The river banks.", "money", "the plant . the bank . the"]
    spans = [(10, 15), (0, 5), (16, 20)]
    vectors, num_cut = context.places(random_model, texts, spans)
    for number, (text, span) in enumerate(zip(texts, spans, strict=True)):
        for layer, states in enumerate(random_model.word_vectors(text, text[slice(*span)]).vectors[:, 0]):
            np.testing.assert_allclose(vectors[f"layer {layer}"][number], states, atol=1e-5)
    assert num_cut == 0 and not vectors["other words"][1].any()
    long = "the " * 30 + "bank" + " river" * 30
    cut, num_cut = context.places(random_model, [long], [(120, 124)])
    window = "the " * 7 + "bank" + " river" * 6
    whole, _ = context.places(random_model, [window], [(28, 32)])
    assert num_cut == 1
    np.testing.assert_allclose(cut["layer 2"], whole["layer 2"], atol=1e-5)
    with pytest.raises(DataError, match="no token of its own"):
        context.places(random_model, ["the  bank"], [(3, 4)])


def test_a_batch_keeps_no_more_in_memory_than_one_row_of_512_tokens(tmp_path: Path, monkeypatch) -> None:
    model = load_folder(str(tiny.write_encoder(tmp_path, words=WORDS, max_position_embeddings=512)), device="cpu")
    encoder, shapes = type(model.encoder), []
    in_detail = encoder.forward_in_detail
    monkeypatch.setattr(encoder, "forward_in_detail", lambda *all: (shapes.append(all[1].shape), in_detail(*all))[1])
    for length, rows in ((510, 3), (30, 200)):
        context.places(model, ["the " * (length - 1) + "bank"] * rows, [(4 * length - 4, 4 * length)] * rows)
    assert shapes[:3] == [(1, 512)] * 3 and sum(number for number, _ in shapes) == 203
    assert 50 < shapes[3][0] < 200 and max(rows * length * (length + 128) for rows, length in shapes) <= 512 * 640


def test_analogies_are_those_of_a_naive_search(random_model: LoadedModel) -> None:
    words = [word for word in random_model.tokenizer.vocab if word not in tiny.SPECIAL]
    random = np.random.default_rng(0)
    drawn = [(f"part {number % 2}", [*random.choice(words[:5], 4)]) for number in range(80)]
    rows = [(section, four) for section, four in drawn if four[3] not in four[:3]]
    measured = context.analogies(random_model, [*drawn, ("", ["banks", "the", "bank", "river"])])
    table = dict(zip(words, random_model.encoder.word_embeddings.detach().numpy()[5:], strict=True))
    unit = {word: vector / np.linalg.norm(vector) for word, vector in table.items()}

    def nearest(query: np.ndarray, without: list[str]) -> str:
        return max((word for word in words if word not in without), key=lambda word: float(unit[word] @ query))

    offsets = [(unit[b] - unit[a] + unit[c], [a, b, c], d) for _, (a, b, c, d) in rows]
    part = by(measured, "section")
    assert 20 < part["all"]["rows"] == len(rows) and measured.facts["left_out"] == 81 - len(rows)
    assert measured.facts["by_chance"] == pytest.approx(1 / (len(words) - 3))
    of_one = [number for number, (section, _) in enumerate(rows) if section == "part 1"]
    for name, chosen in (("all", range(len(rows))), ("part 1", of_one)):
        expected = [
            (nearest(query, inputs) == d, nearest(query, []) == d, nearest(query, []) in inputs,
             nearest(unit[inputs[2]], inputs) == d)
            for query, inputs, d in (offsets[number] for number in chosen)
        ]  # fmt: skip
        found = [part[name][key] for key in ("offset", "with_inputs", "is_input", "c_alone")]
        assert found == np.mean(expected, axis=0).tolist()
    with pytest.raises(DataError, match="none of the 1 analogies"):  # which asks for an input
        context.analogies(random_model, [("", ["the", "bank", "the", "bank"])])


@pytest.fixture
def follower(random_model: LoadedModel) -> Iterator[LoadedModel]:
    """Says with log odds of 8 that B follows where its first word is that behind the first of A; wrong in one of 5."""
    heads = random_model.model

    def forward(input_ids: torch.Tensor, types: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor) -> Any:
        second = torch.where(types == 1, input_ids, 0).cummax(1).values
        is_next = second.gather(1, types.argmax(1, keepdim=True))[:, 0] == input_ids[:, 1] + 1
        is_wrong = input_ids[:, 1] % 5 == 0
        odds = torch.where(is_next ^ is_wrong, 8.0, -8.0)
        return SimpleNamespace(nsp_logits=torch.stack([odds / 2, -odds / 2], dim=1))

    forward.forward_everywhere = heads.forward_everywhere
    random_model.model = forward
    yield random_model


def test_next_sentences_are_scored_by_kind_and_calibrated_on_the_other_half(follower: LoadedModel, tmp_path) -> None:
    words = tuple(f"w{number}" for number in range(400))
    tiny.write_vocabulary(tmp_path, words)
    follower.tokenizer = type(follower.tokenizer).load(tmp_path)
    documents = [[f"{word} the" for word in words[start : start + 40]] for start in range(0, 400, 40)]
    measured = context.next_sentences(follower, documents)
    rows = by(measured, "probabilities")
    raw, platt, overlap, tf_idf = (rows[name] for name in ("model", "model, Platt", "word overlap", "TF-IDF cosine"))
    for kind in ("accuracy", "follows", "same_doc", "other_doc"):
        assert raw[kind] == platt[kind] == pytest.approx(0.8, abs=0.12)
    assert raw["ece"] == pytest.approx(0.2, abs=0.05) and platt["ece"] < 0.06
    assert platt["nats"] == pytest.approx(0.5, abs=0.08) and raw["nats"] > 1.2
    for simple in (overlap, tf_idf):  # every pair has the same word in common
        assert simple["accuracy"] == pytest.approx(0.5, abs=0.1)
    assert measured.facts["gain_interval"][0] > 0.15
    assert sum(pairs for pairs, *_ in measured.facts["reliability"]["model"]) == measured.facts["test_pairs"]


def test_next_sentences_need_pairs_of_both_answers_in_both_halves(random_model: LoadedModel) -> None:
    two = ["the bank", "the river"]
    # Without pairs, with too few, and with no sentence but the one that follows.
    for documents, counts in (([], r"\[0, 0\] pairs"), ([two] * 39, ""), ([["the bank"] * 101], r"\[0, 0\] do not")):
        with pytest.raises(DataError, match=rf"{counts}.*expected 5 of each, 40 in all"):
            context.next_sentences(random_model, documents)
    for documents in ([two] * 40, [["the bank", "the river"] * 21], [["a", "b", "c"] * 7, *[two] * 21]):
        for seed in range(5):
            rows = by(context.next_sentences(random_model, documents, seed=seed), "probabilities")
            assert {"follows", "nats", "ece"} <= rows["model"].keys()  # and none is NaN


def test_a_random_sentence_is_never_the_text_that_follows(random_model: LoadedModel, monkeypatch) -> None:
    asked: list[tuple[str, str]] = []
    encode = context.encode_texts

    def seen(firsts: Any, seconds: Any, *others: Any, **more: Any) -> Any:
        asked.extend(zip(firsts, seconds, strict=True))
        return encode(firsts, seconds, *others, **more)

    monkeypatch.setattr(context, "encode_texts", seen)
    follower = {"a": "b", "b": "a", "c": "d", "d": "c", "e": "e"}
    measured = context.next_sentences(random_model, [["a", "b"] * 20, ["c", "d"] * 20, ["e"] * 40])
    assert len(asked) == measured.facts["pairs"] == 117 and measured.facts["left_out"] == 0
    assert sum(second == follower[first] for first, second in asked) == 59
    # Where the other document has no other text either, the pair is left out.
    facts = context.next_sentences(random_model, [["e"] * 30, *[["a", "b"]] * 20, ["e"] * 31]).facts
    assert facts["left_out"] > 0 and facts["pairs"] + facts["left_out"] == 79


def test_what_a_model_without_heads_cannot_do_is_said(tmp_path: Path) -> None:
    model = load_folder(str(tiny.write_encoder(tmp_path)), device="cpu")
    with pytest.raises(ArtifactError, match="no masked language model head"):
        context.blanks(model, [["word1 word2"] * 30])
    with pytest.raises(ArtifactError, match="no next sentence head"):
        context.next_sentences(model, [["word1 word2"] * 30])


def test_an_interval_knows_that_values_of_a_group_are_not_independent() -> None:
    values = np.random.default_rng(1).normal(size=400)
    low, high = context.bootstrapped(values, np.arange(400).astype(str))
    assert high - low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.1)
    low, high = context.bootstrapped(np.repeat(values[:40], 10), np.repeat(np.arange(40), 10).astype(str))
    assert high - low == pytest.approx(2 * 1.96 * values[:40].std() / np.sqrt(40), rel=0.15)
    # Each with each: a value is the sum of what its two groups have, and its mean varies as that of 2 * 40 such.
    pairs = np.array([*itertools.permutations(range(40), 2)])
    low, high = context.bootstrapped(values[pairs].sum(1), pairs)
    assert high - low == pytest.approx(2 * 1.96 * 2 * values[:40].std() / np.sqrt(40), rel=0.15)
    assert context.bootstrapped(values[:90], np.repeat(np.arange(9), 10)) is None  # nine groups are too few


def write_wic(folder: Path, *lines: str, gold: str = "T\nF\n") -> Path:
    (folder / "dev.gold.txt").write_text(gold)
    (path := folder / "dev.data.txt").write_text("".join(f"{line}\n" for line in lines))
    return path


def test_rows_of_wic_are_read_and_damaged_ones_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    went = "go\tV\t1-0\tHe went there .\tGo on !"
    rows = context.read_wic(write_wic(tmp_path, "bank\tN\t1-2\tThe banks , the bank\tA  steep bank", went))
    assert rows[0] == ("bank", ("The banks , the bank", "A  steep bank"), ((4, 9), (9, 13)), True)
    assert rows[1][2:] == (((3, 7), (0, 2)), False)
    marked = 'bank\tN\t2-0\tAt the "bank".\t(Bank-) -- s', "go\tV\t1-0\tHe _went_!\tgo\x85on"
    rows = context.read_wic(write_wic(tmp_path, *marked))
    assert [[text[slice(*span)] for text, span in zip(*row[1:3], strict=True)] for row in rows] == [
        ["bank", "Bank"],
        ["went", "go"],
    ]
    for wrong in ("bank\tN\t1-9\tThe bank\tA bank", "bank\tN\t1\tThe bank\tA bank", "bank\tN\t0-1\tThe bank", "bank"):
        with pytest.raises(DataError, match=r"dev\.data\.txt:2 needs word, part of speech, places inside"):
            context.read_wic(write_wic(tmp_path, went, wrong))
    with pytest.raises(DataError, match=r"dev\.data\.txt:2 .*gold file: .*'X'"):
        context.read_wic(write_wic(tmp_path, went, went, gold="T\nX\n"))
    with pytest.raises(DataError, match=r"dev\.data\.txt has 2 rows, its gold file 3"):
        context.read_wic(write_wic(tmp_path, went, went, gold="T\nF\nF\n"))
    with pytest.raises(DataError, match=r"dev\.gold\.txt needs a name that ends in data\.txt"):
        context.read_wic(tmp_path / "dev.gold.txt")
    logging.getLogger("bertline").addHandler(caplog.handler)
    assert len(context.read_wic(write_wic(tmp_path, went, "bank\tN\t0-1\tThe bank\tA bank"))) == 1
    assert "dev.data.txt:2 is left out: at the places of 'bank' stand The and bank" in caplog.text


def test_lines_of_a_wrapped_paragraph_are_joined_and_others_are_not(tmp_path: Path) -> None:
    (path := tmp_path / "text.txt").write_bytes(
        b"The bank of\r\nthe river. It\nis steep.\r\n \nA bank\xc2\x85of money.\n"
    )
    assert context.read_text([path]) == [["The bank of the river.", "It is steep.", "A bank of money."]]
    path.write_text("\nThe bank\nThe river. It\n\n")
    assert context.read_text([path]) == [["The bank", "The river.", "It"]]


def test_lines_of_analogies_have_four_words(tmp_path: Path) -> None:
    (path := tmp_path / "analogies.txt").write_text(": one\na b c d\n\n: two\ne f g h\n")
    assert context.read_analogies(path) == [("one", ["a", "b", "c", "d"]), ("two", ["e", "f", "g", "h"])]
    for wrong in ("a b c", "a b c d e"):
        path.write_text(f": one\na b c d\n\n{wrong}\n")
        with pytest.raises(DataError, match=r"analogies\.txt:4 needs four words"):
            context.read_analogies(path)


def test_a_word_needs_sentences_that_have_it(random_model: LoadedModel) -> None:
    with pytest.raises(DataError, match="'bank' is not in 'the banks' as a whole word"):
        context.senses(random_model, "bank", {"a": ["the bank", "the banks"], "b": ["bank", "bank"]})
    with pytest.raises(DataError, match="of each of two senses, no letter touching it; found: a: 2, b: 1"):
        context.senses(random_model, "bank", {"a": ["the bank", "bank"], "b": ["bank"]})


def test_the_command_prints_a_table_per_measure_and_keeps_the_figures(
    tmp_path: Path, random_model: LoadedModel, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("The bank. The river bank.\n\n" * 20)
    (tmp_path / "analogies.txt").write_text(": gram1-adjective-to-adverb\nthe river money bank\n")
    texts, folder = [str(tmp_path / name) for name in ("a.txt", "b.txt")], str(tmp_path / "random")

    def command(**given: Any) -> None:
        asked = yaml.safe_load((ROOT / "conf/context.yaml").read_text()) | {"model_folder": folder, "texts": texts}
        run.__wrapped__(asked | given)

    command(analogies=str(tmp_path / "analogies.txt"))
    printed = capsys.readouterr().out
    for shown in ("left, [SEP]", "model, Platt", "by_chance 0.25", "gram1", "gain_interval -"):
        assert shown in printed
    assert max(map(len, printed.split("\n\n", 1)[1].splitlines())) <= 80
    figures = tmp_path / "new" / "figures.json"
    command(word="bank", out=str(figures))
    assert "Senses of 'bank'" in capsys.readouterr().out
    kept = json.loads(figures.read_text())
    (table,) = kept["tables"]
    assert kept["model"] == folder
    assert (table["title"], len(table["rows"]), table["facts"]["places"]) == ("Senses of 'bank'", 5, 80)
    with pytest.raises(MachineError, match="cannot be written"):  # said before anything is measured
        command(out=str(tmp_path / "a.txt" / "figures.json"))
    assert not capsys.readouterr().out
    with pytest.raises(DataError, match="needs two sentences"):  # the tables before are kept
        command(word=["bank", "none"], out=str(figures))
    assert len(json.loads(figures.read_text())["tables"]) == 1
    with pytest.raises(ConfigError, match="most is 0; give a whole number"):
        command(most=0)
    with pytest.raises(ConfigError, match="name files"):
        command(texts=None, word="bank")
    with pytest.raises(ConfigError, match="wic needs another file"):
        command(wic=["dev.data.txt", "./dev.data.txt"])
