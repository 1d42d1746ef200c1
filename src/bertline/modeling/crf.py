"""A linear-chain conditional random field over the labels of words, in plain PyTorch, and a tagger that ends in one.

B sentences of W words at most, L labels. Words are padded at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bertline.foundation.errors import ArtifactError, MachineError
from bertline.foundation.files import cannot_write
from bertline.modeling.heads import BertForTokenClassification
from bertline.modeling.weight_files import require_finite

CRF_NAME = "crf.safetensors"
_NAMES = ("start", "transitions", "end")
# Adam moves a weight by about the learning rate a step, however steep the loss. At the rates an encoder bears, scores
# of transitions would stay near zero; so they are worth this many times what is stored in the weight.
# (A 6-layer encoder on WNUT 2017, one epoch at 2e-4: test F1 0.355 with a factor of 1, 0.407 with 100.)
_RATE_FACTOR = 100.0
_IMPOSSIBLE = -1e4
"""Score of what the scheme forbids, in decoding; a finite number, so that sums of it stay numbers."""


class LinearChainCrf(nn.Module):
    """Scores of whole label sequences: those of the words, and those of each label beside the one before.

    The score of labels y for emissions e is `start[y1] + sum(e[i, yi]) + sum(transitions[yi-1, yi]) + end[yW]`, and
    their probability is the softmax of the scores over all label sequences.

    Args:
        labels: IOB2 labels. Decoding gives an I- only behind a B- or I- of its type; training leaves all sequences
            possible, so that broken gold tags have a likelihood too.

    References:
        Lafferty, McCallum and Pereira, "Conditional Random Fields", ICML 2001, section 3; Lample et al., "Neural
        Architectures for Named Entity Recognition", arXiv 1603.01360, section 2.2.
    """

    start_allowed: Tensor
    allowed: Tensor

    def __init__(self, labels: Sequence[str]) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.zeros(len(labels)))
        self.end = nn.Parameter(torch.zeros(len(labels)))
        # Flat, as `initialize` and weight decay take what has two dimensions for a matrix of weights.
        self.transitions = nn.Parameter(torch.zeros(len(labels) ** 2))
        self.register_buffer("start_allowed", torch.tensor([not l.startswith("I-") for l in labels]), persistent=False)
        allowed = [[not l.startswith("I-") or previous[1:] == l[1:] for l in labels] for previous in labels]
        self.register_buffer("allowed", torch.tensor(allowed), persistent=False)

    def scores(self) -> tuple[Tensor, Tensor, Tensor]:
        """`start` [L], `transitions` [L, L] (from the row to the column) and `end` [L]."""
        start, transitions, end = (
            weight + (_RATE_FACTOR - 1) * weight.detach() for weight in (self.start, self.transitions, self.end)
        )
        return start, transitions.view(len(start), len(end)), end

    def log_likelihood(self, emissions: Tensor, labels: Tensor, lengths: Tensor) -> Tensor:
        """Log probability of label sequences.

        Args:
            emissions: [B, W, L], fp32.
            labels: [B, W]; anything from 0 behind the last word.
            lengths: [B], words of each sentence, at least 1.

        Returns:
            [B], at most 0.
        """
        return self._path_score(emissions, labels, lengths) - self.log_partition(emissions, lengths)

    def log_partition(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """[B]: the logarithm of the sum of `exp(score)` over all label sequences (the forward algorithm)."""
        start, transitions, end = self.scores()
        alpha = start + emissions[:, 0]
        for place in range(1, emissions.shape[1]):
            longer = torch.logsumexp(alpha[:, :, None] + transitions, dim=1) + emissions[:, place]
            alpha = torch.where((place < lengths)[:, None], longer, alpha)
        return torch.logsumexp(alpha + end, dim=-1)

    @torch.no_grad()
    def decode(self, emissions: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The best allowed label sequences (Viterbi).

        Args:
            emissions: [B, W, L], fp32.
            lengths: [B], words of each sentence, at least 1.

        Returns:
            Labels [B, W], 0 behind the last word; and the log probability [B] of each whole sequence, among all
            sequences, forbidden ones too.
        """
        start, transitions, end = self.scores()
        start = start.masked_fill(~self.start_allowed, _IMPOSSIBLE)
        transitions = transitions.masked_fill(~self.allowed, _IMPOSSIBLE)
        num_labels = emissions.shape[2]
        stay = torch.arange(num_labels, device=emissions.device)
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

    def _path_score(self, emissions: Tensor, labels: Tensor, lengths: Tensor) -> Tensor:
        start, transitions, end = self.scores()
        inside = torch.arange(emissions.shape[1], device=emissions.device) < lengths[:, None]
        of_words = emissions.gather(2, labels[:, :, None])[:, :, 0] * inside
        of_steps = transitions[labels[:, :-1], labels[:, 1:]] * inside[:, 1:]
        last = labels.gather(1, lengths[:, None] - 1)[:, 0]
        return start[labels[:, 0]] + of_words.sum(1) + of_steps.sum(1) + end[last]


