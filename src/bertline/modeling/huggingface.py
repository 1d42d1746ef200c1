"""Model folders in Hugging Face format (config.json and model.safetensors), without importing transformers."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from bertline.foundation.errors import ArtifactError
from bertline.foundation.files import write_json
from bertline.foundation.progress import warn
from bertline.modeling.attention import AttentionKind
from bertline.modeling.bert import BertForSequenceClassification, BertModel, BertWithClassifier
from bertline.modeling.config import LARGEST_SIZE, ModelConfig
from bertline.modeling.families import CONFIG_NAME, FAMILIES, config_in, family_in, family_of
from bertline.modeling.heads import BertForQuestionAnswering
from bertline.modeling.initialization import initialize
from bertline.modeling.weight_files import (
    UNUSED_POSITIONS,
    WEIGHTS_NAME,
    from_disk,
    read_weight_names,
    read_weight_shapes,
    read_weights,
    to_disk,
    write_weights,
)

_POOLER = "bert.pooler."
MLM_HEAD = "cls.predictions."
"""Prefix of the names, on disk, of the weights of a masked language model head."""
# Weights that a checkpoint may lack: heads for another purpose, which are then initialised randomly.
_HEADS = ("cls.", "classifier.", "qa_outputs.", _POOLER)
_ACTIVATIONS: dict[str, Literal["gelu", "gelu_new", "relu"]] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
    "relu": "relu",
}
# Seed of heads that a checkpoint lacks, if the caller gives none.
_FRESH_SEED = 0

Model = TypeVar("Model", bound=nn.Module)


class _WithoutDraws(TorchFunctionMode):
    """Weights on the device `meta`, which has none, are not drawn: PyTorch imports its compiler for it, for half a
    second. Relies on `nn.init` handing on its `tensor` by name; a PyTorch that does not only costs that half second."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_drawing = getattr(function, "__module__", "") == nn.init.__name__ and "tensor" in (kwargs or {})
        return kwargs["tensor"] if is_drawing else function(*args, **(kwargs or {}))


def config_from_huggingface(mapping: Mapping[str, Any], where: str = CONFIG_NAME) -> tuple[ModelConfig, int, int]:
    """Return the architecture, the vocabulary size and the id of `[PAD]` from the config.json of any checkpoint of
    `FAMILIES`.

    Optional keys that are missing, as in old checkpoints, get the values of the reference code.

    Raises:
        ArtifactError: The architecture is not BERT's, or is a variant that bertline does not support.
    """
    family = family_in(mapping, where)
    mapping = family.config_to_bert(mapping)
    only = {"is_decoder": False, **({} if family.wrapping else {"position_embedding_type": "absolute"})}
    for key, expected in only.items():
        value = mapping.get(key, expected)
        if value != expected:
            raise ArtifactError(
                f"{where}: {key} is {value!r}; bertline reads {expected!r} only. Choose a BERT encoder."
            )
    activation = mapping.get("hidden_act", "gelu")
    if str(activation) not in _ACTIVATIONS and (family.wrapping is None or type(activation) is not str):
        raise ArtifactError(f"{where}: hidden_act is {activation!r}; bertline has {', '.join(sorted(_ACTIVATIONS))}.")
    required = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    missing = [key for key in required if key not in mapping]
    if missing:
        raise ArtifactError(f"{where}: {', '.join(missing)} missing; is this the configuration of a BERT model?")
    optional = {
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "initializer_range": 0.02,
        "layer_norm_eps": 1e-12,
    }
    try:
        config = ModelConfig(
            **{key: mapping[key] for key in required[1:]},
            **{key: mapping.get(key, default) for key, default in optional.items()},
            hidden_act=_ACTIVATIONS.get(activation, activation),
            family=family.model_type,
        )
    except ValueError as error:
        raise ArtifactError(f"{where}: {error}.") from error
    layers, groups = config.num_hidden_layers, mapping.get("num_hidden_groups") or 1
    if layers % groups:
        raise ArtifactError(
            f"{where}: num_hidden_layers is {layers}, not a multiple of num_hidden_groups ({groups}), so that some "
            "groups of shared weights would have more layers than others. Change one of them."
        )
    for key in ("classifier_dropout", "qa_dropout"):
        if (rate := mapping.get(key)) is not None and (type(rate) not in (int, float) or not 0 <= rate < 1):
            raise ArtifactError(f"{where}: {key} is {rate!r:.200}, expected a number in [0, 1) or null.")
    vocab_size, pad_token_id = mapping["vocab_size"], mapping.get("pad_token_id") or 0
    if type(vocab_size) is not int or not 0 <= pad_token_id < vocab_size <= LARGEST_SIZE:
        found = f"vocab_size is {vocab_size!r:.200}, pad_token_id {pad_token_id}"
        raise ArtifactError(f"{where}: {found}; expected an id of a vocabulary of at most {LARGEST_SIZE:,} tokens.")
    return config, vocab_size, pad_token_id


