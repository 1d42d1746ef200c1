"""Files of every kind of task: columns in, columns out, and what is said of wrong ones."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bertline
from bertline.finetuning.encoding import Sequences
from bertline.foundation.errors import DataError
from bertline.inference.growing_file import GrowingFile
from bertline.inference.model import LoadedModel
from bertline.inference.predict import DocumentsFile, FileColumns, predict_file
from bertline.inference.row_files import PLAIN_LAYOUT
from bertline.kinds.retrieval.model import Retrieval
from bertline.kinds.retrieval.serving import RetrievalPredictor
from bertline.tasks.stored_rows import Documents, QueryRows
from bertline.tasks.table_files import TableLayout
from finished_tasks import Finished, finish, texts

Open = Callable[[str], LoadedModel]
Row = dict[str, Any]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Finished]:
    made: dict[str, Finished] = {}

    def get(name: str) -> Finished:
        if name not in made:
            made[name] = finish(name, tmp_path_factory.mktemp(name))
        return made[name]

    return get


@pytest.fixture(scope="module")
def open_model(finished: Callable[[str], Finished]) -> Open:
    opened: dict[str, LoadedModel] = {}

    def get(name: str) -> LoadedModel:
        if name not in opened:
            opened[name] = bertline.load(str(finished(name).folder), device="cpu")
        return opened[name]

    return get


def write(path: Path, rows: list[Row]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def predicted(model: LoadedModel, folder: Path, rows: list[Row], **options: Any) -> list[Row]:
    """Through .jsonl, and through .parquet and .csv as far as they can say the same."""
    predict_file(model, write(folder / "in.jsonl", rows), folder / "out.jsonl", **options)
    found = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    pq.write_table(pa.Table.from_pylist(rows), folder / "in.parquet")
    predict_file(model, folder / "in.parquet", folder / "out.parquet", **options)
    assert pq.read_table(folder / "out.parquet").to_pylist() == found
    predict_file(model, folder / "in.jsonl", folder / "out.csv", **options)
    with (folder / "out.csv").open(newline="") as handle:
        for row, expected in zip(csv.DictReader(handle), found, strict=True):
            for name, value in expected.items():
                read = json.loads(row[name]) if isinstance(value, list) else row[name]
                assert read == (value if isinstance(value, list) else "" if value is None else str(value))
    return found


def test_pairs_and_numbers(open_model: Open, tmp_path: Path) -> None:
    model = open_model("cosine")
    rows = [{"a": first, "b": second} for first, second in zip(texts(4, seed=1), texts(4, seed=2), strict=True)]
    found = predicted(model, tmp_path, rows, columns=FileColumns(text="a", text_pair="b"))
    expected = model.predict([row["a"] for row in rows], [row["b"] for row in rows])
    np.testing.assert_allclose([row["predicted"] for row in found], expected, atol=1e-6)
    with pytest.raises(DataError, match="text_pair_column"):
        predict_file(model, tmp_path / "in.jsonl", tmp_path / "out.jsonl", columns=FileColumns(text="a"))


def test_several_labels(open_model: Open, tmp_path: Path) -> None:
    model = open_model("multi_label")
    rows = [{"text": text} for text in texts(6, seed=1)]
    found = predicted(model, tmp_path, rows)
    for row, expected in zip(found, model.predict([row["text"] for row in rows]), strict=True):
        assert row["predicted"] == list(expected.labels)
        assert row["probability"] == pytest.approx([expected.probabilities[x] for x in expected.labels], abs=1e-6)


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
    rows = [
        {"q": question, "context": context, "n": 1}
        for question, context in zip(texts(6, seed=1), texts(6, seed=2, most=30), strict=True)
    ]
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
    whole = [f"word3 - {row['text']}" for row in documents]
    for row, hits in zip(found, model.search([row["query"] for row in rows], whole, top_k=4), strict=True):
        assert row["document_ids"] == [f"d{hit.number}" for hit in hits]
        assert row["scores"] == pytest.approx([hit.score for hit in hits], abs=1e-5)

    (tmp_path / "plain.txt").write_text("word1\n\nword2 word3\n")  # a blank line is no document
    predict_file(
        model,
        write(tmp_path / "in.jsonl", rows),
        tmp_path / "out.jsonl",
        documents=DocumentsFile(path=tmp_path / "plain.txt", top_k=5),
    )
    first = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])
    assert sorted(first["document_ids"]) == ["0", "1"]


def test_documents_are_neither_overwritten_nor_changed_for_others_on_the_way(
    open_model: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, source = open_model("retrieval"), write(tmp_path / "in.jsonl", [{"query": "word1"}, {"query": "word2"}])
    file = DocumentsFile(path=write(tmp_path / "documents.jsonl", [{"text": "word1"}]))
    with pytest.raises(DataError, match=r"documents\.jsonl is the documents itself"):
        predict_file(model, source, file.path, documents=file)

    def killed(_: GrowingFile) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(GrowingFile, "finish", killed)
        with pytest.raises(KeyboardInterrupt):
            predict_file(model, source, tmp_path / "out.jsonl", documents=file)
    unquoted = replace(PLAIN_LAYOUT, quoting=False)
    with pytest.raises(DataError, match="was started with another options"):
        predict_file(model, source, tmp_path / "out.jsonl", documents=file, layout=unquoted)
    assert predict_file(model, source, tmp_path / "out.jsonl", documents=file).num_resumed == 2


def test_documents_are_read_as_evaluation_reads_a_collection(
    open_model: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    titles = ["word1 word2", "word3", "", None, " word4\nword5"]
    bodies = ["word1 word2 word7", "word8", "word9", "word10", "word4  word5 word6"]
    rows = [{"id": n, "title": title, "text": text} for n, (title, text) in enumerate(zip(titles, bodies, strict=True))]
    read: list[str] = []
    vectors = RetrievalPredictor.document_vectors

    def remembered(task: RetrievalPredictor, documents: list[str]) -> Any:
        read.extend(documents)
        return vectors(task, documents)

    monkeypatch.setattr(RetrievalPredictor, "document_vectors", remembered)
    file = DocumentsFile(path=write(tmp_path / "documents.jsonl", rows))
    predict_file(
        open_model("retrieval"),
        write(tmp_path / "in.jsonl", [{"query": "word1"}]),
        tmp_path / "out.jsonl",
        documents=file,
    )
    stored = ["word1 word2", "word3", "", "", "word4 word5"], [*bodies[:4], "word4 word5 word6"]
    assert read == Documents([""] * 5, *stored).texts_read()
    assert read[0] == "word1 word2 word7" and read[1] == "word3 word8"
    write(tmp_path / "documents.jsonl", [{"text": "word1", "title": ["word2"]}])
    with pytest.raises(DataError, match=r"documents\.jsonl:1: column 'title' is \['word2'\]; expected a text"):
        predict_file(open_model("retrieval"), tmp_path / "in.jsonl", tmp_path / "new.jsonl", documents=file)


def counted_tokens(kind: Retrieval, model: Any, sequences: Sequences, machine: Any) -> np.ndarray:
    """Vectors of small whole numbers: their products are exact, so that equal texts have equal scores."""
    rows = zip(sequences.input_ids, sequences.lengths, strict=True)
    counts = [np.bincount(ids[:length], minlength=64) for ids, length in rows]
    return np.array(counts, dtype=np.float32)


@pytest.mark.parametrize("top_k", [3, 12])
def test_documents_of_equal_scores_come_as_evaluation_ranks_them(
    finished: Callable[[str], Finished],
    open_model: Open,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    top_k: int,
) -> None:
    monkeypatch.setattr(Retrieval, "vectors", counted_tokens)
    # Documents are equal by fives; ids are no numbers in the order of the file.
    ids = [f"{'zyxwvutsrq'[n % 10]}{n}" for n in range(15)]
    bodies = [text for text in texts(3, seed=5) for _ in range(5)]
    order = [7, 3, 11, 0, 14, 2, 9, 5, 1, 13, 4, 10, 8, 6, 12]
    rows = [{"id": ids[n], "text": bodies[n]} for n in order]
    queries = texts(4, seed=6)
    evaluated = finished("retrieval")
    kind: Any = evaluated.kind
    kind.use_collection(Documents([row["id"] for row in rows], [""] * 15, [row["text"] for row in rows]))
    judged = QueryRows(["a", "b", "c", "d"], queries, [[ids[0]]] * 4, [[1]] * 4)
    table = kind.table(judged, evaluated.predictions(judged), {})
    predict_file(
        open_model("retrieval"),
        write(tmp_path / "in.jsonl", [{"query": query} for query in queries]),
        tmp_path / "out.jsonl",
        documents=DocumentsFile(path=write(tmp_path / "documents.jsonl", rows), top_k=top_k),
    )
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    for row, ranked in zip(found, table["predicted"].to_pylist(), strict=True):
        assert row["document_ids"][:10] == ranked.split(", ")[:top_k]


def test_documents_and_queries_without_a_header_are_read_by_number(open_model: Open, tmp_path: Path) -> None:
    (tmp_path / "queries.tsv").write_text('q1\tword1 "word2\nq2\tword3\n')
    (tmp_path / "documents.tsv").write_text('d1\tword1 "word2\nd2\tword3\n')
    layout = TableLayout("auto", header=False, quoting=False, encoding="utf-8")
    file = DocumentsFile(path=tmp_path / "documents.tsv", id_column=0, text_column=1, top_k=2)
    predict_file(
        open_model("retrieval"),
        tmp_path / "queries.tsv",
        tmp_path / "out.jsonl",
        columns=FileColumns(query=1),
        layout=layout,
        documents=file,
    )
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["0"] for row in found] == ["q1", "q2"]
    assert all(sorted(row["document_ids"]) == ["d1", "d2"] for row in found)


def test_documents_are_asked_for_where_they_are_needed_and_only_there(open_model: Open, tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", [{"query": "word1", "text": "word1"}])
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(DataError, match="documents=FILE"):
        predict_file(open_model("retrieval"), source, tmp_path / "out.jsonl")
    with pytest.raises(DataError, match=r"empty\.jsonl has no rows"):
        file = DocumentsFile(path=tmp_path / "empty.jsonl")
        predict_file(open_model("retrieval"), source, tmp_path / "out.jsonl", documents=file)
    with pytest.raises(DataError, match="documents are for retrieval"):
        file = DocumentsFile(path=source)
        predict_file(open_model("classification"), source, tmp_path / "out.jsonl", documents=file)
    assert not (tmp_path / "out.jsonl").exists()


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
    from_csv = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["order"] for row in from_csv] == [row["order"] for row in found]
    for wrong in ("not json", '{"a": 1}', "[1]"):
        write(tmp_path / "in.jsonl", [rows[0], {"query": "word1", "candidates": wrong}])
        with pytest.raises(DataError, match=r"in\.jsonl:2: column 'candidates' is .* expected a list of texts"):
            predict_file(model, tmp_path / "in.jsonl", tmp_path / "new.jsonl")


def test_summaries_of_texts_and_of_sentences(open_model: Open, tmp_path: Path) -> None:
    model = open_model("summarisation")
    documents = [[f"{sentence.capitalize()}." for sentence in texts(4, seed=n)] for n in range(3)]
    for rows in ([{"text": " ".join(document)} for document in documents], [{"text": each} for each in documents]):
        found = predicted(model, tmp_path, rows)
        expected = model.predict(documents)
        assert [row["summary"] for row in found] == [each.text for each in expected]
        assert [row["sentences"] for row in found] == [list(each.places) for each in expected]
    for empty in ("  \n", [" "], []):
        write(tmp_path / "in.jsonl", [{"text": "Word1."}, {"text": empty}])
        with pytest.raises(DataError, match=r"in\.jsonl:2: column 'text' is empty"):
            predict_file(model, tmp_path / "in.jsonl", tmp_path / "new.jsonl")


def test_blanks_are_filled_and_whole_texts_scored(open_model: Open, tmp_path: Path) -> None:
    model = open_model("fill_mask")
    rows = [{"text": "word1 [MASK] word2 [MASK]"}, {"text": "word3 word4"}]
    blanks, whole = predicted(model, tmp_path, rows)
    assert blanks["predicted"] == [best[0].token for best in model.fill_mask(rows[0]["text"], top_k=1)]
    assert blanks["pseudo_perplexity"] is None
    assert whole["predicted"] == []
    assert whole["pseudo_perplexity"] == pytest.approx(model.predict(["word3 word4"])[0].pseudo_perplexity)


@pytest.mark.parametrize(
    ("name", "row", "cut"),
    [
        ("classification", {"text": "word1 " * 22}, 0),
        ("classification", {"text": "word1 " * 23}, 1),
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
    assert done.num_documents_truncated == 0


def test_documents_that_lose_tokens_are_counted_apart(open_model: Open, tmp_path: Path) -> None:
    # Of 24 tokens, four are [CLS], [SEP] and the prefix `word2 -`.
    rows = [{"title": "word1", "text": "word2 " * count} for count in (3, 19, 20, 40)]
    file = DocumentsFile(path=write(tmp_path / "documents.jsonl", rows))
    source = write(tmp_path / "in.jsonl", [{"query": "word1"}, {"query": "word1 " * 30}])
    done = predict_file(open_model("retrieval"), source, tmp_path / "out.jsonl", documents=file)
    assert (done.num_documents_truncated, done.num_truncated) == (2, 1)


def test_candidates_that_hold_half_a_character_are_named(open_model: Open, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text('query,candidates\nword1,"[""\\ud800""]"\n')
    with pytest.raises(DataError, match=r"in\.csv:2: column 'candidates': it has '.ud800'"):
        predict_file(open_model("reranking"), tmp_path / "in.csv", tmp_path / "out.jsonl")


def test_a_tags_row_of_another_type_is_named(open_model: Open, tmp_path: Path) -> None:
    write(tmp_path / "in.jsonl", [{"text": "word1"}, {"text": 7}])
    with pytest.raises(DataError, match=r"in\.jsonl:2: column 'text' is 7; expected a text or a list of texts"):
        predict_file(open_model("softmax"), tmp_path / "in.jsonl", tmp_path / "out.jsonl")
