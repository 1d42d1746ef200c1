"""Models with the input and output names of transformers and ONNX.

Shapes: B sequences, S positions, L labels, H hidden size, V vocabulary size.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertline.encoders.loading import Head, load_encoder, load_model
from bertline.foundation.errors import ArtifactError
from bertline.modeling.huggingface import CONFIG_NAME, config_mapping

Architecture = Literal[
    "BertModel",
    "BertForPreTraining",
    "BertForMaskedLM",
    "BertForSequenceClassification",
    "BertForTokenClassification",
    "BertForQuestionAnswering",
]

Array = TypeVar("Array", Tensor, NDArray[Any])
INPUT_NAMES = ("input_ids", "attention_mask", "token_type_ids")
"""The last is an input of encoders with several token types."""
OUTPUT_NAMES: dict[Architecture, tuple[str, ...]] = {
    "BertModel": ("last_hidden_state",),  # [B, S, H]
    "BertForPreTraining": ("prediction_logits", "seq_relationship_logits"),  # [B, S, V], [B, 2]
    "BertForMaskedLM": ("logits",),  # [B, S, V]
    "BertForSequenceClassification": ("logits",),  # [B, L]
    "BertForTokenClassification": ("logits",),  # [B, S, L]
    "BertForQuestionAnswering": ("start_logits", "end_logits"),  # [B, S]
}


class ModelView(nn.Module):
    """A bertline model with the inputs and outputs of transformers' class of the given name.

    Args:
        model: Model of bertline.
        architecture: Architecture, which determines the outputs; `BertModel` takes the encoder of any model.
    """

    def __init__(self, model: nn.Module, architecture: Architecture) -> None:
        super().__init__()
        self.model: Any = model.bert if architecture == "BertModel" and hasattr(model, "bert") else model
        self.architecture: Architecture = architecture

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs that the model reads."""
        encoder = getattr(self.model, "bert", self.model)
        return INPUT_NAMES if encoder.config.type_vocab_size > 1 else INPUT_NAMES[:2]

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Return the tensors named by `OUTPUT_NAMES`; all arguments are [B, S]."""
        token_type_ids = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        match self.architecture:
            case "BertModel":
                return (self.model(input_ids, token_type_ids, attention_mask).hidden_states,)
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


def without_padding(values: Array, real: Array) -> Array:
    """Return values of shape [B, S, ...] at the real positions [B, S], and those of shape [B, ...] unchanged."""
    return values[real] if values.shape[:2] == real.shape else values


def architecture_in(folder: Path) -> Architecture:
    """Return the architecture in a folder's config.json.

    Raises:
        ArtifactError: There is none, or it cannot be exported.
    """
    named = config_mapping(folder).get("architectures") or ["nothing"]
    if named[0] not in get_args(Architecture):
        raise ArtifactError(
            f"{folder / CONFIG_NAME} names {named[0]}; export knows {', '.join(get_args(Architecture))}. "
            "Make the folder again with bertline."
        )
    return named[0]


def load_view(folder: Path, architecture: Architecture) -> ModelView:
    """Load a folder's model with this architecture, in evaluation mode."""
    heads: dict[str, Head] = {
        "BertForSequenceClassification": "sequence",
        "BertForTokenClassification": "tokens",
        "BertForQuestionAnswering": "answers",
    }
    model = load_encoder(folder) if architecture == "BertModel" else load_model(folder, heads.get(architecture, "mlm"))
    return ModelView(model, architecture).eval()
