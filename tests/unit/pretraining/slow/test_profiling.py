"""`runtime.profile`: a few steps are looked at and nothing else changes."""

import json

import torch

from bertline.pretraining.run import run_pretraining
from tiny import load_pretraining_model


def test_a_profiled_run_leaves_a_profile_and_trains_the_same(make_job):
    plain, profiled = make_job("plain"), make_job("profiled", runtime__profile=True)
    run_pretraining(plain)
    run_pretraining(profiled)
    folder = profiled.run_folder / "profile"
    assert "aten::" in (folder / "fit-top_operations.txt").read_text()
    (trace,) = folder.glob("*.json")
    events = json.loads(trace.read_bytes())["traceEvents"]
    assert sum(event.get("name", "").startswith("ProfilerStep#") for event in events) == 5
    assert not (plain.run_folder / "profile").exists()
    expected = load_pretraining_model(plain.result_folder).state_dict()
    for name, tensor in load_pretraining_model(profiled.result_folder).state_dict().items():
        assert torch.equal(tensor, expected[name]), name
