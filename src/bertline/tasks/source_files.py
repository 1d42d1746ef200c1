"""Which file of a source holds which split, and where one file has to serve for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from bertline.foundation.errors import DataError
from bertline.foundation.progress import say
from bertline.foundation.seeds import unit_interval
from bertline.tasks.storage import SplitName

Item = TypeVar("Item")


def split_files(
    path: str, train_file: str | None, dev_file: str | None, test_file: str | None
) -> dict[SplitName, Path]:
    """The files of the splits that the source has; `train` is always among them.

    Where `path` is a file itself, that is the whole of the source, and names of files are not used.

    Raises:
        DataError: A file is missing, or a folder is given without the name of its train file.
    """
    base = Path(path)
    named = {"train": train_file, "dev": dev_file, "test": test_file}
    if base.is_file():
        unused = [f"source.{split}_file" for split, name in named.items() if name is not None]
        if unused:
            say(f"source.path {base} is one file, and all splits are cut from it; {', '.join(unused)} not used")
        return {"train": base}
    if not base.is_dir():
        raise DataError(f"source.path {base} does not exist. Put the task's files, or a link to them, there.")
    held = ", ".join(sorted(entry.name for entry in base.iterdir() if not entry.name.startswith("."))) or "no files"
    if train_file is None:
        raise DataError(f"source.path {base} is a folder: name its source.train_file. It holds {held}.")
    files = {split: base / name for split, name in named.items() if name is not None}
    for split, file in files.items():
        if not file.is_file():
            raise DataError(f"{file} (source.{split}_file) does not exist. The folder holds {held}.")
    return files


def cut_by_key(
    items: Sequence[Item], key: Callable[[Item], str], name: SplitName, fraction: float, seed: int
) -> tuple[list[Item], list[Item]]:
    """Take about so large a share of the keys, each with all its items; the side of a key is a hash of it.

    Of many keys, the side of one does not depend on the others. Of a few, chance could take none or nearly all: the
    number that is taken is held to between half and one and a half times the share, and to at least one.

    Returns:
        The items taken, and the others.

    Example:
        >>> taken, left = cut_by_key("abcabcabc", str, "dev", 0.4, seed=0)
        >>> set(taken) & set(left)
        set()
        >>> sorted([*taken, *left])
        ['a', 'a', 'a', 'b', 'b', 'b', 'c', 'c', 'c']
    """
    draws = {each: unit_interval(seed, name, each) for each in map(key, items)}
    expected = fraction * len(draws)
    fewest, most = (max(round(share * expected), 1) for share in (0.5, 1.5))
    count = min(max(sum(draw < fraction for draw in draws.values()), fewest), most)
    # The last key stays where it is: something has to be left to train on.
    count = min(count, len(draws) - 1) if fraction > 0 else 0
    chosen = set(sorted(draws, key=lambda each: (draws[each], each))[: max(count, 0)])
    return [item for item in items if key(item) in chosen], [item for item in items if key(item) not in chosen]


def drop_repeated(splits: dict[SplitName, list[Item]], key: Callable[[Item], str], name: str) -> Counter[str]:
    """Leave out what also stands in a split closer to the test (test, then dev, then train), in place.

    Returns:
        How many were left out, by reason: `train_NAME_also_in_dev_or_test`.

    Example:
        >>> splits = {"train": ["a", "b"], "dev": ["b", "c"], "test": ["c"]}
        >>> drop_repeated(splits, str, "text")["dev_text_also_in_test"], splits
        (1, {'train': ['a'], 'dev': ['b'], 'test': ['c']})
    """
    dropped = Counter[str]()
    seen = {key(item) for item in splits["test"]}
    for split, others in (("dev", "test"), ("train", "dev_or_test")):
        kept = [item for item in splits[split] if key(item) not in seen]
        dropped[f"{split}_{name}_also_in_{others}"] = len(splits[split]) - len(kept)
        seen |= {key(item) for item in kept}
        splits[split] = kept
    return dropped


def same_text(parts: Iterable[str]) -> str:
    """What makes two texts the same: their words, without regard to case and white space.

    Example:
        >>> same_text(["Sum of  squares", "X "])
        'sum of squares\\x00x'
    """
    return "\0".join(" ".join(part.casefold().split()) for part in parts)