class BertForTokenClassificationWithCrf(nn.Module):
    """A `BertForTokenClassification` whose logits are the emissions of a CRF over the words.

    On disk it is the plain tagger, as Hugging Face knows it, with the CRF in a file of its own beside it.

    Args:
        tagger: Its modules become this model's own.
        labels: IOB2, in the order of the tagger's outputs.
    """

    uses_pooler: ClassVar[bool] = False

    def __init__(self, tagger: BertForTokenClassification, labels: Sequence[str]) -> None:
        super().__init__()
        self.bert = tagger.bert
        self.dropout = tagger.dropout
        self.classifier = tagger.classifier
        self.crf = LinearChainCrf(labels)
        # Not a submodule: its modules are ours already, and their weights have one name.
        object.__setattr__(self, "_tagger", tagger)

    @property
    def tagger(self) -> BertForTokenClassification:
        """The model without its CRF; the weights are shared."""
        return self.__dict__["_tagger"]

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Logits [B, S, num_labels] of every position; those of words are the emissions."""
        return self.classifier(self.dropout(self.bert(input_ids, token_type_ids, attention_mask).hidden_states))


def write_crf(crf: LinearChainCrf, folder: Path) -> None:
    """Write the scores to `crf.safetensors` (`start`, `transitions`, `end`), whole or not at all.

    Raises:
        MachineError: The folder is full or cannot be written.
    """
    scores = {name: score.detach().float().cpu().contiguous() for name, score in zip(_NAMES, crf.scores(), strict=True)}
    target, temporary = folder / CRF_NAME, folder / f".{CRF_NAME}"
    try:
        temporary.touch()
        mode = temporary.stat().st_mode & 0o777
        save_file(scores, temporary, metadata={"format": "pt"})
        temporary.chmod(mode)  # safetensors makes files that only their owner can read
        temporary.replace(target)
    except (OSError, SafetensorError) as error:
        temporary.unlink(missing_ok=True)
        reason = error if isinstance(error, OSError) else OSError(str(error))
        raise MachineError(cannot_write(target, reason)) from error


def read_crf(crf: LinearChainCrf, folder: Path) -> None:
    """Fill a CRF from the file that `write_crf` wrote.

    Raises:
        ArtifactError: The file is missing, torn, of another number of labels, or has scores that are not finite.
    """
    path = folder / CRF_NAME
    try:
        scores = load_file(path)
    except (FileNotFoundError, SafetensorError) as error:
        raise ArtifactError(
            f"{path} is missing or not a whole safetensors file ({error}); a tagger with a CRF needs it beside "
            "model.safetensors. Copy the whole folder again."
        ) from error
    require_finite(scores, path)
    with torch.no_grad():
        for name, expected in zip(_NAMES, crf.scores(), strict=True):
            found = scores.get(name)
            if found is None or found.shape != expected.shape:
                state = "missing" if found is None else f"of shape {list(found.shape)}"
                raise ArtifactError(f"{path}: {name} is {state}; the task's labels make it {list(expected.shape)}.")
            crf.get_parameter(name).copy_(found.flatten() / _RATE_FACTOR)
