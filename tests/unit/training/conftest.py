import pytest

from bertline.training.config import RuntimeConfig


@pytest.fixture
def runtime():
    """A maker of runtime sections: a small CPU one, with changes."""

    def make(**changes):
        plain = {
            "device": "cpu",
            "num_devices": 1,
            "num_nodes": 1,
            "num_workers": 0,
            "num_threads": None,
            "micro_batch_size": None,
            "compile": "off",
            "attention": "auto",
            "launcher": "local",
            "sweep_workers": 1,
            "runs_folder": "runs",
            "progress_every_s": 10.0,
        }
        return RuntimeConfig(**{**plain, **changes})

    return make
