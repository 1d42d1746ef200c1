"""Collections in every format become documents and judged queries; what cannot be used is named or counted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import search_inputs as inputs
from bertline.foundation.errors import DataError
from bertline.kinds.retrieval import Retrieval


@pytest.fixture
def built():
    def make(source, **changes):
        return Retrieval.build("search", inputs.retrieval(source, **changes))

    return make


def all_rows(task):
    return {
        identity: (query, dict(zip(documents, values, strict=True)))
        for rows in task.splits.values()
        for identity, query, documents, values in zip(
            rows.ids, rows.queries, rows.document_ids, rows.relevances, strict=True
        )
    }


class TestBeir:
    @pytest.mark.parametrize("packed", [False, True])
    def test_documents_and_judged_queries_are_read(self, tmp_path, built, packed):
        judged = {"q1": {"1": 2, "2": 0, "3": -1}, "q2": {"3": 1}}
        task = built(inputs.beir_source(inputs.write_beir(tmp_path, judged=judged, packed=packed)), test_fraction=1.0)
        assert task.collection.ids == ["1", "2", "3"]
        assert task.collection.texts_read()[0] == "Lift Wings give lift."
        assert all_rows(task) == {
            "q1": (inputs.QUERIES["q1"], judged["q1"]), "q2": (inputs.QUERIES["q2"], judged["q2"])
        }  # fmt: skip
        assert task.dropped["query_without_judgements"] == 18

    def test_its_own_splits_are_taken_and_a_missing_dev_is_cut_from_train(self, tmp_path, built):
        inputs.write_beir(tmp_path, judged={"q1": {"1": 1}, "q2": {"2": 1}})
        train = {query: {"3": 1} for query in list(inputs.QUERIES)[1:]}
        inputs.write_qrels(tmp_path / "qrels" / "train.tsv", train)
        task = built(inputs.beir_source(tmp_path, train_qrels="qrels/train.tsv"))
        assert task.splits["test"].ids == ["q1", "q2"]
        assert not set(task.splits["train"].ids) & {*task.splits["dev"].ids, "q2"}
        assert len(task.splits["train"]) + len(task.splits["dev"]) == 18
        assert task.dropped["train_query_also_in_dev_or_test"] + task.dropped["dev_query_also_in_test"] == 1
        assert task.splits["test"].relevances == [[1], [1]]


class TestSplits:
    def test_a_query_stays_on_its_side_when_others_are_added(self, tmp_path, built):
        judged = {query: {"1": 1} for query in inputs.QUERIES}
        whole = built(inputs.beir_source(inputs.write_beir(tmp_path / "whole", judged=judged)))
        judged.pop("q7")
        part = built(inputs.beir_source(inputs.write_beir(tmp_path / "part", judged=judged)))
        for split in ("train", "dev", "test"):
            assert [query for query in whole.splits[split].ids if query != "q7"] == part.splits[split].ids

    def test_train_has_no_question_of_the_test_in_other_words_of_case(self, tmp_path, built):
        inputs.write_beir(tmp_path)
        lines = [f'{{"_id": "q{number}", "text": "{"Same" if number % 2 else "same "}"}}\n' for number in range(1, 21)]
        (tmp_path / "queries.jsonl").write_text("".join(lines))
        task = built(inputs.beir_source(tmp_path))
        assert len(task.splits["train"]) == len(task.splits["dev"]) == 0


class TestBadRows:
    @pytest.mark.parametrize(
        ("file", "line", "reason", "message"),
        [
            ("qrels/test.tsv", "q1\tnone\t1", "judgement_of_unknown_document", r"tsv:22 names the document 'none'"),
            ("qrels/test.tsv", "none\t1\t1", "judgement_of_unknown_query", r"test\.tsv:22 names the query 'none'"),
            ("qrels/test.tsv", "q1 1 1", "malformed_judgement", r"test\.tsv:22 is 'q1 1 1'"),
            ("qrels/test.tsv", "q1\t1\t0.5", "malformed_judgement", r"test\.tsv:22"),
            ("qrels/test.tsv", "q1\t1\t7", "contradicting_judgement", r"test\.tsv:22 .*relevance 7.* gave it 1"),
            ("corpus.jsonl", '{"_id": "1", "text": "x"}', "repeated_document", r"corpus\.jsonl:4.*jsonl:1 already"),
            ("corpus.jsonl", '{"_id": "9", "text": " "}', "empty_document", r"corpus\.jsonl:4.*no text"),
            ("corpus.jsonl", '{"_id": "9"}', "malformed_line", r"corpus\.jsonl:4: it has None as its text"),
            ("corpus.jsonl", '{"text": "x"}', "malformed_line", r"corpus\.jsonl:4: it has the _id None"),
            ("corpus.jsonl", '["x"]', "not_json", r"corpus\.jsonl:4: a JSON list"),
            ("corpus.jsonl", '{"_id": "9", "te', "not_json", r"corpus\.jsonl:4: not JSON"),
            ("corpus.jsonl", '{"_id": "9", "text": "\\udc00"}', "half_character", r"jsonl:4: it has '.udc00'"),
            ("queries.jsonl", '{"_id": "\\ud800", "text": "x"}', "half_character", r"jsonl:21: it has '.ud800'"),
            ("queries.jsonl", '{"_id": "q1", "text": "x"}', "repeated_query", r"queries\.jsonl:21"),
            ("queries.jsonl", '{"_id": "q99", "text": ""}', "empty_query", r"queries\.jsonl:21"),
        ],
    )  # fmt: skip
    def test_they_are_errors_with_file_and_line_or_are_counted(self, tmp_path, built, file, line, reason, message):
        inputs.write_beir(tmp_path)
        with (tmp_path / file).open("a") as handle:
            handle.write(line + "\n")
        with pytest.raises(DataError, match=f"{message}.*on_bad_row"):
            built(inputs.beir_source(tmp_path))
        task = built(inputs.beir_source(tmp_path, on_bad_row="skip"), test_fraction=1.0)
        assert task.dropped[reason] == 1
        assert len(all_rows(task)) == 20
        assert task.collection.ids == ["1", "2", "3"]

    def test_an_empty_document_that_is_relevant_still_counts_as_missed(self, tmp_path, built):
        inputs.write_beir(tmp_path, judged={"q1": {"1": 1, "9": 1}})
        with (tmp_path / "corpus.jsonl").open("a") as handle:
            handle.write('{"_id": "9", "text": ""}\n')
        task = built(inputs.beir_source(tmp_path, on_bad_row="skip"), test_fraction=1.0)
        assert all_rows(task)["q1"][1] == {"1": 1, "9": 1}
        assert "9" not in task.collection.ids


class TestConversion:
    """The script in docs/howto/own-task.md."""

    def converted(self, folder, documents, queries, judgements):
        page = (Path(__file__).parents[3] / "docs/howto/own-task.md").read_text()
        script = page[page.index('"""Convert a search collection') :].partition("```")[0]
        for name, content in (("docs", documents), ("queries", queries), ("qrels", judgements), ("to_beir.py", script)):
            (folder / name).write_text(content)
        subprocess.run([sys.executable, "to_beir.py", "docs", "queries", "qrels", "beir"], cwd=folder, check=True)
        return inputs.beir_source(folder / "beir")

    def test_a_smart_collection_has_its_titles_texts_and_relations(self, tmp_path, built):
        documents = (
            ".I 1\n.T\nDecimal\nClassification\n.A\nComaromi, J.P.\n.W\n  A history.\n.5 of it.\n.X\n1\t5\t1\n"
            ".I 2\n.T \nLibraries\n.W\nA report.\n"
        )
        source = self.converted(
            tmp_path, documents, ".I 1\n.W\nWhat problems?\n.I 2\n.T\nA title\n.W\nlibraries\n.B\n(J)\n",
            "     1     2\t0\t0.000000\n     2     1\t0\t0.000000\n",
        )  # fmt: skip
        task = built(source, test_fraction=1.0)
        assert task.collection.titles == ["Decimal Classification", "Libraries"]
        assert task.collection.texts == ["A history. .5 of it.", "A report."]
        assert all_rows(task) == {"1": ("What problems?", {"2": 1}), "2": ("libraries", {"1": 1})}

    def test_a_trec_collection_names_its_queries_by_their_position(self, tmp_path, built):
        documents = (
            "<doc>\n<docno>1</docno>\n<title>lift of a\nwing</title>\n<text>lift of a\nwing &amp; drag</text>\n</doc>\n"
            "<DOC><docno> FT-2 </docno><title>Heat</title><text>slabs</text></DOC>\n"
        )
        queries = (
            "<xml>\n<top>\n<num> 7</num>\n<title>\nwhat gives\nlift\n</title>\n</top>\n<top><title>heat</title></top>\n"
        )
        source = self.converted(tmp_path, documents, queries, "1 0 1 1\n2 0 FT-2 2\n2 0 1 0\n")
        task = built(source, test_fraction=1.0)
        assert task.collection.ids == ["1", "FT-2"]
        assert task.collection.texts_read() == ["lift of a wing & drag", "Heat slabs"]
        assert all_rows(task) == {"1": ("what gives lift", {"1": 1}), "2": ("heat", {"FT-2": 2, "1": 0})}


