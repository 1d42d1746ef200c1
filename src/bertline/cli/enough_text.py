"""Too little text for a train and a validation split, said by `configure` before any stage runs.

Documents are read only until there are enough, which in most folders are the first four.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from bertline.config import PipelineConfig
from bertline.corpus.document import SourceDocument
from bertline.corpus.preparation import clean, duplicate_key
from bertline.corpus.reader import CorpusReader, documents_of
from bertline.corpus.registry import CorpusConfig, NoCorpusConfig, key_of, readers_of
from bertline.corpus.splits import more_documents
from bertline.demo.reader import PythonDocsCorpusConfig
from bertline.foundation.errors import BertlineError, ConfigError
from bertline.foundation.progress import silent
from bertline.run.user_data import at_hand

_MOST_CHARACTERS = 4_000_000
"""Read before it is left to the corpus stage to say whether duplicates and short documents leave enough."""


def check_enough_text(config: PipelineConfig) -> None:
    """Check that the user's own text has the documents that both splits need.

    A split needs two documents where the second segment of a pair may be a random one of another document, else one;
    documents of one group are in the same split. Where cleaning, or the removal of near duplicates, leaves too few, the
    stages say it. Text on a hub and from packages is not checked, nor paths at which nothing is yet.

    Raises:
        ConfigError: There are too few documents, or none are for validation; the message has the path, what was found
            and what to do.
        DataError: The beginning of the text cannot be read.
    """
    corpus = config.corpus
    if isinstance(corpus, NoCorpusConfig | PythonDocsCorpusConfig) or not config.examples.lengths:
        return
    needed = config.examples.min_documents
    if corpus.validation_fraction == 0:
        raise ConfigError(
            f"corpus.validation_fraction is 0: no text would be for validation, of which the examples need at least "
            f"{needed} document{'s' * (needed > 1)}. Set a fraction above 0, such as 0.02; of a small text it "
            "takes the few documents that are needed."
        )
    readers = readers_of(corpus)
    if not all(reader.user_path is not None and at_hand(reader.user_path) for reader in readers.values()):
        return
    groups: Counter[str] = Counter()
    keys: set[bytes] = set()
    left_out: Counter[str] = Counter()
    characters = 0
    with silent():  # the corpus stage says what it leaves out
        for number, document in enumerate(_documents(readers), start=1):
            text = " ".join(filter(None, map(clean, document.paragraphs)))
            key = duplicate_key(text)
            if len(text) < max(1, corpus.min_document_characters):
                left_out["too short"] += 1
            elif corpus.deduplicate != "none" and key in keys:
                left_out["duplicates"] += 1
            else:
                keys.add(key)
                groups[clean(document.group) or key.hex()] += 1
            characters += sum(map(len, document.paragraphs))
            # At least two documents, since one alone may be a whole file of any size.
            if _are_enough(groups, needed) or (number > 1 and characters > _MOST_CHARACTERS):
                return
    raise ConfigError(_too_few(corpus, readers, groups, left_out, needed))


def _documents(readers: Mapping[str, CorpusReader]) -> Iterator[SourceDocument]:
    for name, reader in readers.items():
        try:
            yield from documents_of(reader)
        except BertlineError as error:
            raise (type(error)(f"source {name} ({key_of(name)}): {error}") if name else error) from error


def _are_enough(groups: Counter[str], needed: int) -> bool:
    """Return whether the groups can be divided into two splits of at least `needed` documents each."""
    largest = max(groups.values(), default=0)
    return groups.total() >= 2 * needed and groups.total() - largest >= needed


def _too_few(
    corpus: CorpusConfig,
    readers: Mapping[str, CorpusReader],
    groups: Counter[str],
    left_out: Counter[str],
    needed: int,
) -> str:
    places = ", ".join(f"{key_of(name)}.{one.user_data} is {one.user_path}" for name, one in readers.items())
    besides = ", ".join(f"{count:,} {reason}" for reason, count in sorted(left_out.items()))
    in_groups = f" in {len(groups)} group{'s' * (len(groups) != 1)}" if len(groups) < groups.total() else ""
    found = f"{groups.total()} document{'s' * (groups.total() != 1)}{in_groups} to train on"
    why = ", because a random second segment comes from another document" if needed > 1 else ""
    fixes = {"Give more text": None}
    if left_out["too short"]:
        fixes[f"lower corpus.min_document_characters (now {corpus.min_document_characters})"] = None
    for name, reader in readers.items():
        fixes |= dict.fromkeys(more_documents(key_of(name) if len(readers) == 1 else key_of("NAME"), reader))
    return (
        f"{places}, with {found}{f' (left out: {besides})' if besides else ''}; expected at least {needed} for each of "
        f"train and validation{why}. {', or '.join(fixes)}."
    )
