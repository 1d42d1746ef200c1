"""The splits of a source, read from its files or cut from train, and its labelled rows before labels are indices."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from numpy.typing import NDArray

from bertline.foundation.bad_rows import BadRows
from bertline.foundation.errors import DataError
from bertline.foundation.progress import progress, say, warn
from bertline.foundation.seeds import seed_for, unit_interval
from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.source_config import FilesSourceConfig
from bertline.tasks.stored_rows import SplitName

Element = TypeVar("Element")
WithId = TypeVar("WithId", bound=Any)
"""A row with an `id` that names its origin."""


def read_splits(
    config: Any,
    read: Callable[[Path, Any, BadRows], list[WithId]],
    *,
    same: Callable[[WithId], str],
    name: str,
    kept_together: Callable[[WithId], str] | None = None,
    labels: Callable[[WithId], Iterable[str]] | None = None,
) -> tuple[dict[SplitName, list[WithId]], Counter[str]]:
    """Read the files, cut missing splits from train by a hash, and shuffle and shorten train.

    Args:
        config: Settings of a task whose source is files.
        read: Reads the rows of a file of the source and reports the invalid ones.
        same: Key of a row; rows with the same key are duplicates, and duplicates across splits are dropped from train
            first, then from dev.
        name: What the key `same` identifies, for the names of the counts.
        kept_together: Key of a row; rows with the same key go to the same split. None: the key `same`.
        labels: Labels of a row, by which cuts are stratified; None for tasks without labels.

    Returns:
        Rows of train, dev and test, and the number of dropped rows by reason.
    """
    source: FilesSourceConfig = config.source
    bad_rows = BadRows(config.source.on_bad_row)
    splits = {split: read(file, source, bad_rows) for split, file in split_files(source).items()}
    bad_rows.end()
    dropped = bad_rows.dropped + complete_splits(
        splits, config, same=same, name=name, kept_together=kept_together, labels=labels
    )
    return with_row_limits(splits, config, dropped), dropped


def complete_splits(
    splits: dict[SplitName, list[WithId]],
    config: BaseTaskConfig,
    *,
    same: Callable[[WithId], str],
    name: str,
    kept_together: Callable[[WithId], str] | None = None,
    labels: Callable[[WithId], Iterable[str]] | None = None,
    tolerance: float = 0.5,
) -> Counter[str]:
    """Cut missing splits from train, drop repeated rows, and shuffle train, all in place.

    See `read_splits` and, for `tolerance`, `stratified_cut`.

    Returns:
        Number of dropped rows by reason.
    """
    key, is_one_file = kept_together or same, splits.keys() == {"train"}
    fractions = {"test": config.test_fraction, "dev": config.dev_fraction}
    missing = {split: fraction for split, fraction in fractions.items() if split not in splits}
    if labels is not None and missing and max(missing.values()) < 1:
        splits |= stratified_cut(splits["train"], key, labels, missing, config.split_seed, tolerance=tolerance)
    else:
        for split, fraction in missing.items():
            splits[split], splits["train"] = cut_by_key(splits["train"], key, split, fraction, config.split_seed)
    dropped = drop_repeated(splits, same, name)
    # The order, and with it the weights, does not depend on the name of the file that all rows come from.
    id_of: Callable[[WithId], str] = lambda row: row.id.rpartition(":")[2] if is_one_file else row.id  # noqa: E731
    splits["train"].sort(key=lambda row: (seed_for(config.split_seed, "order", id_of(row)), row.id))
    return dropped


def with_row_limits(
    splits: Mapping[SplitName, list[WithId]], config: BaseTaskConfig, dropped: Counter[str]
) -> dict[SplitName, list[WithId]]:
    """Return train, dev, test and any others with as many rows as the task asks for; `dropped` is updated in place."""
    names = dict.fromkeys(("train", "dev", "test", *splits))
    shorter = {split: capped(splits[split], lambda row: row.id, split, config, dropped) for split in names}
    return {**shorter, "train": shorter["train"][: num_rows_made(config)]}


def split_files(source: FilesSourceConfig) -> dict[SplitName, Path]:
    """Return the files of the splits that the source has; `train` is always among them.

    If `path` is a file, it is the only one, and the file names are not used.

    Raises:
        DataError: A file is missing, or a folder is given without the name of its train file.
    """
    base = Path(source.path)
    named = {"train": source.train_file, "dev": source.dev_file, "test": source.test_file}
    if base.is_file():
        unused = [f"source.{split}_file" for split, name in named.items() if name is not None]
        if unused:
            say(f"source.path {base} is one file, and all splits are cut from it; {', '.join(unused)} not used")
        return {"train": base}
    if not base.is_dir():
        raise DataError(f"source.path {base} does not exist. Put the task's files, or a link to them, there.")
    held = ", ".join(sorted(entry.name for entry in base.iterdir() if not entry.name.startswith("."))) or "no files"
    if source.train_file is None:
        raise DataError(f"source.path {base} is a folder: name its source.train_file. It holds {held}.")
    files = {split: base / name for split, name in named.items() if name is not None}
    for split, file in files.items():
        if not file.is_file():
            raise DataError(f"{file} (source.{split}_file) does not exist. The folder holds {held}.")
    return files


def stratified_cut(
    items: Sequence[WithId],
    key: Callable[[WithId], str],
    labels: Callable[[WithId], Iterable[str]],
    fractions: Mapping[SplitName, float],
    seed: int,
    *,
    tolerance: float,
) -> dict[SplitName, list[WithId]]:
    """Cut splits from train so that each label has about its share of each of them, and at least one key.

    A hash of its key assigns a row, as in `cut_by_key`, so that rows added later move few others, except where chance
    would give a label too few or too many. Labels are corrected one after another, the rarest first. One with too few
    keys for all splits stays in train, with a warning.

    Args:
        items: Rows of train.
        key: Key of a row; rows with the same key go to the same split.
        labels: Labels of a row; rows without any are treated like those of a label of their own.
        fractions: Fraction of each split, in order; each is taken from what the ones before it leave.
        seed: `split_seed` of the task.
        tolerance: How far the number of a label's keys may be from its share, relative to it.

    Returns:
        Rows of train and of the other splits, in the order of `items`.

    Reference: Sechidis, Tsoumakas and Vlahavas, "On the Stratification of Multi-label Data", 2011, section 3.3.
    """
    keys_of: dict[str, dict[str, WithId]] = {}
    for item in progress(items, description="splitting rows", is_brief=True):
        for label in tuple(labels(item)) or ("",):
            keys_of.setdefault(label, {}).setdefault(key(item), item)
    wanted = {split: fraction for split, fraction in fractions.items() if fraction > 0}
    side: dict[str, SplitName] = {}
    alone: list[str] = []
    for label, keys in sorted(keys_of.items(), key=lambda of_label: (len(of_label[1]), of_label[0])):
        if len(keys) <= len(wanted):
            side |= dict.fromkeys(keys, "train")
            alone += [f"{label!r} ({next(iter(keys.values())).id})"] if label else []
            continue
        free, left = [each for each in keys if each not in side], len(keys)
        for place, (split, fraction) in enumerate(wanted.items()):
            drawing = progress(free, description=f"drawing rows of {split}", is_brief=True)
            draws = sorted((unit_interval(seed, split, each), each) for each in drawing)
            has = sum(side.get(each) == split for each in keys)
            drawn = has + sum(draw < fraction for draw, _ in draws)
            fewest, most = (max(round(bound * fraction * left), 1) for bound in (1 - tolerance, 1 + tolerance))
            # One key is left for train and for each later split.
            num_taken = max(min(max(drawn, fewest), most) - has, 0)
            num_taken = min(num_taken, max(len(free) - len(wanted) + place, 0))
            side |= dict.fromkeys((each for _, each in draws[:num_taken]), split)
            free, left = [each for _, each in draws[num_taken:]], left - has - num_taken
        side |= dict.fromkeys(free, "train")
        if all(side[each] != "train" for each in keys):  # rarer labels have assigned them all
            side[next(iter(keys))] = "train"
    if alone:
        warn(
            f"{len(alone)} label(s) have fewer than {len(wanted) + 1} different rows or groups, too few for one in "
            f"each split: {listed(alone)}. Their rows stay in train. Add rows, or give each split a file."
        )
    return {split: [item for item in items if side[key(item)] == split] for split in ("train", *fractions)}


def cut_by_key(
    items: Sequence[Element], key: Callable[[Element], str], name: SplitName, fraction: float, seed: int
) -> tuple[list[Element], list[Element]]:
    """Split off about a fraction of the keys, each with all its items, by a hash of the key.

    With many keys, the side of a key does not depend on the others. With few keys, chance could take none or nearly
    all, so the number of keys taken is clamped to between 0.5 and 1.5 times the expected number, and to at least one. A
    fraction of 1 takes everything; a smaller one leaves at least one key.

    Returns:
        The items taken, and the remaining items.
    """
    if fraction >= 1:
        return list(items), []
    keys = [key(item) for item in items]
    draws = {each: unit_interval(seed, name, each) for each in dict.fromkeys(keys)}
    expected = fraction * len(draws)
    fewest, most = (max(round(share * expected), 1) for share in (0.5, 1.5))
    count = min(max(sum(draw < fraction for draw in draws.values()), fewest), most)
    # At least one key is left to train on.
    count = min(count, len(draws) - 1) if fraction > 0 else 0
    chosen = set(sorted(draws, key=lambda each: (draws[each], each))[: max(count, 0)])
    taken = [item for item, each in zip(items, keys, strict=True) if each in chosen]
    return taken, [item for item, each in zip(items, keys, strict=True) if each not in chosen]


def drop_repeated(splits: dict[SplitName, list[Element]], key: Callable[[Element], str], name: str) -> Counter[str]:
    """Drop, in place, train items that also occur in dev or test, and dev items that also occur in test.

    Returns:
        Number of dropped items by reason, such as `train_NAME_also_in_dev_or_test`.
    """
    dropped = Counter[str]()
    seen = {key(item) for item in splits["test"]}
    for split, others in (("dev", "test"), ("train", "dev_or_test")):
        kept = [item for item in splits[split] if key(item) not in seen]
        dropped[f"{split}_{name}_also_in_{others}"] = len(splits[split]) - len(kept)
        seen |= {key(item) for item in kept}
        splits[split] = kept
    return dropped


def no_rows(name: str, split: SplitName, dropped: Counter[str]) -> str:
    """Return the error message for a split of the task `name` without rows."""
    left_out = ", ".join(f"{number} {reason}" for reason, number in dropped.most_common() if number)
    advice = (
        "Give its file in the task's source, with rows that no other split has; raise dev_fraction or "
        "test_fraction; or add rows, three a label."
    )
    return f"tasks.{name}: the {split} split has no rows. {advice}" + (
        f" Rows were left out ({left_out}); is the source read as it is meant?" if left_out else ""
    )


def listed(labels: Sequence[str], most: int = 5) -> str:
    """Return the first labels for a message, and how many more there are."""
    return ", ".join(labels[:most]) + (f" and {len(labels) - most} more" if len(labels) > most else "")


def same_text(parts: Iterable[str]) -> str:
    """Return a key that is equal for equal texts, ignoring case and white space.

    >>> same_text(["Sum of  squares", "X "])
    'sum of squares\\x00x'
    """
    return "\0".join(" ".join(part.casefold().split()) for part in parts)


def capped(
    items: Sequence[Element],
    key: Callable[[Element], str],
    split: SplitName,
    config: BaseTaskConfig,
    dropped: Counter[str],
) -> list[Element]:
    """Return at most the configured number of rows of dev or test, in order; train and smaller splits are unchanged.

    The rows whose keys have the lowest hashes are kept, so each row is equally likely, and a larger limit keeps all
    rows of a smaller one.
    """
    side = "dev" if split == "dev" else "test"
    most = config.max_dev_rows if side == "dev" else config.max_test_rows
    if split == "train" or most is None or len(items) <= most:
        return list(items)
    draws = [
        (seed_for(config.split_seed, "cap", split, key(item)), key(item), place) for place, item in enumerate(items)
    ]
    places = sorted(place for _, _, place in sorted(draws)[:most])
    dropped[f"{split}_row_above_max_{side}_rows"] += len(items) - most
    return [items[place] for place in places]


def num_rows_made(config: BaseTaskConfig) -> int | None:
    """Return the number of train rows to keep, that of the largest training set requested; None keeps all."""
    return None if config.num_train_rows is None else max(config.num_train_rows, *config.label_efficiency_rows, 0)


def trains_nothing(config: BaseTaskConfig) -> bool:
    """Return whether the task scores an encoder without fine-tuning, and so needs no train rows."""
    return config.fine_tuning.get("num_epochs") == 0


# Labelled rows of a source, before labels are mapped to indices, and their splits without shared examples.

Label = TypeVar("Label")
"""Type of a label: `str` in classification, `tuple[str, ...]` with several labels per row, `float` in regression."""


@dataclass(frozen=True, slots=True)
class LabelledRow(Generic[Label]):
    """One labelled example."""

    id: str
    """Id, unique in the task, that names the origin of the row (`train.tsv:17`, `numpy.linalg#norm:match`)."""
    text: str
    text_pair: str | None
    label: Label
    cluster: str | None = None
    """Cluster of the row (see `StoredRows.clusters`), never distributed over splits that are cut; None: no cluster."""

    def content_key(self) -> str:
        """Return a key that is equal for rows with equal texts, ignoring case and white space."""
        return same_text(text for text in (self.text, self.text_pair) if text is not None)


LabelledSplits = dict[SplitName, list[LabelledRow[Label]]]
"""Rows of `train`, `dev`, `test` and, for each extra test, `test_NAME`. A missing dev or test is cut from train."""


def stored(rows_class: Any, rows: Sequence[LabelledRow[Label]], targets: NDArray[Any]) -> Any:
    """Return rows with their targets [N, ...] as rows to store."""
    pairs = [row.text_pair for row in rows if row.text_pair is not None] or None
    clusters = [row.cluster for row in rows if row.cluster is not None] or None
    return rows_class([row.id for row in rows], [row.text for row in rows], pairs, targets, clusters=clusters)


def with_all_splits(
    splits: LabelledSplits[Label], config: BaseTaskConfig, dropped: Counter[str]
) -> LabelledSplits[Label]:
    """Cut missing splits from the train rows, drop duplicates across splits, and shuffle train.

    A hash of its cluster, or else of its texts, assigns a row to a split, so that equal examples stay together, and
    each label has its share of each split (see `stratified_cut`). A train row whose texts also occur in dev or a test
    set, or a dev row whose texts also occur in a test set, is dropped and counted (in `dropped`). Test sets are not
    changed.

    Raises:
        DataError: A cluster is in two of the splits that the source has.
    """
    _check_groups(splits)
    extra = {split: rows for split, rows in splits.items() if split.startswith("test_")}
    splits = {split: rows for split, rows in splits.items() if split not in extra}

    def labels(row: LabelledRow[Label]) -> tuple[str, ...]:
        return row.label if isinstance(row.label, tuple) else (str(row.label),)

    dropped += complete_splits(
        splits,
        config,
        same=LabelledRow.content_key,
        name="row",
        kept_together=lambda row: row.content_key() if row.cluster is None else row.cluster,
        labels=None if any(isinstance(row.label, float) for row in splits["train"]) else labels,
        # Public data sets have a test file; the wider bound leaves their splits as they always were.
        tolerance=0.2 if splits.keys() == {"train"} else 0.5,
    )
    for split, rows in sorted(extra.items()):
        keys = {row.content_key() for row in rows}
        for other in ("dev", "train"):
            new_rows = [row for row in splits[other] if row.content_key() not in keys]
            dropped[f"{other}_row_also_in_{split}"] += len(splits[other]) - len(new_rows)
            splits[other] = new_rows
    return {**{split: splits[split] for split in ("train", "dev", "test")}, **extra}


def _check_groups(splits: Mapping[SplitName, Sequence[LabelledRow[Label]]]) -> None:
    places: dict[str, dict[SplitName, str]] = {}
    for split, row in ((split, row) for split, rows in splits.items() for row in rows if row.cluster is not None):
        # Tests may share groups: none is learnt from or chosen by.
        places.setdefault(str(row.cluster), {}).setdefault("test" if split.startswith("test_") else split, row.id)
    shared = {group: rows for group, rows in places.items() if len(rows) > 1}
    for group, first_rows in shared.items():
        where = " and in ".join(f"{split} ({row})" for split, row in first_rows.items())
        raise DataError(
            f"the group {group!r} (source.group_column) is in {where}; {len(shared):,} of {len(places):,} groups are "
            "in several splits. Put all rows of a group into one split, or leave out dev and test: train is split by "
            "group then."
        )
