"""Two towers learn to find documents; what is relevant is never a wrong answer; scores are those of the ranking."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import search_inputs
import tiny
from bertline.baselines.base import BaselineInputs
from bertline.encoding.sequences import padded_sequences
from bertline.finetuning.finetune import fine_tune
from bertline.foundation.errors import ArtifactError
from bertline.kinds.base import HeadSettings, LossOptions
from bertline.kinds.registry import task_kind
from bertline.kinds.retrieval import EncodedSearch, Found, Retrieval, VectorIndex, found_by, pair_batches, tuned_bm25
from bertline.tasks.stored_rows import COLLECTION, Documents, QueryRows, write_rows


def collection(num_documents=60, seed=0):
    """Documents of the words 20 to 39, no two alike; a query has two of its document's words, each less by 20."""
    random = np.random.default_rng(seed)
    words = [20 + random.choice(20, 4, replace=False) for _ in range(num_documents)]
    ids = [f"d{number}" for number in range(num_documents)]
    return words, Documents(ids, [""] * num_documents, [" ".join(f"word{word}" for word in row) for row in words])


def rows(words, numbers, seed=0):
    random = np.random.default_rng(seed)
    queries = [" ".join(f"word{word - 20}" for word in random.permutation(words[number])[:3]) for number in numbers]
    return QueryRows(
        [f"q{number}" for number in numbers], queries, [[f"d{number}"] for number in numbers], [[1]] * len(numbers)
    )


def kind_of(documents, **changes) -> Retrieval:
    kind = task_kind(search_inputs.retrieval(search_inputs.beir_source(""), **changes), [])
    assert isinstance(kind, Retrieval)
    kind.use_collection(documents)
    return kind


def model_of(kind, encoder):
    return kind.new_model(encoder, HeadSettings(dropout_prob=0.0, seed=0, attention="plain"))


@pytest.mark.parametrize("hard_negatives", ["none", "bm25", "encoder"])
def test_it_learns_what_no_shared_word_tells(encoder, job_of, hard_negatives):
    words, documents = collection()
    kind = kind_of(documents, hard_negatives=hard_negatives, num_hard_negatives=2)
    train, dev = (rows(words, range(60), seed) for seed in (1, 2))
    before, after = (
        fine_tune(job_of(kind, encoder, train, dev, dropout_prob=0.0, num_epochs=number, learning_rate=1e-2))
        for number in (0, 12)
    )
    assert before.dev.scores["ndcg@10"] < 0.3
    assert after.dev.scores["ndcg@10"] > 0.6


@pytest.mark.parametrize("hard_negatives", ["bm25", "encoder"])
def test_no_relevant_document_is_a_hard_negative(encoder, tokenizer, hard_negatives):
    documents = Documents(["a", "b", "c", "d"], [""] * 4, ["word1 word2", "word1", "word1 word3", "word9"])
    kind = kind_of(documents, hard_negatives=hard_negatives, num_hard_negatives=2)
    # `c` is judged and not relevant; `none` is judged relevant and not there (an empty document).
    train = QueryRows(["q"], ["word1"], [["a", "b", "c", "none"]], [[1, 2, 0, 1]])
    prepared = kind.prepared(model_of(kind, encoder), kind.encode(train, tokenizer), train, tiny.machine())
    expected = {2} if hard_negatives == "bm25" else {2, 3}
    assert set(prepared.hard_negatives[0].tolist()) == expected


def search(relevant, hard_negatives, num_documents=10):
    queries, documents = (
        padded_sequences([[2, 5 + number, 3] for number in range(count)], [3] * count, pad_id=0)
        for count in (len(relevant), num_documents)
    )
    as_arrays = [[np.array(each, dtype=np.int64) for each in lists] for lists in (relevant, hard_negatives)]
    return EncodedSearch(queries, documents, *as_arrays)


