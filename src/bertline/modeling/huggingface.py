"""Model folders in Hugging Face format (config.json and model.safetensors), without importing transformers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from bertline.foundation.errors import ArtifactError
from bertline.foundation.files import write_json
from bertline.foundation.progress import warn
from bertline.modeling.bert import BertForSequenceClassification, BertModel, BertWithClassifier
from bertline.modeling.checkpoint import MLM_HEAD, POOLER, WEIGHTS_NAME, Checkpoint
from bertline.modeling.families import CONFIG_NAME, FAMILIES
from bertline.modeling.heads import BertForQuestionAnswering
from bertline.modeling.initialization import initialize
from bertline.modeling.weight_files import UNUSED_POSITIONS, from_disk, read_weights, to_disk, write_weights

# Weights that a checkpoint may lack: heads for another purpose, which are then initialised randomly.
_HEADS = ("cls.", "classifier.", "qa_outputs.", POOLER)

Model = TypeVar("Model", bound=nn.Module)


def save_adopted(
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
        weights = {name: tensor for name, tensor in weights.items() if not name.startswith(POOLER)}
    if num_unused := family.num_unused_positions(encoder.pad_token_id):
        positions = encoder.embeddings.position_embeddings.weight
        unused = encoder.embeddings.unused_positions
        unused = positions.new_zeros(num_unused, positions.shape[1]) if unused is None else unused
        weights["bert.embeddings.position_embeddings.weight"] = torch.cat([unused, positions])
    is_classifier = isinstance(model, BertForSequenceClassification)
    theirs = {family.from_bert(name, is_classifier=is_classifier): tensor for name, tensor in weights.items()}
    prefix = family.prefix if model is encoder else ""
    return {name.removeprefix(prefix): tensor for name, tensor in theirs.items()}


def keep_pooler(start: Checkpoint, folder: Path) -> None:
    """Add the pooler of a checkpoint to a folder without one, if the checkpoint has one: classifiers start with it.

    Published masked language models have a pooler too that their class in transformers does not use.
    """
    written = Checkpoint.open(folder)
    if written.family.model_type != "bert" or written.has(POOLER) or not start.has(POOLER):
        return
    weights = read_weights(start, with_output=False)
    pooler = {name: tensor for name, tensor in weights.items() if name.startswith(POOLER)}
    write_weights({**read_weights(written, with_output=True), **pooler}, folder / WEIGHTS_NAME)


def load_with_head(
    source: Checkpoint | Path,
    make: Callable[..., Model],
    *,
    new_head: tuple[str, ...] = (),
    dropout_prob: float | None = None,
    seed: int = 0,
) -> Model:
    """Load a checkpoint of an adopted family into a model with any head.

    Args:
        make: Class of the model, an encoder or one with the encoder as `bert`; called with the config, `vocab_size` and
            `pad_token_id`.
        new_head: Prefixes, in on-disk names, of weights to initialise randomly even if the folder has them
            (`("classifier.",)`). Empty for a fine-tuned model, whose head comes from the folder.
        dropout_prob: Dropout rate of attention and hidden states; None keeps the folder's.
    """
    checkpoint = Checkpoint.open(source)
    config, folder = checkpoint.config, checkpoint.folder
    if dropout_prob is not None:
        config = replace(config, hidden_dropout_prob=dropout_prob, attention_probs_dropout_prob=dropout_prob)
    with torch.device("meta"):  # nothing is drawn: all weights are read below, or drawn by their names
        model = make(config, vocab_size=checkpoint.vocab_size, pad_token_id=checkpoint.pad_token_id)
    own_dropout = checkpoint.settings.get("qa_dropout")
    if dropout_prob is None and own_dropout is not None and isinstance(model, BertForQuestionAnswering):
        model.dropout.p = own_dropout
    # No warning about a missing pooler if the head does not use it, or if it is a part of a new head.
    is_new = bool(new_head) and bool(checkpoint.family.sequence_head)
    unread = () if getattr(model, "uses_pooler", True) and not is_new else (POOLER,)
    expected_fresh = (*new_head, *unread)  # the rest gives a warning
    encoder = model if isinstance(model, BertModel) else model.bert
    prefix = "bert." if model is encoder else ""
    ours = {f"{prefix}{name}": tensor for name, tensor in model.state_dict().items()}
    shapes = {name: shape for name, shape in checkpoint.shapes.items() if not name.startswith(expected_fresh)}
    _require_whole(folder, to_disk(ours), shapes)  # before memory is taken for what config.json says
    model.to_empty(device="cpu")
    with_output = any(name.startswith(MLM_HEAD) for name in to_disk(ours))
    weights = read_weights(checkpoint, with_output=with_output)
    encoder.embeddings.unused_positions = weights.pop(UNUSED_POSITIONS, None)
    disk = {name: tensor for name, tensor in weights.items() if not name.startswith(expected_fresh)}
    found, missing = from_disk(ours, disk)
    if missing:
        initialize(model, encoder.config, seed=seed, but={name.removeprefix(prefix) for name in found})
    if fresh := [name for name in missing if not name.startswith(expected_fresh)]:
        warn(f"{folder} lacks {_some(fresh)}: these start from random weights.")
    model.load_state_dict({name.removeprefix(prefix): tensor for name, tensor in found.items()}, strict=False)
    return model


def require_whole_checkpoint(source: Checkpoint | Path) -> None:
    """Check, by the headers of its weights, that a checkpoint has the whole encoder that its config.json describes; of
    a wrapped family, that it has weights.

    Raises:
        ArtifactError: A file is missing or truncated, or a weight is missing, unknown or of another shape.
    """
    checkpoint = Checkpoint.open(source)
    shapes = checkpoint.shapes
    if checkpoint.family.wrapping is not None:
        return
    with torch.device("meta"):  # shapes alone
        encoder = BertModel(checkpoint.config, vocab_size=checkpoint.vocab_size, pad_token_id=checkpoint.pad_token_id)
    ours = to_disk({f"bert.{name}": tensor for name, tensor in encoder.state_dict().items()})
    _require_whole(checkpoint.folder, ours, shapes)


def _require_whole(folder: Path, ours: Mapping[str, Tensor], disk: Mapping[str, tuple[int, ...]]) -> None:
    """Compare the shapes of a model's weights, by name on disk, with those of a folder, which may lack heads."""
    lost = [name for name in ours if name not in disk and not name.startswith(_HEADS)]
    unknown = sorted(name for name in disk if name not in ours and name.startswith("bert."))
    unknown = [name for name in unknown if not name.startswith(_HEADS)]
    shapes = ((name, disk.get(name, tensor.shape), tensor.shape) for name, tensor in ours.items())
    refuse_partial(folder, lost, unknown, shapes)


def refuse_partial(
    folder: Path, lost: list[str], unknown: list[str], shapes: Iterable[tuple[str, Sequence[int], Sequence[int]]]
) -> None:
    """Raise ArtifactError if weights of an encoder are lost, or unknown, or have one shape in a folder and another in
    the model."""
    for names, problem in ((lost, "lacks"), (unknown, "has weights that its config.json does not make:")):
        if names:
            raise ArtifactError(f"{folder} {problem} {_some(names)}. Is it a whole checkpoint?")
    for name, theirs, ours in shapes:
        if theirs != ours:
            raise ArtifactError(f"{folder}: {name} has shape {list(theirs)}, config.json makes it {list(ours)}.")


def _some(names: list[str], most: int = 4) -> str:
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
