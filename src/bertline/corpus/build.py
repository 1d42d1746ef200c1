"""The corpus stage: read, clean and de-duplicate text, split sentences, split train and validation, write shards.

Each step is a task over the shards of the input, or over partitions of the keys of all shards. It leaves its files for
the next step, so that a killed run resumes.
"""

import dataclasses
import hashlib
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from bertline.corpus.document import Dropped, SourceDocument, Split, with_single_spaces
from bertline.corpus.files import InputShard
from bertline.corpus.preparation import KNOWLEDGE, Preparation, read_source, write_source
from bertline.corpus.quality.contamination import write_needles
from bertline.corpus.quality.drops import DROPS_NAME, Drops, manifest_of_drops, sum_of_drops
from bertline.corpus.quality.duplicates import find_duplicates, find_near_duplicates
from bertline.corpus.reader import CorpusReader
from bertline.corpus.registry import CorpusConfig, SourcesCorpusConfig, named_errors, readers_of
from bertline.corpus.selection import COUNTS, FEWEST_DOCUMENTS, SPLITS, Selection, groups_to_move
from bertline.corpus.sentences.learned import WordCounts, counts_of_words, learn, sampled_batches
from bertline.corpus.sources import labelled, sampling_rates, source_table
from bertline.corpus.storage import FORMAT_VERSION, KIND, Made, Steps
from bertline.demo.config import PythonDocsConfig
from bertline.demo.docstrings import PythonDocsCorpusConfig, package_versions
from bertline.foundation.engine import Counts, Engine
from bertline.foundation.errors import DataError
from bertline.foundation.files import folder_written_atomically, link_or_copy, size_of_path, write_json
from bertline.foundation.manifests import versions_of, write_manifest

SHARD_BYTES = 32_000_000
"""Size of the input of a shard; a file that cannot be cut is in one shard, whatever its size."""
_WORDS, _KNOWLEDGE = "words.json", "knowledge.json"
_WORD_COUNTS = TypeAdapter(WordCounts)


def build_corpus(
    config: CorpusConfig, python_docs: PythonDocsConfig, out: Path, *, engine: Engine, work: Path
) -> dict[str, float | int]:
    """Build the corpus artifact of the configured source in `out`.

    The output is byte-identical for the same input, configuration and versions, with any engine. A process holds the
    documents of a batch, and of keys those of a partition of all shards. What the steps leave lies in `work`,
    so that a killed run resumes.

    Returns:
        Summary metrics: documents, sentences, characters and words of each split, dropped documents, duplicates, and
        the number of abbreviations that were learned.

    Raises:
        DataError: The input cannot be read, no document is left after filtering, or the corpus cannot be split.
    """
    readers = readers_of(config, python_docs)
    several = isinstance(config, SourcesCorpusConfig)
    with folder_written_atomically(out) as folder:
        shards, unread = _planned(readers)
        sources = [shard.source for shard in shards]
        steps = Steps(engine, _work_folder(work, (config, python_docs, shards)))
        read = steps.run("read", partial(_read, config=config, readers=readers), shards)
        knowledge, learned = _learn_sentences(config, steps, sources, read)
        needles = None
        if config.decontaminate:
            (needles,) = steps.run("needles", write_needles, [config.decontaminate]).folders
        preparation = Preparation(config, knowledge, needles)
        prepared = steps.run("prepare", preparation, list(zip(sources, read.folders, strict=True)))
        selection = Selection(config, tuple(prepared.folders), tuple(find_duplicates(steps, prepared)))
        numbers = range(len(shards))
        if config.near_duplicates.threshold is not None:
            signed = steps.run("signatures", selection.sign, numbers)
            near = find_near_duplicates(steps, signed, config.near_duplicates.threshold)
            selection = dataclasses.replace(selection, near_duplicates=near)
        whole: dict[str, Counter[str]] = {}
        if isinstance(config, SourcesCorpusConfig):
            whole = _by_label(steps.run("count", selection.count, numbers))
            rates = sampling_rates(whole, config)
            selection = dataclasses.replace(selection, rates=rates, sampling_seed=config.sampling_seed)
        written = steps.run("write", selection.write, numbers)
        if moved := _moved(config, steps, selection, written):
            written = steps.run("write_again", dataclasses.replace(selection, moved=moved).write, numbers)

        parts = [
            (source, one["drops"])
            for made in (read, prepared, written)
            for source, one in zip(sources, made.counts, strict=True)
        ]
        drops = sum_of_drops([*unread, *parts], several=several)
        counts = {split: _sum(one["counts"][split] for one in written.counts) for split in SPLITS}
        _refuse(config, python_docs, counts, drops["counts"])
        content = {
            "source": config.kind,
            "counts": {split: {name: counts[split][name] for name in COUNTS} for split in SPLITS},
            **manifest_of_drops(drops["counts"]),
            "shards": {split: _named(folder, split, written) for split in SPLITS},
            "versions": versions_of("datasets", "pyarrow"),
            **({"sentences": learned} if learned else {}),
        }
        if isinstance(config, PythonDocsCorpusConfig):
            content["packages"] = package_versions(python_docs)
        if isinstance(config, SourcesCorpusConfig):
            content["sources"] = source_table(whole, _by_label(written), config, drops["by_source"])
        content["bytes"] = size_of_path(folder)
        write_manifest(folder, kind=KIND, format_version=FORMAT_VERSION, content=content)
        write_json(folder / DROPS_NAME, drops)
    dropped = Counter(drops["counts"])
    return {
        **{f"{split}/{name}": counts[split][name] for split in SPLITS for name in COUNTS},
        "dropped_documents": sum(number for reason, number in dropped.items() if reason.startswith("documents/")),
        "duplicate_documents": dropped["documents/duplicate"],
        "duplicate_paragraphs": dropped["paragraphs/duplicate"],
        **({"learned_abbreviations": learned["abbreviations"]} if learned else {}),
    }


