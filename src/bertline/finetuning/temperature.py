"""Temperature scaling: logits are divided by one temperature, which improves the calibration of the probabilities.

Scaling keeps the order of the labels. The temperature maximizes the likelihood of the dev labels. It is applied to
probabilities, whose logarithms are logits up to a constant that the softmax removes, so it also works on the pooled
probabilities of windows.

References:
    Guo et al. 2017, On Calibration of Modern Neural Networks (arXiv 1706.04599), section 4.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

TEMPERATURE = "temperature"
_LOWEST, _HIGHEST = 0.05, 20.0
# Lower clip of probabilities: those rounded to 0 or 1 have no finite logits.
_LEAST = 1e-12


def with_softmax_temperature(probabilities: NDArray[np.floating], temperature: float) -> NDArray[np.float32]:
    """Rescale softmax probabilities [N, L] of one label per row.

    >>> with_softmax_temperature(np.array([[0.9, 0.1]]), 2.0).round(3).tolist()
    [[0.75, 0.25]]
    """
    return np.exp(_softmax_log(_logs(probabilities), temperature)).astype(np.float32)


def with_sigmoid_temperature(probabilities: NDArray[np.floating], temperature: float) -> NDArray[np.float32]:
    """Rescale sigmoid probabilities [N, L] of independent labels."""
    return (1 / (1 + np.exp(-_logits(probabilities) / temperature))).astype(np.float32)


def softmax_temperature(probabilities: NDArray[np.floating], gold: NDArray[np.integer]) -> float:
    """Return the temperature with the highest likelihood of the gold labels [N], one per row."""
    logs, rows = _logs(probabilities), np.arange(len(gold))
    return _likeliest(lambda temperature: -float(_softmax_log(logs, temperature)[rows, gold].mean()))


def sigmoid_temperature(probabilities: NDArray[np.floating], gold: NDArray[np.integer]) -> float:
    """Return the temperature with the highest likelihood of independent gold labels [N, L], each 0 or 1."""
    signed = np.where(gold == 1, 1.0, -1.0) * _logits(probabilities)
    return _likeliest(lambda temperature: float(np.logaddexp(0.0, -signed / temperature).mean()))


def _likeliest(loss: Callable[[float], float]) -> float:
    """Return the temperature with the lowest loss, assumed unimodal; 1 if no other is better."""
    from scipy.optimize import minimize_scalar

    found = minimize_scalar(
        lambda log: loss(math.exp(log)), bounds=(math.log(_LOWEST), math.log(_HIGHEST)), method="bounded"
    )
    best = math.exp(float(found.x))
    return best if loss(best) < loss(1.0) else 1.0


def _softmax_log(logs: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    scaled = logs / temperature
    return scaled - np.logaddexp.reduce(scaled, axis=1, keepdims=True)


def _logs(probabilities: NDArray[np.floating]) -> NDArray[np.float64]:
    return np.log(np.maximum(probabilities.astype(np.float64), _LEAST))


def _logits(probabilities: NDArray[np.floating]) -> NDArray[np.float64]:
    clipped = np.clip(probabilities.astype(np.float64), _LEAST, 1 - _LEAST)
    return np.log(clipped) - np.log1p(-clipped)
