"""`runtime.profile`: a few steps are looked at and nothing else changes."""

import gzip
import json

import torch

from bertline.pretraining.run import run_pretraining
from tiny import load_pretraining_model


def test_a_profiled_run_says_where_its_profile_is_and_trains_the_same(make_job, capsys):
    plain, profiled = make_job("plain"), make_job("profiled", runtime__profile=True)
    run_pretraining(plain)
    capsys.readouterr()
    run_pretraining(profiled)
    assert str(profiled.profile_folder) in capsys.readouterr().out
    table = profiled.profile_folder / "top_operations.txt"
    assert table.read_text().startswith("5 steps\n")
    assert sum("aten::" in line for line in table.read_text().splitlines()) > 5
    trace = json.loads(gzip.decompress((profiled.profile_folder / "trace.json.gz").read_bytes()))
    steps = [event for event in trace["traceEvents"] if event.get("name", "").startswith("ProfilerStep#")]
    assert len(steps) == 5
    assert not plain.profile_folder.exists()
    expected = load_pretraining_model(plain.result_folder).state_dict()
    for name, tensor in load_pretraining_model(profiled.result_folder).state_dict().items():
        assert torch.equal(tensor, expected[name]), name
