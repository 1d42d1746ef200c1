"""The one door to a finished model: fill blanks, embed, classify, look inside.

Shapes: n texts, H hidden size, S positions, B sequences of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, assert_never

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertline.finetuning.encoding import scoring_batches
from bertline.foundation.errors import ArtifactError, DataError, MachineError
from bertline.foundation.files import read_json
from bertline.inference.encoding import encode_texts
from bertline.modeling.bert import BertForPreTraining, BertForSequenceClassification, BertModel, EncodedInDetail
from bertline.modeling.huggingface import (
    architecture_of,
    load_classifier,
    load_encoder,
    load_pretraining_model,
    read_labels,
)
from bertline.tokenization.resolve import resolve_folder
from bertline.tokenization.tokenizer import Tokenizer

Pooling = Literal["mean", "cls"]
# Without gradients and in fp32 the fused kernel is never slower.
_ATTENTION: Literal["sdpa"] = "sdpa"


class Guess(NamedTuple):
    """A piece for a blank."""

    token: str
    probability: float


class Prediction(NamedTuple):
    """What a classifier says of a text."""

    label: str
    probability: float
    probabilities: dict[str, float]
    """Of every label, in the order of the labels."""


class Attentions(NamedTuple):
    """Who looks at whom."""

    tokens: tuple[str, ...]
    probabilities: NDArray[np.float32]
    """[layers, heads, S, S]: how much the position of the row takes from the position of the column."""


class TokenVectors(NamedTuple):
    """One vector for each piece of a text, in its context."""

    tokens: tuple[str, ...]
    vectors: NDArray[np.float32]
    """[S, H]."""


class LoadedModel:
    """A model with its tokenizer, ready for use; computes in fp32, without dropout.

    Args:
        model: On its device.
        tokenizer: The model's own.
        max_length: Most tokens of a sequence; longer texts are cut.
        labels: Names of a classifier's labels by number, empty for an encoder.
        name: For messages.
    """

    def __init__(
        self,
        model: BertModel | BertForPreTraining | BertForSequenceClassification,
        tokenizer: Tokenizer,
        *,
        max_length: int,
        labels: tuple[str, ...],
        name: str,
    ) -> None:
        self.model = model.eval()
        self.encoder: BertModel = model if isinstance(model, BertModel) else model.bert
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.labels = labels
        self.name = name
        self.device: torch.device = next(model.parameters()).device

    def fill_mask(self, text: str, top_k: int = 5) -> list[list[Guess]]:
        """The likeliest pieces for each `[MASK]` of a text, likeliest first, blank by blank.

        Each blank is guessed on its own, as if the others stayed blank. Special pieces are never guessed, and the
        probabilities are those among all pieces.

        Raises:
            DataError: No `[MASK]`, or a text longer than the model reads.
            ArtifactError: The model has no masked language model head.
        """
        if not isinstance(self.model, BertForPreTraining):
            raise self._cannot("fill blanks", "masked language model head", "artifacts/pretrain or an encoder's export")
        ids = self._sequence_of(text, None)[0]
        blanks = [position for position, piece in enumerate(ids) if piece == self.tokenizer.mask_id]
        if not blanks:
            raise DataError(f"no [MASK] in {text!r}; write [MASK] where a word is missing.")
        input_ids, token_type_ids = self._tensors(ids, [0] * len(ids))
        with torch.no_grad():
            output = self.model(input_ids, token_type_ids, None, torch.tensor([blanks], device=self.device))
            probabilities = output.mlm_logits[0].softmax(-1)  # [blanks, V]
        special = torch.tensor(sorted(self.tokenizer.special_ids), device=self.device)
        best = probabilities.index_fill(1, special, -1.0).topk(min(top_k, self.tokenizer.vocab_size - len(special)))
        return [
            [Guess(*guess) for guess in zip(self.tokenizer.tokens(pieces), values, strict=True)]
            for pieces, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    def embed(self, texts: Sequence[str], pooling: Pooling = "mean", batch_size: int = 32) -> NDArray[np.float32]:
        """One vector for each text, [n, H].

        Args:
            texts: Longer ones are cut to what the model reads.
            pooling: `mean` averages the last layer over all real positions ([CLS] and [SEP] among them), `cls` takes
                it at the first.
            batch_size: Texts that go through the model at once.
        """
        return self.text_vectors(texts, pooling, batch_size=batch_size)[0]

    def text_vectors(
        self, texts: Sequence[str], pooling: Pooling = "mean", *, batch_size: int = 32
    ) -> tuple[NDArray[np.float32], int]:
        """As `embed`, with the number of texts that were cut."""
        encoded = encode_texts(texts, None, self.tokenizer, max_length=self.max_length)
        vectors = np.zeros((len(encoded.rows), self.encoder.config.hidden_size), dtype=np.float32)
        for indices, batch in scoring_batches(encoded.rows, batch_size=batch_size):
            input_ids, token_type_ids, attention_mask = self._on_device(batch)
            with torch.no_grad():
                hidden_states = self.encoder(input_ids, token_type_ids, attention_mask).hidden_states
            vectors[indices] = _pooled(hidden_states, attention_mask, pooling).cpu().numpy()
        return vectors, encoded.num_truncated

    def predict(
        self, texts: Sequence[str], text_pairs: Sequence[str] | None = None, batch_size: int = 32
    ) -> list[Prediction]:
        """The likeliest label of each text, or of each pair of texts.

        Raises:
            ArtifactError: The model is not a classifier.
        """
        probabilities, _ = self.label_probabilities(texts, text_pairs, batch_size=batch_size)
        return [
            Prediction(self.labels[best], float(row[best]), dict(zip(self.labels, row.tolist(), strict=True)))
            for row, best in zip(probabilities, probabilities.argmax(1), strict=True)
        ]

    def label_probabilities(
        self, texts: Sequence[str], text_pairs: Sequence[str] | None = None, *, batch_size: int = 32
    ) -> tuple[NDArray[np.float32], int]:
        """Probabilities [n, labels] in the order of the texts, and how many texts were cut."""
        if not isinstance(self.model, BertForSequenceClassification):
            raise self._cannot("classify", "classifier", "artifacts/export/TASK")
        encoded = encode_texts(texts, text_pairs, self.tokenizer, max_length=self.max_length)
        probabilities = np.zeros((len(encoded.rows), len(self.labels)), dtype=np.float32)
        for indices, batch in scoring_batches(encoded.rows, batch_size=batch_size):
            with torch.no_grad():
                probabilities[indices] = self.model(*self._on_device(batch)).softmax(-1).cpu().numpy()
        return probabilities, encoded.num_truncated

    def attentions(self, text: str, text_pair: str | None = None) -> Attentions:
        """The tokens of a text (or pair) and the attention probabilities of every layer and head."""
        ids, detail = self._in_detail(text, text_pair)
        probabilities = torch.stack([layer.probabilities[0] for layer in detail.layers])
        return Attentions(tuple(self.tokenizer.tokens(ids)), probabilities.cpu().numpy())

    def token_vectors(self, text: str, layer: int = -1) -> TokenVectors:
        """The vector of each piece of a text after a layer: 0 is the embeddings, -1 the last layer."""
        ids, detail = self._in_detail(text, None)
        return TokenVectors(tuple(self.tokenizer.tokens(ids)), detail.hidden_states[layer][0].cpu().numpy())

    def _in_detail(self, text: str, text_pair: str | None) -> tuple[list[int], EncodedInDetail]:
        ids, types = self._sequence_of(text, text_pair)
        with torch.no_grad():
            return ids, self.encoder.forward_in_detail(*self._tensors(ids, types))

    def _sequence_of(self, text: str, text_pair: str | None) -> tuple[list[int], list[int]]:
        """Ids and token types of one sequence. `[MASK]` is the mask; cutting could lose it, so too long is an error."""
        tokenizer = self.tokenizer
        ids = [tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id]
        types = [0] * len(ids)
        if text_pair is not None:
            ids += [*tokenizer.encode(text_pair), tokenizer.sep_id]
            types += [1] * (len(ids) - len(types))
        if len(ids) > self.max_length:
            raise DataError(f"the text has {len(ids)} tokens; {self.name} reads at most {self.max_length}. Shorten it.")
        return ids, types

    def _tensors(self, ids: list[int], types: list[int]) -> tuple[Tensor, Tensor]:
        return torch.tensor([ids], device=self.device), torch.tensor([types], device=self.device)

    def _on_device(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        input_ids, token_type_ids, attention_mask = (
            batch[name].to(self.device) for name in ("input_ids", "token_type_ids", "attention_mask")
        )
        return input_ids, token_type_ids, attention_mask

    def _cannot(self, what: str, head: str, where: str) -> ArtifactError:
        return ArtifactError(f"{self.name} cannot {what}: it has no {head}. Load {where} instead.")


def load(name_or_folder: str, *, revision: str | None = None, device: str = "auto") -> LoadedModel:
    """Open a model with its tokenizer.

    Args:
        name_or_folder: A folder of bertline (`artifacts/pretrain`, `artifacts/export/TASK`, a run's `latest`), any
            folder with a BERT checkpoint in Hugging Face's format, or a name on the Hugging Face hub.
        revision: Commit, tag or branch of a hub name.
        device: `auto` (a GPU where there is one), `cpu`, `cuda`, `cuda:1`, `mps`.

    Raises:
        DataError: Neither a folder nor a name that can be reached.
        ArtifactError: Not a BERT checkpoint, or not a whole one.
        MachineError: The device is not there.
    """
    folder = resolve_folder(name_or_folder, revision)
    chosen = _device(device)
    architecture = architecture_of(folder)
    tokenizer = Tokenizer.load(folder)
    model: BertModel | BertForPreTraining | BertForSequenceClassification
    labels: tuple[str, ...] = ()
    match architecture:
        case "BertForSequenceClassification":
            model, labels = load_classifier(folder, attention=_ATTENTION), read_labels(folder)
        case "BertForPreTraining":
            model = load_pretraining_model(folder, attention=_ATTENTION)
        case "BertModel":
            model = load_encoder(folder, attention=_ATTENTION)
        case _:
            assert_never(architecture)
    encoder = model if isinstance(model, BertModel) else model.bert
    if tokenizer.vocab_size > encoder.vocab_size:
        raise ArtifactError(
            f"{folder}: the tokenizer has {tokenizer.vocab_size} pieces, the model {encoder.vocab_size}. "
            "They are not from the same training; copy the folder again."
        )
    return LoadedModel(
        model.to(chosen),
        tokenizer,
        max_length=min(encoder.config.max_position_embeddings, _tokenizer_max_length(folder)),
        labels=labels,
        name=name_or_folder,
    )


def _tokenizer_max_length(folder: Path) -> int:
    """What the folder says of its longest sequence: positions that were never trained are no use to anyone."""
    path = folder / "tokenizer_config.json"
    declared = read_json(path).get("model_max_length") if path.is_file() else None
    return int(declared) if declared else 1 << 30


def _device(name: str) -> torch.device:
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    # PyTorch has a different error for each kind of device that is not there.
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise MachineError(
            f"device {name!r} cannot be used here ({str(error).splitlines()[0]}). Use auto or cpu."
        ) from error
    return device


def _pooled(hidden_states: Tensor, attention_mask: Tensor, pooling: Pooling) -> Tensor:
    """[B, S, H] and [B, S] to [B, H]."""
    match pooling:
        case "mean":
            weights = attention_mask[..., None].to(hidden_states.dtype)
            return (hidden_states * weights).sum(1) / weights.sum(1)
        case "cls":
            return hidden_states[:, 0]
        case _:
            raise DataError(f"pooling is {pooling!r}; expected mean or cls.")
