"""SQuAD files: read, mended or refused, and split by article."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertline.foundation.errors import DataError
from bertline.kinds.question_answering.config import QuestionAnsweringTaskConfig
from bertline.kinds.question_answering.data import read_squad
from bertline.tasks.bad_rows import BadRows
from bertline.tasks.build import build_task
from bertline.tasks.source_config import SquadSourceConfig
from bertline.tasks.stored_rows import QuestionRows, read_rows, read_task_manifest

CONTEXT = "The cat sat on the mat. The dog barked."
SHARE = Path(__file__).parents[4] / "shared" / "data" / "tasks" / "squad_share" / "squad-v1.1-dev-32articles.json"


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
            kind="question_answering", source=SquadSourceConfig(**fields), metric="f1", max_length=64,
            window_overlap=16, max_question_length=16, max_answer_length=10, start_from=None, num_trials=None,
            space={}, fine_tuning={}, **{
                "num_train_rows": None, "label_efficiency_rows": (),
                "max_dev_rows": None, "max_test_rows": None, "dev_fraction": 0.2, "test_fraction": 0.2,
                "split_seed": 0, **rest,
            },
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


def test_the_side_of_an_article_does_not_depend_on_the_others(build):
    before = set(all_rows(build(*many_articles(40)))[2].titles)
    after = set(all_rows(build(*many_articles(60)))[2].titles)
    assert before <= after


def test_three_articles_are_enough_for_three_splits(build):
    assert all(len(rows) for rows in all_rows(build(*many_articles(3), dev_fraction=0.01, test_fraction=0.01)))


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


def test_train_is_in_a_random_order_and_its_first_rows_are_kept(build):
    everything = all_rows(build(*many_articles(40)))[0].ids
    assert everything != sorted(everything)
    assert all_rows(build(*many_articles(40), num_train_rows=5, label_efficiency_rows=(8,)))[0].ids == everything[:8]


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


def test_a_zipped_file_with_a_byte_order_mark_is_read(build, tmp_path):
    path = tmp_path / "all.json.gz"
    path.write_bytes(gzip.compress(("\ufeff" + json.dumps({"data": many_articles(10)})).encode()))
    assert sum(map(len, all_rows(build(path=path)))) == 20


def test_articles_without_a_title_are_told_apart_by_their_number(build):
    untitled = [{"paragraphs": each["paragraphs"]} for each in many_articles(20)]
    train, dev, test = all_rows(build(*untitled))
    assert len(set(train.titles) | set(dev.titles) | set(test.titles)) == 20


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


def test_an_answer_that_stands_in_two_other_places_is_not_guessed(build):
    out = build(*many_articles(5), article(qa(text="The", start=2)), on_bad_row="skip")
    assert read_task_manifest(out)["dropped"] == {"answer_not_in_context": 1}


def test_an_empty_context_and_a_repeated_id_are_found(build):
    with pytest.raises(DataError, match="context is empty"):
        build(*many_articles(5), article(qa(), context="\n"))
    with pytest.raises(DataError, match="the same id"):
        build(*many_articles(5), article(qa("1a")))
    assert read_task_manifest(build(*many_articles(5), article(qa("1a")), on_bad_row="skip"))["dropped"] == {
        "duplicate_id": 1
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"data": [\n  {,}]}', r"all\.json:2:4 is not JSON"),
        ("[]", r'no list "data"'),
        ('{"data": [{"title": "Pets"}]}', r'article \'Pets\': expected a list "paragraphs"'),
        ('{"data": [{"title": "Pets", "paragraphs": [{"context": "x"}]}]}', r'a paragraph: expected a list "qas"'),
    ],
    ids=["torn", "list", "no_paragraphs", "no_questions"],
)
def test_a_file_that_is_no_squad_file_is_refused_even_where_bad_questions_are_left_out(build, content, message):
    with pytest.raises(DataError, match=message):
        build(content=content, on_bad_row="skip")


def test_bytes_that_are_no_text_are_named_by_line(build, tmp_path):
    path = tmp_path / "latin.json"
    path.write_bytes('{"data":\n "é"}'.encode("latin-1"))
    with pytest.raises(DataError, match=r"latin\.json:2 is not text in utf-8\. Save the file"):
        build(path=path)
    torn = tmp_path / "torn.json.gz"
    torn.write_bytes(gzip.compress(b"{}")[:-4])
    with pytest.raises(DataError, match=r"torn\.json\.gz is not a whole gzip file"):
        build(path=torn)
    whole = gzip.compress(json.dumps({"data": many_articles(5)}).encode())
    torn.write_bytes(whole[:10] + b"\xff" + whole[11:])
    with pytest.raises(DataError, match=r"torn\.json\.gz is not a whole gzip file"):
        build(path=torn)


def test_missing_files_are_named_with_what_is_there(build, tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        build(path=tmp_path / "nowhere")
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "train-v2.0.json").write_text("{}")
    with pytest.raises(DataError, match=r"name its source\.train_file\. It holds train-v2\.0\.json"):
        build(path=folder)
    with pytest.raises(DataError, match=r"train-v1\.1\.json .*does not exist.*train-v2\.0\.json"):
        build(path=folder, train_file="train-v1.1.json")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"window_overlap": 45}, "room for 45 tokens"),
        ({"max_answer_length": 0}, "max_answer_length must be at least 1"),
    ],
    ids=["overlap", "answer"],
)
def test_windows_must_move_on(changes, message):
    fields = {
        "kind": "question_answering", "metric": "f1", "max_length": 64, "window_overlap": 16, "max_question_length": 16,
        "max_answer_length": 10, "start_from": None, "num_trials": None, "space": {}, "fine_tuning": {},
        "num_train_rows": None, "label_efficiency_rows": (),
        "max_dev_rows": None, "max_test_rows": None, "dev_fraction": 0.2, "test_fraction": 0.2, "split_seed": 0,
        "source": None,
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        QuestionAnsweringTaskConfig(**{**fields, **changes})


@pytest.mark.shared_data
@pytest.mark.skipif(not SHARE.is_file(), reason=f"the public data set is not at {SHARE}")
def test_the_public_file_is_read_whole(build):
    out = build(path=SHARE)
    rows = all_rows(out)
    assert sum(map(len, rows)) == 7595
    assert len({title for split in rows for title in split.titles}) == 32
    for split in rows:
        for context, answers, starts in zip(split.contexts, split.answers, split.starts, strict=True):
            assert all(context.startswith(text, start) for text, start in zip(answers, starts, strict=True))


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
    read, expected = (read_squad(each, BadRows("error"), may_move=False) for each in (path, tmp_path / "articles.json"))
    assert read == expected and len(read) == 8


def test_a_file_of_questions_names_what_is_wrong_by_its_line(tmp_path):
    row = {"context": CONTEXT, "question": "Who barked?", "answers": {"text": ["The dog"], "answer_start": [24]}}
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row | more) + "\n" for more in ({}, {"context": CONTEXT + " Once."}, {})))
    found = read_squad(path, BadRows("error"), may_move=False)
    assert [(each.id, each.title) for each in found] == [
        ("rows.jsonl:1", "context 1"), ("rows.jsonl:2", "context 2"), ("rows.jsonl:3", "context 1"),
    ]  # fmt: skip
    wrong = [{"answers": {"text": ["The dog"], "answer_start": []}}, {"answers": None}, {"question": None}]
    for more, says in zip(wrong, ["lacks .*answer_start", "no list .*answers", "no .*question"], strict=True):
        path.write_text(json.dumps(row) + "\n" + json.dumps(row | more) + "\n")
        with pytest.raises(DataError, match=rf"rows\.jsonl:2, question .*{says}"):
            read_squad(path, BadRows("error"), may_move=False)
