"""The corpus stage: read, clean and de-duplicate text, split sentences, split train and validation, write shards."""

from __future__ import annotations

import dataclasses
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from bertline.corpus.cached_reader import CachedReader
from bertline.corpus.document import Document, SourceDocument, Split, source_of
from bertline.corpus.input_files import ShownCounts, counts_of_source
from bertline.corpus.preparation import PreparedDocument, prepare_documents, select_documents, split_of
from bertline.corpus.quality.cleaning import counted_changes, learn_cleaning, prepare_cleaned
from bertline.corpus.quality.contamination import write_needles
from bertline.corpus.quality.drops import (
    DropSamples,
    counts_of_changes,
    counts_of_encodings,
    is_no_drop,
    manifest_of_encodings,
)
from bertline.corpus.quality.selection import PrepareWithQuality, without_contaminated, without_near_duplicates
from bertline.corpus.registry import CorpusConfig, SourcesCorpusConfig
from bertline.corpus.sentences.splitter import Headings, Splitter
from bertline.corpus.sources import PrepareBySource, sampled, sampling_rates, source_documents, source_table
from bertline.corpus.storage import FORMAT_VERSION, KIND
from bertline.corpus.writer import FEWEST_DOCUMENTS, SPLITS, CorpusWriter, with_both_splits
from bertline.demo.config import PythonDocsConfig
from bertline.demo.docstrings import package_versions
from bertline.demo.reader import PythonDocsCorpusConfig, all_on_one_side, module_documents
from bertline.foundation.errors import DataError
from bertline.foundation.files import folder_written_atomically, size_of_path
from bertline.foundation.manifests import versions_of, write_manifest
from bertline.foundation.parallel import batches, ordered_map
from bertline.foundation.progress import few_said, progress

_BATCH_CHARACTERS = 500_000
_BATCH_DOCUMENTS = 1_000
_FEWEST_JUDGED = 1_000
"""Sentences below which the share of stubs says nothing."""
_COUNTS = ("documents", "sentences", "characters", "words")


def build_corpus(
    config: CorpusConfig,
    python_docs: PythonDocsConfig,
    out: Path,
    *,
    num_workers: int,
    samples: DropSamples | None = None,
) -> dict[str, float | int]:
    """Build the corpus artifact of the configured source in `out`.

    The output is byte-identical for the same input, configuration and versions, with any number of workers. Memory is
    bounded by some dozen batches, a row group and a 12-byte key for each distinct document or paragraph (and 2 kB a
    document where near duplicates are looked for).

    Returns:
        Summary metrics: documents, sentences, characters and words of each split, dropped documents, duplicates, and
        the number of abbreviations that were learned.

    Raises:
        DataError: The input cannot be read, no document is left after filtering, or the corpus cannot be split.
    """
    samples = DropSamples() if samples is None else samples
    samples.source_of = source_of if isinstance(config, SourcesCorpusConfig) else None
    dropped: Counter[str] = ShownCounts(samples.keep)
    # Each message once, and few of a kind: what learns from a large source reads it before it is read for the corpus.
    scratch_folder = tempfile.TemporaryDirectory(prefix="bertline-corpus-")
    with folder_written_atomically(out) as folder, scratch_folder as scratch, few_said():
        reader = _reader(config, python_docs, Path(scratch), num_workers=num_workers)
        prepare = _preparation(config, reader, num_workers=num_workers)
        prepared = _prepared(reader, dropped, samples, prepare, config, Path(scratch), num_workers=num_workers)
        whole = writer = CorpusWriter(Path(scratch) if isinstance(config, SourcesCorpusConfig) else folder, config)
        for document in _selected(progress(prepared, description="corpus documents"), config, dropped, samples):
            writer.add(
                Document(document.id, document.group, document.sentences),
                split_of(document, config),
                words=sum(paragraph.words for paragraph in document.paragraphs),
            )
        writer.close()
        samples.counts = _drops(dropped) | counts_of_changes(dropped) | counts_of_encodings(dropped)
        learned = prepare.learned()
        if not any(writer.shards.values()):
            raise DataError(_nothing_left(config, dropped))
        if isinstance(config, SourcesCorpusConfig):
            writer = _with_weights(folder, config, whole)
        _refuse_stubs(config, writer)
        writer = _with_splits(folder, config, python_docs, writer)
        content = _content(config, writer, dropped, learned)
        if isinstance(config, PythonDocsCorpusConfig):
            content["packages"] = package_versions(python_docs)
        if isinstance(config, SourcesCorpusConfig):
            content["sources"] = source_table(whole.by_label, writer.by_label, config, samples.by_source)
        content["bytes"] = size_of_path(folder)
        write_manifest(folder, kind=KIND, format_version=FORMAT_VERSION, content=content)
    return _headline(writer.counts, dropped) | ({"learned_abbreviations": learned["abbreviations"]} if learned else {})


