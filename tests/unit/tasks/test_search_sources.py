"""Collections in every format become documents and judged queries; what cannot be used is named or counted."""

from __future__ import annotations

import pytest

import search_inputs as inputs
from bertline.foundation.errors import DataError
from bertline.kinds.retrieval import Retrieval

SMART_DOCUMENTS = """.I 1
.T
Editions of the
Decimal Classification
.A
Comaromi, J.P.
.W
   The present study is a history.
.5 of it is told.
.X
1	5	1
.I 2
.T SPACE
Technical Libraries
.W
A report of 6300 acts of use.
""".replace(" SPACE", " ")
SMART_QUERIES = ".I 1\n.W\nWhat problems are there\nin titles?\n.I 2\n.T\nA title\n.W\nlibraries\n.B\n(JASIS)\n"
TREC_DOCUMENTS = """<doc>
<docno>1</docno>
<title>lift of a
wing</title>
<author>brenckman,m.</author>
<text>lift of a
wing &amp; <b>drag</b></text>
</doc>
<DOC><DOCNO> FT-2 </DOCNO><HEADLINE>Heat</HEADLINE><TEXT>slabs</TEXT><TEXT>and plates</TEXT></DOC>
"""
TREC_QUERIES = """<xml>
<top>
<num> 7</num>
<title>
what gives
lift
</title>
</top>
<top><num> Number: 9
<title> Topic: heat
<desc> Description:
long
</top>
"""


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
            ("corpus.jsonl", '["x"]', "not_json", r"corpus\.jsonl:4: it is a JSON list"),
            ("corpus.jsonl", '{"_id": "9", "te', "not_json", r"corpus\.jsonl:4: it is not JSON"),
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


class TestSmart:
    def write(self, folder, rel="     1     2\t0\t0.000000\n     2     1\t0\t0.000000\n"):
        (folder / "docs").write_text(SMART_DOCUMENTS)
        (folder / "queries").write_text(SMART_QUERIES)
        (folder / "rel").write_text(rel)
        return folder

    def test_titles_and_texts_are_read_and_other_fields_are_not(self, tmp_path, built):
        task = built(inputs.smart_source(self.write(tmp_path)), test_fraction=1.0)
        assert task.collection.titles == ["Editions of the Decimal Classification", "Technical Libraries"]
        assert task.collection.texts[0] == "The present study is a history. .5 of it is told."
        assert all_rows(task) == {
            "1": ("What problems are there in titles?", {"2": 1}), "2": ("libraries", {"1": 1})
        }  # fmt: skip

    def test_relations_of_two_columns_are_read(self, tmp_path, built):
        judged = {each: found for each, (_, found) in all_rows(built(
            inputs.smart_source(self.write(tmp_path, "1 2\n2 1\n")), test_fraction=1.0
        )).items()}  # fmt: skip
        assert {each: [doc for doc, value in found.items() if value > 0] for each, found in judged.items()} == {
            "1": ["2"], "2": ["1"]
        }  # fmt: skip


class TestTrec:
    def write(self, folder, qrels="1 0 1 1\n2 0 FT-2 2\n2 0 1 0\n", documents=TREC_DOCUMENTS):
        (folder / "docs").write_text(documents)
        (folder / "queries").write_text(TREC_QUERIES, newline="\r\n")
        (folder / "qrels").write_text(qrels)
        return folder

    def test_elements_are_read_though_the_file_is_no_xml(self, tmp_path, built):
        task = built(inputs.trec_source(self.write(tmp_path)), test_fraction=1.0)
        assert task.collection.ids == ["1", "FT-2"]
        assert task.collection.texts == ["lift of a wing & drag", "slabs and plates"]
        assert task.collection.texts_read() == ["lift of a wing & drag", "Heat slabs and plates"]
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
