"""The cleaning of text before it is split into sentences: what the corpus says of itself is learned first."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

from bertline.corpus.document import SourceDocument
from bertline.corpus.preparation import PreparedDocument
from bertline.corpus.quality.changes import CHANGED, MARKED, Change, excerpt
from bertline.corpus.quality.config import CleaningConfig
from bertline.corpus.quality.drops import DropSamples
from bertline.corpus.quality.hyphens import Forms, count_forms, divided_words, forms_of, join_hyphens, wanted_forms
from bertline.corpus.quality.left_over_markup import markup_in, without_markup
from bertline.corpus.quality.repeated_lines import LineCounts, judged_lines, line_key, without_lines
from bertline.corpus.quality.selection import Prepare
from bertline.foundation.files import write_json
from bertline.foundation.parallel import ordered_map
from bertline.foundation.progress import progress

Batches = Callable[[], Iterable[list[SourceDocument]]]
_MOST_DIVIDED = 1_000_000
"""Distinct divided words that the corpus is asked about, in about 300 MB; later ones count as unseen."""
_PLAN, _WANTED = "cleaning.json", "divided_words.json"


@dataclass(frozen=True, slots=True)
class Plan:
    """What was learned from the corpus."""

    forms: dict[str, Forms]
    repeated: frozenset[int]


def learn_cleaning(config: CleaningConfig, read: Batches, folder: Path, *, num_workers: int) -> Path | None:
    """Read the corpus for what its cleaning needs: once, and once more if words are divided.

    Args:
        config: What to clean.
        read: Reads the corpus from its beginning, in batches that do not depend on the number of workers.
        folder: Where the plan is written, for workers to read.
        num_workers: Number of processes; it does not affect the result.

    Returns:
        The file of the plan; None if nothing is to be learned.
    """
    if not config.learns:
        return None
    divided: dict[tuple[str, str], None] = {}
    lines = LineCounts()
    survey = partial(_survey, config=config)
    batches = progress(read(), description="repeated lines and divided words, batches")
    for words, of_documents in ordered_map(survey, batches, num_workers=num_workers):
        if len(divided) < _MOST_DIVIDED:
            divided.update(dict.fromkeys(words))
        for keys in of_documents:
            lines.add(keys)
    counts: Counter[str] = Counter()
    if divided:
        wanted = folder / _WANTED
        write_json(wanted, sorted(wanted_forms(divided)))
        count = partial(_count, wanted=str(wanted))
        batches = progress(read(), description="how divided words are written, batches")
        for found in ordered_map(count, batches, num_workers=num_workers):
            counts.update(found)
    plan = folder / _PLAN
    repeated = [] if config.repeated_lines is None else lines.at_least(config.repeated_lines)
    write_json(plan, {"forms": forms_of(divided, counts), "repeated": repeated})
    return plan


def _survey(batch: list[SourceDocument], config: CleaningConfig) -> tuple[list[tuple[str, str]], list[list[int]]]:
    divided: dict[tuple[str, str], None] = {}
    keys: list[list[int]] = []
    for document in batch:
        if config.join_hyphens:
            for paragraph in document.paragraphs:
                divided.update(dict.fromkeys(divided_words(paragraph)))
        if config.repeated_lines is not None:
            lines = {line for paragraph in document.paragraphs for _, line in judged_lines(paragraph)}
            keys.append(sorted(set(map(line_key, lines))))
    return list(divided), keys


def _count(batch: list[SourceDocument], wanted: str) -> Counter[str]:
    return count_forms((paragraph for document in batch for paragraph in document.paragraphs), _wanted(wanted))


@lru_cache(maxsize=1)
def _wanted(path: str) -> frozenset[str]:
    return frozenset(json.loads(Path(path).read_text(encoding="utf-8")))


@lru_cache(maxsize=1)
def _plan(path: str | None) -> Plan:
    """Read what `learn_cleaning` wrote; each process reads it once."""
    if path is None:
        return Plan({}, frozenset())
    content = json.loads(Path(path).read_text(encoding="utf-8"))
    forms = {divided: Forms(*known) for divided, known in content["forms"].items()}
    return Plan(forms, frozenset(content["repeated"]))


def prepare_cleaned(prepare: Prepare, config: CleaningConfig, plan: Path | None) -> Prepare:
    """Return a preparation that cleans its batches first, if anything is to be cleaned."""
    return PrepareCleaned(prepare, config, None if plan is None else str(plan)) if config.is_active else prepare


@dataclass(frozen=True, slots=True)
class PrepareCleaned:
    """Cleans a batch and prepares it; a pure function that can be sent to workers."""

    prepare: Prepare
    config: CleaningConfig
    plan: str | None
    """File of `learn_cleaning`."""

    def __call__(self, batch: list[SourceDocument]) -> list[PreparedDocument]:
        plan = _plan(self.plan)
        cleaned = [cleaned_document(document, self.config, plan) for document in batch]
        prepared = self.prepare([document for document, _ in cleaned])
        return [
            dataclasses.replace(document, changes=changes) if changes else document
            for document, (_, changes) in zip(prepared, cleaned, strict=True)
        ]


def cleaned_document(
    document: SourceDocument, config: CleaningConfig, plan: Plan
) -> tuple[SourceDocument, tuple[Change, ...]]:
    """Clean the paragraphs of a document; return it with everything to count."""
    changes: list[Change] = []
    paragraphs = tuple(_cleaned(paragraph, config, plan, changes) for paragraph in document.paragraphs)
    if paragraphs == document.paragraphs:
        return document, tuple(changes)
    return dataclasses.replace(document, paragraphs=paragraphs), tuple(changes)


def _cleaned(text: str, config: CleaningConfig, plan: Plan, changes: list[Change]) -> str:
    if plan.repeated:
        text, lines = without_lines(text, plan.repeated)
        changes += (Change("lines/repeated", line) for line in lines)
    if config.fix_mojibake:
        text = _without_mojibake(text, changes)
    if config.join_hyphens:
        before = text
        text, place = join_hyphens(text, plan.forms)
        if place is not None:
            changes.append(Change(f"{CHANGED}hyphens", excerpt(before, *place.span())))
    if config.markup != "keep":
        found = markup_in(text)
        if found and config.markup == "drop":
            kind, place_of_it = next(iter(found.items()))
            changes.append(Change("documents/markup", excerpt(text, *place_of_it), kind.replace("_", " ")))
            return text
        counted = CHANGED if config.markup == "remove" else MARKED
        changes += (Change(f"{counted}{kind}", excerpt(text, *place)) for kind, place in found.items())
        if found and config.markup == "remove":
            text = without_markup(text)
    return text


def _without_mojibake(text: str, changes: list[Change]) -> str:
    """Decode again what was decoded wrongly, line by line, where ftfy's quick test finds it."""
    if text.isascii():
        return text
    import ftfy
    from ftfy.badness import is_bad

    if not is_bad(text):
        return text
    fixed = "\n".join(ftfy.fix_encoding(line) if is_bad(line) else line for line in text.split("\n"))
    if fixed != text:
        place = next((at for at, (a, b) in enumerate(zip(text, fixed, strict=False)) if a != b), 0)
        changes.append(Change(f"{CHANGED}mojibake", excerpt(text, place, place), excerpt(fixed, place, place)))
    return fixed


def counted_changes(
    documents: Iterable[PreparedDocument], dropped: Counter[str], samples: DropSamples
) -> Iterator[PreparedDocument]:
    """Count what cleaning changed, and drop the documents that it says."""
    for document in documents:
        leaves = next((change for change in document.changes if change.drops_document), None)
        for change in document.changes if leaves is None else (leaves,):
            dropped[change.reason] += 1
            samples.add(change.reason, document.id, change.text, change.note)
        if leaves is None:
            yield document