def _planned(readers: Mapping[str, CorpusReader]) -> tuple[list[InputShard], list[tuple[str, dict[str, Any]]]]:
    """Return the shards of all sources, one source after the other, and what is left out without being read."""
    shards, unread = [], []
    for name, reader in readers.items():
        with named_errors(name):
            of_source, left_out = reader.plan(SHARD_BYTES, name)
        shards += of_source
        drops = Drops()
        for one in left_out:
            drops.add(_placed(one, name))
        unread.append((name, drops.content()))
    return shards, unread


def _work_folder(work: Path, made_of: object) -> Path:
    """Return a folder for this configuration and input alone; what is left of others is removed."""
    name = hashlib.sha256(repr(made_of).encode()).hexdigest()[:16]
    for other in work.iterdir() if work.exists() else ():
        if other.name != name:
            shutil.rmtree(other)
    return work.absolute() / name


def _read(shard: InputShard, out: Path, *, config: CorpusConfig, readers: Mapping[str, CorpusReader]) -> Counts:
    """Read the documents of a shard, write them, and count what the reader leaves out; the task of a shard."""
    drops = Drops()
    language = config.sources[shard.source].language if isinstance(config, SourcesCorpusConfig) else None

    def documents() -> Iterator[SourceDocument]:
        for item in readers[shard.source].read_shard(shard):
            if isinstance(item, Dropped):
                drops.add(_placed(item, shard.source))
            else:
                yield labelled(item, shard.source, language) if shard.source else item

    with named_errors(shard.source):
        return {"batches": write_source(out, documents()), "drops": drops.content()}


def _placed(dropped: Dropped, source: str) -> Dropped:
    return dropped._replace(where=f"{source}/{dropped.where}") if source else dropped