class TestBatches:
    def test_an_epoch_has_every_pair_once_and_marks_what_else_is_relevant(self):
        relevant = [[0, 1, 2], [2], [], [7]]
        batches = pair_batches(search(relevant, [[]] * 4), batch_size=2, num_hard_negatives=3, seed=0)
        assert len(batches) == 3
        for _ in range(2):
            pairs = []
            for batch in batches:
                queries = (batch["query_input_ids"][:, 1] - 5).tolist()
                documents = (batch["document_input_ids"][:, 1] - 5).tolist()
                assert len(set(documents)) == len(documents)
                for row, query in enumerate(queries):
                    right = documents[batch["targets"][row]]
                    pairs.append((query, right))
                    marked = {documents[place] for place in batch["also_relevant"][row].nonzero()[:, 0].tolist()}
                    assert marked == set(documents) & set(relevant[query]) - {right}
            assert sorted(pairs) == [(0, 0), (0, 1), (0, 2), (1, 2), (3, 7)]

    def test_hard_negatives_are_sampled_again_in_each_epoch(self):
        batches = pair_batches(search([[0]], [[1, 2, 3, 4, 5, 6, 7, 8]]), batch_size=4, num_hard_negatives=2, seed=0)
        drawn = [tuple((batch["document_input_ids"][:, 1] - 5).tolist()) for _ in range(6) for batch in batches]
        assert all(len(documents) == 3 and documents[0] == 0 for documents in drawn)
        assert len(set(drawn)) > 1

    def test_the_loss_divides_by_the_temperature_and_leaves_out_what_is_relevant_too(self):
        kind = kind_of(collection()[1], temperature=0.5)
        queries, documents = torch.eye(2, dtype=torch.float64), torch.randn(3, 2, dtype=torch.float64)
        masked = torch.tensor([[False, True, False], [False, False, False]])
        batch = {"targets": torch.tensor([0, 2]), "also_relevant": masked}
        of_first = torch.stack([documents[0], documents[2]])[:, 0] / 0.5
        of_second = documents[:, 1] / 0.5
        expected = -(of_first.log_softmax(0)[0] + of_second.log_softmax(0)[2]) / 2
        torch.testing.assert_close(kind.hard_loss(None, [queries, documents], batch, LossOptions()), expected)


@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 5), st.integers(1, 80), st.integers(0, 100))
@settings(max_examples=40)
def test_the_index_finds_what_comparing_with_every_vector_finds(count, width, num_queries, k, seed):
    random = np.random.default_rng(seed)
    documents, queries = (random.standard_normal((n, width)).astype(np.float32) for n in (count, num_queries))
    numbers, scores = VectorIndex(documents).search(queries, k)
    products = queries @ documents.T
    expected = np.sort(products, axis=1)[:, ::-1][:, :k]
    assert numbers.shape == scores.shape == (num_queries, min(k, count))
    assert np.allclose(scores, expected, atol=1e-4)
    # Which document it is: its own product is the score that is given for it; none stands twice.
    assert np.allclose(np.take_along_axis(products, numbers, axis=1), scores, atol=1e-4)
    assert all(len(set(row)) == len(row) for row in numbers.tolist())


