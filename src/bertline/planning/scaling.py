"""Scaling rules: model size, batch size and learning rate for a given amount of compute and text.

Two rules give the number of tokens per parameter, and they disagree. Neither is an exact law for a given encoder.

- The decoder rule, which chooses the size: the 20 tokens per parameter of Hoffmann et al. (arXiv 2203.15556), in the
  form that accounts for repeated text, applied to encoders by counting a token only when it is a target: at 15 %
  targets, 20 become 133 tokens of text. Published encoders agree: BERT was trained for 40 epochs (arXiv 1810.04805,
  A.2), and 64 passes over a text cost a denoising T5 almost nothing, while 1,024 cost it much (arXiv 1910.10683,
  section 3.4.2).
- The encoder rule: Dervishi, Allauzen, Synnaeve and LeCun, "Training compute-optimal transformer encoder models", EMNLP
  2025 (2025.emnlp-main.1804), fitted on hundreds of runs with masked language modelling: the best ratio of tokens to
  parameters is 10 to 100 times that of decoders. Only this range, from its abstract, is used, not the coefficients of
  its fit.
"""

from __future__ import annotations

import math

# Muennighoff et al., arXiv 2305.16264, section 3.1 and appendix A: Hoffmann's law refitted, and the decay constants of
# repeated data and excess parameters.
_A, _B, _E = 521.0, 1488.0, 1.87
_EXPONENT = 0.353
_REPEATED_DATA = 15.39
_SURPLUS_PARAMETERS = 5.31

DECODER_TOKENS_PER_PARAMETER = 20.0
"""Tokens per parameter of a decoder, where every token is a target (Hoffmann et al., arXiv 2203.15556, section 3.4)."""
_ENCODER_FACTORS = (10.0, 100.0)  # Dervishi et al., EMNLP 2025, abstract

# Muennighoff et al., section 6: up to four epochs are as good as new text.
_EPOCHS_AS_GOOD_AS_NEW = 4

# DeepSeek LLM, arXiv 2401.02954, section 3.1, equation 1: tokens per step and learning rate by the FLOPs of the run.
_BATCH = (0.2920, 0.3271)
_RATE = (0.3118, -0.1250)
# Post-norm layers, as in BERT, tolerate lower learning rates than pre-norm layers: half the rate matches those of
# successful encoders (3e-3 at 1e14 FLOPs, an earlier default here, with AdamW; 5e-4 at 2e19, MosaicBERT, arXiv
# 2312.17482; 6e-4 at 1e21, RoBERTa).
_POST_NORM_SHARE = 0.5


def expected_loss(parameters: float, targets: float, unique_targets: float | None) -> float:
    """Return the loss by the scaling law, for comparing models; its value in nats is meaningless for an encoder.

    Args:
        parameters: Number of parameters of the layers.
        targets: Number of tokens predicted over the whole run.
        unique_targets: Number of tokens of the text; None if it is unlimited.

    Example:
        Twice the text is better than two epochs of the same text:

        >>> expected_loss(1e7, 2e8, 2e8) < expected_loss(1e7, 2e8, 1e8) < expected_loss(1e7, 1e8, 1e8)
        True

    References:
        Muennighoff et al., arXiv 2305.16264, section 3.1.
    """
    if unique_targets is not None:
        best = min(parameters, unique_targets * (_A / _B) ** (1 / _EXPONENT))
        parameters = _decayed(parameters, best, _SURPLUS_PARAMETERS)
        targets = _decayed(targets, min(targets, unique_targets), _REPEATED_DATA)
    return _E + _A / parameters**_EXPONENT + _B / targets**_EXPONENT


def decoder_rule(mask_prob: float) -> float:
    """Return the tokens of text per parameter by the decoder rule, which counts only targets.

    >>> round(decoder_rule(0.15))
    133
    """
    return DECODER_TOKENS_PER_PARAMETER / mask_prob


def encoder_rule() -> tuple[float, float]:
    """Return the minimum and maximum tokens of text per parameter by the encoder rule.

    They are 10 and 100 times the number for decoders; every token counts, target or not.

    References:
        Dervishi et al., "Training compute-optimal transformer encoder models", EMNLP 2025, abstract.

    >>> encoder_rule()
    (200.0, 2000.0)
    """
    low, high = _ENCODER_FACTORS
    return low * DECODER_TOKENS_PER_PARAMETER, high * DECODER_TOKENS_PER_PARAMETER


def epochs_worth_taking(mask_prob: float) -> float:
    """Return the number of epochs after which each token has been a target four times on average.

    >>> round(epochs_worth_taking(0.15), 1)
    26.7
    """
    return _EPOCHS_AS_GOOD_AS_NEW / mask_prob


def batch_tokens(flops: float) -> float:
    """Return the tokens per step for a run of `flops` FLOPs.

    >>> round(batch_tokens(8e18), -3)
    445000.0
    """
    factor, exponent = _BATCH
    return factor * flops**exponent


def learning_rate(flops: float) -> float:
    """Return the peak learning rate of AdamW for a run of `flops` FLOPs, rounded to two digits.

    >>> learning_rate(1e14), learning_rate(2e19)
    (0.0028, 0.0006)
    """
    factor, exponent = _RATE
    rate = _POST_NORM_SHARE * factor * flops**exponent
    digits = 1 - math.floor(math.log10(rate))
    return round(rate, digits)


def _decayed(amount: float, unique: float, constant: float) -> float:
    """Return the effective amount of data or parameters, of which `unique` count fully and the rest with decay."""
    return unique * (1 + constant * (1 - math.exp(-(amount / unique - 1) / constant)))
