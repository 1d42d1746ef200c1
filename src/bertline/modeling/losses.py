"""Losses; those of pretraining are sums and counts, so that the caller can take the mean over the global batch.

A mean per micro-batch would give targets in micro-batches with few targets a larger weight.
Shapes: B sequences, P masked positions, V vocabulary size, R rows of S positions.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from bertline.foundation.labels import IGNORED_LABEL


def masked_lm_loss_sum(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cross-entropy of the masked language model, summed over the targets.

    Args:
        logits: [..., P, V], any floating-point dtype; the loss is computed in fp32.
        labels: [..., P] token ids, -100 in unused positions.

    Returns:
        Sum of the losses in nats (fp32 scalar, 0 without targets) and number of targets (int64 scalar).

    >>> loss, targets = masked_lm_loss_sum(torch.zeros(1, 2, 8), torch.tensor([[3, -100]]))
    >>> f"{loss.item():.4f} nats over {targets.item()} target"  # a uniform guess among 8 costs ln 8
    '2.0794 nats over 1 target'

    Reference: Devlin et al., BERT (arXiv 1810.04805), section 3.1, task 1.
    """
    loss = F.cross_entropy(logits.flatten(0, -2).float(), labels.flatten(), ignore_index=IGNORED_LABEL, reduction="sum")
    return loss, (labels != IGNORED_LABEL).sum()