class TestSentencePairs:
    @pytest.fixture
    def folder(self, tmp_path):
        (tmp_path / "pairs.deu").write_text("Guten Tag.\nJa.\nJa.\nBis bald.\n", encoding="utf-8")
        (tmp_path / "eng.deu").write_text("Hello.\nYes.\nYeah.\nSee you.\n", encoding="utf-8")
        (tmp_path / "pairs.fra").write_text("Bonjour.\nÀ bientôt.\n", encoding="utf-8")
        (tmp_path / "eng.fra").write_text("Hello.\nSoon!\n", encoding="utf-8")
        return tmp_path

    def test_equal_sentences_are_one_document_or_query_with_all_its_translations(self, folder, built):
        task = built(inputs.sentence_pairs_source(folder), test_fraction=1.0)
        assert task.collection.texts == ["Hello.", "Yes.", "Yeah.", "See you.", "Soon!"]
        assert all_rows(task) == {
            "deu:1": ("Guten Tag.", {"deu:1": 1}), "deu:2": ("Ja.", {"deu:2": 1, "deu:3": 1}),
            "deu:4": ("Bis bald.", {"deu:4": 1}), "fra:1": ("Bonjour.", {"deu:1": 1}),
            "fra:2": ("À bientôt.", {"fra:2": 1}),
        }  # fmt: skip

    def test_files_of_different_lengths_are_refused(self, folder, built):
        (folder / "eng.fra").write_text("Hello.\n")
        with pytest.raises(DataError, match=r"pairs.fra has 2 lines, .*eng.fra has 1"):
            built(inputs.sentence_pairs_source(folder))
