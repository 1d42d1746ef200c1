"""A cross-encoder learns to order candidates; what the first stage missed counts; negatives are sampled."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

import search_inputs as inputs
import tiny
from bertline.finetuning.finetune import fine_tune
from bertline.foundation.errors import DataError
from bertline.kinds.base import HeadSettings, LossOptions
from bertline.kinds.registry import task_kind
from bertline.kinds.reranking import Reranking
from bertline.tasks.stored_rows import CandidateRows
from finished_tasks import config_of
from sweep_pieces import baselines_of


def rows(num_rows, seed=0):
    """Right candidates have words of the first half of the vocabulary, wrong ones of the second."""
    random = np.random.default_rng(seed)
    ids, queries, texts, relevances = [], [], [], []
    for row in range(num_rows):
        values = random.permutation([1, *(int(value) for value in random.integers(0, 2, 2)), 0, 0]).tolist()
        ids.append(f"q{row}")
        queries.append(f"word{random.integers(40)}")
        texts.append(
            [" ".join(f"word{word + 20 * (1 - value)}" for word in random.integers(0, 20, 4)) for value in values]
        )
        relevances.append(values)
    names = [[f"d{place}" for place in range(5)] for _ in range(num_rows)]
    scores = [[5.0, 4.0, 3.0, 2.0, 1.0]] * num_rows
    return CandidateRows(ids, queries, names, texts, relevances, scores, relevances)


def kind_of(**changes) -> Reranking:
    kind = task_kind(inputs.reranking(inputs.beir_source(""), **changes), [])
    assert isinstance(kind, Reranking)
    return kind


@pytest.mark.parametrize("num_negatives", [0, 1])
def test_it_learns_an_order_and_says_what_it_was_before(encoder, tokenizer, job_of, num_negatives):
    kind, train, dev = kind_of(num_negatives=num_negatives), rows(40), rows(20, seed=1)
    result = fine_tune(job_of(kind, encoder, train, dev, num_epochs=6))
    predictions = kind.predict(result.model, kind.encode(dev, tokenizer), tiny.machine())
    before = kind.details(dev, predictions, {})["before"]
    assert set(before) == set(result.dev.scores) == {"map", "mrr", "ndcg@10"}
    assert before["map"] < 0.8 < 0.95 < result.dev.scores["map"]
    assert not kind.is_degenerate(dev, predictions, {})


@pytest.mark.parametrize(("num_negatives", "expected"), [(0, 3), (1, 1), (2, 2), (9, 3)])
def test_each_epoch_has_all_right_candidates_and_so_many_wrong_ones(tokenizer, num_negatives, expected):
    kind = kind_of(num_negatives=num_negatives)
    texts = [["word1", "word2", "word3", "word4"], ["word5"], ["word6", "word7"]]
    relevances = [[0, 1, 0, 0], [2], [0, -1]]
    some = CandidateRows(["a", "b", "c"], ["word0"] * 3, texts, texts, relevances, relevances, relevances)
    batches = kind.training_batches(kind.encode(some, tokenizer), batch_size=2, seed=0)
    # Of the third question, which has no right candidate, all are taken only where all are asked for.
    wanted = 2 + expected + (2 if num_negatives == 0 else 0)
    drawn = set()
    for _ in range(5):
        found = list(batches)
        assert len(found) == len(batches)
        words = torch.cat([batch["input_ids"][:, 3] - 5 for batch in found]).tolist()
        labels = torch.cat([batch["relevant"] for batch in found]).tolist()
        assert len(words) == wanted
        assert {word for word, label in zip(words, labels, strict=True) if label == 1} == {2, 5}
        drawn.add(tuple(sorted(words)))
    assert (len(drawn) > 1) == (num_negatives in (1, 2))


def test_the_loss_is_binary_cross_entropy(encoder, tokenizer):
    kind = kind_of()
    model = kind.new_model(encoder, HeadSettings(dropout_prob=0.1, seed=0, attention="plain")).eval()
    batch = next(iter(kind.training_batches(kind.encode(rows(4), tokenizer), batch_size=8, seed=0)))
    logits = model(batch["input_ids"], batch["token_type_ids"], batch["attention_mask"])[:, 0]
    signs = batch["relevant"] * 2 - 1
    assert kind.loss(model, batch, LossOptions()).item() == pytest.approx(
        torch.log(1 + torch.exp(-signs * logits)).mean().item(), abs=1e-6
    )


def test_what_the_first_stage_missed_counts():
    kind = kind_of()
    some = CandidateRows(["q"], ["x"], [["a", "b"]], [["A", "B"]], [[0, 1]], [[2.0, 1.0]], [[0, 1, 1, 1]])
    predictions = [np.array([0.1, 0.9], dtype=np.float32)]
    ideal = 1 + 1 / math.log2(3) + 1 / 2
    assert kind.statistics(some, predictions, {})[0] == pytest.approx([1 / 3, 1.0, 1 / ideal])
    before = kind.details(some, predictions, {})["before"]
    assert before == pytest.approx({"map": 1 / 6, "mrr": 0.5, "ndcg@10": 1 / math.log2(3) / ideal})
    assert kind.table(some, predictions, {}).to_pylist() == [
        {"id": "q", "query": "x", "gold": "B", "predicted": "B", "score": pytest.approx(0.7109, abs=1e-4),
         "correct": pytest.approx(1 / 3)}
    ]  # fmt: skip
    first, learnt = baselines_of(kind, some, some, {"test": some})
    assert kind.scores(kind.statistics(some, first.predictions["test"], {})) == pytest.approx(before)
    assert (first.name, learnt.name) == ("bm25", "pair_features")


def test_the_pair_baseline_orders_candidates_by_what_they_share_with_the_query():
    random = np.random.default_rng(0)

    def made(num_queries):
        """The first stage puts the right candidate, which has two words of the query, last."""
        words = [["".join(random.choice(list("abcdefghij"), 6)) for _ in range(9)] for _ in range(num_queries)]
        ids = [str(query) for query in range(num_queries)]
        candidates = [[" ".join(row[4:6]), " ".join(row[6:8]), " ".join([row[8], *row[:2]])] for row in words]
        return CandidateRows(
            ids, [" ".join(row[:4]) for row in words], [["a", "b", "c"]] * num_queries, candidates,
            [[0, 0, 1]] * num_queries, [[3.0, 2.0, 1.0]] * num_queries, [[0, 0, 1]] * num_queries,
        )  # fmt: skip

    kind, train, test = kind_of(), made(40), made(20)
    first, learnt = baselines_of(kind, train, made(20), {"test": test})
    before, after = (kind.scores(kind.statistics(test, one.predictions["test"], {}))["mrr"] for one in (first, learnt))
    assert before == pytest.approx(1 / 3)
    assert after == 1.0


# Queries get their candidates: those that BM25 finds, or those that a table brings.


def answers_source(folder, **changes):
    files = {f"{split}_file": f"{split}.csv" for split in ("train", "dev", "test")}
    columns = {"query_column": "qtext", "text_column": "atext", "label_column": "label"}
    return config_of("reranking", {"path": str(folder), **files, **columns, **changes}).source


def write_answers(folder, split, rows, header="qtext,label,atext"):
    (folder / f"{split}.csv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")


@pytest.fixture
def answers(tmp_path):
    for split in ("train", "dev", "test"):
        write_answers(
            tmp_path, split, [f"who of {split} ?,0,a cat in {split}", f"who of {split} ?,1,who sat in {split}"]
        )
    return tmp_path


@pytest.fixture
def built():
    def make(source, **changes):
        return Reranking.build("rerank", inputs.reranking(source, **changes))

    return make


class TestAnswers:
    def test_the_rows_of_a_question_are_its_candidates(self, answers, built, tmp_path):
        write_answers(answers, "train", [
            'q one,0,"a, quoted ""word"""', "q two,1,yes", "q one,1,``not a quote'' here", "", '"q one",2,"two\nlines"',
        ])  # fmt: skip
        rows = built(answers_source(answers)).splits["train"]
        place = rows.queries.index("q one")
        assert rows.candidates[place] == ['a, quoted "word"', "``not a quote'' here", "two lines"]
        assert rows.relevances[place] == rows.all_relevances[place] == [0, 1, 2]
        assert rows.candidate_ids[place] == ["train.csv:2", "train.csv:4", "train.csv:6"]
        assert rows.ids[place] == "train.csv:2"

    def test_questions_without_a_right_answer_are_counted_and_those_without_a_wrong_one_stay(self, answers, built):
        write_answers(answers, "test", ["a,0,x", "a,0,y", "b,1,x", "c,1,x", "c,0,y"])
        task = built(answers_source(answers))
        assert task.splits["test"].queries == ["b", "c"]
        assert task.dropped["question_without_right_answer"] == 1

    def test_a_question_of_the_test_is_not_trained_on(self, answers, built):
        write_answers(answers, "train", ["WHO of  test ?,1,x", "other,1,y", "other,0,z"])
        task = built(answers_source(answers))
        assert task.splits["train"].queries == ["other"]
        assert task.dropped["train_question_also_in_dev_or_test"] == 1

    @pytest.mark.parametrize(
        ("row", "reason", "message"),
        [
            ("q,1,", "empty_text", r"dev\.csv:4: the text in column 'atext' is empty"),
            ("q,yes,x", "bad_label", r"dev\.csv:4: the label is 'yes'"),
            ("q,1", "wrong_width", r"dev\.csv:4: 2 fields, the header .* has 3"),
        ],
    )
    def test_bad_rows_are_errors_with_their_line_or_are_counted(self, answers, built, row, reason, message):
        with (answers / "dev.csv").open("a") as handle:
            handle.write(row + "\n")
        with pytest.raises(DataError, match=message):
            built(answers_source(answers))
        assert built(answers_source(answers, on_bad_row="skip")).dropped[reason] == 1


class TestCollections:
    def write(self, folder):
        """Every query shares a word with documents 1 to 3; 4 is relevant to all and shares none."""
        inputs.write_beir(folder, judged={query: {"1": 1, "4": 2, "2": 0} for query in inputs.QUERIES})
        texts = {"1": "wings and more words", "2": "wings wings", "3": "wings", "4": "unlike"}
        records = [{"_id": each, "text": text} for each, text in texts.items()]
        (folder / "corpus.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        return inputs.beir_source(folder)

    def test_candidates_are_the_first_that_bm25_finds(self, tmp_path, built):
        rows = built(self.write(tmp_path)).splits["test"]
        assert all(ids == ["2", "3"] for ids in rows.candidate_ids)
        assert all(scores[0] > scores[1] > 0 for scores in rows.first_scores)
        assert all(values == [0, 0] for values in rows.relevances)
        # What the first stage missed counts against every order.
        rows = built(self.write(tmp_path), num_candidates=3).splits["dev"]
        assert sorted(rows.relevances[0]) == [0, 0, 1]
        assert sorted(rows.all_relevances[0]) == [0, 1, 2]
