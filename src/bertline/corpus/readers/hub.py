"""Rows of a Hugging Face dataset, streamed by the `datasets` library without a copy in a cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from bertline.corpus.document import SourceDocument
from bertline.corpus.reader import CorpusReader, datasets_library, document_of_row
from bertline.foundation.errors import DataError


@dataclass(frozen=True, kw_only=True, slots=True)
class HubCorpusConfig(CorpusReader):
    """A Hugging Face dataset; each row is a document."""

    user_data: ClassVar[str | None] = None
    kind: Literal["hub"]
    name: str
    """Name of the dataset on the hub, such as `wikimedia/wikipedia`."""
    revision: str
    """Commit hash of the dataset, for reproducibility."""
    subset: str | None
    """Name of the subset (configuration) of the dataset; None: the only one."""
    split: str
    """Split of the dataset that is read."""
    text_column: str
    """Name of the text column."""
    group_column: str | None
    """Column whose values group rows: a group is entirely in train or validation. None: each document is a group."""

    def read(self, dropped: Counter[str]) -> Iterator[SourceDocument]:
        """Stream one split of a Hugging Face dataset (or of a local folder of data files).

        Raises:
            DataError: The dataset cannot be reached or read, the column is missing, or its value is not text.
        """
        where = f"{self.name}@{self.revision}" + (f" ({self.subset})" if self.subset else "")
        datasets = datasets_library()
        try:
            rows = datasets.load_dataset(
                self.name, self.subset, split=self.split, revision=self.revision, streaming=True
            )
            for number, row in enumerate(rows, start=1):
                document = document_of_row(
                    row, f"{self.split}:{number}", f"{where}, {self.split} row {number}", self, dropped
                )
                if document is not None:
                    yield document
        except DataError:
            raise
        except Exception as error:  # the hub client raises exceptions of many libraries
            raise DataError(
                f"corpus.name: {where} cannot be read from the Hugging Face hub ({type(error).__name__}: "
                f"{str(error).splitlines()[0] if str(error) else 'no further message'}). Check name, revision, subset, "
                "split and the network. Without network: save it as Parquet elsewhere and use corpus=parquet. Datasets "
                "that need their own code are never run."
            ) from error
