"""Rows of JSONL, CSV and Parquet files, and of Hugging Face datasets.

JSONL and CSV are read one record at a time, so that an error names its line and a single bad record can be left out.
Of Parquet files, only the needed columns are read, in batches. Datasets of the hub are streamed by the `datasets`
library, without a copy in a cache; saved ones (`save_to_disk`, or a folder of Parquet files) are mapped.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

from bertline.corpus import files
from bertline.corpus.document import Dropped, SourceDocument
from bertline.corpus.reader import CorpusReader, FilesReader, ReadingSettings, valid
from bertline.corpus.tables import (
    NumberedRow,
    TableLayout,
    check_delimiting,
    format_by_name,
    parquet_file,
    rows_of_table,
)
from bertline.foundation.bad_rows import BadRows
from bertline.foundation.checked import UserPathOrHubName
from bertline.foundation.errors import DataError

_SUFFIXES = {"jsonl": (".jsonl", ".ndjson", ".json"), "csv": (".csv", ".tsv"), "parquet": (".parquet",)}
Where = Callable[[int], str]


@dataclass(frozen=True, kw_only=True)  # without slots: a class cannot have two bases with slots of their own
class RowsReader(ReadingSettings):
    """What corpora of rows with named columns share."""

    text_column: str
    """Name of the text column."""
    group_column: str | None
    """Column whose values group rows: a group is entirely in train or validation. None: each document is a group."""
    language_column: str | None = None
    """Column with the language of each row, such as `de`, where a corpus has several sources."""

    @property
    def columns(self) -> dict[str, str]:
        """Names of the columns that are read, by the setting that names them."""
        settings = ("text_column", "group_column", "language_column")
        return {name: column for name in settings if (column := getattr(self, name)) is not None}

    def bad_row(self, place: str, problem: str, dropped: Dropped) -> Dropped:
        """Return what is left out for a row that cannot be used."""
        fails = (f"{place}: {problem}.", "Fix the row.") if self.on_undecodable == "fail" else None
        return dropped._replace(note=problem, fault=fails)

    def documents(
        self, rows: Iterable[NumberedRow | Dropped], label: str, where: Where
    ) -> Iterator[SourceDocument | Dropped]:
        """Convert numbered rows to documents, whose ids begin with a label; a row without text is left out."""
        is_first = True
        for item in rows:
            if isinstance(item, Dropped):
                yield item
                continue
            number, row = item
            name = f"{label}{number}"
            missing = [role for role, column in self.columns.items() if column not in row]
            if missing:
                here = ", ".join(list(row)[:20]) or "none"
                problem = f"no column {self.columns[missing[0]]!r} (corpus.{missing[0]}). Columns here: {here}"
                if is_first:
                    hint = " Does another mark separate them (corpus.separator)?" if set(here) & set(";|\t,") else ""
                    raise DataError(f"{where(number)}: {problem}.{hint if len(row) == 1 else ''}")
                yield self.bad_row(where(number), problem, Dropped("documents/no_column", name, str(row)))
                continue
            is_first = False
            text = row[self.text_column]
            if text is None or text == "" or text != text:  # NaN, as pandas writes a missing value
                yield Dropped("documents/no_text", name)
                continue
            if not isinstance(text, str):
                problem = (
                    f"column {self.text_column!r} (corpus.text_column) holds {type(text).__name__} "
                    f"{str(text)[:60]!r}, expected text"
                )
                yield self.bad_row(where(number), problem, Dropped("documents/not_text", name, str(text)))
                continue
            group = row[self.group_column] if self.group_column is not None else None
            group = "" if group is None else f"{self.group_column}={group}"
            language = row[self.language_column] if self.language_column is not None else None
            language = None if language in (None, "") else str(language)
            yield SourceDocument(name, group, tuple(files.paragraphs_of(text.splitlines())), language=language)


@dataclass(frozen=True, kw_only=True, slots=True)
class TableReader(RowsReader, FilesReader):
    """JSONL, CSV or Parquet files with a text column; each row is a document."""

    kind: Literal["jsonl", "csv", "parquet"]
    encoding: str = "utf-8"
    """Character encoding of JSONL and CSV files."""
    separator: str | None = None
    """Separator of the fields of CSV files; None: a tab in `.tsv` files, else a comma."""
    quoting: bool = True
    """Whether fields of CSV files may be in double quotes; false takes quotes as text, and each line as a row."""

    def check(self) -> None:
        if self.kind == "parquet" and self.encoding != "utf-8":
            raise ValueError(f"encoding is {self.encoding!r}, but Parquet holds its own; leave it out")
        if self.kind != "csv" and (self.separator is not None or not self.quoting):
            raise ValueError(f"separator and quoting are for kind: csv, found kind: {self.kind}; leave them out")
        check_delimiting(self.separator, None, quoting=self.quoting)

    @property
    def endings(self) -> tuple[str, ...]:
        return _SUFFIXES[self.kind]

    def ranges(self, part: files.Part, shard_bytes: int) -> list[files.Part]:
        """See `FilesReader.ranges`: lines of JSONL, and row groups of Parquet files."""
        if self.kind == "jsonl" and self.encoding == "utf-8":
            return files.line_ranges(part, shard_bytes)
        if self.kind == "csv" or part.size < 2 * shard_bytes:
            return [part]
        return _row_group_ranges(part, shard_bytes)

    def read_part(self, part: files.Part) -> Iterator[SourceDocument | Dropped]:
        named = format_by_name(part.name)
        layout = TableLayout(
            format=named if named is not None and f".{named}" in self.endings else self.kind,
            header=True,
            quoting=self.quoting,
            encoding=self.encoding,
            separator=self.separator,
        )
        in_lines = self.kind != "parquet"

        def where(number: int) -> str:
            return f"{part.path}:{(files.lines_before(part) if in_lines else 0) + number}"

        rows = rows_of_table(part, layout, self.on_undecodable, [*self.columns.values()])
        yield from self.documents(rows, f"{part.label}:", where)


def _row_group_ranges(part: files.Part, range_bytes: int) -> list[files.Part]:
    try:
        with parquet_file(part) as table:
            sizes = [table.metadata.row_group(group).total_byte_size for group in range(table.num_row_groups)]
    except Exception:  # reading it says what is wrong, or leaves it out
        return [part]
    share = part.size / max(1, sum(sizes))  # of what is unpacked
    ranges, start, gathered = [], 0, 0.0
    for group, size in enumerate(sizes, start=1):
        gathered += size * share
        if gathered >= range_bytes or group == len(sizes):
            ranges.append(replace(part, start=start, stop=group, range_bytes=round(gathered)))
            start, gathered = group, 0.0
    return ranges


@dataclass(frozen=True, kw_only=True, slots=True)
class HubReader(RowsReader, CorpusReader):
    """A Hugging Face dataset; each row is a document."""

    kind: Literal["hub"]
    name: UserPathOrHubName
    """Name of the dataset on the hub, such as `wikimedia/wikipedia`, or a folder of `save_to_disk` or of data files."""
    revision: str | None = None
    """Commit hash of the dataset, for reproducibility; a folder has none."""
    subset: str | None
    """Name of the subset (configuration) of the dataset; None: the only one."""
    split: str
    """Split of the dataset that is read."""

    def check(self) -> None:
        if self.revision is None and not self.is_folder:
            raise ValueError(
                f"revision is null, and {self.name} is no folder here; give the commit hash of the dataset"
            )

    @property
    def is_folder(self) -> bool:
        """Whether the dataset is a folder of this machine."""
        return Path(self.name).is_dir()

    def plan(self, shard_bytes: int, source: str = "") -> tuple[list[files.InputShard], list[Dropped]]:
        """See `CorpusReader.plan`: ranges of rows of a saved dataset, files of another one."""
        with self._named():
            rows = files.open_dataset(self, self.split, streaming=True)
            part = files.Part(self._where, self.split, 0)
            if hasattr(rows, "num_rows"):
                num_ranges = max(1, min(rows.num_rows, round((rows.data.nbytes or 0) / shard_bytes)))
                bounds = [rows.num_rows * place // num_ranges for place in range(num_ranges + 1)]
            else:
                bounds = list(range(rows.num_shards + 1))
        ranges = [replace(part, start=start, stop=stop) for start, stop in pairwise(bounds)]
        return [files.InputShard(source, (one,)) for one in ranges], []

    def read_shard(self, shard: files.InputShard) -> Iterator[SourceDocument | Dropped]:
        (part,) = shard.parts
        assert part.stop is not None
        with self._named():
            rows = files.open_dataset(self, self.split, streaming=True)
            is_mapped, asked = hasattr(rows, "num_rows"), range(part.start, part.stop)
            chosen = rows.select(asked) if is_mapped else rows.shard(rows.num_shards, part.start)
            numbered, bad_rows = enumerate(chosen, start=1), BadRows("error", option="corpus.on_undecodable")
            for item in self.documents(numbered, f"{part.label}:", lambda number: f"{self._where}, row {number}"):
                yield from valid(item, bad_rows)
            bad_rows.end()

    @property
    def _where(self) -> str:
        revision = "" if self.revision is None else f"@{self.revision}"
        return f"{self.name}{revision}" + (f" ({self.subset})" if self.subset else "") + f", {self.split}"

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except DataError:
            raise
        except Exception as error:  # the hub client raises exceptions of many libraries
            what = "as a dataset" if self.is_folder else "from the Hugging Face hub"
            raise DataError(
                f"corpus.name: {self._where} cannot be read {what} ({type(error).__name__}: "
                f"{str(error).splitlines()[0] if str(error) else 'no further message'}). Check name, revision, subset, "
                "split and the network. Without network: save it with save_to_disk or as Parquet, and name the folder. "
                "Datasets that need their own code are never run."
            ) from error
