"""Data section of the report: the corpus, dropped text by reason, tokenized sample documents, and the vocabulary."""

from __future__ import annotations

from itertools import islice

from bertline.corpus.document import Document
from bertline.corpus.storage import read_documents
from bertline.evaluation.charts import bar_chart
from bertline.evaluation.facts import Facts, PipelineFolders
from bertline.evaluation.html import escape, figure, paragraph, section, shown_tokens, side_by_side, table
from bertline.foundation.formats import count, percent
from bertline.foundation.seeds import unit_interval
from bertline.tokenization.tokenizer import Tokenizer

_CONSIDERED_DOCUMENTS = 2_000
_FEWEST_SENTENCES = 4
_SENTENCES = 4
_REASONS = 12


def data_charts(facts: Facts) -> dict[str, str]:
    """Return the charts of the section by file name."""
    reasons: dict[str, list[tuple[str, float]]] = {}
    for reason, number in facts.corpus.get("dropped", {}).items():
        # Reasons are `UNIT/REASON`; counts of documents and of paragraphs are not comparable.
        unit, _, name = reason.rpartition("/")
        if number:
            reasons.setdefault(unit or "documents", []).append((name.replace("_", " "), float(number)))
    return {
        f"dropped_{unit}": bar_chart(
            sorted(rows, key=lambda row: (-row[1], row[0]))[:_REASONS], name=f"{unit} left out"
        )
        for unit, rows in sorted(reasons.items())
    }


def data_section(facts: Facts, line: PipelineFolders, charts: dict[str, str], num_documents: int) -> str:
    """Return the section with corpus, samples and vocabulary."""
    counts = facts.corpus["counts"]
    rows = [
        [split, *(count(figures.get(name, 0)) for name in ("documents", "sentences", "words", "characters"))]
        for split, figures in counts.items()
    ]
    dropped = [
        figure(chart, f"{name.removeprefix('dropped_').capitalize()} left out of the corpus, by reason.")
        for name, chart in charts.items()
        if name.startswith("dropped_")
    ]
    assert line.tokenizer is not None  # only reports of a pretraining have this section
    tokenizer = Tokenizer.load(line.tokenizer)
    samples = "".join(_document(document, tokenizer) for document in sample_documents(line, num_documents))
    return section(
        "data",
        "What it read",
        table(["", "documents", "sentences", "words", "characters"], rows),
        side_by_side(*dropped, _vocabulary(facts)),
        "<h3>Held-out documents, and their tokens</h3>" if samples else "",
        paragraph("Tokens that continue a word are joined to it and shaded.") if samples else "",
        samples,
    )


def sample_documents(line: PipelineFolders, number: int) -> list[Document]:
    """Return some held-out documents, chosen by a hash of their id so that the choice is deterministic."""
    if line.corpus is None:
        return []
    documents = islice(read_documents(line.corpus, "validation"), _CONSIDERED_DOCUMENTS)
    long_enough = [document for document in documents if len(document.sentences) >= _FEWEST_SENTENCES]
    return sorted(long_enough, key=lambda document: unit_interval("report sample", document.id))[:number]


def _document(document: Document, tokenizer: Tokenizer) -> str:
    lines = "".join(
        shown_tokens(tokenizer.tokens(tokenizer.encode(sentence))) for sentence in document.sentences[:_SENTENCES]
    )
    more = len(document.sentences) - _SENTENCES
    rest = f'<p class="soft">and {count(more)} more sentences</p>' if more > 0 else ""
    return f"<article><h4>{escape(document.id)}</h4>{lines}{rest}</article>"


def _vocabulary(facts: Facts) -> str:
    quality = facts.tokenizer["quality"]
    case = "lower-cased" if facts.tokenizer["lowercase"] else "cased"
    said = (
        f"The vocabulary has {count(facts.tokenizer['vocab_size'])} {case} tokens. A word of held-out text takes "
        f"{quality['tokens_per_word']:.2f} of them; {percent(quality['whole_word_rate'])} of words are a single token "
        f"their own, {percent(quality['unknown_rate'])} cannot be written with them."
    )
    rows = [[word, split] for word, split in list(quality.get("sample", {}).items())[:12]]
    return f"<div><h3>The vocabulary</h3>{paragraph(said)}{table(['word', 'tokens'], rows) if rows else ''}</div>"
