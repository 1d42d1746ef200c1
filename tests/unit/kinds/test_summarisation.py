"""A [CLS] for each sentence, groups of sentences, the loss, the choice: and a small model that learns to choose."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer
from torch import nn

import finished_tasks
import tiny
from bertline.baselines.base import BaselineInputs
from bertline.finetuning.finetune import fine_tune
from bertline.foundation.errors import DataError
from bertline.foundation.labels import IGNORED_LABEL
from bertline.kinds.base import LossOptions
from bertline.kinds.build import build_task
from bertline.kinds.sentence_labelling import encode_documents
from bertline.kinds.summarisation import Summarisation, chosen_sentences
from bertline.tasks.stored_rows import SummaryRows, read_rows, read_task_manifest
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from corpora import NO_PACKAGES

LETTERS = "abcdefghij"
TOKENIZER = Tokenizer(Vocabulary(tokens=(*SPECIAL_TOKENS, *LETTERS), lowercase=True))


def config(**changes):
    return finished_tasks.config_of("summarisation", **{"max_length": 64, **changes})


def rows_of(*documents, summary="a b"):
    return SummaryRows(
        ids=[str(number) for number in range(len(documents))],
        sentences=[list(sentences) for sentences in documents],
        summaries=[summary] * len(documents),
        chosen=[chosen_sentences(sentences, summary, most=2) for sentences in documents],
    )


class LooksAtFirstWord(nn.Module):
    """At each position, a score of the token that follows: the same wherever a sentence stands."""

    def __init__(self, seed=0):
        super().__init__()
        self.table = torch.randn(len(TOKENIZER.vocab), generator=torch.Generator().manual_seed(seed))

    def forward(self, input_ids, token_type_ids, attention_mask):
        return self.table[F.pad(input_ids[:, 1:], (0, 1))][..., None]


def encoded_rows(rows, max_length):
    return encode_documents(rows.sentences, rows.chosen, TOKENIZER, max_length=max_length)


def test_each_sentence_has_its_own_cls_and_segments_take_turns():
    encoded = encoded_rows(rows_of(["a b", "c", "d e"], ["f"]), 64)
    tokens = [[TOKENIZER.vocab[token] for token in ids] for ids in encoded.sequences.input_ids]
    assert tokens[0] == ["[CLS]", "a", "b", "[SEP]", "[CLS]", "c", "[SEP]", "[CLS]", "d", "e", "[SEP]"]
    assert tokens[1][:4] == ["[CLS]", "f", "[SEP]", "[PAD]"]
    assert encoded.sequences.token_type_ids[0].tolist() == [0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0]
    assert [(place, label) for place, label in enumerate(encoded.labels[0].tolist()) if label != IGNORED_LABEL] == [
        (0, 1), (4, 0), (7, 0),
    ]  # fmt: skip


sentence = st.lists(st.sampled_from(LETTERS), min_size=0, max_size=9).map(" ".join)
documents = st.lists(st.lists(sentence, min_size=1, max_size=12), min_size=1, max_size=4)


@given(documents=documents, max_length=st.integers(3, 30))
def test_groups_hold_whole_sentences_in_order_and_none_could_have_taken_one_more(documents, max_length):
    encoded = encoded_rows(rows_of(*documents), max_length)
    assert encoded.sequences.lengths.max() <= max_length
    groups = []
    for ids, length in zip(encoded.sequences.input_ids.tolist(), encoded.sequences.lengths, strict=True):
        text = " ".join(TOKENIZER.vocab[token] for token in ids[:length])
        groups.append([part.strip() for part in text.split("[SEP]")[:-1]])
    wanted = [
        " ".join(["[CLS]", *each.split()[: max_length - 2]]).strip() for sentences in documents for each in sentences
    ]
    assert [each for group in groups for each in group] == wanted
    assert encoded.is_first.sum() == len(documents) and encoded.is_first[0]
    for number in range(1, len(groups)):
        if not encoded.is_first[number]:
            first_tokens = len(groups[number][0].split()) + 1
            assert encoded.sequences.lengths[number - 1] + first_tokens > max_length


@settings(max_examples=40)
@given(documents=documents, seed=st.integers(0, 50))
def test_every_sentence_of_a_long_document_gets_the_score_that_it_gets_when_read_at_once(documents, seed):
    rows, model = rows_of(*documents), LooksAtFirstWord(seed)
    whole, grouped = (
        (kind := Summarisation(config(max_length=length), ())).predict(
            model, kind.encode(rows, TOKENIZER), tiny.machine()
        )
        for length in (256, 12)
    )
    assert [len(scores) for scores in whole] == [len(sentences) for sentences in documents]
    for one, other in zip(whole, grouped, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize("weights", [None, (0.5, 3.0)], ids=["even", "weighted"])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.2])
def test_the_loss_is_the_mean_over_sentences_whatever_else_is_in_the_batch(weights, label_smoothing):
    kind = Summarisation(config(), ())
    rows = rows_of(["a b", "c", "d"], ["b a c d e f"])
    encoded = kind.encode(rows, TOKENIZER)
    [batch] = kind.training_batches(encoded, batch_size=8, seed=0)
    model = LooksAtFirstWord()
    expected, norm = 0.0, 0.0
    for sentences, chosen in zip(rows.sentences, rows.chosen, strict=True):
        for text, label in zip(sentences, chosen, strict=True):
            score = torch.sigmoid(model.table[TOKENIZER.encode(text)[0]])
            target = label * (1 - label_smoothing) + label_smoothing / 2
            weight = 1.0 if weights is None else weights[label]
            expected += weight * -(target * score.log() + (1 - target) * (1 - score).log())
            norm += weight
    options = LossOptions(label_smoothing, None if weights is None else torch.tensor(weights))
    torch.testing.assert_close(kind.loss(model, batch, options), expected / norm)
    assert kind.label_counts(rows).tolist() == [2, 2]


def test_the_best_sentences_are_given_in_the_order_of_the_document():
    kind = Summarisation(config(), ())
    rows = rows_of(["a", "b", "c"], ["d e"], summary="c a")
    predictions = [np.array([0.2, 0.1, 0.9]), np.array([0.4])]
    table = kind.table(rows, predictions, {}).to_pydict()
    assert table["predicted"] == ["a c", "d e"]
    assert table["score"] == pytest.approx([0.55, 0.4])
    assert table["text"] == ["a b c", "d e"]
    reference = RougeScorer(["rouge1", "rouge2", "rougeL"])
    expected = [reference.score("c a", predicted) for predicted in table["predicted"]]
    scores = kind.scores(kind.statistics(rows, predictions, {}))
    assert scores == pytest.approx({name: np.mean([each[name].fmeasure for each in expected]) for name in scores})
    assert table["correct"] == pytest.approx([each["rouge1"].fmeasure for each in expected])


def test_the_oracle_is_reported_beside_and_is_not_beaten_by_the_first_sentences():
    kind = Summarisation(config(), ())
    rows = rows_of(["c", "d", "a b"], ["e", "f", "g", "b", "a"])
    [lead] = kind.baselines(BaselineInputs(kind=kind, train=rows, dev=rows, tests={"test": rows}))
    oracle = kind.details(rows, lead.predictions["test"], {})["oracle"]
    assert oracle["rouge1"] == 1.0
    assert kind.table(rows, lead.predictions["test"], {})["predicted"].to_pylist() == ["c d", "e f"]


def learnable(num_rows, *, seed):
    """The summary is the second and the fourth sentence, which the segments tell from the others."""
    random = np.random.default_rng(seed)
    documents = [
        [" ".join(tiny.WORDS[number] for number in random.choice(40, 3)) for _ in range(random.integers(4, 6))]
        for _ in range(num_rows)
    ]
    return SummaryRows(
        [str(number) for number in range(num_rows)],
        documents,
        [f"{document[1]} {document[3]}" for document in documents],
        [[int(place in (1, 3)) for place in range(len(document))] for document in documents],
    )


def test_a_small_model_learns_to_choose(encoder, job_of):
    kind = Summarisation(config(max_length=32), ())
    train, dev = (learnable(num_rows, seed=num_rows) for num_rows in (160, 48))
    result = fine_tune(job_of(kind, encoder, train, dev, num_epochs=6, learning_rate=1e-2, dropout_prob=0.0))
    [lead] = kind.baselines(BaselineInputs(kind=kind, train=None, dev=dev, tests={}))
    baseline = kind.scores(kind.statistics(dev, lead.predictions["dev"], {}))
    assert result.dev.scores["rouge1"] > 0.95
    assert baseline["rouge1"] < 0.7


# Documents and summaries from JSONL.


def row(number, **changes):
    return {"document": f"It was day {number}. The cat sat.\nNobody came.", "summary": "The cat sat.", **changes}


@pytest.fixture
def build(tmp_path):
    def make(rows, files=None, **source):
        path = tmp_path / "all.jsonl"
        lines = [each if isinstance(each, str) else json.dumps(each) for each in rows]
        path.write_text("\n".join(lines), encoding="utf-8")
        columns = {"document_column": "document", "summary_column": "summary"}
        source = {"path": str(tmp_path if files else path), **columns, **(files or {}), **source}
        made = finished_tasks.config_of("summarisation", source, max_length=64, dev_fraction=0.2, test_fraction=0.2)
        build_task("news", made, NO_PACKAGES, tmp_path / "out")
        return tmp_path / "out"

    return make


def all_rows(out):
    return [read_rows(out, split, SummaryRows) for split in ("train", "dev", "test")]


def test_a_text_is_split_into_sentences_and_those_of_the_summary_are_chosen(build):
    splits = all_rows(build([row(number) for number in range(30)]))
    assert sum(map(len, splits)) == 30 and all(len(rows) for rows in splits)
    for rows in splits:
        for sentences, chosen in zip(rows.sentences, rows.chosen, strict=True):
            assert sentences[0].startswith("It was day") and sentences[1:] == ["The cat sat.", "Nobody came."]
            assert chosen == [0, 1, 0]


def test_equal_documents_are_never_split_and_repeats_of_scored_ones_are_dropped(build, tmp_path):
    rows = [row(number // 2) for number in range(60)]
    train, dev, test = all_rows(build(rows))
    documents = [{" ".join(sentences) for sentences in split.sentences} for split in (train, dev, test)]
    assert not documents[0] & documents[1] and not documents[0] & documents[2] and not documents[1] & documents[2]
    (tmp_path / "test.jsonl").write_text(json.dumps(row(3)))
    out = build(rows, files={"train_file": "all.jsonl", "dev_file": None, "test_file": "test.jsonl"})
    assert sum(read_task_manifest(out)["dropped"].values()) == 2


BAD = {
    "missing_column": ({"text": "x", "summary": "y"}, r"no column 'document'; the columns are 'text', 'summary'"),
    "empty_document": (row(0, document=" \n"), "the document in 'document' is empty"),
    "empty_summary": (row(0, summary=""), "the summary in 'summary' is empty"),
    "no_words": (row(0, summary="東京!"), "none of the letters a to z"),
    "mixed_list": (row(0, summary=["a", 1]), "neither a text nor a list of sentences"),
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_a_bad_row_is_named_with_file_and_line_or_left_out_and_counted(build, name):
    bad, message = BAD[name]
    rows = [row(0), bad, *(row(number) for number in range(1, 12))]
    with pytest.raises(DataError, match=rf"all\.jsonl:2.*{message}"):
        build(rows)
    out = build(rows, on_bad_row="skip")
    assert sum(map(len, all_rows(out))) == 12
    assert sum(read_task_manifest(out)["dropped"].values()) == 1
