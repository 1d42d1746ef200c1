"""A linear-chain conditional random field (CRF) over word labels, in plain PyTorch, and a tagger with a CRF on top.

Shapes: B sentences of at most W words, L labels. Words are padded at the end.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bertline.foundation.errors import ArtifactError
from bertline.modeling.weight_files import read_tensors, write_weights

CRF_NAME = "crf.safetensors"
_NAMES = ("start", "transitions", "end")
# Adam moves a weight by about the learning rate per step, whatever the size of the gradient. At learning rates that
# suit an encoder, transition scores would stay near zero; so a score is this factor times the stored weight.
# (6-layer encoder, WNUT 2017, one epoch at 2e-4: test F1 0.355 with a factor of 1, 0.407 with 100.)
_RATE_FACTOR = 100.0
# Score of transitions forbidden in decoding; finite, so that sums of it stay finite.
_IMPOSSIBLE = -1e4


class LinearChainCrf(nn.Module):
    """A linear-chain CRF: emission scores of the words plus transition scores between neighbouring labels.

    The score of labels y for emissions e is `start[y1] + sum(e[i, yi]) + sum(transitions[yi-1, yi]) + end[yW]`; the
    probability of y is the softmax of the scores over all label sequences.

    Args:
        labels: IOB2 labels. Decoding allows an I- label only after a B- or I- label of the same type; training allows
            all sequences, so that invalid gold tags have a likelihood too.

    References: Lafferty, McCallum and Pereira, "Conditional Random Fields", ICML 2001, section 3; Lample et al.,
    "Neural Architectures for Named Entity Recognition", arXiv 1603.01360, section 2.2.
    """

    start_allowed: Tensor
    allowed: Tensor

    def __init__(self, labels: Sequence[str]) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.zeros(len(labels)))
        self.end = nn.Parameter(torch.zeros(len(labels)))
        # One-dimensional, because `initialize` and weight decay treat a 2-D parameter as a weight matrix.
        self.transitions = nn.Parameter(torch.zeros(len(labels) ** 2))
        self.register_buffer("start_allowed", torch.tensor([not l.startswith("I-") for l in labels]), persistent=False)
        allowed = [[not l.startswith("I-") or previous[1:] == l[1:] for l in labels] for previous in labels]
        self.register_buffer("allowed", torch.tensor(allowed), persistent=False)

    def scores(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return `start` [L], `transitions` [L, L] (from row to column) and `end` [L]."""
        start, transitions, end = (
            weight + (_RATE_FACTOR - 1) * weight.detach() for weight in (self.start, self.transitions, self.end)
        )
        return start, transitions.view(len(start), len(end)), end

    def log_likelihood(self, emissions: Tensor, labels: Tensor, lengths: Tensor) -> Tensor:
        """Return the log probability of label sequences.

        Args:
            emissions: [B, W, L], fp32.
            labels: [B, W]; any valid label id after the last word.
            lengths: [B], words per sentence, at least 1.

        Returns:
            [B], at most 0.
        """
        start, transitions, end = self.scores()
        inside = torch.arange(emissions.shape[1], device=emissions.device) < lengths[:, None]
        of_words = emissions.gather(2, labels[:, :, None])[:, :, 0] * inside
        of_steps = transitions[labels[:, :-1], labels[:, 1:]] * inside[:, 1:]
        last = labels.gather(1, lengths[:, None] - 1)[:, 0]
        score = start[labels[:, 0]] + of_words.sum(1) + of_steps.sum(1) + end[last]
        return score - self.log_partition(emissions, lengths)

    def log_partition(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """Return [B], the log of the sum of `exp(score)` over all label sequences (forward algorithm)."""
        start, transitions, end = self.scores()
        alpha = start + emissions[:, 0]
        for place in range(1, emissions.shape[1]):
            longer = torch.logsumexp(alpha[:, :, None] + transitions, dim=1) + emissions[:, place]
            alpha = torch.where((place < lengths)[:, None], longer, alpha)
        return torch.logsumexp(alpha + end, dim=-1)

    def marginals(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """Return the probability of each label at each word [B, W, L]: the gradient of the log partition function."""
        with torch.enable_grad():
            emissions = emissions.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.log_partition(emissions, lengths).sum(), emissions)
        return gradient

    @torch.no_grad()
    def decode(self, emissions: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Find the best allowed label sequences (Viterbi).

        Args:
            emissions: [B, W, L], fp32.
            lengths: [B], words per sentence, at least 1.

        Returns:
            Labels [B, W], 0 after the last word, and the log probability [B] of each sequence, normalised over all
            sequences including forbidden ones.
        """
        start, transitions, end = self.scores()
        start = start.masked_fill(~self.start_allowed, _IMPOSSIBLE)
        transitions = transitions.masked_fill(~self.allowed, _IMPOSSIBLE)
        stay = torch.arange(emissions.shape[2], device=emissions.device)
        best = start + emissions[:, 0]
        came_from: list[Tensor] = []
        for place in range(1, emissions.shape[1]):
            longer, previous = (best[:, :, None] + transitions).max(dim=1)
            inside = (place < lengths)[:, None]
            best = torch.where(inside, longer + emissions[:, place], best)
            came_from.append(torch.where(inside, previous, stay))
        label = (best + end).argmax(dim=-1)
        path = [label]
        for previous in reversed(came_from):
            label = previous.gather(1, label[:, None])[:, 0]
            path.append(label)
        behind = torch.arange(emissions.shape[1], device=emissions.device) >= lengths[:, None]
        labels = torch.stack(path[::-1], dim=1).masked_fill(behind, 0)
        return labels, self.log_likelihood(emissions, labels, lengths)


class BertForTokenClassificationWithCrf(nn.Module):
    """A token classifier (with the modules of `tagger`) whose logits are the emissions of a CRF over the words.

    On disk it is the plain tagger in Hugging Face format, plus a separate file with the CRF. The labels are IOB2, in
    the order of the tagger's outputs.
    """

    uses_pooler: ClassVar[bool] = False
    tagger: Any
    """The model without its CRF; it shares the weights."""

    def __init__(self, tagger: nn.Module, labels: Sequence[str]) -> None:
        super().__init__()
        for name, module in tagger.named_children():
            self.add_module(name, module)
        self.crf = LinearChainCrf(labels)
        # Not registered as a submodule: this model already has its modules, and each weight must have one name.
        object.__setattr__(self, "tagger", tagger)
        if "bert" not in self._modules:  # a wrapped encoder is a part of the tagger's only module
            object.__setattr__(self, "bert", tagger.bert)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return logits [B, S, num_labels] for every position; those of words are the CRF's emissions."""
        return self.tagger(input_ids, token_type_ids, attention_mask)


def write_crf(crf: LinearChainCrf, folder: Path) -> None:
    """Write the scores (`start`, `transitions`, `end`) atomically to `crf.safetensors`.

    Raises:
        MachineError: The folder is full or cannot be written.
    """
    write_weights(dict(zip(_NAMES, crf.scores(), strict=True)), folder / CRF_NAME)


def read_crf(crf: LinearChainCrf, folder: Path) -> None:
    """Load a CRF from the file written by `write_crf`.

    Raises:
        ArtifactError: The file is missing or truncated, has another number of labels, or has non-finite scores.
    """
    path = folder / CRF_NAME
    scores = read_tensors(path)
    with torch.no_grad():
        for name, expected in zip(_NAMES, crf.scores(), strict=True):
            tensor = scores.get(name)
            if tensor is None or tensor.shape != expected.shape:
                state = "missing" if tensor is None else f"of shape {list(tensor.shape)}"
                raise ArtifactError(f"{path}: {name} is {state}; the task's labels make it {list(expected.shape)}.")
            crf.get_parameter(name).copy_(tensor.flatten() / _RATE_FACTOR)
