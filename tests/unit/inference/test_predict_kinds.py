"""Files of every kind of task: columns in, columns out, and what is said of wrong ones."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertline.foundation.errors import DataError
from bertline.inference.model import LoadedModel
from bertline.inference.predict import DocumentsFile, FileColumns, predict_file
from finished_tasks import Finished, texts

Open = Callable[[str], LoadedModel]
Row = dict[str, Any]


@pytest.fixture
def open_model(open_task: Callable[[str], tuple[Finished, LoadedModel]]) -> Open:
    return lambda name: open_task(name)[1]


def write(path: Path, rows: list[Row]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.open()]


def predicted(model: LoadedModel, folder: Path, rows: list[Row], **options: Any) -> list[Row]:
    """Through .jsonl, and through .parquet and .csv as far as they can say the same."""
    predict_file(model, write(folder / "in.jsonl", rows), folder / "out.jsonl", **options)
    found = read(folder / "out.jsonl")
    pq.write_table(pa.Table.from_pylist(rows), folder / "in.parquet")
    predict_file(model, folder / "in.parquet", folder / "out.parquet", **options)
    assert pq.read_table(folder / "out.parquet").to_pylist() == found
    predict_file(model, folder / "in.jsonl", folder / "out.csv", **options)
    with (folder / "out.csv").open(newline="") as handle:
        for row, expected in zip(csv.DictReader(handle), found, strict=True):
            for name, value in expected.items():
                cell = json.loads(row[name]) if isinstance(value, list) else row[name]
                assert cell == (value if isinstance(value, list) else "" if value is None else str(value))
    return found


def test_pairs_and_numbers(open_model: Open, tmp_path: Path) -> None:
    model = open_model("cosine")
    rows = [{"a": first, "b": second} for first, second in zip(texts(4, seed=1), texts(4, seed=2), strict=True)]
    found = predicted(model, tmp_path, rows, columns=FileColumns(text="a", text_pair="b"))
    expected = model.predict([row["a"] for row in rows], [row["b"] for row in rows])
    np.testing.assert_allclose([row["predicted"] for row in found], expected, atol=1e-6)
    with pytest.raises(DataError, match="text_pair_column"):
        predict_file(model, tmp_path / "in.jsonl", tmp_path / "out.jsonl", columns=FileColumns(text="a"))


def test_entities_of_texts_and_of_words(open_model: Open, tmp_path: Path) -> None:
    model = open_model("softmax")
    given = texts(5, seed=3, most=20)
    for rows in ([{"text": text} for text in given], [{"text": text.split()} for text in given]):
        found = predicted(model, tmp_path, rows)
        entities = model.predict([row["text"] for row in rows])
        assert any(entities)
        for row, expected in zip(found, entities, strict=True):
            assert [(e["type"], e["text"], e["start"], e["end"]) for e in row["entities"]] == [e[:4] for e in expected]
    with pytest.raises(DataError, match=r"from .*in\.jsonl:1 on: texts\[1\]: word 1 of 1, '\\x07', has no token"):
        predicted(model, tmp_path, [{"text": "a"}, {"text": ["\x07"]}])


def test_answers_with_their_place(open_model: Open, tmp_path: Path) -> None:
    model = open_model("question_answering")
    pairs = zip(texts(6, seed=1), texts(6, seed=2, most=30), strict=True)
    rows = [{"q": question, "context": context, "n": 1} for question, context in pairs]
    found = predicted(model, tmp_path, rows, columns=FileColumns(question="q"))
    answers = model.predict([row["q"] for row in rows], [row["context"] for row in rows])
    assert [(row["answer"], row["answer_start"]) for row in found] == [(each.text, each.start) for each in answers]
    with pytest.raises(DataError, match=r"in\.jsonl:1: no column 'question'; found q, context, n"):
        predict_file(model, tmp_path / "in.jsonl", tmp_path / "out.jsonl")


def test_documents_from_a_file_of_their_own(open_model: Open, tmp_path: Path) -> None:
    model = open_model("retrieval")
    documents = [{"doc": f"d{n}", "title": "word3 -", "text": text} for n, text in enumerate(texts(9, seed=5))]
    write(tmp_path / "documents.jsonl", documents)
    rows = [{"query": text} for text in texts(3, seed=6)]
    file = DocumentsFile(path=tmp_path / "documents.jsonl", id_column="doc", top_k=4)
    found = predicted(model, tmp_path, rows, documents=file)
    renamed = [{"0": row["doc"], "1": row["title"], "2": row["text"]} for row in documents]  # numbers are names, too
    path = write(tmp_path / "renamed.jsonl", renamed)
    file = DocumentsFile(path=path, id_column=0, title_column=1, text_column=2, top_k=4)
    assert predicted(model, tmp_path, rows, documents=file) == found
    whole = [f"word3 - {row['text']}" for row in documents]
    for row, hits in zip(found, model.search([row["query"] for row in rows], whole, top_k=4), strict=True):
        assert row["document_ids"] == [f"d{hit.number}" for hit in hits]
        assert row["scores"] == pytest.approx([hit.score for hit in hits], abs=1e-5)

    (tmp_path / "plain.txt").write_text("word1\n\nword2 word3\n")  # a blank line is no document
    plain = DocumentsFile(path=tmp_path / "plain.txt", top_k=5)
    assert sorted(predicted(model, tmp_path, rows, documents=plain)[0]["document_ids"]) == ["0", "1"]


def test_candidates_in_a_list_or_as_json_in_a_field(open_model: Open, tmp_path: Path) -> None:
    model = open_model("reranking")
    rows = [{"query": "word1", "candidates": texts(4, seed=1)}, {"query": "word2", "candidates": ["word3"]}]
    found = predicted(model, tmp_path, rows)
    ranked = model.predict([row["query"] for row in rows], [row["candidates"] for row in rows])
    assert [row["order"] for row in found] == [[each.number for each in order] for order in ranked]
    with (tmp_path / "in.csv").open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerows([["query", "candidates"], *([r["query"], json.dumps(r["candidates"])] for r in rows)])
    predict_file(model, tmp_path / "in.csv", tmp_path / "out.jsonl")
    assert [row["order"] for row in read(tmp_path / "out.jsonl")] == [row["order"] for row in found]
    for wrong in ("not json", '{"a": 1}', "[1]"):
        write(tmp_path / "in.jsonl", [rows[0], {"query": "word1", "candidates": wrong}])
        with pytest.raises(DataError, match=r"in\.jsonl:2: column 'candidates' is .* expected a list of texts"):
            predict_file(model, tmp_path / "in.jsonl", tmp_path / "new.jsonl")


@pytest.mark.parametrize(
    ("name", "row", "cut"),
    [
        ("multi_label", {"text": "word1 " * 22}, 0),
        ("multi_label", {"text": "word1 " * 23}, 1),
        ("windows", {"text": "word1 " * 99}, 0),
        ("softmax", {"text": "word1 " * 99}, 0),
        ("question_answering", {"question": "word1 " * 9, "context": "word1 " * 99}, 1),
        ("reranking", {"query": "word1 " * 9, "candidates": ["word1 " * 12, "word1 " * 13]}, 1),
        ("cosine", {"text": "word1 " * 22, "pair": "word1 " * 23}, 1),
        ("summarisation", {"text": ["word1 " * 22, "word2 " * 22, "word3 " * 22]}, 0),
        ("summarisation", {"text": ["word1 " * 23, "word2", "word3 " * 30]}, 1),
    ],
)
def test_inputs_that_lose_tokens_are_counted(open_model: Open, tmp_path: Path, name: str, row: Row, cut: int) -> None:
    columns = FileColumns(text_pair="pair" if "pair" in row else None)
    done = predict_file(open_model(name), write(tmp_path / "in.jsonl", [row]), tmp_path / "out.jsonl", columns=columns)
    assert done.num_truncated == cut
