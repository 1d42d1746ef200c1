"""Queries get their candidates: those that BM25 finds, or those that a table brings."""

from __future__ import annotations

import json

import pytest

import search_inputs as inputs
from bertline.foundation.errors import DataError
from bertline.kinds.reranking import Reranking
from bertline.tasks.source_config import AnswersSourceConfig


def answers_source(folder, **changes):
    fields = {
        "kind": "answers", "path": str(folder), "train_file": "train.csv", "dev_file": "dev.csv",
        "test_file": "test.csv", "query_column": "qtext", "text_column": "atext", "label_column": "label",
        "quoting": True, "encoding": "utf-8", "on_bad_row": "error",
    }  # fmt: skip
    return AnswersSourceConfig(**{**fields, **changes})


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
        assert task.more["questions_with_right_answers_only"] == {"train": 0, "dev": 0, "test": 1}

    def test_a_question_of_the_test_is_not_trained_on(self, answers, built):
        write_answers(answers, "train", ["WHO of  test ?,1,x", "other,1,y", "other,0,z"])
        task = built(answers_source(answers))
        assert task.splits["train"].queries == ["other"]
        assert task.dropped["train_question_also_in_dev_or_test"] == 1

    @pytest.mark.parametrize(
        ("row", "reason", "message"),
        [
            ("q,1,", "empty_text", r"dev\.csv:4: the text in column 'atext' is empty"),
            (" ,1,x", "empty_text", r"dev\.csv:4: the text in column 'qtext' is empty"),
            ("q,yes,x", "bad_label", r"dev\.csv:4: the label is 'yes'"),
            ("q,,x", "bad_label", r"dev\.csv:4: the label is ''"),
            ("q,1,x,y", "too_many_fields", r"dev\.csv:4 has 4 fields, the header has 3"),
            ("q,1", "too_few_fields", r"dev\.csv:4 has 2 fields, the header has 3"),
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

    def test_what_the_first_stage_missed_counts_against_every_order(self, tmp_path, built):
        rows = built(self.write(tmp_path), num_candidates=3).splits["dev"]
        assert sorted(rows.relevances[0]) == [0, 0, 1]
        assert sorted(rows.all_relevances[0]) == [0, 1, 2]
