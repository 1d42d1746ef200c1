"""What benchmarks/general_text.py says of scores, and how benchmarks/processor_time.py sums over detached processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

import general_text
import processor_time
from processor_time import Process, ProcessorTime

BUSY = "import time\nwhile time.process_time() < 0.5: pass\nprint('used', flush=True)\ntime.sleep(60)"


def row(name: str, title: str, metrics: dict[str, float], others: dict[str, float], seeds: int = 2) -> dict[str, Any]:
    """A row of the table of pipelines/glue.py; `others` are the baselines with the same score on dev as on test."""
    scores = [
        {"split": "test", "metric": metric, "mean": mean, "std": 0.01 if seeds > 1 else None, "trivial": 0.5}
        for metric, mean in metrics.items()
    ]
    baselines = {
        other: {"dev": value, "scores": {"test": dict.fromkeys(metrics, value)}} for other, value in others.items()
    }
    return {
        "name": name, "title": title, "note": "", "scores": scores, "train_rows": 5000, "test_rows": 400,
        "num_seeds": seeds, "num_diverged": 0, "minutes": 1.0, "baselines": baselines,
    }  # fmt: skip


def record(*rows: dict[str, Any]) -> dict[str, Any]:
    training = {
        "steps": 1000, "num_tokens": 6e6, "val/mlm_loss": 3.5, "processor_s": 5400, "processor_limit_s": 7200.0
    }  # fmt: skip
    sets = {one["name"]: {**one, **general_text.compared_with_simple(one)} for one in rows}
    said = {"average": 0.5, "recipe": [], "device": "a processor", "date": "2026-11-25"}
    return {**said, "sets": sets, "pretraining": training}


def test_tfidf_is_the_best_on_dev_of_ngrams_and_of_what_a_pair_shares() -> None:
    others = {"majority": 0.5, "word_ngrams": 0.6, "char_ngrams": 0.65, "pair_features": 0.7, "frozen_encoder": 0.8}
    found = general_text.compared_with_simple(row("stsb", "STS-B", {"pearson": 0.76, "spearman": 0.74}, others))
    assert found["tfidf"] == [0.7, 0.7]
    assert (found["simple"], found["simple_name"]) == ([0.8, 0.8], "frozen_encoder")
    assert (found["above_tfidf"], found["above_simple"]) == (True, False)


def test_what_is_equal_to_tfidf_is_not_above_it() -> None:
    found = general_text.compared_with_simple(row("sst2", "SST-2", {"accuracy": 0.75}, {"word_ngrams": 0.75}))
    assert not found["above_tfidf"]


def test_the_table_has_each_score_next_to_its_baselines_and_the_published_ones() -> None:
    found = record(
        row("sst2", "SST-2", {"accuracy": 0.84}, {"majority": 0.5, "word_ngrams": 0.82}),
        row("stsb", "STS-B", {"pearson": 0.6, "spearman": 0.6}, {"mean": 0.0, "pair_features": 0.7}),
    )
    page = general_text.table(found)
    lines = [line for line in page.splitlines() if line.startswith("|")]
    assert len({line.count(" | ") for line in lines}) == 1
    assert lines[2] == (
        "| SST-2 | accuracy | 0.840 ± 0.010 | 0.500 | 0.820 | 0.820 (word_ngrams) | 83.2 | 85.9 | 5,000 | 400 |"
    )
    assert "74.3 / 73.6 | 75.4 / 73.3" in lines[3]
    assert "64.2 (of all) | 65.8 (of all)" in lines[4]
    assert "1.50 hours of processor time (limit 2)" in page
    assert "Compared with TF-IDF: SST-2 above, STS-B not above." in page
    assert all(f"- {one}" in page for one in general_text.DIFFERENCES)


def test_one_seed_is_said_and_has_no_spread() -> None:
    page = general_text.table(record(row("qnli", "QNLI", {"accuracy": 0.6}, {"word_ngrams": 0.5}, seeds=1)))
    assert "- One seed. " in page
    assert "±" not in page


def test_another_recipe_is_said() -> None:
    found = record(row("qnli", "QNLI", {"accuracy": 0.6}, {"word_ngrams": 0.5}))
    assert "with its fixed recipe. By" in general_text.table(found)
    changed = {**found, "recipe": ["sweep.fine_tuning.learning_rate=3e-4"]}
    assert "with its fixed recipe but `sweep.fine_tuning.learning_rate=3e-4`. By" in general_text.table(changed)


@pytest.mark.parametrize("model", general_text.PUBLISHED)
def test_the_published_average_is_that_of_the_published_scores(model: str) -> None:
    # The average of GLUE: nine sets, the mean of a set's metrics counts, MNLI is one set, and AX (21.0, 26.1) is none.
    scores = {name: text for name, text in general_text.PUBLISHED[model].items() if name != "average"}
    means = [sum(map(float, text.split(" / "))) / len(text.split(" / ")) for text in scores.values()]
    assert len(means) == 9
    assert sum(means) / 9 == pytest.approx(float(general_text.PUBLISHED[model]["average"]), abs=0.06)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs proc(5)")
def test_processor_time_counts_children_and_earlier_starts_and_nothing_else(tmp_path: Path) -> None:
    kept = tmp_path / "processor_time.json"
    kept.write_text(json.dumps({"1-1": 5.0}))
    nested = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BUSY!r}])\n"
    with (
        subprocess.Popen([sys.executable, "-c", nested, "meant"], cwd=tmp_path, stdout=subprocess.PIPE) as meant,
        subprocess.Popen([sys.executable, "-c", BUSY, "other"], cwd=tmp_path, stdout=subprocess.PIPE) as other,
    ):
        try:
            assert meant.stdout is not None and other.stdout is not None
            meant.stdout.readline()
            other.stdout.readline()
            times = ProcessorTime(kept, folder=tmp_path, named="meant")
            times.sample()
            assert 5.3 <= times.seconds < 60
            assert ProcessorTime(kept, folder=tmp_path, named="meant").seconds == times.seconds
            assert ProcessorTime(tmp_path / "none.json", folder=Path(os.sep), named="meant").seconds == 0
            times.sample()
            assert len(json.loads(kept.read_text())) == 2
        finally:
            children = [one.pid for one in processor_time.running() if one.parent == meant.pid]
            for pid in (*children, meant.pid, other.pid):
                os.kill(pid, 9)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs proc(5)")
def test_a_sampler_looks_while_its_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor_time, "_EVERY_S", 0.05)
    with (
        subprocess.Popen([sys.executable, "-c", BUSY, "meant"], cwd=tmp_path, stdout=subprocess.PIPE) as process,
        ProcessorTime(tmp_path / "times.json", folder=tmp_path, named="meant") as times,
    ):
        assert process.stdout is not None
        process.stdout.readline()
        end = time.monotonic() + 20
        while times.seconds < 0.2 and time.monotonic() < end:
            time.sleep(0.05)
        process.kill()
    assert times.seconds >= 0.2


def test_time_of_unrelated_processes_is_not_in_a_tree() -> None:
    processes = {
        pid: Process(pid=pid, parent=parent, start=0, seconds=1.0) for pid, parent in [(1, 0), (2, 1), (3, 2), (4, 0)]
    }
    assert processor_time.seconds_of_tree(1, processes) == 3.0
