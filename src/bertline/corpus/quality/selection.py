"""The quality rules over the stream of prepared documents: workers find out, one process decides in reading order."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from bertline.corpus.document import SourceDocument
from bertline.corpus.preparation import PreparedDocument
from bertline.corpus.quality.contamination import read_needles
from bertline.corpus.quality.drops import DropSamples
from bertline.corpus.quality.near_duplicates import NearDuplicateIndex, signatures

Prepare = Callable[[list[SourceDocument]], list[PreparedDocument]]
"""Prepares a batch; it is pickled for the worker processes."""


@dataclass(frozen=True, slots=True)
class PrepareWithQuality:
    """Prepares a batch and adds what the rules need; a pure function that can be sent to workers."""

    prepare: Prepare
    ngram: int | None
    """Words of the n-grams by which near duplicates are found; None looks for none."""
    needles: str | None
    """File of `write_needles`; None looks for nothing."""

    def __call__(self, batch: list[SourceDocument]) -> list[PreparedDocument]:
        documents = self.prepare(batch)
        if self.needles is not None:
            wanted = read_needles(self.needles)
            documents = [
                dataclasses.replace(
                    document,
                    contaminated=tuple(wanted.found_in([paragraph.sentences for paragraph in document.paragraphs])),
                )
                for document in documents
            ]
        if self.ngram is not None:
            found = signatures((document.sentences for document in documents), self.ngram)
            documents = [
                dataclasses.replace(document, signature=signature)
                for document, signature in zip(documents, found, strict=True)
            ]
        return documents


def without_contaminated(
    documents: Iterable[PreparedDocument], dropped: Counter[str], samples: DropSamples
) -> Iterator[PreparedDocument]:
    """Remove the paragraphs with text of `corpus.decontaminate`; a document without any other is dropped."""
    for document in documents:
        if document.contaminated:
            found = set(document.contaminated)
            for index in document.contaminated:
                samples.add("paragraphs/contaminated", document.id, " ".join(document.paragraphs[index].sentences))
            dropped["paragraphs/contaminated"] += len(found)
            kept = tuple(paragraph for index, paragraph in enumerate(document.paragraphs) if index not in found)
            if not kept:
                dropped["documents/contaminated"] += 1
                samples.add("documents/contaminated", document.id, " ".join(document.sentences))
                continue
            document = dataclasses.replace(document, paragraphs=kept)
        yield document


def without_near_duplicates(
    documents: Iterable[PreparedDocument], threshold: float, dropped: Counter[str], samples: DropSamples
) -> Iterator[PreparedDocument]:
    """Drop each document that is nearly equal to one kept before; documents are compared as they were read."""
    ids: list[str] = []
    with NearDuplicateIndex(threshold) as index:
        for document in documents:
            assert document.signature is not None
            partner = index.partner_or_keep(document.signature)
            if partner is None:
                ids.append(document.id)
                yield document
            else:
                dropped["documents/near_duplicate"] += 1
                note = f"{partner.similarity:.0%} equal to {ids[partner.index]}"
                samples.add("documents/near_duplicate", document.id, " ".join(document.sentences), note)
