"""Predicted tags of words, by an encoder or by a linear model."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class TagPredictions:
    """Predicted labels of N rows."""

    labels: list[NDArray[np.int64]]
    """For each row, the label ids of its words."""
    confidences: NDArray[np.float64]
    """Probability of each row's labels as a sequence [N]."""
    word_confidences: list[NDArray[np.float64]] = field(default_factory=list)
    """For each row, the marginal probability of each word's label; empty if the predictor provides none."""
    word_log_probabilities: list[NDArray[np.float64]] = field(default_factory=list)
    """For each row, label log probabilities [words, L]; empty if labels are not decided word by word."""
