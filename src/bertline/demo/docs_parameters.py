"""The task `docs_parameters`: tag the words of a description that name the function's parameters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from bertline.corpus.sentences import split_sentences
from bertline.demo.config import DocsParametersSourceConfig
from bertline.demo.docstrings import ModuleDocs
from bertline.demo.rows import first_rows, items_by_side, ordered_splits
from bertline.tasks.conll import TaggedSentence, is_visible
from bertline.tasks.source_files import same_text
from bertline.tasks.tags import OUTSIDE

PARAMETER = "B-PARAM"
# Marks around a word that reveal a parameter: quotes, and what is left of backticks and asterisks.
_MARKS = "`*'\"“”‘’«»"
_MARKED = re.compile(rf"(?<!\w)[{_MARKS}]+(?=\w)|(?<=\w)[{_MARKS}]+(?!\w)")
# "x-axis", "don't" and "x.shape" are single words, so they do not match the parameters x and t.
_WORD = re.compile(r"\w+(?:[-'’.]\w+)*|[^\w\s]")
# "a" before any word that is not listed here is the article, even if the function has a parameter `a`.
_AFTER_A_NAME = {
    "along", "and", "are", "as", "at", "be", "by", "can", "cannot", "contains", "does", "for", "from", "given", "has",
    "if", "in", "into", "is", "may", "modulo", "must", "of", "on", "or", "over", "should", "such", "that", "times",
    "to", "using", "was", "when", "where", "which", "will", "with",
}  # fmt: skip


def docs_parameters_sentences(
    modules: Iterable[ModuleDocs],
    config: DocsParametersSourceConfig,
    *,
    num_train_rows: int | None,
    seed: int,
    dropped: Counter[str],
) -> dict[str, list[TaggedSentence]]:
    """Build sentences from descriptions of functions and classes, with `B-PARAM` on each parameter name.

    Labels come from the signature: a word is tagged if it equals one of the parameter names (of `__init__`, for a
    class), except the article `a`. Each sentence has at least one tagged word. Markup that reveals parameters
    (backticks, quotes, asterisks) is removed, so that the model has to use the context: most names are also ordinary
    words. Train sentences come from pretraining modules. Dev and test sentences come from held-out modules and do not
    occur in pretraining text. Dev and test share no module, and no sentence occurs twice.

    Args:
        modules: Modules from `bertline.demo.docstrings.read_modules`.
        config: Sizes of sentences and splits.
        num_train_rows: Number of train rows; None returns all.
        seed: `split_seed` of the task.
        dropped: Counts dropped sentences by reason; updated in place.
    """
    modules = list(modules)
    packages = {module.name: module.package for module in modules}
    seen: set[str] = set()
    train, held_out = items_by_side(
        modules,
        lambda module: _sentences(module, config, seen, dropped),
        lambda sentence: (" ".join(sentence.words),),
        dropped,
    )
    ordered = ordered_splits(train, held_out, config, lambda sentence: packages[sentence.document], seed=seed)
    return first_rows(ordered, config, num_train_rows)


def words_of(text: str) -> list[str]:
    """Split a text into words and punctuation marks, without quotes and other marks around words.

    Example:
        >>> words_of("If 'axis' is None, x.size of the x-axis isn't *used*.")
        ['If', 'axis', 'is', 'None', ',', 'x.size', 'of', 'the', 'x-axis', "isn't", 'used', '.']
    """
    return [word for word in _WORD.findall(_MARKED.sub("", text)) if is_visible(word)]


def _sentences(
    module: ModuleDocs, config: DocsParametersSourceConfig, seen: set[str], dropped: Counter[str]
) -> Iterator[TaggedSentence]:
    numbers: Counter[str] = Counter()  # a module may define a name twice
    for docstring in module.docstrings:
        parameters = set(docstring.parameters)
        if docstring.kind == "module" or not parameters:
            continue
        for paragraph in docstring.prose.paragraphs:
            for sentence in split_sentences(paragraph):
                if not any(name in sentence for name in parameters):
                    dropped["names_no_parameter"] += 1
                    continue
                words = words_of(sentence)[: config.max_words]
                tags = _tags(words, parameters)
                if PARAMETER not in tags:
                    dropped["names_no_parameter"] += 1
                elif len(words) < config.min_words:
                    dropped["too_few_words"] += 1
                else:
                    name = f"{module.name}:{docstring.name}#{numbers[docstring.name]}"
                    numbers[docstring.name] += 1
                    key = same_text([" ".join(words)])
                    if key in seen:
                        dropped["repeated_sentence"] += 1
                        continue
                    seen.add(key)
                    yield TaggedSentence(name, module.name, tuple(words), tuple(tags))


def _tags(words: list[str], parameters: set[str]) -> list[str]:
    """Return a tag for each word.

    >>> _tags(["A", "row", "of", "a", "and", "n"], {"a", "A", "n"})
    ['O', 'O', 'O', 'B-PARAM', 'O', 'B-PARAM']
    """
    following = [*words[1:], "."]
    return [
        PARAMETER if word in parameters and not (word in ("a", "A") and _is_plain_word(after)) else OUTSIDE
        for word, after in zip(words, following, strict=True)
    ]


def _is_plain_word(word: str) -> bool:
    return len(word) > 1 and word[0].isalpha() and word not in _AFTER_A_NAME
