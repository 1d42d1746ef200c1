"""Imports without garbage collection and without what Lightning does not use."""

import gc
import json
import subprocess
import sys

import pytest

from bertline.foundation.importing import uncollected_imports


@pytest.fixture
def collector():
    """The collector, which is left as it was."""
    was_enabled = gc.isenabled()
    gc.enable()
    yield
    gc.unfreeze()
    if not was_enabled:
        gc.disable()


def test_nothing_is_collected_meanwhile_and_what_was_made_is_not_looked_at_afterwards(collector):
    gc.unfreeze()
    with uncollected_imports():
        assert not gc.isenabled()
        made = [object]
    assert gc.isenabled() and gc.is_tracked(made)
    assert not any(one is made for generation in range(3) for one in gc.get_objects(generation))


def test_a_failed_import_leaves_the_collector_as_it_was(collector):
    with pytest.raises(ModuleNotFoundError), uncollected_imports():
        import no_such_module  # noqa: F401
    assert gc.isenabled()
    gc.disable()
    with uncollected_imports():
        pass
    assert not gc.isenabled()


LIGHTNING = """
import json, sys
from bertline.foundation.importing import defer_torchmetrics
defer_torchmetrics()
import pytorch_lightning
few = sorted({"scipy", "transformers", "torchmetrics.text"} & sys.modules.keys())
import torchmetrics
from pytorch_lightning.core.module import Metric
all_of_it = "scipy" in sys.modules
known = isinstance(torchmetrics.MeanMetric(), Metric) and torchmetrics.Metric is Metric
from torchmetrics.functional.text import squad
print(json.dumps([few, all_of_it, known, torchmetrics.functional.text.squad is squad, "scipy" in sys.modules]))
"""
SUBMODULE_FIRST = """
import json, sys
from bertline.foundation.importing import defer_torchmetrics
defer_torchmetrics()
from torchmetrics.functional.text import squad
import torchmetrics
known = isinstance(torchmetrics.text.SQuAD(), torchmetrics.Metric)
print(json.dumps([torchmetrics.functional.text.squad is squad, known]))
"""


def printed_by(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_lightning_alone_does_not_import_all_metrics_and_they_are_there_for_whoever_asks():
    assert printed_by(LIGHTNING) == [[], False, True, True, True]


def test_metrics_imported_before_lightning_are_the_same_objects():
    assert printed_by(SUBMODULE_FIRST) == [True, True]
