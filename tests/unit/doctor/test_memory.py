"""Memory of each phase against what a rank has."""

from __future__ import annotations

import pytest
import torch

from bertline.doctor.memory import checkpoint_bytes, gradient_bytes, memory_findings, training_on
from bertline.foundation.errors import ConfigError

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def found(config, memory_bytes, device=CPU, chosen_by_hand=False, num_ranks=1):
    training = training_on(config, device)
    return list(memory_findings(training, memory_bytes, num_ranks=num_ranks, chosen_by_hand=chosen_by_hand))


@pytest.fixture
def large(config, monkeypatch):
    """BERT-large with its two phases, on a device with bf16."""
    monkeypatch.setattr("bertline.doctor.memory.resolve_precision", lambda asked, device: "bf16")
    return config("experiment=bert_large")


def test_each_phase_has_a_line_and_what_fits_is_green(large):
    lines = found(large, 2 * 10**12, GPU)
    assert [(one.check, one.status) for one in lines] == [("memory: phase 1", "green"), ("memory: phase 2", "green")]
    assert lines[1].measured["needed_bytes"] > 100e9  # all of 256 x 512 at once


def test_a_phase_that_is_too_large_is_a_note_where_training_looks_for_what_fits_and_red_where_it_is_set(large):
    assert [one.status for one in found(large, 80 * 10**9, GPU)] == ["green", "note"]
    line = found(large, 80 * 10**9, GPU, chosen_by_hand=True)[1]
    assert (line.status, "runtime.micro_batch_size=" in line.fix) == ("red", True)
    assert found(large, 80 * 10**9, CPU)[1].status == "red"


def test_a_model_that_does_not_fit_at_all_is_red(large):
    line = found(large, 4 * 10**9, GPU)[0]
    assert (line.status, "not even one sequence fits" in line.found) == ("red", True)


def test_more_ranks_than_sequences_is_an_error_of_the_configuration(config):
    with pytest.raises(ConfigError, match="global_batch_size"):
        found(config(), 10**12, num_ranks=100_000)


def test_gradients_and_checkpoints_have_the_size_of_the_weights(config):
    training = training_on(config("experiment=bert_base"), CPU)
    assert gradient_bytes(training) == 4 * 110_106_428
    assert checkpoint_bytes(training) == 3 * gradient_bytes(training)  # AdamW: two moments
