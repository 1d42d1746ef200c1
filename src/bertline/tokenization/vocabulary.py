"""Vocabulary files (`vocab.txt`, `tokenizer.json`): reading and validation; and folders of the Hugging Face hub."""

import importlib.util
import itertools
import shlex
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertline.foundation.errors import DataError
from bertline.foundation.files import read_object, refuse_lfs_pointer

PAD, UNK, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PAD, UNK, CLS, SEP, MASK)
"""Special tokens, in the order of their ids in a trained vocabulary, from 0."""

CONTINUATION = "##"
"""Prefix of subwords that continue a word."""
MAX_WORD_CHARACTERS = 100
"""Maximum word length; a longer word becomes [UNK]. (max_input_chars_per_word of google-research/bert, tokenization.py,
is 200; the tokenizers library and every published tokenizer.json use 100.)"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Vocabulary:
    """The tokens of a vocabulary, and the text normalisation that goes with it."""

    tokens: tuple[str, ...]
    """Tokens in the order of their ids."""
    lowercase: bool
    strip_accents: bool | None = None
    """Whether to strip accents; None means the value of `lowercase`, as in the reference code."""
    split_chinese_characters: bool = True
    unsplit: tuple[str, ...] = ()
    """Tokens that are taken whole, though the pre-tokenizer would split them (`covid-19`); normalised."""


def read_vocabulary(path: Path, *, lowercase: bool | None = None) -> Vocabulary:
    """Read the vocabulary of a `vocab.txt`, or of the tokenizer folder of bertline or any published BERT checkpoint.

    The tokens come from `tokenizer.json`, else from `vocab.txt`. Lower-casing is determined by `lowercase`, else by
    `do_lower_case` in `tokenizer_config.json`, else by the normalizer in `tokenizer.json`, else by the tokens: a
    vocabulary is cased if at least 1 % of its ordinary tokens have a capital letter.

    Raises:
        DataError: The folder has no vocabulary, or it is not WordPiece, or BERT cannot use it.
    """
    folder, vocab_file = (path.parent, path) if path.is_file() else (path, path / "vocab.txt")
    content: dict[str, Any] = {}
    if path.is_dir() and (tokenizer_file := path / "tokenizer.json").is_file():
        content = read_object(tokenizer_file)
        tokens = _tokens_of(content, tokenizer_file)
    elif vocab_file.is_file():
        tokens = read_vocab_file(vocab_file)
    else:
        raise DataError(
            f"{folder} has neither tokenizer.json nor vocab.txt, so bertline reads no tokenizer there. Copy them from "
            "where the model was published; or convert a slow one (spm.model, merges.txt) once, on a machine where you "
            "trust it, with `pip install sentencepiece protobuf` if transformers asks for them, and take the new "
            f"folder: {conversion_of(folder)}"
        )
    config = read_object(folder / "tokenizer_config.json", missing_ok=True)
    normalizer = content.get("normalizer") or {}
    ordinary = [token for token in tokens if not (token.startswith("[") and token.endswith("]"))]
    is_cased = sum(token != token.lower() for token in ordinary) >= max(1, 0.01 * len(ordinary))
    settings = (lowercase, config.get("do_lower_case"), normalizer.get("lowercase"), not is_cased)
    chinese = config.get("tokenize_chinese_chars", normalizer.get("handle_chinese_chars", True))
    return Vocabulary(
        tokens=tokens,
        lowercase=next(bool(setting) for setting in settings if setting is not None),
        strip_accents=config.get("strip_accents", normalizer.get("strip_accents")),
        split_chinese_characters=bool(chinese),
        unsplit=tuple(
            token["content"]
            for token in content.get("added_tokens", [])
            if token.get("single_word") and token.get("normalized") and not token.get("special")
        ),
    )


TOKEN_ROLES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
"""Settings of transformers that name the special tokens, in the order of `SPECIAL_TOKENS`."""
ROBERTA_TOKENS = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
"""RoBERTa's tokens for padding, unknown, start, end and mask."""
_CONVERSION = (
    'python -c "import sys, transformers as t; a, b = sys.argv[1:]; n = t.AutoConfig.from_pretrained(a).architectures; '
    "getattr(t, (n or ['AutoModel'])[0]).from_pretrained(a).save_pretrained(b); "
    't.AutoTokenizer.from_pretrained(a).save_pretrained(b)"'
)


