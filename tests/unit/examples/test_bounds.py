"""Bounds on the train sequences: text from which little would be learned stops the stage, with the reason."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest

from bertline.examples import bounds
from bertline.examples.bounds import refuse_outside, surface_accuracy
from bertline.examples.build import target_counts
from bertline.examples.config import BoundsConfig, ExamplesConfig
from bertline.examples.masking import mask_example, masking_policy
from bertline.examples.store import token_counts
from bertline.foundation.errors import DataError
from bertline.tokenization.tokenizer import Layout

FINE = {
    "examples": 5000, "duplicate_share": 0.01, "fill": 0.9, "truncated_share": 0.01, "unknown_share": 0.001,
    "unknown_character_share": 0.01, "rare_share": 0.05, "random_next_share": 0.52, "surface_accuracy": 0.51,
}  # fmt: skip
BOUNDS = BoundsConfig(
    max_duplicate_share=0.2, min_fill=0.5, max_truncated_share=0.2, max_random_next_error=0.1, max_unknown_share=0.05,
    max_rare_share=0.3, max_surface_accuracy=0.7,
)  # fmt: skip


@dataclasses.dataclass
class Sequences:
    """What `surface_accuracy` reads of a store."""

    rows: list[list[int]]
    max_length = 64
    layout = Layout((0,), (1,), (1,), 1)

    def __len__(self) -> int:
        return len(self.rows)

    @functools.cached_property
    def shards(self) -> list[tuple[np.ndarray, np.ndarray]]:
        lengths = np.array([len(row) for row in self.rows])
        ids = np.concatenate([np.array(row, dtype=np.uint16) for row in self.rows])
        return [(ids, np.stack([np.cumsum(lengths) - lengths, lengths, lengths, lengths * 0], axis=1))]


@pytest.mark.parametrize(
    ("figure", "value", "said"),
    [
        ("duplicate_share", 0.6, "corpus.near_duplicates"),
        ("fill", 0.2, "Lower examples.lengths"),
        ("truncated_share", 0.6, "corpus/sentences"),
        ("unknown_share", 0.3, "tokenizer=wordpiece"),
        ("unknown_character_share", 0.376, "put spaces between words"),
        ("surface_accuracy", 0.98, "final marks and lengths alone.*corpus.document"),
        ("rare_share", 0.9, "tokenizer.vocab_size"),
        ("random_next_share", 0.9, "examples=full_sentences"),
    ],
)
def test_what_is_outside_of_a_bound_is_named_with_figure_bound_and_remedy(config, figure, value, said) -> None:
    bounded = dataclasses.replace(config, bounds=BOUNDS)
    refuse_outside(bounded, 64, FINE)
    refuse_outside(config, 64, {**FINE, figure: value})
    with pytest.raises(DataError, match=rf"(?s)64 tokens .*{value:.1%}.*{said}") as caught:
        refuse_outside(bounded, 64, {**FINE, figure: value})
    assert str(caught.value).count("\n  - ") == 1


@pytest.mark.parametrize("told_by", ["mark", "sum", "nothing"])
def test_the_surface_accuracy_is_what_final_marks_or_lengths_tell_of_the_label(told_by: str) -> None:
    rng = np.random.default_rng(0)
    vocab = ("[CLS]", "[SEP]", "word", "##s", ".")
    rows, facts = [], []
    for label in rng.integers(0, 2, 2000):
        a, b = rng.integers(2, 30, 2) if told_by != "sum" or label else (part := int(rng.integers(2, 29)), 31 - part)
        last = 4 if told_by == "mark" and label else 2
        rows.append([0, *[2] * (a - 1), last, 1, *[3] * (b - 1), 4, 1])
        facts.append((a + 2, label))
    store = Sequences(rows)
    (_, table), (first, labels) = store.shards[0], np.array(facts).T
    table[:, 2], table[:, 3] = first, labels
    found = surface_accuracy(store, vocab)  # type: ignore[arg-type]
    assert found is not None
    assert {"mark": found == 1, "sum": found > 0.9, "nothing": abs(found - 0.5) < 0.06}[told_by]
    table[:, 3] = 1
    assert surface_accuracy(store, vocab) is None, "where all pairs are of one kind"  # type: ignore[arg-type]


def test_the_stage_reports_the_figures_and_stops_where_they_are_outside(build, config, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(bounds, "FEWEST_JUDGED", 1)
    built = build(config)
    headline, facts, store = built.headline, built.manifest["lengths"]["16"]["train"], built.store(16)
    distinct = {tuple(example.input_ids.tolist()) for example in built.examples(16)}
    assert facts["duplicate_share"] == pytest.approx(1 - len(distinct) / len(store))
    assert 0.3 < facts["surface_accuracy"] < 0.8 and headline["length_16/surface_accuracy"] == facts["surface_accuracy"]
    assert facts["unknown_character_share"] == 0
    assert headline["length_16/fill"] == pytest.approx(store.num_tokens / (16 * len(store)))

    with pytest.raises(DataError, match="tokens fill"):
        build(dataclasses.replace(config, bounds=BoundsConfig(min_fill=1.0)), "strict")
    assert not (tmp_path / "strict").exists()


def test_counts_are_those_of_the_examples_one_by_one(build, config: ExamplesConfig) -> None:
    store = build(config).store(16, "validation")
    policy = masking_policy(store.manifest)
    tokens, targets = np.zeros((2, policy.vocab_size), dtype=int)
    for index in range(len(store)):
        masked = mask_example(store[index], seed=5, epoch=0, example_id=index, policy=policy)
        np.add.at(tokens, store[index].input_ids, 1)
        np.add.at(targets, masked.masked_labels, 1)
    assert token_counts(store, policy.vocab_size).tolist() == tokens.tolist()
    assert target_counts(store, seed=5, policy=policy).tolist() == targets.tolist()