def _learn_sentences(
    config: CorpusConfig, steps: Steps, sources: list[str], read: Made
) -> tuple[dict[str, Path], dict[str, Any]]:
    """Learn the abbreviations of each source; return where they are, by source, and what the manifest says of them."""
    if not config.sentences.learns or not sources:
        return {}, {}
    names = list(dict.fromkeys(sources))
    wanted: list[list[int]] = []
    for name in names:  # the shards of a source follow each other
        batches = [count["batches"] for count, source in zip(read.counts, sources, strict=True) if source == name]
        wanted += sampled_batches(batches)
    counted = steps.run("words", _count_words, list(zip(read.folders, wanted, strict=True)))
    files = [
        tuple(folder / _WORDS for folder, source in zip(counted.folders, sources, strict=True) if source == name)
        for name in names
    ]
    made = steps.run("sentences", _learn, files)
    knowledge = {name: folder / _KNOWLEDGE for name, folder in zip(names, made.folders, strict=True)}
    if not isinstance(config, SourcesCorpusConfig):
        return knowledge, made.counts[0]
    by_source = dict(zip(names, made.counts, strict=True))
    return knowledge, {"abbreviations": sum(one["abbreviations"] for one in made.counts), "by_source": by_source}


def _count_words(part: tuple[Path, list[int]], out: Path) -> Counts:
    """Count words and full stops in some batches of a shard; the task of a shard and its batches."""
    folder, wanted = part
    batches = ([*read_source(folder, [number])] for number in wanted)
    texts = ([*map(with_single_spaces, chain.from_iterable(one.paragraphs for one in batch))] for batch in batches)
    (out / _WORDS).write_bytes(_WORD_COUNTS.dump_json(counts_of_words(*texts)))
    return {}


def _learn(files: tuple[Path, ...], out: Path) -> Counts:
    """Decide from the counts of a source which words are abbreviations; the task of a source."""
    total = WordCounts()
    for file in files:
        total.add(_WORD_COUNTS.validate_json(file.read_bytes()))
    knowledge = learn(total)
    (out / _KNOWLEDGE).write_bytes(KNOWLEDGE.dump_json(knowledge))
    return knowledge.summary()


def _moved(config: CorpusConfig, steps: Steps, selection: Selection, written: Made) -> frozenset[str]:
    """Return the groups to move to a split with too few documents."""
    counts = {split: sum(one["different"][split] for one in written.counts) for split in SPLITS}
    is_enough = min(counts.values()) >= FEWEST_DOCUMENTS or config.validation_fraction == 0
    if is_enough or isinstance(config, PythonDocsCorpusConfig) or not any(counts.values()):
        return frozenset()
    _, full = sorted(SPLITS, key=counts.__getitem__)
    made = steps.run("groups", partial(selection.groups, split=full), range(len(written.counts)))
    return groups_to_move(config, counts, _sum(one["groups"] for one in made.counts))


def _sum(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    return sum(map(Counter, counts), Counter())


def _by_label(made: Made) -> dict[str, Counter[str]]:
    total: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for one in made.counts:
        for label, counts in one["by_label"].items():
            total[label].update(counts)
    return total


def _named(folder: Path, split: Split, written: Made) -> list[str]:
    files = [file for made in written.folders if (file := made / f"{split}.parquet").exists()]
    names = [f"{split}-{number:05d}-of-{len(files):05d}.parquet" for number in range(len(files))]
    for file, name in zip(files, names, strict=True):
        link_or_copy(file, folder / name)
    return names


def _refuse(
    config: CorpusConfig,
    python_docs: PythonDocsConfig,
    counts: Mapping[Split, Counter[str]],
    dropped: Mapping[str, int],
) -> None:
    """Stop where nothing is left, or all of it is in one split."""
    if not any(counts.values()):
        reasons = ", ".join(f"{number:,} {reason}" for reason, number in dropped.items())
        raise DataError(
            f"The corpus ({config.kind}) is empty: no document is left. Dropped: {reasons or 'nothing'}. Documents "
            f"need at least {config.min_document_characters} characters (corpus.min_document_characters)."
        )
    if isinstance(config, PythonDocsCorpusConfig) and not all(counts.values()):
        side = "is held out" if counts["validation"] else "is pretrained on"
        raise DataError(
            f"python_docs: everything {side}: with split_seed {python_docs.split_seed}, the names of the packages' "
            "groups of modules all hash to one side of held_out_fraction "
            f"({python_docs.held_out_fraction}). Choose another python_docs.split_seed, or more packages."
        )
