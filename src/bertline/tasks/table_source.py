"""Labelled rows from tables: your own files, or a Hugging Face dataset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bertline.foundation.errors import DataError
from bertline.tasks.rows import LabelledRow, SourceRows
from bertline.tasks.source_config import HubSourceConfig, TableSourceConfig
from bertline.tasks.table_files import Record, TableLayout, read_records


@dataclass(frozen=True, slots=True)
class _Columns:
    text: str | int
    text_pair: str | int | None
    label: str | int


def table_rows(config: TableSourceConfig) -> SourceRows:
    """Read the files of a table source.

    Raises:
        DataError: Naming file and line, what was found and how to mend it.
    """
    files = _split_files(config)
    layout = TableLayout(config.format, config.header, config.quoting, config.encoding)
    columns = _Columns(config.text_column, config.text_pair_column, config.label_column)

    def rows_of(path: Path | None) -> list[LabelledRow] | None:
        return None if path is None else list(_labelled(read_records(path, layout), columns, str(path)))

    train = rows_of(files[0])
    return SourceRows(train or [], rows_of(files[1]), rows_of(files[2]))


def hub_rows(config: HubSourceConfig) -> SourceRows:
    """Read the splits of a Hugging Face dataset through `datasets`; only data files, never a dataset's code."""
    # Imported here: it takes two seconds, and most tasks do not need it.
    from datasets import ClassLabel, load_dataset
    from datasets.exceptions import DatasetNotFoundError

    columns = _Columns(config.text_column, config.text_pair_column, config.label_column)

    def rows_of(split: str | None) -> list[LabelledRow] | None:
        if split is None:
            return None
        try:
            data = load_dataset(config.name, config.subset, split=split, revision=config.revision)
        except (DatasetNotFoundError, ConnectionError, ValueError, OSError, RuntimeError) as error:
            raise DataError(
                f"The dataset {config.name!r} cannot be read (subset {config.subset!r}, split {split!r}, "
                f"revision {config.revision!r}): {error}"
            ) from error
        feature = data.features.get(config.label_column)
        names = feature.names if isinstance(feature, ClassLabel) else None
        records = (Record(f"{split}:{number}", values) for number, values in enumerate(data, start=1))
        return list(_labelled(records, columns, f"{config.name}/{split}", names))

    train = rows_of(config.train_split)
    return SourceRows(train or [], rows_of(config.dev_split), rows_of(config.test_split))


def _split_files(config: TableSourceConfig) -> tuple[Path, Path | None, Path | None]:
    path = Path(config.path)
    if path.is_file():
        if config.train_file is not None:
            raise DataError(f"source.path {path} is a file, so source.train_file must be null (or name its folder).")
        return path, None, None
    if not path.is_dir():
        raise DataError(f"source.path {path} does not exist. Put the task's files, or a link to them, there.")
    if config.train_file is None:
        files = ", ".join(sorted(entry.name for entry in path.iterdir())) or "no files"
        raise DataError(f"source.path {path} is a folder: name its source.train_file. It holds {files}.")
    optional = [path / name if name is not None else None for name in (config.dev_file, config.test_file)]
    return path / config.train_file, optional[0], optional[1]


def _labelled(
    records: Iterable[Record], columns: _Columns, source: str, label_names: list[str] | None = None
) -> Iterator[LabelledRow]:
    for record in records:
        label = _cell(record, columns.label, source, "label_column")
        yield LabelledRow(
            id=record.where,
            text=_text(record, columns.text, source, "text_column"),
            text_pair=None
            if columns.text_pair is None
            else _text(record, columns.text_pair, source, "text_pair_column"),
            label=_label(record, label, source, label_names),
        )


def _cell(record: Record, column: str | int, source: str, option: str) -> object:
    if column not in record.values:
        existing = ", ".join(repr(name) for name in record.values)
        hint = " Unlabelled test rows cannot be scored: set that file to null and a test is cut from train."
        raise DataError(
            f"{_place(source, record)}: there is no column {column!r} (source.{option}). The columns are {existing}."
            + (hint if option == "label_column" else "")
        )
    return record.values[column]


def _text(record: Record, column: str | int, source: str, option: str) -> str:
    value = _cell(record, column, source, option)
    text = value.strip() if isinstance(value, str) else "" if value is None else str(value)
    if not text:
        raise DataError(f"{_place(source, record)}: the text in column {column!r} is empty. Mend or remove the row.")
    return text


def _label(record: Record, value: object, source: str, names: list[str] | None) -> str:
    """A label as a word: whole numbers without a fraction, class numbers by their names."""
    if names is not None and isinstance(value, int):
        if not 0 <= value < len(names):
            raise DataError(
                f"{_place(source, record)}: the label is {value}: the split is not labelled. "
                "Set it to null in the task's source, and it is cut from train."
            )
        return names[value]
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    label = "" if value is None else str(value).strip()
    if not label:
        raise DataError(f"{_place(source, record)}: the label is empty. Mend or remove the row.")
    return label


def _place(source: str, record: Record) -> str:
    return f"{source}:{record.where.rpartition(':')[2]}"