def _with_splits(
    folder: Path, config: CorpusConfig, python_docs: PythonDocsConfig, writer: CorpusWriter
) -> CorpusWriter:
    """Return the corpus with documents in both splits, where the configuration asks for both."""
    if isinstance(config, PythonDocsCorpusConfig):
        if not all(writer.shards.values()):
            raise DataError(all_on_one_side(python_docs, held_out=bool(writer.shards["validation"])))
    elif config.validation_fraction > 0 and min(map(writer.num_different, SPLITS)) < FEWEST_DOCUMENTS:
        return with_both_splits(folder, config, writer)
    return writer


class _Preparation(Protocol):
    """Prepares a batch in a worker."""

    def __call__(self, batch: list[SourceDocument]) -> list[PreparedDocument]: ...

    def learned(self) -> dict[str, Any]:
        """Return what was learned about sentences from the corpus."""


@dataclasses.dataclass(frozen=True, slots=True)
class _PrepareAll:
    """Prepares all documents alike."""

    splitter: Splitter
    headings: Headings
    paragraph_keys: bool

    def __call__(self, batch: list[SourceDocument]) -> list[PreparedDocument]:
        return prepare_documents(
            batch, splitter=self.splitter, headings=self.headings, paragraph_keys=self.paragraph_keys
        )

    def learned(self) -> dict[str, Any]:
        return self.splitter.learned()


def _reader(config: CorpusConfig, python_docs: PythonDocsConfig, scratch: Path, *, num_workers: int) -> CachedReader:
    read = partial(_read_part, config, python_docs, num_workers=num_workers)
    if isinstance(config, SourcesCorpusConfig):
        return CachedReader(read, sorted(config.sources), scratch, source_of)
    return CachedReader(read, [""], scratch, None)


def _read_part(
    config: CorpusConfig, python_docs: PythonDocsConfig, name: str, dropped: Counter[str], *, num_workers: int
) -> Iterator[list[SourceDocument]]:
    """Read the corpus, or the source of a name, in batches that do not depend on the number of workers."""
    if isinstance(config, SourcesCorpusConfig):
        documents = source_documents(name, config.sources[name], dropped)
    elif isinstance(config, PythonDocsCorpusConfig):
        documents = module_documents(config, python_docs, dropped, num_workers=num_workers)
    else:
        documents = config.read(dropped)
    return batches(documents, size=_characters, most=_BATCH_CHARACTERS, most_items=_BATCH_DOCUMENTS)


def _counted(
    reader: CachedReader, config: CorpusConfig, dropped: Counter[str], samples: DropSamples
) -> Iterator[list[SourceDocument]]:
    """Read the whole corpus, one source after the other, and count what the readers leave out."""
    for name in reader.parts:
        if not isinstance(config, SourcesCorpusConfig):
            yield from reader.counted(name, dropped, samples)
            continue
        of_source = counts_of_source(dropped, name)
        yield from reader.counted(name, of_source, samples)
        dropped.update(of_source)
        samples.by_source[name].update(
            {reason: of_source[reason] for reason in of_source if is_drop(reason, of_source)}
        )


def _preparation(config: CorpusConfig, reader: CachedReader, *, num_workers: int) -> _Preparation:
    """Return how batches are prepared; sentences that are learned are learned of each source by itself."""
    paragraph_keys = config.deduplicate == "paragraph"
    splitters = {
        name: config.sentences.splitter(partial(reader.ahead, name), num_workers=num_workers) for name in reader.parts
    }
    if not isinstance(config, SourcesCorpusConfig):
        (splitter,) = splitters.values()
        return _PrepareAll(splitter, config.sentences.headings, paragraph_keys)
    return PrepareBySource(splitters, config.sentences.headings, paragraph_keys)


def _prepared(
    reader: CachedReader,
    dropped: Counter[str],
    samples: DropSamples,
    prepare: _Preparation,
    config: CorpusConfig,
    scratch: Path,
    *,
    num_workers: int,
) -> Iterator[PreparedDocument]:
    """Prepare documents in workers; what these look for is written into a file in `scratch`."""
    needles = scratch / "needles.npz" if config.decontaminate else None
    if needles is not None:
        write_needles(config.decontaminate, needles)
    plan = learn_cleaning(config.cleaning, reader.ahead, scratch, num_workers=num_workers)
    near = config.near_duplicates
    prepare_fully = PrepareWithQuality(
        prepare_cleaned(prepare, config.cleaning, plan),
        ngram=None if near.threshold is None else near.ngram,
        needles=None if needles is None else str(needles),
    )
    for batch in ordered_map(prepare_fully, _counted(reader, config, dropped, samples), num_workers=num_workers):
        yield from batch