def save_model(
    model: nn.Module, folder: Path, *, id2label: Mapping[int, str] | None = None, problem_type: str | None = None
) -> None:
    """Write config.json and model.safetensors so that transformers loads them without a missing or unexpected key.

    Args:
        model: `BertModel`, or any bertline model whose class has the same name in transformers.
        folder: Created if it does not exist; other files in it are kept.
        id2label: Names of a classifier's labels; default `LABEL_0`, `LABEL_1`, ...
        problem_type: `problem_type` of a classifier in config.json: `regression`, `multi_label_classification`.

    Raises:
        MachineError: The folder is full or cannot be written.
    """
    encoder = model if isinstance(model, BertModel) else model.bert
    family = FAMILIES[encoder.config.family]
    labels: dict[str, Any] = {}
    if isinstance(model, BertWithClassifier):
        names = id2label or {i: f"LABEL_{i}" for i in range(model.classifier.out_features)}
        labels = {
            "id2label": {str(i): name for i, name in names.items()},
            "label2id": {name: int(i) for i, name in names.items()},
            "classifier_dropout": model.dropout.p,
        }
    elif isinstance(model, BertForQuestionAnswering) and family.drops_before_answers:
        labels["qa_dropout"] = model.dropout.p
    if problem_type is not None:
        labels["problem_type"] = problem_type
    config = {
        "architectures": [type(model).__name__],
        "model_type": "bert",
        "vocab_size": encoder.vocab_size,
        "pad_token_id": encoder.pad_token_id,
        **{key: value for key, value in asdict(encoder.config).items() if key not in ("family", "own")},
        "tie_word_embeddings": True,
        "dtype": "float32",
        **labels,
    }
    write_weights(weights_on_disk(model), folder / WEIGHTS_NAME)
    write_json(folder / CONFIG_NAME, family.config_from_bert(config))


