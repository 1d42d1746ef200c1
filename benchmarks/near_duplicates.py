"""Measure how fast near duplicates are found, how many are found, and how many that are removed have no partner.

    python benchmarks/near_duplicates.py --corpus FOLDER     # WikiExtractor files, or plain text with --kind text
    python benchmarks/near_duplicates.py                     # the documentation of the installed packages

To the first documents of the corpus with 50 words or more, 1,000 copies are added in which 1 to 10 % of the words are
replaced by other words of the corpus. Truth is the Jaccard similarity of the 3-grams themselves, compared as sets of
words and without the library's hashes. The last line is JSON:

- `near_duplicate_mb_per_s`: UTF-8 bytes of the text by processor time, in one process: signatures, index and exact
  comparison of candidates.
- `near_duplicate_recall`: share found of the copies that are above the threshold.
- `near_duplicate_false`: share of what is removed that has no kept document above the threshold.
- With `--templated NUMBER`, the same of as many documents that share a template and are just below the threshold
  (`templated_mb_per_s`, `templated_recall` of 200 copies among them, `templated_false`).
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import repository_source  # noqa: F401
from records import current_commit

from bertline.corpus.quality.duplicates import find_near_duplicates, near_duplicates_of, write_signatures
from bertline.corpus.storage import Steps
from bertline.foundation.engine import LocalEngine
from bertline.foundation.manifests import versions_of
from bertline.foundation.parallel import processor_name

RESULT = Path(__file__).parent / "results" / "near_duplicates.json"
THRESHOLD, NGRAM = 0.7, 3
NUM_COPIES, MIN_WORDS = 1000, 50
_BATCH = 200
_TEMPLATE_WORDS, _TEMPLATED_COPIES = 400, 200
_SHOWN_OF_TEMPLATE = ("near_duplicate_mb_per_s", "near_duplicate_recall", "near_duplicate_false")


@dataclass(frozen=True)
class Planted:
    """Documents in reading order, the copies last."""

    documents: list[list[str]]
    """Sentences of each document."""
    source: dict[int, int]
    """Index of the original by that of its copy."""


def with_copies(documents: Sequence[Sequence[str]], num_copies: int = NUM_COPIES, seed: int = 0) -> Planted:
    """Add copies of random documents with 1 to 10 % of their words replaced."""
    generator = random.Random(seed)
    long = [index for index, one in enumerate(documents) if sum(len(part.split()) for part in one) >= MIN_WORDS]
    vocabulary = sorted({word for one in documents[:500] for part in one for word in part.split()})
    planted, source = [list(one) for one in documents], {}
    for number, index in enumerate(generator.sample(long, min(num_copies, len(long)))):
        words = " ".join(documents[index]).split()
        count = max(1, round((1 + number % 10) / 100 * len(words)))
        for place in generator.sample(range(len(words)), count):
            words[place] = generator.choice(vocabulary)
        source[len(planted)] = index
        planted.append([" ".join(words)])
    return Planted(planted, source)


def templated(documents: Sequence[Sequence[str]], number: int, seed: int = 0) -> list[list[str]]:
    """Return documents that share most of their words: their 3-grams agree by 0.6 to 0.69, as forms and listings do.

    Args:
        documents: A corpus, whose first long document is the template and whose others give the rest of the words.
        number: How many to make.
        seed: Seed of the generator that draws the words.
    """
    generator = random.Random(seed)
    words = [word for one in documents[:500] for part in one for word in part.split()]
    own = round(0.225 * _TEMPLATE_WORDS)  # 400 / (400 + 2 * 90) = 0.69, a little less where the parts meet
    return [
        [" ".join([*words[:_TEMPLATE_WORDS], *(generator.choice(words) for _ in range(own + index % 20))])]
        for index in range(number)
    ]


def near_duplicate_figures(documents: Sequence[Sequence[str]], num_copies: int = NUM_COPIES) -> dict[str, float]:
    """Return the three figures of a corpus, and how many copies and removed documents they rest on.

    Args:
        documents: Sentences of each document.
        num_copies: How many copies are planted.
    """
    planted = with_copies(documents, num_copies)
    start = time.process_time()
    removed: set[int] = set()
    with tempfile.TemporaryDirectory() as folder:
        steps = Steps(LocalEngine(0), Path(folder))
        numbered = list(enumerate(planted.documents))
        batches = [numbered[first : first + _BATCH] for first in range(0, len(numbered), _BATCH)]
        signed = steps.run("signatures", partial(_sign, batches=batches), [0])
        removed.update(near_duplicates_of(find_near_duplicates(steps, signed, THRESHOLD), 0))
    seconds = time.process_time() - start
    size = sum(len(part.encode()) for one in planted.documents for part in one)
    above = [copy for copy, original in planted.source.items() if _jaccard(planted, copy, original) >= THRESHOLD]
    lonely = _without_partner(planted, removed)
    return {
        "near_duplicate_mb_per_s": round(size / seconds / 1e6, 2),
        "near_duplicate_recall": round(sum(copy in removed for copy in above) / len(above), 4),
        "near_duplicate_false": round(lonely / max(1, len(removed)), 5),
        "mb": round(size / 1e6, 1),
        "documents": len(planted.documents),
        "copies_above_threshold": len(above),
        "removed": len(removed),
    }


def _sign(shard: int, out: Path, *, batches: Any) -> dict[str, Any]:
    write_signatures(out, batches, ngram=NGRAM, shard=shard)
    return {}


def _ngrams(sentences: Sequence[str]) -> set[tuple[str, ...]]:
    words = ["".join(filter(str.isalnum, word)).casefold() for part in sentences for word in part.split()]
    words = [word for word in words if word]
    return set(zip(words, words[1:], words[2:], strict=False))


def _jaccard(planted: Planted, a: int, b: int) -> float:
    first, second = _ngrams(planted.documents[a]), _ngrams(planted.documents[b])
    return len(first & second) / max(1, len(first | second))


def _without_partner(planted: Planted, removed: set[int]) -> int:
    """Count the removed documents that no kept one equals enough; every pair that shares a 3-gram is compared."""
    wanted = {index: _ngrams(planted.documents[index]) for index in removed}
    by_ngram: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for index, ngrams in wanted.items():
        for ngram in ngrams:
            by_ngram[ngram].append(index)
    partnered: set[int] = set()
    for index, document in enumerate(planted.documents):
        if index in removed:
            continue
        ngrams = _ngrams(document)
        shared = Counter(other for ngram in ngrams for other in by_ngram.get(ngram, ()))
        for other, count in shared.items():
            if count / (len(ngrams) + len(wanted[other]) - count) >= THRESHOLD:
                partnered.add(other)
    return len(removed - partnered)


def documents_of(folder: str, kind: str) -> Iterator[list[str]]:
    """Yield the paragraphs of each document of a folder."""
    from bertline.corpus import reader
    from bertline.corpus.readers.text import TextReader
    from bertline.corpus.readers.wikiextractor import WikiExtractorReader

    common: dict[str, Any] = {"path": folder, "encoding": "utf-8", "on_undecodable": "skip"}
    if kind == "text":
        files: Any = TextReader(kind="text", document="file", document_start=None, on_markup="fail", **common)
    else:
        files = WikiExtractorReader(kind="wikiextractor", **common)
    for document in reader.documents_of(files):
        yield list(document.paragraphs)


def embedded_documents() -> Iterator[list[str]]:
    """Yield the documentation of each module of numpy, scipy and torch."""
    from bertline.demo.config import PackageConfig, PythonDocsConfig
    from bertline.demo.docstrings import read_modules

    packages = tuple(PackageConfig(module=name, distribution=name) for name in ("numpy", "scipy", "torch"))
    config = PythonDocsConfig(packages=packages, held_out_fraction=0.1, split_seed=0)
    for module in read_modules(config, num_workers=1, dropped=Counter()):
        yield [text for docstring in module.docstrings for text in docstring.prose.paragraphs]


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", help="folder of text; without it, the documentation of installed packages")
    parser.add_argument("--kind", choices=["wikiextractor", "text"], default="wikiextractor")
    parser.add_argument("--documents", type=int, default=10_000, help="most documents that are read")
    parser.add_argument("--templated", type=int, default=0, help="documents of one template that are measured as well")
    parser.add_argument("--keep", action="store_true", help=f"record the figures in {RESULT.name}")
    arguments = parser.parse_args()
    source = documents_of(arguments.corpus, arguments.kind) if arguments.corpus else embedded_documents()
    documents = list(islice(source, arguments.documents))
    figures = near_duplicate_figures(documents)
    if arguments.templated:
        of_template = near_duplicate_figures(templated(documents, arguments.templated), _TEMPLATED_COPIES)
        figures |= {key.replace("near_duplicate", "templated"): of_template[key] for key in _SHOWN_OF_TEMPLATE}
        figures["templated_documents"] = arguments.templated
    record = {
        **figures,
        "corpus": arguments.kind if arguments.corpus else "python_docs",
        "device": processor_name(),
        "commit": current_commit(),
        "versions": versions_of("rensa", "numpy"),
    }
    if arguments.keep:
        RESULT.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(record))


if __name__ == "__main__":
    main()
