"""Tokenizer files on disk, in the format of transformers."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertline.foundation.errors import ArtifactError
from bertline.foundation.files import read_json, read_object, write_atomically, write_json
from bertline.tokenization.vocabulary import TOKEN_ROLES

if TYPE_CHECKING:
    from bertline.tokenization.tokenizer import Tokenizer

TOKENIZER_FILES = (
    "tokenizer.json", "vocab.txt", "added_tokens.json", "tokenizer_config.json", "special_tokens_map.json",
)  # fmt: skip

# Keys in which other libraries record the original location of a tokenizer.
_PLACES = ("name_or_path", "special_tokens_map_file", "tokenizer_file", "vocab_file")
# Maximum sequence length of every published BERT (Devlin et al. 2018, A.2).
_MODEL_MAX_LENGTH = 512


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write `tokenizer.json`, `tokenizer_config.json` and, of a WordPiece, `vocab.txt` into a folder.

    Any other tokenizer is written as RoBERTa's, which is what `train_byte_bpe` makes. The configuration always has
    `do_lower_case`: without it, transformers 5 lower-cases even with a cased `tokenizer.json`.
    """
    write_atomically(folder / "tokenizer.json", tokenizer.backend.to_str(pretty=True) + "\n")
    settings: dict[str, Any] = {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": False}
    if tokenizer.is_wordpiece:
        vocabulary = tokenizer.vocabulary
        write_atomically(folder / "vocab.txt", "".join(f"{token}\n" for token in vocabulary.tokens))
        settings = {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": vocabulary.lowercase,
            "strip_accents": vocabulary.strip_accents,
            "tokenize_chinese_chars": vocabulary.split_chinese_characters,
        }
    settings |= {"model_max_length": _MODEL_MAX_LENGTH, **_input_names(folder)}
    write_json(
        folder / "tokenizer_config.json", settings | dict(zip(TOKEN_ROLES, tokenizer.special_tokens, strict=True))
    )


def copy_tokenizer(source: Path, target: Path, *, max_length: int | None = None) -> None:
    """Copy the tokenizer files of one folder into another, such as a folder in which the model already lies.

    `max_length`, the longest sequence that the model was trained on, is the upper limit of `model_max_length` in the
    copy: later position embeddings are untrained.

    Raises:
        ArtifactError: `source` has neither `tokenizer.json` nor `vocab.txt`.
    """
    present = [source / name for name in TOKENIZER_FILES if (source / name).is_file()]
    if not {"tokenizer.json", "vocab.txt"} & {path.name for path in present}:
        raise ArtifactError(f"{source} has neither tokenizer.json nor vocab.txt to copy to {target}.")
    target.mkdir(parents=True, exist_ok=True)
    for path in present:
        shutil.copyfile(path, target / path.name)
    path = target / "tokenizer_config.json"
    before = read_object(path, missing_ok=True)
    # Local paths, of this or another machine; and the inputs, which depend on the model.
    left_out = (*_PLACES, "model_input_names") if (target / "config.json").is_file() else _PLACES
    settings = {name: value for name, value in before.items() if name not in left_out} | _input_names(target)
    if before and max_length is not None:
        settings["model_max_length"] = min(max_length, before.get("model_max_length", max_length))
    if settings != before:
        write_json(path, settings)


def add_tokenizer_json(folder: Path) -> None:
    """Add `tokenizer.json` to a folder with `vocab.txt` alone: transformers.js and the package tokenizers read nothing
    else. Settings that the folder has stay."""
    if (folder / "tokenizer.json").is_file():
        return
    from bertline.tokenization.tokenizer import Tokenizer

    path = folder / "tokenizer_config.json"
    before = read_object(path, missing_ok=True)
    save_tokenizer(Tokenizer.load(folder), folder)
    write_json(path, read_json(path) | before)


def _input_names(folder: Path) -> dict[str, list[str]]:
    """Return the setting that makes transformers give the second text of a pair a token type of its own exactly where
    the folder's model has two: a `BertTokenizer` always does, an `AlbertTokenizer` never."""
    config = read_object(folder / "config.json", missing_ok=True)
    if not config:
        return {}
    if config.get("type_vocab_size", 0) < 2:
        return {"model_input_names": ["input_ids", "attention_mask"]}
    from bertline.tokenization.tokenizer import Tokenizer  # here: reading the names of the files must stay quick

    if Tokenizer.load(folder).is_wordpiece:
        return {}
    return {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
