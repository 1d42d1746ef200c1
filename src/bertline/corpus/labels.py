"""Labels of documents in a corpus of several sources: the ids begin with source and language."""

from __future__ import annotations


def label_of(document_id: str) -> str:
    """Return source and language of a document.

    Example:
        >>> label_of("wiki[de]/a.txt:3"), label_of("novels/Emma.txt")
        ('wiki[de]', 'novels')
    """
    return document_id.partition("/")[0]


def source_of(document_id: str) -> str:
    """Return the name of the source of a document.

    Example:
        >>> source_of("wiki[de]/a.txt:3")
        'wiki'
    """
    return label_of(document_id).partition("[")[0]


def language_of(label: str) -> str | None:
    """Return the language of a label.

    Example:
        >>> language_of("wiki[de]"), language_of("novels")
        ('de', None)
    """
    return label.partition("[")[2].removesuffix("]") or None