def conversion_of(folder: Path) -> str:
    """Return the command that writes a checkpoint to a new folder, with safetensors and tokenizer.json."""
    return f"{_CONVERSION} {shlex.quote(str(folder))} {shlex.quote(f'{folder}-converted')}"


@dataclass(frozen=True, kw_only=True, slots=True)
class OtherTokenizer:
    """A `tokenizer.json` that is not BERT's WordPiece: byte-level BPE, Unigram, other special tokens, or tokens added
    beside a WordPiece vocabulary."""

    content: str | Vocabulary
    """The file, as the tokenizers library reads it; or the vocabulary that the tokens are added to."""
    special_tokens: tuple[str, ...]
    """Tokens for padding, unknown, start, end and mask."""
    own_tokens: tuple[dict[str, Any], ...] = ()
    """Entries of the file's `added_tokens` for tokens that are found in texts, whatever the file says of them."""

    @property
    def markers(self) -> tuple[str, ...]:
        """Special tokens among `own_tokens`."""
        return tuple(token["content"] for token in self.own_tokens if token["special"])


def read_other_tokenizer(folder: Path) -> OtherTokenizer | None:
    """Read the tokenizer of a folder unless it is BERT's, a WordPiece vocabulary alone; then, or without one, None.

    Raises:
        DataError: Its special tokens are not in its vocabulary.
    """
    path, vocab_file = folder / "tokenizer.json", folder / "vocab.txt"
    settings: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        settings |= read_object(folder / name, missing_ok=True)
    markers = _markers(settings)
    if not path.is_file():
        added = read_object(folder / "added_tokens.json", missing_ok=True)
        if not vocab_file.is_file() or not (added or markers):
            return None
        vocabulary = read_vocabulary(folder)
        vocab = {token: index for index, token in enumerate(vocabulary.tokens)}
        own = _own_tokens(markers, ChainMap(added, vocab), added)
        return OtherTokenizer(content=vocabulary, special_tokens=SPECIAL_TOKENS, own_tokens=own) if own else None
    content = read_object(path)
    model = content.get("model") or {}
    added = {token["content"]: token["id"] for token in content.get("added_tokens", [])}
    vocab = model["vocab"]
    if not isinstance(vocab, dict):
        vocab = {token: index for index, (token, _) in enumerate(vocab)}
    own = _own_tokens(markers, ChainMap(added, vocab))
    if model.get("type") == "WordPiece" and vocab.keys() >= {*added, *SPECIAL_TOKENS} and not own:
        return None
    tokens = []
    for role, customary, of_bert in zip(TOKEN_ROLES, ROBERTA_TOKENS, SPECIAL_TOKENS, strict=True):
        named = _text_of(settings.get(role))
        token = next((each for each in (named, customary, of_bert) if each in vocab or each in added), None)
        if token is None:
            raise DataError(
                f"{path}: no {role} can be told. Name it in tokenizer_config.json, as one of the file's tokens; an "
                "encoder of BERT's family has one."
            )
        tokens.append(token)
    return OtherTokenizer(content=path.read_text(encoding="utf-8"), special_tokens=tuple(tokens), own_tokens=own)


def _markers(settings: Mapping[str, Any]) -> set[str]:
    """Return the special tokens that a tokenizer's settings declare beside those with a role."""
    keys = ("additional_special_tokens", "extra_special_tokens")
    named = (tokens.values() if isinstance(tokens, dict) else tokens for tokens in map(settings.get, keys) if tokens)
    declared = map(_text_of, itertools.chain.from_iterable(named))
    roles = (_text_of(settings.get(role)) for role in (*TOKEN_ROLES, "bos_token", "eos_token"))
    return set(declared).difference(roles, SPECIAL_TOKENS, ROBERTA_TOKENS)


def _own_tokens(markers: set[str], ids: Mapping[str, int], added: Iterable[str] = ()) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"id": ids[token], "content": token, "normalized": token not in markers, "special": token in markers}
        for token in sorted({*added, *(marker for marker in markers if marker in ids)}, key=ids.__getitem__)
    )


