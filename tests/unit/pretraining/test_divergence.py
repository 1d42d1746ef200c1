"""What the guard takes from the run's inputs; what it decides is tested in tests/integration."""

import json
import shutil

import pytest

import tiny
from bertline.foundation.files import read_json_lines
from bertline.pretraining.health import DivergenceGuard
from bertline.pretraining.plan import Plan


@pytest.mark.parametrize(("random_next_prob", "chance"), [(0.9, 0.9), (0.1, 0.9), (0.5, 0.5)])
def test_chance_of_nsp_is_that_of_the_examples(pretraining, inputs, make_job, tmp_path, random_next_prob, chance):
    examples = tmp_path / "inputs" / "examples"
    shutil.copytree(inputs, tmp_path / "inputs")
    manifest = json.loads((examples / "manifest.json").read_text())
    (examples / "manifest.json").write_text(json.dumps({**manifest, "random_next_prob": random_next_prob}))
    health = {**pretraining._sections()["pretrain"]["health"], "patience_steps": 20}
    phases = [{"steps": 200, "max_length": 16, "global_batch_size": 8}]
    job = pretraining.pretrain_job(
        tmp_path / "inputs", tmp_path / "run", pretrain__health=health, pretrain__phases=phases
    )
    job.run_folder.mkdir()
    guard = DivergenceGuard(job, Plan.of(job.pretrain), tiny.machine(), [])
    learnt = {
        "train/loss": 1.0,
        "train/mlm_loss": 1.0,
        "optim/grad_norm": 1.0,
        "optim/skipped_steps": 0.0,
        "perf/data_wait_fraction": 0.0,
    }
    for step, accuracy in ((40, chance + 0.05), (60, chance + 0.05), (80, chance), (100, chance)):
        assert guard.accepts_row(step, {**learnt, "train/nsp_accuracy": accuracy}, num_steps=20)
    alarms = read_json_lines(job.health_path)
    assert [(alarm["kind"], alarm["step"]) for alarm in alarms] == [("nsp_at_chance", 80)]
    assert f"gives {chance:g}" in alarms[0]["message"]
