"""Rules of thumb: how large a model, how large a step and how high a rate suit an amount of arithmetic and of text.

Two rules say how many tokens a parameter needs, and they disagree. Neither is an exact law for an encoder of one's own.

- That of decoders, which chooses the size: the 20 tokens a parameter of Hoffmann et al. (arXiv 2203.15556), in the form
  that knows what repeated text is worth, carried over with a token counted when it is a target: at 15 % targets 20
  become 133 tokens of text. Encoders in use agree: BERT saw 40 epochs (arXiv 1810.04805, A.2), and 64 passes over a
  text cost a denoising T5 next to nothing where 1,024 cost it much (arXiv 1910.10683, section 3.4.2).
- That of encoders: Dervishi, Allauzen, Synnaeve and LeCun, "Training compute-optimal transformer encoder models", EMNLP
  2025 (2025.emnlp-main.1804), fitted on hundreds of runs with masked language modelling: the best ratio of tokens to
  parameters is 10 to 100 times that of decoders. Only this range, from its abstract, is used; the coefficients of its
  fit are not built in.
"""

from __future__ import annotations

import math

# Muennighoff et al., arXiv 2305.16264, section 3.1 and appendix A: Hoffmann's law fitted anew, and how fast
# repeated data and surplus parameters lose worth.
_A, _B, _E = 521.0, 1488.0, 1.87
_EXPONENT = 0.353
_REPEATED_DATA = 15.39
_SURPLUS_PARAMETERS = 5.31

DECODER_TOKENS_PER_PARAMETER = 20.0
"""Hoffmann et al., arXiv 2203.15556, section 3.4: of a decoder, whose every token is a target."""
_ENCODER_FACTORS = (10.0, 100.0)  # Dervishi et al., EMNLP 2025, abstract

# Muennighoff et al., section 6: up to four epochs are as good as new text.
_EPOCHS_AS_GOOD_AS_NEW = 4

# DeepSeek LLM, arXiv 2401.02954, section 3.1, equation 1: tokens a step and rate, of the operations of the whole run.
_BATCH = (0.2920, 0.3271)
_RATE = (0.3118, -0.1250)
# Norms after the layers, as in BERT, bear less than norms before them: half the rate is what encoders took with success
# (3e-3 at 1e14 operations, the default line here; 5e-4 at 2e19, MosaicBERT, arXiv 2312.17482; 6e-4 at 1e21, RoBERTa).
_POST_NORM_SHARE = 0.5


def expected_loss(parameters: float, targets: float, unique_targets: float | None) -> float:
    """Loss by the law, to put models into an order; as a number of nats it means nothing for an encoder.

    Args:
        parameters: Those of the layers.
        targets: Predicted over the whole run.
        unique_targets: Tokens of the text; None where they do not run out.

    Example:
        Twice the text is better than the same text twice:

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
    """Tokens of text for each parameter, where only targets count.

    >>> round(decoder_rule(0.15))
    133
    """
    return DECODER_TOKENS_PER_PARAMETER / mask_prob


def encoder_rule() -> tuple[float, float]:
    """Tokens of text for each parameter, least and most: 10 to 100 times those of decoders, targets or not.

    References:
        Dervishi et al., "Training compute-optimal transformer encoder models", EMNLP 2025, abstract.

    >>> encoder_rule()
    (200.0, 2000.0)
    """
    low, high = _ENCODER_FACTORS
    return low * DECODER_TOKENS_PER_PARAMETER, high * DECODER_TOKENS_PER_PARAMETER


def epochs_worth_taking(mask_prob: float) -> float:
    """Passes over the text until each of its tokens has been a target four times.

    >>> round(epochs_worth_taking(0.15), 1)
    26.7
    """
    return _EPOCHS_AS_GOOD_AS_NEW / mask_prob


def batch_tokens(flops: float) -> float:
    """Tokens a step.

    >>> round(batch_tokens(8e18), -3)
    445000.0
    """
    factor, exponent = _BATCH
    return factor * flops**exponent


def learning_rate(flops: float) -> float:
    """Peak rate of AdamW, to two digits.

    >>> learning_rate(1e14), learning_rate(2e19)
    (0.0028, 0.0006)
    """
    factor, exponent = _RATE
    rate = _POST_NORM_SHARE * factor * flops**exponent
    digits = 1 - math.floor(math.log10(rate))
    return round(rate, digits)


def _decayed(amount: float, unique: float, constant: float) -> float:
    """What an amount is worth of which `unique` are new and the rest repeats them."""
    return unique * (1 + constant * (1 - math.exp(-(amount / unique - 1) / constant)))
