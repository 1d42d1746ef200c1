import torch
from torch import nn

from bertline.training.devices import Machine, Ranks
from bertline.training.probe import DueProbes, evaluating, is_due


class EveryTen:
    every_steps = 10


def test_probes_run_before_the_first_step_every_so_often_and_at_the_end():
    assert [step for step in range(26) if is_due(EveryTen(), step, 25)] == [0, 10, 20, 25]


class EveryTwo:
    every_steps = 2


def measured(every_s, step_s):
    """The steps after which each of two probes measures, of 24 that take so long."""
    clock, found, probes = [0.0], ([], []), [EveryTen(), EveryTwo()]
    due = DueProbes(probes, 24, every_s, machine("fp32"), lambda: clock[0])
    for step in range(25):
        for probe in due.after(step):
            found[probes.index(probe)].append(step)
        clock[0] += step_s
    return found


def test_by_the_clock_a_probe_is_left_out_until_its_last_measurement_is_long_ago():
    assert measured(None, 1.0) == ([0, 10, 20, 24], [*range(0, 25, 2)])
    assert measured(5.0, 1.0) == ([0, 10, 20, 24], [0, 6, 12, 18, 24])
    assert measured(15.0, 1.0) == ([0, 20, 24], [0, 16, 24])
    assert measured(100.0, 1.0) == ([0, 24], [0, 24])
    assert measured(100.0, 60.0) == ([0, 10, 20, 24], [*range(0, 25, 2)])


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
