"""Reader of line-aligned translations as a search collection: find the translation of a sentence."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path

from bertline.foundation.errors import DataError
from bertline.tasks.bad_rows import BadRows
from bertline.tasks.search_files import Collection, RawText, existing_file, numbered_lines, one_line
from bertline.tasks.source_config import SentencePairsSourceConfig


def sentence_pairs_collection(source: SentencePairsSourceConfig, bad: BadRows) -> Collection:
    """Return the sentences of every language as queries and their translations as documents.

    A translation that occurs several times, for whichever language, is one document; a sentence that occurs several
    times in a language is one query, and all its translations are relevant.

    Notes:
        XTREME (arXiv 2003.11080, Tatoeba) searches the 1,000 translations of one language; with several languages the
        collection here has those of all, which is harder.

    Raises:
        DataError: A file is missing or not UTF-8, or the two files of a language have different numbers of lines.
    """
    documents: dict[str, RawText] = {}
    queries: dict[tuple[str, str], RawText] = {}
    judged: dict[str, dict[str, int]] = {}
    for language in source.languages:
        paths = [
            existing_file(source.path, pattern.replace("{language}", language))
            for pattern in (source.queries_file, source.documents_file)
        ]
        for number, (query, document) in enumerate(_pairs(*paths), start=1):
            if not query or not document:
                bad.report("empty_sentence", f"{paths[0 if not query else 1]}:{number}: the line is blank.")
                continue
            name = f"{language}:{number}"
            found = documents.setdefault(document, RawText(f"{paths[1]}:{number}", name, document))
            asked = queries.setdefault((language, query), RawText(f"{paths[0]}:{number}", name, query))
            judged.setdefault(asked.id, {})[found.id] = 1
    return Collection(
        folder=source.path,
        documents=iter(documents.values()),
        queries=iter(queries.values()),
        judged={"test": judged},
    )


def _pairs(queries: Path, documents: Path) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for left, right in zip_longest(numbered_lines(queries), numbered_lines(documents)):
        if left is None or right is None:
            longer, shorter = (documents, queries) if left is None else (queries, documents)
            raise DataError(
                f"{longer}:{len(pairs) + 1}: {shorter} ends at line {len(pairs)}. Line n of one is the translation of "
                "line n of the other, so both need the same number of lines."
            )
        pairs.append((one_line(left[1]), one_line(right[1])))
    return pairs
