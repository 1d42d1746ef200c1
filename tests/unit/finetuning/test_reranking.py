"""A cross-encoder learns to order candidates; what the first stage missed counts; negatives are sampled."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import transformers

import search_inputs
import tiny
from bertline.finetuning.finetune import fine_tune
from bertline.kinds.base import HeadSettings, LossOptions
from bertline.kinds.registry import task_kind
from bertline.kinds.reranking import Reranking
from bertline.sweep.baselines.base import baselines_of
from bertline.tasks.stored_rows import CandidateRows


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
    kind = task_kind(search_inputs.reranking(search_inputs.beir_source(""), **changes), [])
    assert isinstance(kind, Reranking)
    return kind


@pytest.mark.parametrize("num_negatives", [0, 1])
def test_it_learns_an_order_and_says_what_it_was_before(encoder, tokenizer, job_of, num_negatives):
    kind, train, dev = kind_of(num_negatives=num_negatives), rows(40), rows(20, seed=1)
    result = fine_tune(job_of(kind, encoder, train, dev, num_epochs=6))
    predictions = kind.predict(result.model, kind.encode(dev, tokenizer), tiny.machine())
    before = kind.details(dev, predictions, {})["before"]
    assert set(before) == set(result.dev_scores) == {"map", "mrr", "ndcg@10"}
    assert before["map"] < 0.8 < 0.95 < result.dev_scores["map"]
    assert not kind.is_degenerate(dev, predictions, {})


def test_scores_are_the_logits_of_transformers(encoder, tokenizer, tmp_path):
    kind, some = kind_of(), rows(3)
    model = kind.new_model(encoder, HeadSettings(dropout_prob=0.1, seed=0, attention="plain"))
    kind.save_model(model, tmp_path)
    theirs = transformers.BertForSequenceClassification.from_pretrained(tmp_path).eval()
    assert theirs.config.num_labels == 1
    encoded = kind.encode(some, tokenizer)
    batch = encoded.sequences.batch(np.arange(15))
    with torch.no_grad():
        expected = theirs(**batch).logits[:, 0].numpy()
    loaded = kind.load_model(tmp_path)
    for each in (model, loaded):
        assert np.allclose(np.concatenate(kind.predict(each, encoded, tiny.machine())), expected, atol=1e-5)


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