def weights_on_disk(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's weights under their names in transformers, where a bare encoder has no `bert.` prefix.

    A pooler that the model's head does not use is left out, as in transformers.
    """
    encoder = model if isinstance(model, BertModel) else model.bert
    family = FAMILIES[encoder.config.family]
    prefix = "bert." if model is encoder else ""
    weights = to_disk({f"{prefix}{name}": tensor for name, tensor in model.state_dict().items()})
    if model is not encoder and not getattr(model, "uses_pooler", True):
        weights = {name: tensor for name, tensor in weights.items() if not name.startswith(_POOLER)}
    if num_unused := family.num_unused_positions(encoder.pad_token_id):
        positions = encoder.embeddings.position_embeddings.weight
        unused = encoder.embeddings.unused_positions
        unused = positions.new_zeros(num_unused, positions.shape[1]) if unused is None else unused
        weights["bert.embeddings.position_embeddings.weight"] = torch.cat([unused, positions])
    is_classifier = isinstance(model, BertForSequenceClassification)
    theirs = {family.from_bert(name, is_classifier=is_classifier): tensor for name, tensor in weights.items()}
    prefix = family.prefix if model is encoder else ""
    return {name.removeprefix(prefix): tensor for name, tensor in theirs.items()}


def keep_pooler(start: Path, folder: Path) -> None:
    """Add the pooler of a checkpoint to a folder without one, if the checkpoint has one: classifiers start with it.

    Published masked language models have a pooler too that their class in transformers does not use.
    """
    is_bert = family_of(folder)[0].model_type == "bert"
    if not is_bert or any(name.startswith(_POOLER) for name in read_weight_names(folder)):
        return
    read = read_weights(start, with_output=False)
    weights = {name: tensor for name, tensor in read.items() if name.startswith(_POOLER)}
    if weights:
        write_weights({**read_weights(folder, with_output=True), **weights}, folder / WEIGHTS_NAME)


def load_encoder(folder: Path, *, attention: AttentionKind = "plain") -> BertModel:
    """Load the encoder of any BERT folder, without a pooler if it was saved with the masked language model head alone.

    Other folders that lack a pooler get a random one, with a warning.
    """

    def make(config: ModelConfig, **sizes: Any) -> BertModel:
        is_alone = architecture_of(folder) == "BertForMaskedLM" or not FAMILIES[config.family].has_pooler
        with_pooler = not is_alone or f"{_POOLER}dense.weight" in read_weight_names(folder)
        return BertModel(config, **sizes, attention=attention, with_pooler=with_pooler)

    return load_with_head(folder, make)


def load_with_head(
    folder: Path,
    make: Callable[..., Model],
    *,
    new_head: tuple[str, ...] = (),
    dropout_prob: float | None = None,
    seed: int = _FRESH_SEED,
) -> Model:
    """Load a BERT folder into a model with any head.

    Args:
        make: Class of the model, an encoder or one with the encoder as `bert`; called with the config, `vocab_size` and
            `pad_token_id`.
        new_head: Prefixes, in on-disk names, of weights to initialise randomly even if the folder has them
            (`("classifier.",)`). Empty for a fine-tuned model, whose head comes from the folder.
        dropout_prob: Dropout rate of attention and hidden states; None keeps the folder's.
    """
    config, vocab_size, pad_token_id = read_config(folder)
    if dropout_prob is not None:
        config = replace(config, hidden_dropout_prob=dropout_prob, attention_probs_dropout_prob=dropout_prob)
    with torch.device("meta"), _WithoutDraws():  # nothing is drawn: all weights are read below, or drawn by their names
        model = make(config, vocab_size=vocab_size, pad_token_id=pad_token_id)
    own_dropout = config_mapping(folder).get("qa_dropout")
    if dropout_prob is None and own_dropout is not None and isinstance(model, BertForQuestionAnswering):
        model.dropout.p = own_dropout
    # No warning about a missing pooler if the head does not use it, or if it is a part of a new head.
    is_new = bool(new_head) and bool(FAMILIES[config.family].sequence_head)
    unread = () if getattr(model, "uses_pooler", True) and not is_new else (_POOLER,)
    expected_fresh = (*new_head, *unread)  # the rest gives a warning
    encoder = model if isinstance(model, BertModel) else model.bert
    prefix = "bert." if model is encoder else ""
    ours = {f"{prefix}{name}": tensor for name, tensor in model.state_dict().items()}
    shapes = {name: shape for name, shape in read_weight_shapes(folder).items() if not name.startswith(expected_fresh)}
    _require_whole(folder, to_disk(ours), shapes)  # before memory is taken for what config.json says
    model.to_empty(device="cpu")
    with_output = any(name.startswith(MLM_HEAD) for name in to_disk(ours))
    weights = read_weights(folder, with_output=with_output)
    encoder.embeddings.unused_positions = weights.pop(UNUSED_POSITIONS, None)
    disk = {name: tensor for name, tensor in weights.items() if not name.startswith(expected_fresh)}
    found, missing = from_disk(ours, disk)
    if missing:
        initialize(model, encoder.config, seed=seed, but={name.removeprefix(prefix) for name in found})
    if fresh := [name for name in missing if not name.startswith(expected_fresh)]:
        warn(f"{folder} lacks {_some(fresh)}: these start from random weights.")
    model.load_state_dict({name.removeprefix(prefix): tensor for name, tensor in found.items()}, strict=False)
    return model


def read_config(folder: Path) -> tuple[ModelConfig, int, int]:
    """Return the architecture, the vocabulary size and the id of `[PAD]` of a model folder."""
    return config_from_huggingface(_config_on_disk(folder), str(folder / CONFIG_NAME))


def read_labels(folder: Path) -> tuple[str, ...]:
    """Return the label names of a classifier of texts or tokens, in the order of their ids.

    They are `LABEL_0`, `LABEL_1`, ... where config.json names none: transformers omits two labels of these names.

    Raises:
        ArtifactError: The folder's model is not a classifier, or has fewer outputs than named labels.
    """
    mapping = config_mapping(folder)
    head = read_weight_shapes(folder).get("classifier.weight")
    if head is None:
        architectures = ", ".join(mapping.get("architectures") or []) or "nothing"
        raise ArtifactError(
            f"{folder} is not a fine-tuned classifier (its config.json says {architectures}). "
            "Choose a folder that the sweep or the export of a task wrote."
        )
    names, ids = mapping.get("id2label") or {}, [str(index) for index in range(head[0])]
    if unknown := names.keys() - ids:
        raise ArtifactError(
            f"{folder / CONFIG_NAME}: id2label names {min(unknown)!r}, but the classifier has the outputs 0 to "
            f"{head[0] - 1}. Copy the folder again, or correct id2label."
        )
    return tuple(str(names.get(index, f"LABEL_{index}")) for index in ids)


def has_mlm_head(folder: Path) -> bool:
    """Return whether a checkpoint has a masked language model head; encoders saved alone have none."""
    return architecture_of(folder) in ("BertForMaskedLM", "BertForPreTraining")


def architecture_of(
    folder: Path,
) -> Literal["BertModel", "BertForMaskedLM", "BertForPreTraining", "BertForSequenceClassification"]:
    """Return the most complete model class that the weights of a folder support.

    Determined from the weight names, because the config.json of old checkpoints names no architecture or a less
    complete one.
    """
    names = read_weight_names(folder)
    declared = config_mapping(folder).get("architectures") or ()
    if "classifier.weight" in names and "BertForSequenceClassification" in declared:
        return "BertForSequenceClassification"
    if not any(name.startswith(MLM_HEAD) for name in names):
        return "BertModel"
    return "BertForPreTraining" if "cls.seq_relationship.weight" in names else "BertForMaskedLM"


def config_mapping(folder: Path) -> dict[str, Any]:
    """Return a folder's config.json, with BERT's keys whatever its family."""
    mapping = _config_on_disk(folder)
    return family_in(mapping, str(folder / CONFIG_NAME)).config_to_bert(mapping)


def _config_on_disk(folder: Path) -> dict[str, Any]:
    mapping, path = config_in(folder), folder / CONFIG_NAME
    if not path.is_file():
        raise ArtifactError(f"{path} is missing; {folder} is not a model folder. Give one with config.json.")
    return mapping


def require_whole_checkpoint(folder: Path) -> None:
    """Check, by the headers of its weights, that a folder has the whole encoder that its config.json describes; of a
    wrapped family, that it has weights.

    Raises:
        ArtifactError: A file is missing or truncated, the architecture is not BERT's, or a weight is missing, unknown
            or of another shape.
    """
    config, vocab_size, pad_token_id = read_config(folder)
    if FAMILIES[config.family].wrapping is not None:
        read_weight_shapes(folder)
        return
    with torch.device("meta"), _WithoutDraws():  # shapes alone
        encoder = BertModel(config, vocab_size=vocab_size, pad_token_id=pad_token_id)
    ours = to_disk({f"bert.{name}": tensor for name, tensor in encoder.state_dict().items()})
    _require_whole(folder, ours, read_weight_shapes(folder))


def _require_whole(folder: Path, ours: Mapping[str, Tensor], disk: Mapping[str, tuple[int, ...]]) -> None:
    """Compare the shapes of a model's weights, by name on disk, with those of a folder, which may lack heads."""
    lost = [name for name in ours if name not in disk and not name.startswith(_HEADS)]
    unknown = sorted(name for name in disk if name not in ours and name.startswith("bert."))
    unknown = [name for name in unknown if not name.startswith(_HEADS)]
    for names, problem in ((lost, "lacks"), (unknown, "has weights that a BERT encoder of its config.json has not:")):
        if names:
            raise ArtifactError(f"{folder} {problem} {_some(names)}. Is it a whole BERT checkpoint?")
    for name, tensor in ours.items():
        expected = tuple(tensor.shape)
        if disk.get(name, expected) != expected:
            raise ArtifactError(
                f"{folder}: {name} has shape {list(disk[name])}, config.json makes it {list(expected)}."
            )


def _some(names: list[str], most: int = 4) -> str:
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
