import torch
from torch import nn

from bertline.training.devices import Machine, Ranks
from bertline.training.probe import evaluating, is_due


class EveryTen:
    every_steps = 10


def test_probes_run_before_the_first_step_every_so_often_and_at_the_end():
    assert [step for step in range(26) if is_due(EveryTen(), step, 25)] == [0, 10, 20, 25]


def machine(precision: str) -> Machine:
    return Machine(device=torch.device("cpu"), precision=precision, compile=False, ranks=Ranks())


def test_inside_there_is_no_dropout_and_no_gradient_and_outside_training_continues():
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    ones = torch.ones(1, 4)
    with evaluating(module, machine("fp32")) as run:
        first, second = run(ones), run(ones)
    assert torch.equal(first, second)
    assert not first.requires_grad
    assert module.training and module[1].training


def test_precision_is_that_of_training():
    module = nn.Linear(4, 4)
    for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        with evaluating(module, machine(precision)) as run:
            assert run(torch.ones(1, 4)).dtype == dtype


def test_a_part_that_was_not_in_training_is_not_afterwards():
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    module[1].eval()
    with evaluating(module, machine("fp32")):
        assert not module.training
    assert module.training and module[0].training and not module[1].training