def _text_of(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token


def read_vocab_file(path: Path) -> tuple[str, ...]:
    """Read a `vocab.txt`: one token per line; the id of a token is its line number, from 0.

    Raises:
        DataError: The file is not UTF-8, has an empty line or a duplicate token (the message has the line numbers), or
            lacks a special token.
    """
    refuse_lfs_pointer(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 ({error}). Expected a BERT vocab.txt, one token per line.") from error
    # Not splitlines(): it also splits at characters such as U+2028, which may be tokens themselves.
    return _checked(text.removesuffix("\n").split("\n"), path)


def _tokens_of(content: Mapping[str, Any], path: Path) -> tuple[str, ...]:
    model = content.get("model") or {}
    if model.get("type") != "WordPiece":
        raise DataError(f"{path}: the model is {model.get('type')!r}, expected 'WordPiece', the kind that BERT has.")
    by_id = {index: token for token, index in model["vocab"].items()}
    added = [token["content"] for token in content.get("added_tokens", []) if token["content"] not in model["vocab"]]
    if added:
        raise DataError(
            f"{path}: {len(added)} tokens ({', '.join(added[:5])}) were added beside the WordPiece vocabulary. Such a "
            "tokenizer is fine-tuned and served as it is, but this needs one whose tokens all stand in its vocabulary."
        )
    if sorted(by_id) != list(range(len(by_id))):
        raise DataError(f"{path}: the ids of its {len(by_id)} tokens are not 0 to {len(by_id) - 1} without a gap.")
    return _checked([by_id[index] for index in range(len(by_id))], path)


def _checked(tokens: Sequence[str], path: Path) -> tuple[str, ...]:
    first_line: dict[str, int] = {}
    for number, token in enumerate(tokens, start=1):
        if not token.strip():
            raise DataError(f"{path}, line {number}: the line is empty; expected one token. Delete or fill it.")
        if token in first_line:
            raise DataError(
                f"{path}, line {number}: the token {token!r} stands on line {first_line[token]} too. A token has one "
                "id, which is its line; give one of the two another name (such as [unused1]), so that no id moves."
            )
        first_line[token] = number
    missing = [token for token in SPECIAL_TOKENS if token not in first_line]
    if missing:
        raise DataError(
            f"{path} lacks {', '.join(missing)}. A BERT vocabulary has a line for each of {', '.join(SPECIAL_TOKENS)}, "
            "spelt so."
        )
    return tuple(tokens)


def folder_in_package(name: str) -> Path | None:
    """Return the model folder in the installed package of this name; None unless there is exactly one."""
    module = name.replace("-", "_")
    if not module.isidentifier() or (spec := importlib.util.find_spec(module)) is None:
        return None
    roots = [Path(root) for root in spec.submodule_search_locations or ()]
    folders = [path.parent for root in roots for path in root.rglob("model.safetensors")]
    return folders[0] if len(folders) == 1 and (folders[0] / "config.json").exists() else None


def resolve_folder(name_or_folder: str, revision: str | None = None) -> Path:
    """Return an existing folder unchanged, else the folder in an installed package of this name, else the cached
    snapshot of the hub, downloaded if necessary.

    A hub name is `owner/name` or `owner/name@REVISION`; `revision` is a commit, tag or branch of one without.

    Raises:
        DataError: It is neither a folder nor a hub name that can be reached.
    """
    folder = Path(name_or_folder).expanduser()
    if folder.is_dir():
        return folder
    if folder.is_file():
        raise DataError(f"{folder} is a file; expected a folder with a checkpoint or a Hugging Face hub name.")
    if (packaged := folder_in_package(name_or_folder)) is not None:
        return packaged
    name, _, own_revision = name_or_folder.partition("@")
    if name.count("/") > 1 or name_or_folder.startswith((".", "/", "~")):
        raise DataError(f"{folder} does not exist; expected a folder with a checkpoint or a hub name (owner/name).")
    # Imported here because the import takes half a second and folders do not need it.
    from huggingface_hub import snapshot_download

    revision = own_revision or revision
    # Weights as safetensors only, and no code files: loading a checkpoint cannot execute code.
    wanted = ["*.json", "*.txt", "*.safetensors"]
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=wanted))
    # The hub's errors are subclasses of OSError (offline, no such name or file) and ValueError (invalid name).
    except (OSError, ValueError) as error:
        at, reason = f" at revision {revision}" if revision else "", str(error).strip().partition("\n")[0]
        raise DataError(
            f"{name!r} is not a folder here, and the Hugging Face hub gave no checkpoint of that name{at} "
            f"({type(error).__name__}: {reason}). Correct the name, or go online, or download it elsewhere and give "
            "the folder."
        ) from error
