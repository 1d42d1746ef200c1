"""Labelled rows as a source gives them, before labels become numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LabelledRow:
    """One labelled example."""

    id: str
    """Unique in the task; says where the row is from (`train.tsv:17`, `torch.nn.functional:linear`)."""
    text: str
    text_pair: str | None
    label: str

    def content_key(self) -> str:
        """What makes two rows the same example: both texts without regard to case and white space.

        Example:
            >>> LabelledRow("a", "Sum of  squares", None, "x").content_key()
            'sum of squares'
        """
        return "\0".join(" ".join(text.casefold().split()) for text in (self.text, self.text_pair) if text is not None)


@dataclass(frozen=True, slots=True)
class SourceRows:
    """What a source holds. None for a split that it does not have: that one is cut from train."""

    train: list[LabelledRow]
    dev: list[LabelledRow] | None
    test: list[LabelledRow] | None
    dropped: Counter[str] = field(default_factory=Counter)
    """Rows left out by the source, by reason."""
