"""Which prepared documents stay, how often and in which split, and the files of the corpus that they make.

A split with too few documents gets some of the other one.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bertline.corpus.document import Document, Dropped, Split, copy_id, label_of
from bertline.corpus.preparation import PreparedDocument, in_batches, read_prepared
from bertline.corpus.quality.drops import NUM_SAMPLES, Drops
from bertline.corpus.quality.duplicates import losers_of, near_duplicates_of, write_signatures
from bertline.corpus.reader import CorpusSettings
from bertline.corpus.sources import num_copies
from bertline.corpus.storage import ShardWriter
from bertline.foundation.engine import Counts
from bertline.foundation.errors import DataError
from bertline.foundation.formats import number_of
from bertline.foundation.progress import warn
from bertline.foundation.seeds import unit_interval

COUNTS = ("documents", "sentences", "characters", "words")
SPLITS: tuple[Split, Split] = ("train", "validation")
FEWEST_DOCUMENTS = 2
"""Documents of a split from which sentence pairs can be made: a random second segment comes from another document."""
MORE_DOCUMENTS = (
    "Give more text, or smaller documents or groups: of plain text corpus.document=blank_line, line or regex, of XML a "
    "smaller element in corpus.document, of tables corpus.group_column=null"
)
"""What helps where a text has too few documents or groups."""
_NEAREST = 16
Selected = tuple[PreparedDocument | None, list[Dropped]]


@dataclass(frozen=True, slots=True)
class Selection:
    """What is known of all prepared documents; its methods are tasks of a shard, named by its number."""

    config: CorpusSettings
    prepared: tuple[Path, ...]
    """Folders of the shards."""
    duplicates: tuple[Path, ...]
    """Files of `find_duplicates`."""
    near_duplicates: Path | None = None
    """File of `find_near_duplicates`."""
    rates: Mapping[str, float] | None = None
    """How often the documents of each source and language are there, where there are several."""
    sampling_seed: int = 0
    moved: frozenset[str] = frozenset()
    """Groups that are not in the split of their hash."""

    def sign(self, shard: int, out: Path) -> Counts:
        """Write what near duplicates are found by."""
        batches = in_batches(self._selected(shard, Drops(), near=False))
        pairs = ([(document.number, document.sentences) for document in batch] for batch in batches)
        write_signatures(out, pairs, ngram=self.config.near_duplicates.ngram, shard=shard)
        return {}

    def count(self, shard: int, out: Path) -> Counts:
        """Count documents and characters by source, language and split, before they are sampled."""
        by_label: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for document in self._selected(shard, Drops()):
            split = split_of(document, self.config)
            characters = sum(map(len, document.sentences))
            by_label[label_of(document.id)].update({f"{split}/documents": 1, f"{split}/characters": characters})
        return {"by_label": by_label}

    def groups(self, shard: int, out: Path, *, split: Split) -> Counts:
        """Return the groups of a split that are nearest to the other one, with their numbers of documents."""
        groups = Counter(
            document.group
            for document in self._selected(shard, Drops())
            if split_of(document, self.config) == split and self._copies(document.id)
        )
        return {"groups": {name: groups[name] for name in nearest_first(groups, split, self.config.split_seed)}}

    def write(self, shard: int, out: Path) -> Counts:
        """Write the documents of each split, with their copies right behind them, and count them."""
        drops = Drops()
        writers = {split: ShardWriter(out / f"{split}.parquet") for split in SPLITS}
        counts: dict[str, Counter[str]] = {split: Counter() for split in SPLITS}
        by_label: defaultdict[str, Counter[str]] = defaultdict(Counter)
        different: Counter[str] = Counter()
        for document in self._selected(shard, drops):
            split, sentences = split_of(document, self.config, self.moved), document.sentences
            copies = self._copies(document.id)
            if split == "validation":
                copies = min(1, copies)
            different[split] += copies > 0
            for copy in range(copies):
                key = copy_id(document.id, copy + 1) if copy else document.id
                writers[split].write(Document(key, document.group, sentences))
            sizes = (
                copies,
                copies * len(sentences),
                copies * sum(map(len, sentences)),
                copies * sum(sentence.count(" ") + 1 for sentence in sentences),
            )
            of_label = by_label[label_of(document.id)] if self.rates is not None else {}
            for name, size in zip(COUNTS, sizes, strict=True):
                counts[split][name] += size
                of_label[f"{split}/{name}"] = of_label.get(f"{split}/{name}", 0) + size
        for writer in writers.values():
            writer.close()
        return {
            "counts": {split: +counts[split] for split in SPLITS},
            "by_label": {label: +counts for label, counts in by_label.items()},
            "different": {split: different[split] for split in SPLITS},
            "drops": drops.content(),
        }

    def _copies(self, document_id: str) -> int:
        if self.rates is None:
            return 1
        return num_copies(document_id, self.rates[label_of(document_id)], self.sampling_seed)

    def _selected(self, shard: int, drops: Drops, *, near: bool = True) -> Iterator[PreparedDocument]:
        """Yield the documents of a shard that are no duplicates and not too short; count the others."""
        losers = losers_of(self.duplicates, shard)
        documents: Iterable[PreparedDocument] = read_prepared(self.prepared[shard])

        def first_ones(document: PreparedDocument) -> Selected:
            again = losers.get(document.number)
            if again is None:
                return document, []
            if self.config.deduplicate == "document":
                return None, [document.left_out("duplicate")]
            return document.without(again, "duplicate")

        def long_enough(document: PreparedDocument) -> Selected:
            is_long = sum(map(len, document.sentences)) >= self.config.min_document_characters
            return (document, []) if is_long else (None, [document.left_out("too_short")])

        selected = drops.run(long_enough, drops.run(first_ones, documents))
        if self.near_duplicates is None or not near:
            return selected
        near_ones = near_duplicates_of(self.near_duplicates, shard)

        def unlike_others(document: PreparedDocument) -> Selected:
            if document.number not in near_ones:
                return document, []
            other_shard, other, similarity = near_ones[document.number]
            note = ""
            if len(drops.samples["documents/near_duplicate"]) < NUM_SAMPLES:  # the others are not shown
                others = read_prepared(self.prepared[other_shard])
                note = f"{similarity:.0%} equal to {next(one.id for one in others if one.number == other)}"
            return None, [document.left_out("near_duplicate", note)]

        return drops.run(unlike_others, selected)


def split_position(group: str, seed: int) -> float:
    """Return the hash of a group as a number in [0, 1); groups below `validation_fraction` are for validation."""
    return unit_interval(seed, "validation", group)


def split_of(document: PreparedDocument, config: CorpusSettings, moved: frozenset[str] = frozenset()) -> Split:
    """Return the split of a document: that of the source if given, else by a hash of its group, if it is not moved."""
    if document.split is not None:
        return document.split
    is_below = split_position(document.group, config.split_seed) < config.validation_fraction
    return "validation" if is_below != (document.group in moved) else "train"


def nearest_first(groups: Iterable[str], split: Split, seed: int) -> list[str]:
    """Return the groups of a split that are nearest to the other one, a few of them."""
    key = {name: (split_position(name, seed), name) for name in groups}
    return sorted(key, key=key.__getitem__, reverse=split == "validation")[:_NEAREST]


def groups_to_move(config: CorpusSettings, counts: Mapping[Split, int], groups: Mapping[str, int]) -> frozenset[str]:
    """Return the groups that the split with too few documents gets of the other one, nearest first.

    Args:
        counts: Number of documents of each split, without copies.
        groups: The nearest groups of the larger split, with their numbers of documents.

    Raises:
        DataError: There is only one group, and so nothing for the other split.
    """
    few, full = sorted(SPLITS, key=counts.__getitem__)
    here, there = counts[few], counts[full]
    if here == 0 and len(groups) == 1:
        raise DataError(
            f"The corpus cannot be split into train and validation: all text is in one group ({next(iter(groups))!r}). "
            f"{MORE_DOCUMENTS}."
        )
    moved: list[str] = []
    # Groups that hold most of the documents only where there is nothing else for an empty split.
    nearest = nearest_first(groups, full, config.split_seed)
    for group in sorted(nearest, key=lambda name: groups[name] > there / 2):
        number = groups[group]
        if here < FEWEST_DOCUMENTS and (here == 0 or there - number >= max(FEWEST_DOCUMENTS, here)):
            moved.append(group)
            here, there = here + number, there - number
    warn(
        f"{number_of(counts[few], 'document')} fell into {few}, sentence pairs need {FEWEST_DOCUMENTS} "
        f"(corpus.validation_fraction is {config.validation_fraction}); moved there: {here - counts[few]} of {full}."
    )
    return frozenset(moved)
