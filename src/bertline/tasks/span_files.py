"""Tables of annotated texts: spans of a text, or lists of words with their tags."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, cast

from bertline.corpus.tables import TableLayout, TableRow, column_in, parsed_rows, read_records, value_in
from bertline.foundation.bad_rows import BadRow, BadRows
from bertline.tasks.cells import label_in, list_in, text_in
from bertline.tasks.conll import TaggedSentence
from bertline.tasks.entities import OUTSIDE, TAG, WORD, to_iob2
from bertline.tasks.source_config import TableSourceConfig
from bertline.tasks.table_source import class_names_in, named_class, table_layout

# Usual columns of a text, and of what is marked in it.
_FORMS = {
    "spans": (("text", "data"), ("spans", "entities", "ents", "label", "labels")),
    "words and tags": (("tokens", "words"), ("ner_tags", "tags", "ner", "labels")),
}
_ROWS_LOOKED_AT = 100  # the first may have no span
_SPAN_KEYS = (("start", "start_offset"), ("end", "end_offset"), ("label", "labels"))


def annotated_table(path: Path, layout: TableLayout, named: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Return the form of a table of annotated texts, and its columns by key of the source; None if it has no spans and
    no tags. Columns that are not `named`, by key, are told by their names."""
    first = islice(read_records(path, layout, BadRows("skip")), _ROWS_LOOKED_AT)
    return next(filter(None, (_annotated(record, named) for record in first)), None)


def _annotated(record: TableRow, named: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
    columns = {str(column).lower(): column for column in record.values}
    for form, usual in _FORMS.items():
        found = {
            key: next((columns[name] for name in names if name in columns), None)
            if named.get(key) is None
            else column_in(record, named[key])
            for key, names in zip(("text_column", "label_column"), usual, strict=True)
        }
        text, marks = (list_in(record.values.get(column)) for column in found.values())
        has_spans = isinstance(marks, list) and any(map(_is_span, marks))
        if isinstance(text, list):
            fits = isinstance(marks, list) and len(text) == len(marks) > 0 and not has_spans
        else:
            fits = isinstance(text, str) and has_spans
        if fits:
            return form, found
    return None


def read_annotated(path: Path, source: TableSourceConfig, bad_rows: BadRows) -> list[TaggedSentence]:
    """Read a table whose label column has spans of the text, or the tags of the words in the text column.

    Spans count characters of Unicode. Texts are cut into words as in prediction; an end of a span inside a word moves
    to that end of the word and is counted. A row of Prodigy that a person did not accept is invalid.
    """
    names = class_names_in(path, source.label_column)

    def sentence(record: TableRow) -> TaggedSentence:
        if (answer := record.values.get("answer", "accept")) in ("reject", "ignore"):
            raise BadRow("not_accepted", f"its answer is {answer}", "Leave out what was not accepted.")
        text = list_in(value_in(record, source.text_column))
        if source.label_column == "spans" and "answer" in record.values:  # Prodigy has none where nothing is marked
            marks: object = record.values.get("spans", [])
        else:
            marks = list_in(value_in(record, cast("str", source.label_column)))
        marks = named_class(marks, names) if names is not None else marks
        words, tags = _of_lists(text, marks) if isinstance(text, list) else _of_spans(text, marks, bad_rows)
        document = label_in(record.values.get(cast("str", source.group_column)))
        return TaggedSentence(record.where, document or record.where, tuple(words), tuple(tags))

    return parsed_rows(read_records(path, table_layout(source), bad_rows), str(path), bad_rows, sentence)


def _is_span(value: Any) -> bool:
    if isinstance(value, dict):
        return any(key in value for key in _SPAN_KEYS[0])
    return isinstance(value, list | tuple) and [*map(type, value)] == [int, int, str]


def _span(value: Any) -> tuple[int, int, str, str]:
    """Return start, end and label of a span, and the text that it should have, if it says so."""
    shown = ""
    if isinstance(value, dict):
        shown = value.get("text") or ""
        value = [next((value[key] for key in keys if key in value), None) for keys in _SPAN_KEYS]
        value[2] = value[2][0] if isinstance(value[2], list) and len(value[2]) == 1 else value[2]
    if not _is_span(value) or not value[2].strip():
        raise BadRow("malformed_span", f"a span is {value!r:.80}; expected a start, an end and a label")
    return value[0], value[1], value[2].strip(), shown


def _of_spans(text: Any, spans: Any, bad_rows: BadRows) -> tuple[list[str], list[str]]:
    if not isinstance(text, str) or not (places := [match.span() for match in WORD.finditer(text)]):
        raise BadRow("empty_text", f"the text is {text!r:.80}, without a word")
    if not isinstance(spans, list):
        raise BadRow("wrong_type", f"the spans are {spans!r:.80}, which is no list")
    starts, ends = zip(*places, strict=True)
    tags, previous, taken, num_moved = [OUTSIDE] * len(places), "", 0, 0
    for start, end, label, shown in sorted({*map(_span, spans)}):
        place = f"{text[max(start, 0) : end]!r:.60} ({start} to {end}, {label})"
        first, last = bisect_right(ends, start), bisect_left(starts, end)
        if not 0 <= start < end <= len(text) or first >= last:
            raise BadRow("span_without_a_word", f"the span {place} has no word of its text of {len(text)} characters")
        if shown and "".join(shown.replace("\\n", "").split()) != "".join(text[start:end].split()):
            fix = "Starts and ends count characters of Unicode, from 0, not bytes."
            raise BadRow("span_of_another_text", f"the span {place} should have the text {shown!r:.60}", fix)
        if first < taken:
            raise BadRow("overlapping_spans", f"the spans {previous} and {place} overlap, or share a word")
        tags[first:last] = [f"B-{label}", *[f"I-{label}"] * (last - first - 1)]
        num_moved += starts[first] < start or ends[last - 1] > end
        previous, taken = place, last
    bad_rows.dropped["span_ends_moved_to_those_of_words"] += num_moved
    return [text[slice(*place)] for place in places], tags


def _of_lists(words: list[Any], tags: Any) -> tuple[list[str], list[str]]:
    texts = [text_in(word) or "" for word in words]
    if not isinstance(tags, list) or len(words) != len(tags) or not all(texts):
        problem = f"its words are {words!r:.80} with the tags {tags!r:.80}; expected a tag for each, and no empty word"
        raise BadRow("words_and_tags", problem)
    for tag in tags:
        if not isinstance(tag, str) or not TAG.fullmatch(tag.strip()):
            advice = "Give the names of numbers as tags, or the Parquet file of `datasets`, which has them."
            problem = f"the tag is {tag!r}; expected O, B-TYPE, I-TYPE or another letter of IOBES"
            raise BadRow("unknown_tag", problem, "Fix the tag." if isinstance(tag, str) else advice)
    return texts, to_iob2([tag.strip() for tag in tags])
