"""A sweep that n-grams win: they are exported, registered and compared later; the encoder is kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import bertline
from bertline.stages.export import standing_of
from bertline.sweep import results


def test_the_winner_is_the_baseline_that_does_better_on_dev_beyond_the_noise(
    inputs, input_folder, tmp_path, capsys, monkeypatch
):
    space = {"fine_tuning": inputs.fine_tuning(num_epochs=1, learning_rate=1e-6), "space": {}, "num_trials": 1}
    sweep = inputs.sweep(exported="winner", random_weights_baseline="never", **space)
    job = inputs.sweep_job(input_folder, tmp_path / "run", sweep=sweep, task=inputs.task(num_train_rows=96))
    _, result = inputs.swept(job)
    ngrams = result["baselines"][result["winner"]["name"]]
    assert result["winner"]["name"] == "word_ngrams" and ngrams["dev"] > result["arms"]["encoder"]["dev_mean"]
    # Of baselines that are equal on dev, the first, which is cheaper.
    assert ngrams["dev"] == max(one["dev"] for one in result["baselines"].values())
    assert result["conclusion"]["sentence"].endswith(result["winner"]["sentence"])
    assert "Exported: word n-grams, linear model" in capsys.readouterr().out

    folder = job.run_folder / "result"
    model, encoder = bertline.load(str(folder / "winner")), bertline.load(str(folder / "best"))
    kind, test = encoder.task.kind, encoder.task.kind.read(job.task_folder, "test")
    right = [each.label == kind.labels[gold] for each, gold in zip(model.predict(test.texts), test.labels, strict=True)]
    assert np.mean(right) == pytest.approx(ngrams["test"])

    standing = standing_of(folder, alias="champion")
    assert (standing.dev.mean, standing.test_score, standing.test_std) == (
        pytest.approx(ngrams["dev"]), ngrams["test"], None
    )  # fmt: skip

    monkeypatch.setattr(results, "noise_of_difference", lambda *measured: 1.0)
    _, within = inputs.swept(replace(job, run_folder=tmp_path / "within"))
    assert within["winner"]["name"] == "encoder" and "beyond the noise" in within["conclusion"]["sentence"]