def masked_lm_correct(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the number of targets [..., P] whose highest logit [..., P, V] is that of the true token (int64 scalar).

    Ties go to the first token, as with `argmax`. The index is computed from the maximum, which the loss computes too,
    so the compiler fuses the work into the loops of the loss; it cannot do that with `argmax`.

    >>> masked_lm_correct(torch.tensor([[[0.1, 0.9], [0.8, 0.2]]]), torch.tensor([[1, -100]])).item()
    1
    """
    scores = logits.flatten(0, -2).float()
    places = torch.arange(scores.shape[-1], dtype=torch.int32, device=scores.device)
    is_highest = scores == scores.amax(-1, keepdim=True)
    first = torch.where(is_highest, places, scores.shape[-1]).amin(-1)
    return (first == labels.flatten()).sum()


def sequence_loss_sum(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of one label per sequence in nats (fp32 scalar), summed over the sequences.

    Args:
        logits: [B, number of labels].
        labels: [B], -100 in unused entries.

    Reference: Devlin et al., BERT (arXiv 1810.04805), section 3.1, task 2.
    """
    return F.cross_entropy(logits.float(), labels, ignore_index=IGNORED_LABEL, reduction="sum")


def sequences_correct(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the number of sequences whose highest logit [B, labels] is that of the label (int64 scalar)."""
    return (logits.argmax(-1) == labels).sum()


def info_nce_sums(a: Tensor, b: Tensor, is_used: Tensor, *, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the symmetric InfoNCE loss of N pairs, summed over the pairs, and how many partners are nearest.

    Each vector of `a` has its partner among all of `b`, and the other way round; the losses and the counts of the two
    directions are averaged. Similarities are cosines, in fp32.

    Args:
        a: [N, H].
        b: [N, H]; row i is the partner of row i of `a`.
        is_used: [N] bool; other pairs are neither compared nor compared with.
        temperature: Divisor of the cosines.

    Returns:
        Sum of the losses in nats and number of partners found, both fp32 scalars.

    >>> a = torch.eye(2)
    >>> loss, found = info_nce_sums(a, a, torch.tensor([True, True]), temperature=1.0)
    >>> round(loss.item(), 4), found.item()  # twice log(1 + exp(0 - 1))
    (0.6265, 2.0)

    References:
        van den Oord et al. (arXiv 1807.03748), equation 4; in both directions: CLIP (arXiv 2103.00020), figure 3.
    """
    with torch.autocast(a.device.type, enabled=False):  # bf16 cannot tell cosines apart that differ by 0.004
        cosines = F.normalize(a.float(), dim=-1) @ F.normalize(b.float(), dim=-1).T
    logits = (cosines / temperature).masked_fill(~(is_used[:, None] & is_used), -1e4)
    labels = torch.arange(len(a), device=a.device).masked_fill(~is_used, IGNORED_LABEL)
    loss = sequence_loss_sum(logits, labels) + sequence_loss_sum(logits.T, labels)
    correct = sequences_correct(logits, labels) + sequences_correct(logits.T, labels)
    return loss / 2, correct.float() / 2


def shared_token_sums(
    logits: Tensor, input_ids: Tensor, token_type_ids: Tensor, sequence_ids: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss of telling which tokens both segments of a sequence have, what is right, and what is not shared.

    Every token counts as it is read, masked and special ones too. Each sequence counts the same, whatever its length.

    Args:
        logits: [R, S]; above 0 means that the other segment has the token.
        input_ids: [R, S].
        token_type_ids: [R, S], 0 for segment A, 1 for segment B.
        sequence_ids: [R, S], different for the sequences of a row, 0 in padding, which does not count.

    Returns:
        Sums over sequences of the mean cross-entropy of their tokens in nats, of the share of their tokens that is
        judged right, and of the share that the other segment lacks, which is right without looking; fp32 scalars.

    >>> ids, segments = torch.tensor([[7, 8, 9, 8, 0]]), torch.tensor([[0, 0, 1, 1, 0]])
    >>> logits = torch.tensor([[-9.0, 9.0, 9.0, 9.0, 0.0]])  # wrong on the 9
    >>> loss, right, absent = shared_token_sums(logits, ids, segments, (ids > 0).long())
    >>> round(loss.item(), 2), right.item(), absent.item()
    (2.25, 0.75, 0.5)
    """
    together = sequence_ids[:, :, None] == sequence_ids[:, None, :]
    others = together & (token_type_ids[:, :, None] != token_type_ids[:, None, :])
    is_shared = (others & (input_ids[:, :, None] == input_ids[:, None, :])).any(-1)
    weights = (sequence_ids > 0) / together.sum(-1, dtype=torch.int32)
    loss = F.binary_cross_entropy_with_logits(logits.float(), is_shared.float(), reduction="none")
    is_right = (logits > 0) == is_shared
    return (loss * weights).sum(), (is_right * weights).sum(), (~is_shared * weights).sum()


def sampled_tokens(logits: Tensor, draws: Tensor) -> Tensor:
    """Return [..., P] a token for each position, drawn from the softmax of its logits.

    The token is the first whose cumulative probability exceeds the draw, so the same draw picks the same token in any
    batch, up to rounding.

    Args:
        logits: [..., P, V]; no gradient flows through the choice.
        draws: [..., P] integers, uniform from 0 to 2**31 - 1.

    >>> logits = torch.tensor([[0.5, 0.25, 0.25]]).log()
    >>> [sampled_tokens(logits, torch.tensor([int(share * 2**31)])).item() for share in (0.4, 0.6, 0.9)]
    [0, 1, 2]

    Reference: Clark et al., ELECTRA (arXiv 2003.10555), section 2 and appendix F: sampled, not the most likely ones.
    """
    cumulative = logits.detach().float().softmax(-1).cumsum(-1)
    threshold = (draws[..., None] + 0.5) / 2**31 * cumulative[..., -1:]
    return torch.searchsorted(cumulative, threshold).squeeze(-1).clamp(max=logits.shape[-1] - 1)


def replaced_token_sums(logits: Tensor, is_replaced: Tensor, is_real: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss of telling replaced tokens from those of the text, what is right, and what is not replaced.

    Args:
        logits: [B, S]; above 0 means replaced.
        is_replaced: [B, S] bool; a pick of the generator that is the true token is not replaced.
        is_real: [B, S] bool; padding does not count.

    Returns:
        Sums over the real tokens, fp32 scalars: cross-entropy in nats, tokens judged right, tokens not replaced.

    Reference: Clark et al., ELECTRA (arXiv 2003.10555), section 2.
    """
    losses = F.binary_cross_entropy_with_logits(logits.float(), is_replaced.float(), reduction="none")
    is_right = (logits > 0) == is_replaced
    return (losses * is_real).sum(), (is_right & is_real).sum().float(), (~is_replaced & is_real).sum().float()


def softmax_divergence(logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Return the divergence [...] of a student's distribution from its teacher's, in nats, times temperature squared.

    Both logits [..., L] are divided by the temperature. The factor keeps the size of the gradient, which falls with the
    square of the temperature. The divergence is the cross-entropy of the paper less a constant, so that a student that
    equals its teacher has the loss 0.

    >>> loss = softmax_divergence(torch.tensor([0.0, 0.0]), torch.tensor([20.0, 0.0]), 1.0)
    >>> round(loss.exp().item(), 4)  # a uniform guess where the teacher is sure of one of two
    2.0

    Reference: Hinton et al. 2015, Distilling the Knowledge in a Neural Network (arXiv 1503.02531), section 2.
    """
    student, target = (torch.log_softmax(each / temperature, dim=-1) for each in (logits, teacher))
    return F.kl_div(student, target, reduction="none", log_target=True).sum(-1) * temperature**2


def sigmoid_divergence(logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Return the `softmax_divergence` of each independent label [...], whose two outcomes have the logits z and 0."""
    student, target = (torch.stack([each, torch.zeros_like(each)], dim=-1) for each in (logits, teacher))
    return softmax_divergence(student, target, temperature)


def vector_distance(vectors: Tensor, teacher: Tensor) -> Tensor:
    """Return the squared distance [N] of vectors [N, H] from the teacher's; of unit vectors it is 2 - 2 cosine.

    Reference: Reimers and Gurevych 2020 (arXiv 2004.09813), section 2.
    """
    return (vectors - teacher).square().sum(-1)


def soft_target_loss_sum(logits: Tensor, teacher_logits: Tensor, labels: Tensor, *, temperature: float) -> Tensor:
    """Return the `softmax_divergence` [..., P] of logits [..., P, V], summed over the targets (labels not -100).

    Reference: Sanh et al., DistilBERT (arXiv 1910.01108), section 2.
    """
    divergences = softmax_divergence(logits.float(), teacher_logits.float(), temperature)
    return (divergences * (labels != IGNORED_LABEL)).sum()


def cosine_distance_sum(states: Tensor, teacher_states: Tensor, is_real: Tensor) -> Tensor:
    """Return 1 less the cosine of two hidden states [..., H], summed over the real positions [...] bool, in fp32.

    Reference: Sanh et al., DistilBERT (arXiv 1910.01108), section 3.
    """
    return ((1 - F.cosine_similarity(states.float(), teacher_states.float(), dim=-1)) * is_real).sum()


def focal_factor(log_probabilities: Tensor, gamma: float) -> Tensor:
    """Return the factors (1 - p)^gamma by which the focal loss multiplies the cross-entropy of each target.

    Targets that the model is sure of count little, so that rare and hard ones decide.

    Args:
        log_probabilities: Logarithms of the probabilities p that the model gives to the true labels, of any shape.
        gamma: At least 0; 0 gives 1 everywhere, which is cross-entropy.

    >>> focal_factor(torch.tensor([0.5, 0.9]).log(), 2.0)
    tensor([0.2500, 0.0100])

    References: Lin et al., Focal Loss for Dense Object Detection (arXiv 1708.02002), section 3.2, equation 4;
    `class_weights` are the alpha of equation 5.
    """
    # Below 1, the power has no finite gradient at 0, where p is 1 to rounding.
    return (-torch.expm1(log_probabilities)).clamp_min(torch.finfo(log_probabilities.dtype).tiny) ** gamma


def pair_similarity_loss(vectors: Tensor, labels: Tensor) -> Tensor:
    """Return the squared error of the cosines of all pairs of a batch, which are to be 1 for equal labels and 0 for
    others; both sorts of pairs weigh the same.

    Args:
        vectors: [B, H] of length 1.
        labels: [B].

    >>> apart = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> labels = torch.tensor([[0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 0, 0]])
    >>> [round(pair_similarity_loss(apart, each).item(), 3) for each in labels]
    [0.0, 0.75, 0.667]

    Reference: Tunstall et al., SetFit (arXiv 2209.11055), section 3.1, with all pairs of a batch at once.
    """
    same = labels[:, None] == labels
    errors = (vectors @ vectors.T - same.float()).square()
    pairs = same & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device), ~same
    return torch.stack([errors[sort].mean() for sort in pairs if sort.any()]).mean()