class TestScoring:
    documents = Documents(["1", "10", "2"], ["", "T", ""], ["word1", "word2", "word3"])
    queries = QueryRows(["q1", "q2"], ["word1", "word2"], [["2", "gone"], ["1", "10"]], [[1, 1], [2, 0]])

    def test_equal_scores_are_ordered_as_trec_eval_does(self):
        kind = kind_of(self.documents)
        found = Found(np.array([[0, 1, 2]] * 2), np.array([[0.5, 0.5, 0.5], [0.9, 0.5, 0.5]], dtype=np.float32))
        # The order is 2, 10, 1 for the first query; 1, 2, 10 for the second.
        ideal = 1 + 1 / math.log2(3)
        assert kind.statistics(self.queries, found, {}).tolist() == [[1 / ideal, 1.0, 0.5, 0.5], [1.0] * 4]
        assert kind.scores(kind.statistics(self.queries, found, {}))["map"] == 0.75
        assert kind.table(self.queries, found, {}).to_pylist()[0] == {
            "id": "q1", "query": "word1", "gold": "2, gone", "predicted": "2, 10, 1", "first_document": "word3",
            "right_document": "word3", "score": 0.5, "correct": 1 / ideal,
        }  # fmt: skip

    def test_the_same_first_document_for_every_query_is_a_failed_run(self):
        kind = kind_of(self.documents)
        scores = np.array([[0.9, 0.1]] * 2, dtype=np.float32)
        assert kind.is_degenerate(self.queries, Found(np.array([[1, 0], [1, 2]]), scores), {})
        assert not kind.is_degenerate(self.queries, Found(np.array([[1, 0], [0, 1]]), scores), {})

    def test_dev_chooses_what_counts_as_a_term_of_bm25(self, monkeypatch):
        """Queries have other forms of the documents' words: whole words find nothing."""
        kind = kind_of(Documents(["a", "b", "c"], [""] * 3, ["mapping functions", "sorted arrays", "frames"]))
        queries = QueryRows(
            ["q", "r"], ["map the function", "sort an array"], [["a"], ["b"]], [[1], [1]]
        )  # fmt: skip
        baseline = tuned_bm25(BaselineInputs(kind=kind, train=queries, dev=queries, tests={"test": queries}))
        assert baseline.settings["terms"] != "words"
        assert kind.scores(kind.statistics(queries, baseline.predictions["test"], {}))["ndcg@10"] == 1.0
        assert kind.scores(kind.statistics(queries, found_by(kind.bm25, queries), {}))["ndcg@10"] == 0.0
        # Of a large collection only the first documents are tried, and those that dev judges: here the first two.
        monkeypatch.setattr("bertline.kinds.retrieval.MOST_DOCUMENTS", 0)
        fewer = tuned_bm25(BaselineInputs(kind=kind, train=queries, dev=queries, tests={"test": queries}))
        assert fewer.settings["terms"] != "words"
        assert kind.scores(kind.statistics(queries, fewer.predictions["test"], {}))["ndcg@10"] == 1.0


class TestFolders:
    def test_the_collection_is_read_with_the_rows(self, tmp_path, tokenizer):
        words, documents = collection()
        write_rows(tmp_path, COLLECTION, documents)
        write_rows(tmp_path, "dev", rows(words, range(5)))
        kind = Retrieval(search_inputs.retrieval(search_inputs.beir_source("")), [])
        with pytest.raises(ArtifactError, match="give it a collection"):
            kind.encode(rows(words, range(5)), tokenizer)
        assert kind.read(tmp_path, "dev") == rows(words, range(5))
        assert kind.collection == documents

    def test_the_splits_of_a_model_share_the_documents_vectors_and_other_weights_get_their_own(
        self, encoder, tokenizer, monkeypatch
    ):
        words, documents = collection()
        kind = kind_of(documents)
        model = model_of(kind, encoder)
        asked = []
        vectors = kind.vectors
        monkeypatch.setattr(
            kind, "vectors", lambda m, texts, machine: asked.append(len(texts)) or vectors(m, texts, machine)
        )
        dev, test = (kind.encode(rows(words, range(n)), tokenizer) for n in (2, 3))
        kind.predict(model, dev, tiny.machine())
        found = kind.predict(model, test, tiny.machine())
        assert asked == [len(documents), 2, 3]
        fresh = kind_of(documents)
        again = fresh.predict(model, fresh.encode(rows(words, range(3)), tokenizer), tiny.machine())
        assert np.array_equal(found.scores, again.scores)
        next(model.parameters()).data.mul_(1.5)  # in a way that autograd does not count
        kind.predict(model, test, tiny.machine())
        assert asked == [len(documents), 2, 3, len(documents), 3]
