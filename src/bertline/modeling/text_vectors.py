"""How a folder of sentence-transformers makes vectors of texts: `modules.json` and what it names.

The package sentence-transformers itself is not needed.

References: Reimers and Gurevych, Sentence-BERT (arXiv 1908.10084); the package's documentation, "Structure of Sentence
Transformer Models".
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

from bertline.foundation.errors import ArtifactError
from bertline.foundation.files import read_object, write_json
from bertline.modeling.checkpoint import MODULES_NAME, WEIGHTS_NAME, Checkpoint
from bertline.modeling.config import Pooling
from bertline.modeling.heads import pooled
from bertline.modeling.weight_files import read_tensors, write_weights

CLASSIFIER = "classifier"
_POOLINGS = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}
_SAVE_AGAIN = "Save the folder again: SentenceTransformer(FOLDER).save_pretrained(NEW)"
_FREE = object()
_SENTENCE = {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}
# Settings of each kind of module that are computed here, and their only value where there is one.
_SETTINGS: dict[str, dict[str, Any]] = {
    "Transformer": {
        "max_seq_length": _FREE, "do_lower_case": _FREE, "transformer_task": "feature-extraction",
        "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
        "module_output_name": "token_embeddings",
    },
    "Pooling": {
        **dict.fromkeys((*_POOLINGS, "pooling_mode", "embedding_dimension", "word_embedding_dimension"), _FREE),
        "include_prompt": True,
    },
    "Dense": {**dict.fromkeys(("in_features", "out_features", "bias", "activation_function"), _FREE), **_SENTENCE},
    "Normalize": _SENTENCE,
}  # fmt: skip
_IDENTITY = "torch.nn.modules.linear.Identity"
_ACTIVATIONS = {"Identity": nn.Identity, "Tanh": nn.Tanh, "ReLU": nn.ReLU, "GELU": nn.GELU, "Sigmoid": nn.Sigmoid}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TextVectorModules:
    """What makes vectors of texts besides an encoder: what texts begin with, pooling, and layers behind it."""

    pooling: Any
    dense: nn.Sequential
    """Linear layers, each with its activation."""
    size: int
    """Size of the vectors."""
    normalize: bool
    max_length: int | None
    """Maximum number of tokens, where the folder names one."""
    lowercase: bool
    prompts: Mapping[str | None, str]
    """What a text begins with, by its role (`query`); for None the default."""

    def texts(self, texts: Sequence[str], role: str | None) -> list[str]:
        """Return texts as the encoder reads them."""
        prompted = [self.prompts.get(role, "") + text for text in texts]
        return [text.lower() for text in prompted] if self.lowercase else prompted

    def vectors(self, hidden_states: Tensor, attention_mask: Tensor) -> Tensor:
        """Return vectors of hidden states [B, S, H]."""
        vectors = self.dense(pooled(hidden_states, attention_mask, self.pooling))
        return nn.functional.normalize(vectors, dim=-1) if self.normalize else vectors


def read_text_vector_modules(checkpoint: Checkpoint) -> TextVectorModules | None:
    """Read `modules.json` and all that it names; None without it.

    Raises:
        ArtifactError: A module or one of its settings is not computed here, which the message names.
    """
    folder = checkpoint.folder
    path = folder / MODULES_NAME
    if not path.is_file():
        return None
    modules = [module if isinstance(module, dict) else {} for module in read_object(path, expected=list)]
    types, places = ([str(module.get(key, "")) for module in modules] for key in ("type", "path"))
    kinds = [re.sub(r"^sentence_transformers\..*\.", "", name) for name in types]
    if not re.fullmatch("Transformer Pooling( Dense)*( Normalize)?", " ".join(kinds)):
        raise ArtifactError(
            f"{path} names {', '.join(types)}; bertline computes Transformer, Pooling, Dense (several), Normalize in "
            "this order. Of a copy of the folder without modules.json it loads the encoder alone."
        )
    if places[0] or not all(re.fullmatch(r"\w[\w.-]*", place) for place in places[1:]):
        raise ArtifactError(
            f"{path}: the paths of its modules are {', '.join(places)}; expected the encoder at the top of the folder, "
            f"and the others in folders below. {_SAVE_AGAIN}"
        )
    first, pooling, *others = (_settings(folder, *module) for module in zip(kinds, places, strict=True))
    modes = pooling.get("pooling_mode") or [mode for key, mode in _POOLINGS.items() if pooling.get(key)] or "mean"
    mode = modes[0] if isinstance(modes, list) and len(modes) == 1 else modes
    if mode not in _POOLINGS.values():
        raise ArtifactError(f"{folder / places[1]}: the pooling is {mode}; bertline has cls, mean and max.")
    max_length = first.get("max_seq_length")
    if max_length is not None and (type(max_length) is not int or max_length < 1):
        raise ArtifactError(f"{folder}: max_seq_length is {max_length!r:.200}; expected a whole number, at least 1.")
    named = read_object(folder / "config_sentence_transformers.json", missing_ok=True)
    prompts, default = named.get("prompts") or {}, named.get("default_prompt_name")
    if not isinstance(prompts, dict) or (default is not None and default not in list(prompts)):
        raise ArtifactError(f"{folder}: default_prompt_name is {default!r:.200}, none of its prompts.")
    layers, size = [], checkpoint.config.hidden_size
    for settings, kind, place in zip(others, kinds[2:], places[2:], strict=True):
        if kind == "Dense":
            layers += _dense(folder / place, settings, size)
            size = settings["out_features"]
    return TextVectorModules(
        pooling=mode,
        dense=nn.Sequential(*layers),
        size=size,
        normalize=kinds[-1] == "Normalize",
        max_length=max_length and min(max_length, checkpoint.config.max_position_embeddings),
        lowercase=bool(first.get("do_lower_case")),
        prompts={name: str(text or "") for name, text in {**prompts, None: prompts.get(default)}.items()},
    )


def _settings(folder: Path, kind: str, place: str) -> dict[str, Any]:
    path = folder / place / "config.json"
    if kind == "Transformer":
        path = next(iter(sorted(folder.glob("sentence_*_config.json"))), folder / "sentence_bert_config.json")
    settings = read_object(path, missing_ok=kind != "Dense")
    for key, value in settings.items():
        only = _SETTINGS[kind].get(key)
        if only is not _FREE and value != only and (value or key == "include_prompt"):
            raise ArtifactError(
                f"{path}: {key} is {value!r:.200}, which bertline does not compute in {kind}"
                f"{f' (only {only})' if only else ''}. Use sentence-transformers for this model."
            )
    return settings


def _dense(folder: Path, settings: Mapping[str, Any], size: int) -> list[nn.Module]:
    """Read a linear layer from vectors of `size`, and its activation."""
    activation = str(settings.get("activation_function", "torch.nn.Tanh"))
    kind = re.sub(r"^torch\.nn\..*?(\w+)$", r"\1", activation)
    if kind not in _ACTIVATIONS:
        raise ArtifactError(f"{folder}: its activation is {activation}; bertline has {', '.join(_ACTIVATIONS)}.")
    weights = read_tensors(folder / WEIGHTS_NAME)
    shapes, expected = {name: list(each.shape) for name, each in weights.items()}, [settings.get("out_features"), size]
    with_bias = bool(settings.get("bias", True))
    wanted = {"linear.weight": expected, **({"linear.bias": expected[:1]} if with_bias else {})}
    if shapes != wanted or settings.get("in_features") != size:
        raise ArtifactError(f"{folder} has weights of the shapes {shapes}; by its config.json they are {wanted}.")
    layer = nn.Linear(size, settings["out_features"], bias=with_bias)
    layer.load_state_dict({name.removeprefix("linear."): tensor for name, tensor in weights.items()})
    return [layer, _ACTIVATIONS[kind]()]


@dataclass(frozen=True, kw_only=True, slots=True)
class VectorSettings:
    """How a model turns texts into vectors, for the files of the sentence-transformers package."""

    pooling: Pooling
    """How token vectors are pooled."""
    similarity: Literal["cosine", "dot"]
    """Similarity function that the vectors were trained with."""
    prompts: dict[str, str]
    """Prefix of a text by its role (`query`, `document`); empty strings for no prefix."""
    normalize: bool = False
    """Whether vectors are divided by their length."""


def write_sentence_transformer(folder: Path, vectors: VectorSettings, *, max_length: int) -> None:
    """Add the files that `SentenceTransformer(folder)` reads to a folder with a `BertModel` and its tokenizer.

    The vectors equal those of `bertline.load(folder).embed`.
    """
    modules = {"": "Transformer", "1_Pooling": "Pooling", **({"2_Normalize": "Normalize"} if vectors.normalize else {})}
    content = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(modules.items())
    ]
    write_json(folder / MODULES_NAME, content)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
    settings = {
        "__version__": {},
        "prompts": vectors.prompts,
        "default_prompt_name": None,
        "similarity_fn_name": vectors.similarity,
    }
    write_json(folder / "config_sentence_transformers.json", settings)
    pooling = {
        "word_embedding_dimension": Checkpoint.open(folder).config.hidden_size,
        "pooling_mode_cls_token": vectors.pooling == "cls",
        "pooling_mode_mean_tokens": vectors.pooling == "mean",
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
        "include_prompt": True,
    }
    write_json(folder / "1_Pooling" / "config.json", pooling)


def write_classifier(folder: Path, classifier: nn.Linear, separators: Sequence[int]) -> None:
    """Write a linear layer on a folder's vectors as a module `Dense` of sentence-transformers, in `classifier/`; of
    pairs that are read as two texts also the ids between them (`BertVectorClassifier`).

    `modules.json` does not name it, so that the folder's vectors stay those of texts.
    """
    size, num_labels = classifier.in_features, classifier.out_features
    settings = {"in_features": size, "out_features": num_labels, "bias": True, "activation_function": _IDENTITY}
    write_json(folder / CLASSIFIER / "config.json", settings | ({"separators": [*separators]} if separators else {}))
    weights = {f"linear.{name}": weight for name, weight in classifier.state_dict().items()}
    write_weights(weights, folder / CLASSIFIER / WEIGHTS_NAME)


def read_classifier(checkpoint: Checkpoint) -> tuple[Any, nn.Linear, list[int]] | None:
    """Read the pooling of a folder and what `write_classifier` wrote; None if it wrote nothing there."""
    folder = checkpoint.folder / CLASSIFIER
    modules = read_text_vector_modules(checkpoint) if folder.is_dir() else None
    if modules is None:
        return None
    settings = read_object(folder / "config.json")
    layer: Any = _dense(folder, settings, modules.size * (2 if "separators" in settings else 1))[0]
    return modules.pooling, layer, settings.get("separators", [])
