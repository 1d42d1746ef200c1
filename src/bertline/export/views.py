"""Models with the input and output names of transformers and ONNX.

Shapes: B sequences, S positions, L labels, H hidden size, V vocabulary size.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor, nn

from bertline.encoders.loading import Head, load_encoder, load_model
from bertline.encoding.token_marks import NUM_SEGMENT_TYPES
from bertline.foundation.errors import ArtifactError
from bertline.foundation.files import read_json
from bertline.modeling.checkpoint import Checkpoint
from bertline.modeling.families import CONFIG_NAME
from bertline.modeling.heads import pooled
from bertline.modeling.text_vectors import TextVectorModules, read_text_vector_modules

Architecture = Literal[
    "BertModel",
    "BertForPreTraining",
    "BertForMaskedLM",
    "ElectraForPreTraining",
    "BertForSequenceClassification",
    "BertForTokenClassification",
    "BertForQuestionAnswering",
]

_Array = TypeVar("_Array", Tensor, NDArray[Any])
GRAPH_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
"""The last is an input of encoders with several token types."""
OUTPUT_NAMES: dict[Architecture, tuple[str, ...]] = {
    "BertModel": ("last_hidden_state",),  # [B, S, H]
    "BertForPreTraining": ("prediction_logits", "seq_relationship_logits"),  # [B, S, V], [B, 2]
    "BertForMaskedLM": ("logits",),  # [B, S, V]
    "ElectraForPreTraining": ("logits",),  # [B, S]
    "BertForSequenceClassification": ("logits",),  # [B, L]
    "BertForTokenClassification": ("logits",),  # [B, S, L]
    "BertForQuestionAnswering": ("start_logits", "end_logits"),  # [B, S]
}
"""Outputs that transformers' classes have, too."""
VECTORS_NAME = "sentence_embedding"
"""Last output of a `BertModel`: vectors of texts [B, vector size], named as in sentence-transformers' ONNX files."""


class ModelView(nn.Module):
    """A bertline model with the inputs and outputs of transformers' class of the given name.

    The vectors of texts, an output more, are those of `modules`; without these, means as in `LoadedModel.embed`.
    """

    def __init__(self, model: nn.Module, architecture: Architecture, modules: TextVectorModules | None = None) -> None:
        super().__init__()
        self.model: Any = model.bert if architecture == "BertModel" and hasattr(model, "bert") else model
        self.architecture: Architecture = architecture
        self.text_modules = modules
        self.dense = modules and modules.dense  # weights that a trace meets must be registered

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs that the model reads."""
        encoder = getattr(self.model, "bert", self.model)
        return GRAPH_INPUTS if encoder.config.type_vocab_size > 1 else GRAPH_INPUTS[:2]

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return OUTPUT_NAMES[self.architecture] + ((VECTORS_NAME,) if self.architecture == "BertModel" else ())

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Return the tensors named by `output_names`; all arguments are [B, S]."""
        token_type_ids = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        match self.architecture:
            case "BertModel":
                states = self.model(input_ids, token_type_ids, attention_mask).hidden_states
                if self.text_modules is None:
                    return states, pooled(states, attention_mask, "mean")
                return states, self.text_modules.vectors(states, attention_mask)
            case "BertForPreTraining" | "BertForMaskedLM":
                output = self.model.forward_everywhere(input_ids, token_type_ids, attention_mask)
                if self.architecture == "BertForMaskedLM":
                    return (output.mlm_logits,)
                return tuple(output)[: len(OUTPUT_NAMES[self.architecture])]
            case "BertForQuestionAnswering":
                logits = self.model(input_ids, token_type_ids, attention_mask)
                return logits.start, logits.end
            case _:
                return (self.model(input_ids, token_type_ids, attention_mask),)


def without_padding(values: _Array, real: _Array) -> _Array:
    """Return values of shape [B, S, ...] at the real positions [B, S], and those of shape [B, ...] unchanged."""
    return values[real] if values.shape[:2] == real.shape else values


def architecture_in(folder: Path) -> Architecture:
    """Return the architecture in a folder's config.json.

    Raises:
        ArtifactError: There is none, or it cannot be exported.
    """
    named = (Checkpoint.open(folder).settings.get("architectures") or ["nothing"])[0]
    if named not in OUTPUT_NAMES:
        raise ArtifactError(
            f"{folder / CONFIG_NAME} names {named}; export knows {', '.join(OUTPUT_NAMES)}. Make the folder again with "
            "bertline."
        )
    return named


def load_view(folder: Path, architecture: Architecture) -> ModelView:
    """Load a folder's model with this architecture, in evaluation mode."""
    heads: dict[str, Head] = {
        "ElectraForPreTraining": "detector",
        "BertForSequenceClassification": "sequence",
        "BertForTokenClassification": "tokens",
        "BertForQuestionAnswering": "answers",
    }
    if architecture == "BertModel":
        checkpoint = Checkpoint.open(folder)
        return ModelView(load_encoder(checkpoint), architecture, read_text_vector_modules(checkpoint)).eval()
    return ModelView(load_model(folder, heads.get(architecture, "mlm")), architecture).eval()


