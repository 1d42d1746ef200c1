"""Encoders of every family with a head for a purpose, read from and written to folders.

BERT and the families that are its layers under other names load into the models of `bertline.modeling`. All others are
wrapped: the class of transformers with the interface of these models. transformers is imported only for those.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from torch import Tensor, nn

from bertline.foundation.errors import ConfigError
from bertline.modeling.attention import AttentionKind
from bertline.modeling.bert import BertForMaskedLM, BertForPreTraining, BertForSequenceClassification, BertModel
from bertline.modeling.checkpoint import POOLER, Checkpoint
from bertline.modeling.config import ModelConfig, Pooling
from bertline.modeling.heads import (
    BertForQuestionAnswering,
    BertForTokenClassification,
    BertTextEncoder,
    BertVectorClassifier,
)
from bertline.modeling.huggingface import load_with_head, save_adopted
from bertline.modeling.text_vectors import read_classifier
from bertline.tokenization.storage import copy_tokenizer

if TYPE_CHECKING:
    from bertline.encoders.wrapped import WrappedEncoder, WrappedMaskedLM
    from bertline.modeling.bert import MaskedLanguageModel

Encoder: TypeAlias = "BertModel | WrappedEncoder"
LanguageModel: TypeAlias = "MaskedLanguageModel | WrappedMaskedLM"
Head = Literal["sequence", "pair", "tokens", "answers", "vectors", "mlm", "detector"]
"""What a model computes: a label of a text (`sequence`) or of two (`pair`), labels of tokens, start and end of an
answer, the vector of a text, tokens of blanks, tokens that were replaced (ELECTRA)."""
# Class of each head in an adopted family, and prefixes of the weights that a new head draws.
_CLASSES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "sequence": (BertForSequenceClassification, ("classifier.",)),
    "pair": (BertForSequenceClassification, ("classifier.",)),
    "tokens": (BertForTokenClassification, ("classifier.",)),
    "answers": (BertForQuestionAnswering, ("qa_outputs.",)),
}


def load_model(
    source: Checkpoint | Path,
    head: Head,
    *,
    num_outputs: int | None = None,
    pooling: Pooling = "mean",
    is_new: bool = False,
    dropout_prob: float | None = None,
    seed: int = 0,
    attention: AttentionKind = "plain",
) -> nn.Module:
    """Load a fine-tuned model, or an encoder with a new head. The encoder is the attribute `bert`.

    Args:
        source: A checkpoint of any family, or its folder.
        head: The model's head.
        num_outputs: Number of labels, for a head that has them; None takes those of the folder.
        pooling: How `vectors` are made of hidden states; see `BertTextEncoder`.
        is_new: Whether to draw the head even if the folder has one.
        dropout_prob: Dropout rate of attention, hidden states and the head's input; None keeps the folder's.
        seed: Seed of the weights of a new head, and of weights that the folder lacks.
        attention: Attention kernel of an adopted family; transformers chooses that of a wrapped one.

    Raises:
        ArtifactError: The folder cannot be read, or its family has no such head.
    """
    checkpoint = Checkpoint.open(source)
    if head == "sequence" and not is_new and (read := read_classifier(checkpoint)) is not None:
        encoder = load_encoder(checkpoint, attention=attention)
        return BertVectorClassifier(encoder, pooling=read[0], classifier=read[1], separators=read[2])
    if checkpoint.family.wrapping is not None:
        from bertline.encoders.wrapped import load_wrapped

        dropouts = None if dropout_prob is None else (dropout_prob, dropout_prob)
        if head == "vectors":
            return BertTextEncoder(load_wrapped(checkpoint, "encoder", dropout_probs=dropouts), pooling=pooling)
        both = head == "mlm" and checkpoint.architecture == "BertForPreTraining"
        kind = "pretraining" if both else head
        return load_wrapped(checkpoint, kind, num_outputs=num_outputs, is_new=is_new, dropout_probs=dropouts, seed=seed)
    is_alone = checkpoint.architecture == "BertForMaskedLM" or checkpoint.family.model_type != "bert"
    make, drawn = _CLASSES.get(head, (BertForMaskedLM if is_alone else BertForPreTraining, ()))
    options: dict[str, Any] = {"attention": attention}
    if head == "vectors":
        make = partial(_text_encoder, with_pooler=checkpoint.family.has_pooler)
        options["pooling"] = pooling
    elif head in ("sequence", "pair", "tokens"):
        options["num_labels"] = num_outputs or len(checkpoint.labels)
        options["classifier_dropout"] = None if is_new else checkpoint.settings.get("classifier_dropout")
    new_head = drawn if is_new else ()
    return load_with_head(checkpoint, partial(make, **options), new_head=new_head, dropout_prob=dropout_prob, seed=seed)


def _text_encoder(config: ModelConfig, *, pooling: Pooling, **settings: Any) -> BertTextEncoder:
    return BertTextEncoder(BertModel(config, **settings), pooling=pooling)


def load_encoder(source: Checkpoint | Path, *, attention: AttentionKind = "plain") -> BertModel | WrappedEncoder:
    """Load the encoder of any checkpoint, without a pooler if it was saved with the masked language model head alone.

    Others that lack a pooler get a random one, with a warning.
    """
    checkpoint = Checkpoint.open(source)
    if checkpoint.family.wrapping is not None:
        from bertline.encoders.wrapped import load_wrapped

        return load_wrapped(checkpoint, "encoder")
    is_alone = checkpoint.architecture == "BertForMaskedLM" or not checkpoint.family.has_pooler
    with_pooler = not is_alone or checkpoint.has(f"{POOLER}dense.weight")
    return load_with_head(checkpoint, partial(BertModel, attention=attention, with_pooler=with_pooler))


def with_weights(model: LanguageModel, weights: Mapping[str, Tensor]) -> LanguageModel:
    """Return a copy of a model with these weights, whose memory it shares; its teacher is not copied."""
    named: Any = model.named_parameters(remove_duplicate=False)
    memo: dict[int, Any] = {id(weight): nn.Parameter(weights[name]) for name, weight in named}
    if (teacher := getattr(model, "teacher", None)) is not None:
        memo[id(teacher)] = teacher
    return copy.deepcopy(model, memo)


def spread_layers(num_layers: int, num_chosen: int) -> list[int]:
    """Return which layers of a teacher a student has: the first, the last, and those evenly spread between them.

    >>> spread_layers(12, 6), spread_layers(6, 3)  # of 12, those that DistilBERT's published script takes
    ([0, 2, 4, 7, 9, 11], [0, 2, 5])

    Raises:
        ConfigError: The teacher has fewer layers, or the student none.

    Reference: Sanh et al. 2019, DistilBERT (arXiv 1910.01108), section 2, "Student initialization".
    """
    if not 1 <= num_chosen <= num_layers:
        raise ConfigError(
            f"student_layers is {num_chosen}, and the teacher has {num_layers} layers; give 1 to {num_layers}."
        )
    return [round(place * (num_layers - 1) / max(num_chosen - 1, 1)) for place in range(num_chosen)]


def save_student(teacher: Path, num_layers: int, folder: Path) -> None:
    """Write the encoder of a fine-tuned model with fewer of its layers (`spread_layers`), and its tokenizer.

    Raises:
        ConfigError: The teacher has fewer layers, or groups of layers with equal weights that do not divide them.
    """
    encoder: Any = load_encoder(teacher)
    encoder.keep_layers(spread_layers(encoder.config.num_hidden_layers, num_layers))
    save_model(encoder, folder)
    copy_tokenizer(teacher, folder)


def save_model(model: nn.Module, folder: Path, **settings: Any) -> None:
    """Write config.json and weights so that transformers loads them; see `modeling.huggingface.save_adopted`."""
    if hasattr(model, "hf"):
        from bertline.encoders.wrapped import save_wrapped

        save_wrapped(model, folder, **settings)
    else:
        save_adopted(model, folder, **settings)
