"""The arms of benchmarks/domain.py: what is averaged, what the tasks give as text, and which arm is chosen."""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tiny
from bertline.tasks.stored_rows import Documents

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

import domain
import domain_arms


def test_a_title_stands_before_each_part_of_its_text():
    long = " ".join(f"w{number}" for number in range(130))
    documents = Documents(ids=["1", "2", "3"], titles=["A wing .", "On", ""], texts=[f"A wing . {long}", "few", "bare"])
    lines = [text.split("\n") for text in domain_arms.titled(documents)]
    assert [title for title, _ in lines] == ["A wing ."] * 3 + ["On"]
    assert " ".join(part for _, part in lines[:3]) == long
    assert lines[3] == ["On", "few"]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"texts": ["a b", "c"], "text_pairs": ["d", "e"], "labels": [0, 1]}, ["a b", "c", "d", "e"]),
        ({"texts": ["a", "b"], "text_pairs": pa.array([None, None], pa.string())}, ["a", "b"]),
        ({"words": [["a", "b"], ["c"]], "tags": [["O", "O"], ["O"]]}, ["a b", "c"]),
        ({"queries": ["a"], "document_ids": [["1"]]}, ["a"]),
    ],
)
def test_the_text_of_a_task_is_its_train_rows_without_labels(tmp_path, columns, expected):
    pq.write_table(pa.table(columns), tmp_path / "train.parquet")
    assert list(domain_arms.texts_of(tmp_path, domain_arms.TASK_TEXT)) == expected


def test_dev_is_small_where_nothing_follows_from_it(tmp_path, monkeypatch):
    sizes = {}
    monkeypatch.setattr(domain, "fine_tune", lambda job: sizes.update(dev=len(job.dev.rows), train=len(job.train.rows)))
    settings = type("Settings", (), {"threads": 1, "precision": "fp32", "rows": 5, "epochs": 1})()
    comparison = domain.Comparison(tmp_path, {}, settings)
    comparison._tasks = {"t": tmp_path}

    def dev_rows(split, **choices):
        comparison._kinds["t"] = FakeKind(choices)
        with pytest.raises(AttributeError):  # the pretended result has nothing to score
            comparison._fine_tuned(
                tiny.write_encoder(tmp_path / f"{split}-{len(sizes)}-{choices}"), "t", split, 0, 1e-4
            )
        return sizes["dev"]

    assert dev_rows("dev", calibration="none") == 100
    assert dev_rows("test", calibration="none") < 100
    assert dev_rows("test", calibration="temperature") == dev_rows("test", outside_margin="dev") == 100
    assert sizes["train"] == 5


def test_without_training_train_rows_count_to_dev_and_test_is_computed_with_it_once(tmp_path, monkeypatch):
    scored = []

    def result(job):
        scored.append(len(job.dev.rows))
        return type("Result", (), {"dev_statistics": np.full((len(job.dev.rows), 1), len(scored))})

    monkeypatch.setattr(domain, "fine_tune", result)
    settings = type("Settings", (), {"threads": 1, "precision": "fp32", "rows": 5, "epochs": 0})()
    comparison = domain.Comparison(tmp_path, {}, settings)
    comparison._tasks, comparison._kinds["t"] = {"t": tmp_path}, FakeKind({}, {"train": 7, "dev": 3, "test": 2})
    encoder = tiny.write_encoder(tmp_path / "encoder")
    dev, test = (comparison.scored("arm", encoder, "t", split, 0, 1e-4) for split in ("dev", "test"))
    assert dev.rows[:, 0].tolist() == [1] * 7 + [2] * 3
    assert test.rows[:, 0].tolist() == [3] * 2
    assert scored == [7, 3, 2] and test.wall_s == 0


class FakeKind:
    def __init__(self, choices, sizes=None):
        self.config = type("Config", (), {"metric": "accuracy", **choices})
        self.sizes = sizes or {}

    def read(self, folder, split):
        return FakeRows(self.sizes.get(split, 100))

    def encode(self, rows, tokenizer):
        return None

    def scores(self, rows):
        return {"accuracy": float(rows.mean())}


class FakeRows(list):
    def __init__(self, number):
        super().__init__(range(number))

    def first(self, number):
        return FakeRows(number)


def test_what_is_only_reported_chooses_no_arm():
    dev = {
        "untouched": {"docs_match": 0.5, "docs_search": 0.5},
        "x": {"docs_match": 0.6, "docs_search": 0.1},
        "y": {"docs_match": 0.55, "docs_search": 0.9},
    }
    assert domain.chosen_arm(dev) == "x"


def test_an_arm_that_loses_on_a_task_is_skipped():
    dev = {"untouched": {"a": 0.5, "b": 0.5}, "loses": {"a": 0.7, "b": 0.494}, "safe": {"a": 0.55, "b": 0.496}}
    assert domain.chosen_arm(dev) == "safe"
    assert domain.chosen_arm({name: dev[name] for name in ("untouched", "loses")}) == "loses"  # if all lose


def test_every_arm_leads_to_the_untouched_encoder():
    for name, arm in domain_arms.ARMS.items():
        seen = [name]
        while (before := arm.after or arm.average_with) is not None:
            assert before not in seen
            seen.append(before)
            arm = domain_arms.ARMS[before]
        assert arm.choices or seen == ["untouched"]


def test_scores_are_measured_once(tmp_path, monkeypatch, capsys):
    class Kind:
        class config:  # noqa: N801
            metric = "accuracy"

        def scores(self, rows):
            return {"accuracy": float(rows.mean())}

    settings = type("Settings", (), {"threads": 1, "precision": "fp32", "rows": 5, "epochs": 1})()
    comparison = domain.Comparison(tmp_path, {}, settings)
    comparison._kinds["t"] = Kind()
    calls = []
    monkeypatch.setattr(comparison, "_fine_tuned", lambda *given: calls.append(given) or np.array([[1.0], [0.0]]))
    scores = [comparison.scored("arm", tmp_path, "t", "dev", 0, 1e-4).score for _ in range(2)]
    assert scores == [0.5, 0.5] and len(calls) == 1
    comparison.scored("arm", tmp_path, "t", "dev", 1, 1e-4)
    assert len(calls) == 2


def test_every_rate_is_scored_on_dev_with_the_same_seeds(tmp_path, monkeypatch):
    settings = type("Settings", (), {"threads": 1, "precision": "fp32", "rates": [1e-4, 2e-4], "dev_seeds": 2})()
    comparison = domain.Comparison(tmp_path, {}, settings)
    scores = {(1e-4, 0): 0.5, (1e-4, 1): 0.7, (2e-4, 0): 0.8, (2e-4, 1): 0.0}

    def scored(arm, encoder, task, split, seed, rate):
        assert split == "dev"
        return type("Scored", (), {"score": scores[rate, seed]})

    monkeypatch.setattr(comparison, "scored", scored)
    assert comparison.by_rate("arm", tmp_path, "t") == pytest.approx({1e-4: 0.6, 2e-4: 0.4})