# Accents, capitals, punctuation, digits, Chinese, control and unknown characters, [MASK], an overlong word, no text.
CHECKED_TEXTS = (
    "The function returns a new array of the given shape and type.",
    "Café, naïve, Zürich, Ångström and façade: accents, é as one character and e\u0301 as two.",
    "Don't panic! (See section 3.2; e.g. numpy.ndarray.__getitem__[...] == None?)",
    "unbelievablyantidisestablishmentarianisms 0.1234567890e-12",
    "深度学习 means deep learning; Привет, κόσμε.",
    "tabs\tand\nnew lines\u00a0and\u200bzero width, \u0007bells, emoji \U0001f600.",
    "Paris is the [MASK] of France.",
    "x" * 120,
    "",
)


def verify_model(folder: Path, *, labels: Sequence[str] | None, tolerance: float) -> float:
    """Check a folder against transformers: all outputs at all positions except padding, label names and token ids.

    Returns:
        The largest absolute difference of an output.

    Raises:
        ArtifactError: A difference is above the tolerance, token ids or labels differ, or transformers finds missing,
            unexpected or mismatched weights.
    """
    # Suppress progress bars, load reports and length warnings; problems are checked and raised here.
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    reference_tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    _verify_tokenizer(folder, reference_tokenizer)
    architecture = architecture_in(folder)
    their_class = getattr(transformers, read_json(folder / CONFIG_NAME)["architectures"][0])  # of any family
    reference, info = their_class.from_pretrained(folder, local_files_only=True, output_loading_info=True)
    if problems := {kind: sorted(map(str, keys)) for kind, keys in info.items() if keys}:
        raise ArtifactError(f"{folder}: transformers does not load all of it, and nothing more: {problems}.")
    reference.eval()
    theirs = tuple(label for _, label in sorted(reference.config.id2label.items()))
    if labels is not None and theirs != tuple(labels):
        raise ArtifactError(f"{folder}: transformers reads the labels {theirs}, bertline {tuple(labels)}.")
    inputs = _inputs(folder, reference_tokenizer)
    with torch.no_grad():
        view = load_view(folder, architecture)
        read = {name: inputs[name] for name in view.input_names}
        expected, found = reference(**read), view(*read.values())
    real = inputs["attention_mask"].bool()
    differences = {
        name: (without_padding(ours, real) - without_padding(theirs, real)).abs().max().item()
        for name, ours, theirs in zip(OUTPUT_NAMES[architecture], found, expected.to_tuple(), strict=False)
    }
    for name, difference in differences.items():
        if not difference <= tolerance:  # which rejects NaN, too
            raise ArtifactError(
                f"{folder}: {name} differ from transformers' by {difference:.2e}, over export.logits_tolerance = "
                f"{tolerance:.0e}. Nothing was exported."
            )
    return max(differences.values())


def _verify_tokenizer(folder: Path, reference: Any) -> None:
    """Check that both tokenizers give equal token ids for texts that exercise every rule."""
    checkpoint = Checkpoint.open(folder)
    tokenizer = checkpoint.tokenizer
    for text in CHECKED_TEXTS:
        expected = reference(text)["input_ids"]
        found = tokenizer.single.sequence(tokenizer.encode(text))
        if found != expected:
            raise ArtifactError(
                f"{folder}: transformers cuts {text!r} into {reference.convert_ids_to_tokens(expected)}, "
                f"bertline into {tokenizer.tokens(found)}. Nothing was exported; see the tokenizer's configuration."
            )
    first, second = (tokenizer.encode(text) for text in CHECKED_TEXTS[:2])
    pair, ids = reference(*CHECKED_TEXTS[:2]), tokenizer.pair.sequence(first, second)
    of_first = tokenizer.pair.first_length(len(first), len(second))
    types = [0] * of_first + [1] * (len(ids) - of_first)
    has_types = checkpoint.config.type_vocab_size > 1
    if pair["input_ids"] != ids or (has_types and pair.get("token_type_ids") != types):
        raise ArtifactError(
            f"{folder}: transformers makes {dict(pair)} of a pair, bertline the ids {ids} and the types {types}. "
            "Nothing was exported; see model_input_names in tokenizer_config.json."
        )


def _inputs(folder: Path, reference: Any) -> dict[str, Tensor]:
    """Return the checked texts as padded pairs, encoded by transformers."""
    config = Checkpoint.open(folder).config
    longest = min(64, reference.model_max_length, config.max_position_embeddings)
    texts = [text for text in CHECKED_TEXTS if text]
    inputs = dict(
        reference(texts, texts[::-1], truncation=True, max_length=longest, padding="max_length", return_tensors="pt")
    )
    inputs.setdefault("token_type_ids", torch.zeros_like(inputs["input_ids"]))
    # Models with token marks have more token types than segments; the check covers every type.
    num_marks = max(1, config.type_vocab_size // NUM_SEGMENT_TYPES)
    inputs["token_type_ids"] += NUM_SEGMENT_TYPES * (inputs["input_ids"] % num_marks)
    return inputs