def is_drop(reason: str, dropped: Counter[str]) -> bool:
    """Return whether anything was dropped under a name; what was read in another encoding or repaired was not."""
    return dropped[reason] > 0 and not is_no_drop(reason)


def _drops(dropped: Counter[str]) -> dict[str, int]:
    return {reason: dropped[reason] for reason in sorted(dropped) if is_drop(reason, dropped)}


def _content(
    config: CorpusConfig, writer: CorpusWriter, dropped: Counter[str], learned: dict[str, Any]
) -> dict[str, Any]:
    """Return what the manifest says, but for the packages and the size."""
    read_as = manifest_of_encodings(dropped)
    return {
        "source": config.kind,
        "counts": {split: {name: writer.counts[split][name] for name in _COUNTS} for split in SPLITS},
        "dropped": {reason: count for reason, count in dropped.items() if is_drop(reason, dropped)},
        **({"encodings": read_as} if read_as else {}),
        **({"changed": changed} if (changed := counts_of_changes(dropped)) else {}),
        "shards": writer.shards,
        "versions": versions_of("datasets", "pyarrow"),
        **({"sentences": learned} if learned else {}),
    }


def _selected(
    documents: Iterable[PreparedDocument], config: CorpusConfig, dropped: Counter[str], samples: DropSamples
) -> Iterator[PreparedDocument]:
    documents = counted_changes(documents, dropped, samples)
    selected = select_documents(without_contaminated(documents, dropped, samples), config, dropped, samples)
    threshold = config.near_duplicates.threshold
    return selected if threshold is None else without_near_duplicates(selected, threshold, dropped, samples)


def _characters(document: SourceDocument) -> int:
    return sum(map(len, document.paragraphs))


def _with_weights(folder: Path, config: SourcesCorpusConfig, whole: CorpusWriter) -> CorpusWriter:
    """Write the documents of all sources as often as weights and languages ask for."""
    rates = sampling_rates(whole.by_label, config)
    writer = CorpusWriter(folder, config)
    for split, document in sampled(whole.documents(), rates, config.sampling_seed):
        writer.add(document, split, words=sum(len(sentence.split()) for sentence in document.sentences))
    writer.close()
    if not any(writer.shards.values()):
        raise DataError("No document is left after sampling. Raise corpus.sources.NAME.weight, or give more text.")
    return writer


def _headline(counts: dict[Split, Counter[str]], dropped: Counter[str]) -> dict[str, float | int]:
    headline: dict[str, float | int] = {f"{split}/{name}": counts[split][name] for split in SPLITS for name in _COUNTS}
    headline["dropped_documents"] = sum(n for reason, n in dropped.items() if reason.startswith("documents/"))
    headline["duplicate_documents"] = dropped["documents/duplicate"]
    headline["duplicate_paragraphs"] = dropped["paragraphs/duplicate"]
    return headline


def _refuse_stubs(config: CorpusConfig, writer: CorpusWriter) -> None:
    """Stop where too many sentences are one word: wrongly split text makes pairs from which nothing is learned."""
    sentences = sum(counts["sentences"] for counts in writer.counts.values())
    share = writer.stubs.total() / max(1, sentences)
    if config.max_stub_fraction is None or sentences < _FEWEST_JUDGED or share <= config.max_stub_fraction:
        return
    frequent = ", ".join(f"{text[:40]!r} ({times:,} times)" for text, times in writer.stubs.most_common(3))
    raise DataError(
        f"{share:.1%} of {sentences:,} sentences are one word, most often {frequent}; corpus.max_stub_fraction is "
        f"{config.max_stub_fraction}. Wrongly split text looks like this. Look at the page that python "
        "pipelines/corpus.py corpus.max_stub_fraction=null writes; keep such text with corpus.max_stub_fraction=null."
    )


def _nothing_left(config: CorpusConfig, dropped: Counter[str]) -> str:
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(dropped.items()) if count)
    return (
        f"The corpus ({config.kind}) is empty: no document is left. Dropped: {reasons or 'nothing'}. Documents "
        f"need at least {config.min_document_characters} characters (corpus.min_document_characters)."
    )
