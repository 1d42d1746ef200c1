"""SQuAD files: read, mended or refused, and split by article."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tiny
from bertline.foundation.errors import DataError
from bertline.kinds.question_answering import QuestionAnsweringTaskConfig, read_squad
from bertline.tasks.bad_rows import BadRows
from bertline.tasks.build import build_task
from bertline.tasks.source_config import SquadSourceConfig
from bertline.tasks.stored_rows import QuestionRows, read_rows, read_task_manifest

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
def build(tmp_path, python_docs):
    def make(*articles, content=None, path=None, **source):
        if path is None:
            path = tmp_path / "all.json"
            path.write_text(json.dumps({"version": "1.1", "data": articles}) if content is None else content)
        fields = {
            "kind": "squad", "path": str(path), "train_file": None, "dev_file": None, "test_file": None,
            "on_bad_row": "error",
        }  # fmt: skip
        rest = {key: value for key, value in source.items() if key not in fields}
        fields.update({key: value for key, value in source.items() if key in fields})
        config = QuestionAnsweringTaskConfig(
            kind="question_answering", source=SquadSourceConfig(**fields), metric="f1", window_overlap=16,
            max_question_length=16, max_answer_length=10,
            **tiny.task_fields(max_length=64, dev_fraction=0.2, test_fraction=0.2, split_seed=0, **rest),
        )  # fmt: skip
        build_task("pets", config, python_docs, tmp_path / "out")
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
    "moved": (qa(start=3), r"'The dog' should stand at answer_start 3.*it stands at 24"),
    "nowhere": (qa(text="the bird"), r"stands nowhere in the context"),
    "negative": (qa(text="barked.", start=-7), r"places count from 0"),
    "beyond": (qa(start=4000), r"it stands at 24"),
    "empty_question": (qa(question=" "), r"question is empty"),
    "empty_answer": (qa(text="", start=0), r"an answer is empty"),
    "no_start": ({"id": "q1", "question": "?", "answers": [{"text": "cat"}]}, r'lacks "text" or "answer_start"'),
    "no_question": ({"id": "q1", "answers": []}, r'no "question"'),
    "no_answers": ({"id": "q1", "question": "?"}, r'no list "answers"'),
    "not_marked": ({"id": "q1", "question": "?", "answers": []}, r"not marked is_impossible"),
    "marked": (qa(is_impossible=True), r"has answers all the same"),
    "half_question": (qa(question="\udc00?"), r"it has '.udc00', which is half of a character"),
    "half_answer": (qa(text="The \ud800dog"), r"it has '.ud800', which is half of a character"),
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_a_bad_question_is_named_with_file_article_and_id(build, name):
    bad, message = BAD[name]
    with pytest.raises(DataError, match=rf"all\.json, article 'Pets', question 'q1': .*{message}.*on_bad_row"):
        build(*many_articles(5), article(bad))


@pytest.mark.parametrize("name", sorted(set(BAD) - {"moved", "beyond"}))
def test_a_bad_question_is_left_out_and_counted_where_that_is_wanted(build, name):
    out = build(*many_articles(5), article(BAD[name][0]), on_bad_row="skip")
    assert "q1" not in [identity for rows in all_rows(out) for identity in rows.ids]
    assert sum(read_task_manifest(out)["dropped"].values()) == 1


def test_an_answer_that_stands_in_one_other_place_is_moved_there_and_counted(build):
    out = build(*many_articles(5), article(qa(start=3)), on_bad_row="skip")
    [(context, answers, starts)] = [
        row for rows in all_rows(out) for row in zip(rows.contexts, rows.answers, rows.starts, strict=True)
        if "day" not in row[0]
    ]  # fmt: skip
    assert context[starts[0] :].startswith(answers[0])
    assert read_task_manifest(out)["dropped"] == {"answer_moved": 1}


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
    source = SquadSourceConfig(
        kind="squad", path="", train_file=None, dev_file=None, test_file=None, on_bad_row="error"
    )
    read, expected = (read_squad(each, source, BadRows("error")) for each in (path, tmp_path / "articles.json"))
    assert read == expected and len(read) == 8
