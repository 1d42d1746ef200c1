"""Promise 3 over a whole training: the loss is that of the global batch, however many ranks share it unequally."""

import torch

import pretraining_processes as processes
from pretraining_inputs import newest_state, pretrain_job, write_inputs
from rank_curves import assert_same_curves


def test_four_ranks_give_the_curve_of_one(tmp_path):
    assert_same_curves(tmp_path, [4], {}, rel=1e-3)


def test_with_dropout_two_ranks_end_in_the_weights_of_one(tmp_path):
    write_inputs(tmp_path)
    changes = {"pretrain__phases": [{"steps": 6, "max_length": 16, "global_batch_size": 16}], "runtime__packing": "off"}
    alone, two = (pretrain_job(tmp_path, tmp_path / name, **changes) for name in ("alone", "two"))
    assert alone.model.hidden_dropout_prob == alone.model.attention_probs_dropout_prob == 0.1
    processes.finish(processes.start(tmp_path, alone.run_folder, changes))
    packed = {**changes, "runtime__packing": "on", "runtime__micro_batch_size": 2}
    processes.finish(*processes.start_ranks(tmp_path, [two.run_folder] * 2, packed))
    expected, found = newest_state(alone)["model"], newest_state(two)["model"]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
