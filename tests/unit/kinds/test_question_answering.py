"""Windows, labels, the best span, the no-answer threshold: and a small model that learns to answer."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import finished_tasks
import tiny
from bertline.baselines.base import BaselineInputs
from bertline.finetuning.finetune import fine_tune
from bertline.foundation.bad_rows import BadRows
from bertline.foundation.errors import DataError
from bertline.kinds.base import LossOptions
from bertline.kinds.build import build_task
from bertline.kinds.question_answering import (
    NO_ANSWER_THRESHOLD,
    NO_SPAN,
    AnswerPredictions,
    QuestionAnswering,
    best_spans,
    given_answers,
    read_squad,
    windows_of,
)
from bertline.modeling.heads import AnswerLogits
from bertline.tasks.stored_rows import QuestionRows, read_rows, read_task_manifest
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from corpora import NO_PACKAGES

LETTERS = "abcdefghij"
TOKENIZER = Tokenizer(
    Vocabulary(
        tokens=(*SPECIAL_TOKENS, *LETTERS, *(f"##{letter}" for letter in LETTERS), "cafe", "東", "."), lowercase=True
    )
)


def config(**changes):
    lengths = {"max_length": 64, "window_overlap": 8, "max_question_length": 6, "max_answer_length": 4}
    return finished_tasks.config_of("question_answering", **{**lengths, **changes})


def rows_of(*triples):
    """Of (question, context, answer or None)."""
    questions, contexts, answers = (list(column) for column in zip(*triples, strict=True))
    return QuestionRows(
        ids=[str(number) for number in range(len(questions))],
        titles=["title"] * len(questions),
        questions=questions,
        contexts=contexts,
        answers=[[] if answer is None else [answer] for answer in answers],
        starts=[[] if right is None else [text.index(right)] for text, right in zip(contexts, answers, strict=True)],
    )


class LooksUp(nn.Module):
    """Logits that depend on nothing but the token at a position."""

    def __init__(self, seed=0, **raised):
        super().__init__()
        self.table = torch.randn(len(TOKENIZER.vocab), 2, generator=torch.Generator().manual_seed(seed))
        for letter, value in raised.items():
            self.table[TOKENIZER.vocab.index(letter)] = value

    def forward(self, input_ids, token_type_ids, attention_mask):
        return AnswerLogits(*self.table[input_ids].unbind(-1))


# ---- windows


def reference_windows(num_tokens, room, stride):
    """The loop of run_squad.py."""
    spans, start = [], 0
    while start < num_tokens:
        length = min(num_tokens - start, room)
        spans.append((start, length))
        if start + length == num_tokens:
            break
        start += min(length, stride)
    return spans


def reference_is_best(spans, number, position):
    """Whether no other window has more context around the token (`_check_is_max_context`)."""
    best_score, best = None, None
    for each, (start, length) in enumerate(spans):
        end = start + length - 1
        if not start <= position <= end:
            continue
        score = min(position - start, end - position) + 0.01 * length
        if best_score is None or score > best_score:
            best_score, best = score, each
    return best == number


@given(num_tokens=st.integers(1, 90), room=st.integers(2, 30), data=st.data())
def test_windows_are_those_of_the_reference_code(num_tokens, room, data):
    overlap = data.draw(st.integers(0, room - 1))
    windows = windows_of(num_tokens, room, overlap)
    spans = reference_windows(num_tokens, room, room - overlap)
    assert [(first, stop - first) for first, stop, _, _ in windows.tolist()] == spans
    for number, (_, _, best_first, best_stop) in enumerate(windows.tolist()):
        best = [token for token in range(num_tokens) if reference_is_best(spans, number, token)]
        assert list(range(best_first, best_stop)) == best


def test_a_window_is_laid_out_as_bert_does_and_long_questions_are_cut():
    kind = QuestionAnswering(config(max_question_length=3), ())
    encoded = kind.encode(rows_of(("a b", "c d e", "d"), ("a b c d e f g", "j", None)), TOKENIZER)
    batch = encoded.batch(np.arange(2))
    tokens = [[TOKENIZER.vocab[token] for token in ids] for ids in batch["input_ids"].tolist()]
    assert tokens[0] == ["[CLS]", "a", "b", "[SEP]", "c", "d", "e", "[SEP]"]
    assert tokens[1] == ["[CLS]", "a", "b", "c", "[SEP]", "j", "[SEP]", "[PAD]"]
    assert batch["token_type_ids"].tolist() == [[0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 0, 1, 1, 0]]
    assert batch["attention_mask"].sum(1).tolist() == encoded.sequences.lengths.tolist() == [8, 7]
    assert batch["in_context"].nonzero().tolist() == [[0, 4], [0, 5], [0, 6], [1, 5]]
    assert batch["labels"].tolist() == [[5, 5], [0, 0]]


words = st.lists(
    st.sampled_from(["a", "Cafe", "Café", "CAFE\u0301", "abc", "東東", "b.", "J", "\u200b"]), min_size=1, max_size=40
)


@given(parts=words, data=st.data())
def test_labels_point_at_the_answer_and_nowhere_else(parts, data):
    context = " ".join(parts)
    first = data.draw(st.integers(0, len(parts) - 1))
    last = data.draw(st.integers(first, min(first + 3, len(parts) - 1)))
    start = len(" ".join([*parts[:first], ""])) if first else 0
    answer = " ".join(parts[first : last + 1])
    rows = QuestionRows(["0"], ["t"], ["a"], [context], [[answer]], [[start]])
    encoded = QuestionAnswering(config(max_length=24), ()).encode(rows, TOKENIZER)
    wanted = TOKENIZER.encode_literally([answer])[0]
    batch = encoded.batch(np.arange(len(encoded.rows)))
    for ids, (begin, end) in zip(batch["input_ids"].tolist(), batch["labels"].tolist(), strict=True):
        if not wanted:
            assert (begin, end) == (-1, -1)
        elif begin:
            assert ids[begin : end + 1] == wanted
    holds = [begin > 0 for begin, _ in batch["labels"].tolist()]
    assert any(holds) == bool(wanted) or len(wanted) > 8  # longer than the overlap, it may stand in no window whole


# ---- the best span


def brute_force(start, end, in_context, may_start, max_length):
    best = (NO_SPAN, None)
    for first in range(len(start)):
        for last in range(first, min(first + max_length, len(start))):
            if in_context[first] and in_context[last] and may_start[0] <= first < may_start[1]:
                score = start[first] + end[last]
                best = max(best, (score, (first, last)), key=lambda each: each[0])
    return best


@given(
    logits=st.lists(st.tuples(st.integers(-6, 6), st.integers(-6, 6)), min_size=4, max_size=14),
    max_length=st.integers(1, 6),
    data=st.data(),
)
def test_the_best_span_is_that_of_trying_all(logits, max_length, data):
    size = len(logits)
    first = data.draw(st.integers(1, size - 1))
    last = data.draw(st.integers(first, size))
    may_start = sorted(data.draw(st.tuples(st.integers(0, size), st.integers(0, size))))
    in_context = [first <= place < last for place in range(size)]
    start, end = (torch.tensor([column], dtype=torch.float32) for column in zip(*logits, strict=True))
    values, positions = best_spans(
        AnswerLogits(start, end), torch.tensor([in_context]), torch.tensor([may_start]), max_length=max_length
    )
    score, span = brute_force(start[0].tolist(), end[0].tolist(), in_context, may_start, max_length)
    assert values[0, 0] == score
    assert values[0, 1] == start[0, 0] + end[0, 0]
    if span is not None:
        found = positions[0].tolist()
        assert start[0, found[0]] + end[0, found[1]] == score and 0 <= found[1] - found[0] < max_length
        allowed = [0, *(place for place in range(size) if in_context[place])]
        probability = (
            start[0, allowed].softmax(0)[allowed.index(found[0])] * end[0, allowed].softmax(0)[allowed.index(found[1])]
        )
        torch.testing.assert_close(values[0, 2], probability)


contexts = st.lists(st.sampled_from(LETTERS), min_size=1, max_size=70).map(" ".join)


@settings(max_examples=40)
@given(contexts=st.lists(contexts, min_size=1, max_size=3), seed=st.integers(0, 99))
def test_windows_give_the_answer_that_the_whole_context_gives(contexts, seed):
    rows = rows_of(*[("a b", context, None) for context in contexts])
    model = LooksUp(seed)
    whole, windowed = (
        (kind := QuestionAnswering(config(max_length=length, window_overlap=10), ())).predict(
            model, kind.encode(rows, TOKENIZER), tiny.machine()
        )
        for length in (128, 25)
    )
    assert windowed.texts == whole.texts
    np.testing.assert_array_equal(windowed.starts, whole.starts)
    np.testing.assert_allclose(windowed.scores, whole.scores)
    np.testing.assert_allclose(windowed.null_scores, whole.null_scores)


# ---- loss


def test_the_loss_is_the_mean_cross_entropy_of_both_ends_over_cls_and_context():
    kind = QuestionAnswering(config(), ())
    rows = rows_of(("a b", "c d e", "d e"), ("a", "f g h i j", "j"), ("a b c", "d", None))
    batch = kind.encode(rows, TOKENIZER).batch(np.arange(3))
    model = LooksUp()
    logits = model(batch["input_ids"], None, None)
    expected = []
    for row in range(3):
        allowed = [0, *batch["in_context"][row].nonzero()[:, 0].tolist()]
        for side, label in zip(logits, batch["labels"][row].tolist(), strict=True):
            target = torch.tensor(allowed.index(label))
            expected.append(F.cross_entropy(side[row, allowed], target))
    loss = kind.loss(model, batch, LossOptions())
    torch.testing.assert_close(loss, torch.stack(expected).mean())


# ---- threshold, scores, table


def predictions_of(texts, margins):
    zeros = np.zeros(len(texts))
    return AnswerPredictions(texts, zeros.astype(np.int64), zeros, np.array(margins, dtype=float), zeros + 0.5)


def test_dev_decides_a_threshold_only_where_it_has_questions_without_an_answer():
    kind = QuestionAnswering(config(), ())
    answered = rows_of(("a", "b c", "b"), ("a", "b c", "c"))
    assert kind.calibrate(answered, predictions_of(["b", "c"], [5, 5])) == {}
    mixed = rows_of(("a", "b c", "b"), ("a", "b c", None), ("a", "b c", "c"))
    predictions = predictions_of(["b", "c", "b"], [-2.0, 1.0, 0.5])
    calibration = kind.calibrate(mixed, predictions)
    assert calibration == {NO_ANSWER_THRESHOLD: -2.0}
    assert given_answers(predictions, calibration) == ["b", "", ""]
    assert kind.scores(kind.statistics(mixed, predictions, calibration)) == pytest.approx({
        "f1": 2 / 3, "exact_match": 2 / 3, "has_answer_f1": 0.5, "has_answer_exact_match": 0.5,
        "no_answer_f1": 1.0, "no_answer_exact_match": 1.0,
    })  # fmt: skip


def test_baselines_answer_with_the_first_sentence_and_never_answer_only_where_that_can_be_right():
    answered = rows_of(("a", "  The cat sat. The dog did not.\nMore.", "cat"), ("a", "A title\nAnd text.", "title"))
    kind = QuestionAnswering(config(), ())
    [first] = kind.baselines(BaselineInputs(kind=kind, train=answered, dev=answered, tests={"test": answered}))
    assert first.predictions["test"].texts == ["The cat sat.", "A title"]
    assert first.predictions["dev"].starts.tolist() == [2, 0]
    mixed = rows_of(("a", "b c", "b"), ("a", "b c", None))
    _, never = kind.baselines(BaselineInputs(kind=kind, train=mixed, dev=mixed, tests={"test": mixed}))
    assert never.name == "no_answer"
    assert kind.scores(kind.statistics(mixed, never.predictions["test"], {}))["no_answer_f1"] == 1.0


# ---- training


def learnable(num_rows, *, seed):
    """The answer is the word that is from the second half of the vocabulary; some contexts have none."""
    random = np.random.default_rng(seed)

    def row():
        context = [tiny.WORDS[number] for number in random.integers(0, 20, random.integers(3, 24))]
        answer = None
        if random.random() < 0.6:
            answer = tiny.WORDS[random.integers(20, 40)]
            context.insert(int(random.integers(0, len(context))), answer)
        return tiny.WORDS[random.integers(0, 20)], " ".join(context), answer

    return rows_of(*[row() for _ in range(num_rows)])


def test_a_small_model_learns_to_answer_and_where_there_is_no_answer(encoder, job_of):
    kind = QuestionAnswering(config(max_length=20, window_overlap=6, max_question_length=2), ())
    train, dev = (learnable(num_rows, seed=num_rows) for num_rows in (192, 64))
    result = fine_tune(job_of(kind, encoder, train, dev, num_epochs=5, learning_rate=1e-2, dropout_prob=0.0))
    assert NO_ANSWER_THRESHOLD in result.dev.calibration
    assert all(result.dev.scores[name] > 0.8 for name in ("has_answer_f1", "no_answer_f1"))


# SQuAD files: read, mended or refused, and split by article.


CONTEXT = "The cat sat on the mat. The dog barked."


def qa(identity="q1", question="Who barked?", text="The dog", start=24, **more):
    return {"id": identity, "question": question, "answers": [{"text": text, "answer_start": start}], **more}


def article(*qas, title="Pets", context=CONTEXT):
    return {"title": title, "paragraphs": [{"context": context, "qas": list(qas)}]}


def many_articles(count, **more):
    """Each with a context of its own and two questions."""
    return [
        article(qa(f"{n}a", **more), qa(f"{n}b", **more), title=f"Title {n}", context=f"{CONTEXT} It was day {n}.")
        for n in range(count)
    ]


@pytest.fixture
def build(tmp_path):
    def make(*articles, path=None, **source):
        if path is None:
            path = tmp_path / "all.json"
            path.write_text(json.dumps({"version": "1.1", "data": articles}))
        made = config(source=replace(config().source, path=str(path), **source), dev_fraction=0.2, test_fraction=0.2)
        build_task("pets", made, NO_PACKAGES, tmp_path / "out")
        return tmp_path / "out"

    return make


def all_rows(out):
    return [read_rows(out, split, QuestionRows) for split in ("train", "dev", "test")]


def test_no_article_and_no_context_stands_in_two_splits(build):
    train, dev, test = all_rows(build(*many_articles(40)))
    assert len(train) + len(dev) + len(test) == 80
    assert 40 <= len(train) < 80
    for one, other in ((train, dev), (train, test), (dev, test)):
        assert not set(one.titles) & set(other.titles)
        assert not set(one.contexts) & set(other.contexts)


def test_a_context_that_also_stands_in_the_test_file_is_not_trained_on(build, tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "train.json").write_text(json.dumps({"data": many_articles(20)}))
    repeated = article(
        qa("new"), title="Other title", context=f"{CONTEXT.upper()}  It was day 3.".replace("THE DOG", "The dog")
    )
    (folder / "dev.json").write_text(json.dumps({"data": [repeated]}))
    out = build(path=folder, train_file="train.json", test_file="dev.json")
    train, dev, test = all_rows(out)
    assert test.ids == ["new"]
    assert {"3a", "3b"}.isdisjoint([*train.ids, *dev.ids])
    dropped = read_task_manifest(out)["dropped"]
    assert sum(dropped.values()) == 2
    assert set(dropped) <= {"train_context_also_in_dev_or_test", "dev_context_also_in_test"}


def test_questions_without_an_answer_are_kept_and_counted(build):
    impossible = [
        article({"id": f"{n}", "question": "Why?", "answers": [], "is_impossible": True,
                 "plausible_answers": [{"text": "cat", "answer_start": 4}]}, title=f"T{n}", context=f"{CONTEXT} {n}")
        for n in range(20)
    ]  # fmt: skip
    out = build(*impossible, *many_articles(20, is_impossible=False))
    counts = read_task_manifest(out)["without_answer"]
    assert sum(counts.values()) == 20
    assert counts["train"] == sum(not answers for answers in all_rows(out)[0].answers)


BAD = {
    "moved": (qa(start=3), r"'The dog' should stand at answer_start 3, where the context has ' cat sa'"),
    "empty_answer": (qa(text="", start=0), r"an answer is empty"),
    "no_start": ({"id": "q1", "question": "?", "answers": [{"text": "cat"}]}, r'lacks "text" or "answer_start"'),
    "not_marked": ({"id": "q1", "question": "?", "answers": []}, r"not marked is_impossible"),
    "marked": (qa(is_impossible=True), r"has answers all the same"),
    "half_answer": (qa(text="The \ud800dog"), r"it has '.ud800', which is half of a character"),
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_a_bad_question_is_named_with_file_article_and_id_or_left_out_and_counted(build, name):
    bad, message = BAD[name]
    with pytest.raises(DataError, match=rf"all\.json, article 'Pets', question 'q1': .*{message}.*on_bad_row"):
        build(*many_articles(5), article(bad))
    out = build(*many_articles(5), article(bad), on_bad_row="skip")
    assert "q1" not in [identity for rows in all_rows(out) for identity in rows.ids]
    assert sum(read_task_manifest(out)["dropped"].values()) == 1


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_file_of_questions_is_read_as_one_of_articles(tmp_path, ending):
    """`datasets` writes one question a row, with the answers of each as two lists."""
    articles = many_articles(4)
    articles[0]["paragraphs"][0]["qas"][0] |= {"answers": [], "is_impossible": True}
    (tmp_path / "articles.json").write_text(json.dumps({"data": articles}))
    rows = [
        {
            "id": one["id"], "title": each["title"], "context": paragraph["context"], "question": one["question"],
            "answers": {key: [answer[key] for answer in one["answers"]] for key in ("text", "answer_start")},
        }
        for each in articles for paragraph in each["paragraphs"] for one in paragraph["qas"]
    ]  # fmt: skip
    path = tmp_path / f"rows.{ending}"
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    read, expected = (read_squad(each, None, BadRows("error")) for each in (path, tmp_path / "articles.json"))
    assert read == expected and len(read) == 8
