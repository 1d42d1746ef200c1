from bertline.training.probe import is_due


class EveryTen:
    every_steps = 10


def test_probes_run_before_the_first_step_every_so_often_and_at_the_end():
    assert [step for step in range(26) if is_due(EveryTen(), step, 25)] == [0, 10, 20, 25]
