"""Tables of annotated texts, as the tools for it write them: spans of a text, or words with their tags."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, cast

from bertline.corpus.tables import TableLayout, TableRow, column_in, parsed_rows, read_records, value_in
from bertline.foundation.bad_rows import BadRow, BadRows
from bertline.tasks.cells import label_in, list_in, text_in
from bertline.tasks.conll import TaggedSentence
from bertline.tasks.entities import OUTSIDE, TAG, WORD, to_iob2
from bertline.tasks.source_config import TableSourceConfig
from bertline.tasks.table_source import class_names_in, named_class, table_layout

_WORD_A_ROW = "one word a row"
# Usual columns of a text and of what is marked in it, by what writes them; the names of those of a sentence.
_TOOLS = {
    "spans of Label Studio": (("data",), ("annotations", "completions")),
    "spans of Prodigy": (("text",), ("spans",)),
    "spans of Doccano, spaCy or the like": (("text", "data"), ("entities", "ents", "label", "labels")),
    "lists of words and tags": (("tokens", "words"), ("ner_tags", "tags", "ner", "labels")),
    _WORD_A_ROW: (("word", "token"), ("tag", "ner_tag", "ner", "label")),
}
_SENTENCES = ("sentence #", "sentence_id", "sent_id", "sentence")
_ROWS_LOOKED_AT = 100  # the first may have no span
_SPAN_KEYS = (("start", "start_offset"), ("end", "end_offset"), ("label", "labels"))


def annotated_table(path: Path, layout: TableLayout, named: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Return what wrote a table of annotated texts, and its columns by key of the source; None if it has no spans and
    no tags. Columns that are not `named`, by key, are told by their names."""
    first = islice(read_records(path, layout, BadRows("skip")), _ROWS_LOOKED_AT)
    return next(filter(None, (_annotated(record, named) for record in first)), None)


def _annotated(record: TableRow, named: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
    columns = {str(column).lower(): column for column in record.values}

    def column(key: str, usual: Iterable[str]) -> Any:
        of_name = next((columns[name] for name in usual if name in columns), None)
        return of_name if named.get(key) is None else column_in(record, named[key])

    for tool, (texts, marks) in _TOOLS.items():
        found = {"text_column": column("text_column", texts), "label_column": column("label_column", marks)}
        found["group_column"] = column("group_column", _SENTENCES if tool == _WORD_A_ROW else ())
        text, mark = (list_in(record.values.get(found[key])) for key in ("text_column", "label_column"))
        if tool == _WORD_A_ROW:
            fits = TAG.fullmatch(str(mark).strip()) is not None and found["group_column"] is not None
        elif isinstance(text, list):
            fits = isinstance(mark, list) and len(text) == len(mark) > 0 and not any(map(_is_span, mark))
        else:
            spans = [*chain.from_iterable(_regions(mark))] if isinstance(text, dict) else mark
            fits = isinstance(text, str | dict) and isinstance(spans, list) and any(map(_is_span, spans))
        if fits:
            return tool, found
    return None


def read_annotated(path: Path, source: TableSourceConfig, bad_rows: BadRows) -> list[TaggedSentence]:
    """Read a table whose label column has spans of the text, or the tags of the words in the text column.

    Spans count characters of Unicode. Texts are cut into words as in prediction; an end of a span inside a word moves
    to that end of the word and is counted. What a person rejected or nobody annotated is left out and counted.
    """

    def sentence(record: TableRow) -> TaggedSentence | None:
        text, marks = (_cell(record, column) for column in (source.text_column, source.label_column))
        if isinstance(text, dict):
            text = text.get("text") or next((each for each in text.values() if isinstance(each, str)), None)
            made = _regions(marks)
            if len({frozenset(map(_span, each)) for each in made}) > 1:
                raise BadRow("annotations_differ", "its annotations differ", "Keep one, or mark the ground truth.")
            marks = made[0] if made else None
        if marks is None or record.values.get("answer") in ("reject", "ignore"):
            bad_rows.dropped["not_annotated" if marks is None else "not_accepted"] += 1
            return None
        marks = named_class(marks, names) if names is not None else marks
        words, tags = _of_lists(text, marks) if isinstance(text, list) else _of_spans(text, marks, bad_rows)
        document = label_in(record.values.get(cast("str", source.group_column)))
        return TaggedSentence(record.where, document or record.where, tuple(words), tuple(tags))

    names = class_names_in(path, source.label_column)
    records = _joined(read_records(path, table_layout(source), bad_rows), source)
    return [each for each in parsed_rows(records, str(path), bad_rows, sentence) if each is not None]


def _joined(records: Iterable[TableRow], source: Any) -> Iterator[TableRow]:
    """Yield the rows; those of one word each become a row for each sentence, which its first row may name alone."""
    sentence = ""
    columns, group = (source.text_column, source.label_column), source.group_column

    def is_word(record: TableRow) -> bool:
        return group is not None and isinstance(list_in(record.values.get(columns[1])), str)

    def name(record: TableRow) -> str:
        nonlocal sentence
        sentence = label_in(record.values.get(group)) or sentence if is_word(record) else record.where
        return sentence

    for _, rows in groupby(records, name):
        first, *others = rows
        words = {column: [row.values.get(column) for row in (first, *others)] for column in columns}
        yield TableRow(first.where, words) if is_word(first) else first


def _cell(record: TableRow, column: Any) -> Any:
    if column_in(record, column) not in record.values:
        if column == "spans" and "answer" in record.values:  # Prodigy's, if none is marked
            return []
        if (other := _annotated(record, {})) is not None:
            problem = f"it has no {column!r}, which the file's first rows have, and looks like {other[0]}"
            raise BadRow("row_of_another_tool", problem, "Give the rows of each tool in a file of their own.")
    return list_in(value_in(record, column))


def _regions(annotations: Any) -> list[list[Any]]:
    """Return the spans of each annotation of a task of Label Studio that somebody submitted."""
    listed = annotations if isinstance(annotations, list) else []
    submitted = [each for each in listed if isinstance(each, dict) and not each.get("was_cancelled")]
    made = [each for each in submitted if each.get("ground_truth")] or submitted
    values = [[region.get("value") for region in each.get("result") or ()] for each in made]
    return [[value for value in of_one if isinstance(value, dict) and _is_span(value)] for of_one in values]


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
        advice = "Of one word a row, name the column that tells its sentence: source.group_column."
        raise BadRow("wrong_type", f"the spans are {spans!r:.80}, which is no list", advice)
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
