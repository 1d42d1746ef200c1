"""The tasks of the demo: which library, does it match, which words are parameters, find the function."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial

from bertline.corpus.sentences import split_sentences
from bertline.demo.config import (
    DocsLibrarySourceConfig,
    DocsMatchSourceConfig,
    DocsParametersSourceConfig,
    DocsSearchSourceConfig,
)
from bertline.demo.docstrings import Docstring, ModuleDocs
from bertline.demo.rows import first_rows, functions_kept, items_by_side, ordered_splits, summary_and_rest
from bertline.foundation.errors import DataError
from bertline.foundation.seeds import generator
from bertline.tasks.conll import TaggedSentence, is_visible
from bertline.tasks.entities import OUTSIDE
from bertline.tasks.source_files import LabelledRow, LabelledSplits, same_text
from bertline.tasks.stored_rows import BuiltTask, Documents, QueryRows

# The task `docs_library`: predict which library a passage documents.

# Other names of a library besides its import name. A *stem* matches anywhere in a word (NumPy-like, torch.nn.Linear,
# matplotlibrc); an *alias* matches only as a separate word (np, plt.plot).
_STEMS = {
    "python": ("pep",),
    "torch": ("aten", "autograd", "torchscript"),
    "sklearn": ("scikit",),
    "matplotlib": ("pyplot", "pylab"),
    "pytorch_lightning": ("lightning",),
}
_ALIASES = {
    "python": ("py", "stdlib"),
    "torch": ("nn", "c10", "inductor", "dynamo"),
    "numpy": ("np",),
    "scipy": ("sp",),
    "pandas": ("pd",),
    "sklearn": ("skl",),
    "matplotlib": ("plt", "mpl"),
    "networkx": ("nx",),
    "sqlalchemy": ("sa",),
    "pytorch_lightning": ("pl",),
    "mpmath": ("mp", "mpf", "mpc"),
}
_SPACE_BEFORE_MARK = re.compile(r"\s+([,.;:!?])(?=\s|$)")
_EMPTY_BRACKETS = re.compile(r"\(\s*\)|\[\s*\]")


class LibraryNames:
    """Removes the names of libraries, given by import name: this one alone where no aliases are known."""

    def __init__(self, modules: Iterable[str]) -> None:
        modules = tuple(modules)
        stems = {stem for module in modules for stem in (module.lower(), *_STEMS.get(module, ()))}
        aliases = {alias for module in modules for alias in _ALIASES.get(module, ())}
        # A name is removed with the whole dotted path or compound around it: `torch.nn.Linear`, `scikit-learn's`.
        word = r"[\w.\-/]*"
        stem = "|".join(sorted(map(re.escape, stems)))
        parts, hints = [rf"{word}(?:{stem}){word}"], [stem]
        if aliases:
            alias = rf"(?<![\w.\-])(?:{'|'.join(sorted(map(re.escape, aliases)))})"
            hints.append(rf"{alias}(?![\w\-])")
            parts.append(rf"{alias}(?:\.\w+)*(?![\w\-])")
        self._pattern = re.compile(rf"(?:{'|'.join(parts)})(?:['’]s\b)?", re.IGNORECASE)
        # If these do not match the lower-cased text, the pattern does not match either. Most texts have no name, and
        # two literal patterns take 1/30 of the time of one that ignores case.
        self._hints = tuple(map(re.compile, hints))

    def removed_from(self, text: str) -> str:
        """Return the text without the names.

        >>> names = LibraryNames(["numpy", "sklearn"])
        >>> names.removed_from("Convert a NumPy array, as in np.asarray, for scikit-learn's estimators.")
        'Convert a array, as in, for estimators.'
        """

        def without(match: re.Match[str]) -> str:
            # The match includes the full stop of a sentence that ends with a name; keep it.
            return "." if match.group().endswith(".") else ""

        # With IGNORECASE, a few non-ASCII letters match an ASCII letter that is not their lower case.
        if not text.isascii() or any(hint.search(text.lower()) for hint in self._hints):
            text = self._pattern.sub(without, text)
        text = _EMPTY_BRACKETS.sub("", text)
        return _SPACE_BEFORE_MARK.sub(r"\1", " ".join(text.split()))


def docs_library_rows(
    modules: Iterable[ModuleDocs], config: DocsLibrarySourceConfig, *, num_train_rows: int | None, seed: int
) -> tuple[LabelledSplits[str], Counter[str]]:
    """Build passages labelled with the library they come from.

    A passage is a prose paragraph of a docstring, without the names of the libraries, truncated to `max_words`. Train
    passages come from pretraining modules. Dev and test passages come from held-out modules and do not occur in
    pretraining text. Dev and test share no module, and no passage occurs twice. Labels are balanced as far as possible:
    every library contributes the same number of rows until small libraries run out.
    """
    modules = list(modules)
    without_names = cache(LibraryNames({module.package for module in modules}).removed_from)
    dropped: Counter[str] = Counter()
    passages = partial(_passages, config=config, without_names=without_names, seen=set(), dropped=dropped)
    train, held_out = items_by_side(modules, passages, lambda row: (row.text,), dropped, also_as=without_names)
    rows = first_rows(train, held_out, config, lambda row: row.label, num_train_rows=num_train_rows, seed=seed)
    return rows, dropped


def _passages(
    module: ModuleDocs,
    config: DocsLibrarySourceConfig,
    without_names: Callable[[str], str],
    seen: set[str],
    dropped: Counter[str],
) -> Iterator[LabelledRow]:
    for docstring in module.docstrings:
        for number, paragraph in enumerate(docstring.prose.paragraphs):
            # Removing names only shortens a passage, so paragraphs that are too short are not processed.
            long_enough = len(paragraph.split()) >= config.min_words
            words = without_names(paragraph).split()[: config.max_words] if long_enough else []
            row = LabelledRow(
                f"{module.name}#{docstring.name}:{number}", " ".join(words), None, module.package, module.name
            )
            if len(words) < config.min_words:
                dropped["too_few_words"] += 1
            elif row.content_key() in seen:
                dropped["repeated_passage"] += 1
            else:
                seen.add(row.content_key())
                yield row


# The task `docs_match`: predict whether a summary belongs to a function.

MATCH, MISMATCH = "match", "mismatch"


@dataclass(frozen=True, slots=True)
class _Function:
    id: str
    signature: str
    summary: str


def docs_match_rows(
    modules: Iterable[ModuleDocs], config: DocsMatchSourceConfig, *, num_train_rows: int | None, seed: int
) -> tuple[LabelledSplits[str], Counter[str]]:
    """Build pairs of a signature, such as `read_csv(filepath, sep, header)`, and its own or another summary.

    Each function occurs in two rows, once with its own summary and once with that of another function of its module,
    and so does each summary. Neither the signature nor the summary alone predicts the label. Summaries that name their
    function (`Read_csv reads ...`) and repetitions of a summary are dropped. Train pairs come from pretraining modules.
    Dev and test pairs come from held-out modules, and their summaries do not occur in pretraining text. Dev and test
    share no module.
    """
    dropped: Counter[str] = Counter()
    seen: set[str] = set()
    train, held_out = items_by_side(
        list(modules),
        lambda module: functions_kept(module, lambda each: _function(module, each, config.min_words, seen), dropped),
        lambda function: (function.summary,),
        dropped,
    )
    pairs, held_out_pairs = (_rows(functions, dropped, seed) for functions in (train, held_out))
    rows = first_rows(pairs, held_out_pairs, config, lambda row: row.label, num_train_rows=num_train_rows, seed=seed)
    return rows, dropped


def _rows(functions: dict[str, list[_Function]], dropped: Counter[str], seed: int) -> dict[str, list[LabelledRow]]:
    """Return the pairs of each module. A module with a single function is dropped: it has no mismatch."""
    if alone := sum(len(each) == 1 for each in functions.values()):
        dropped["only_function_of_its_module"] += alone
    return {name: _paired(each, name, seed) for name, each in functions.items() if len(each) > 1}


def _function(module: ModuleDocs, docstring: Docstring, min_words: int, seen: set[str]) -> _Function | str:
    """Return a function with its summary, or the reason to drop it."""
    own_name = docstring.name.rpartition(".")[2]
    summary, _ = summary_and_rest(docstring)
    if own_name.startswith("_"):
        return "private_function"
    if not summary:
        return "no_prose"
    if len(summary.split()) < min_words:
        return "too_few_words"
    if re.search(rf"(?<!\w){re.escape(own_name)}(?!\w)", summary, re.IGNORECASE):
        return "summary_names_function"
    if summary.casefold() in seen:
        return "repeated_summary"
    seen.add(summary.casefold())
    signature = f"{docstring.name}({', '.join(docstring.parameters)})"
    return _Function(f"{module.name}#{docstring.name}", signature, summary)


def _paired(functions: list[_Function], module: str, seed: int) -> list[LabelledRow]:
    """Pair each function with its own summary and with that of the next function in a random cyclic order."""
    order = [functions[i] for i in generator(seed, "mismatch", module).permutation(len(functions))]
    return [
        LabelledRow(f"{function.id}:{label}", function.signature, summary, label, module)
        for function, other in zip(order, order[1:] + order[:1], strict=True)
        for label, summary in ((MATCH, function.summary), (MISMATCH, other.summary))
    ]


# The task `docs_parameters`: tag the words of a description that name the function's parameters.

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
    modules: Iterable[ModuleDocs], config: DocsParametersSourceConfig, *, num_train_rows: int | None, seed: int
) -> tuple[dict[str, list[TaggedSentence]], Counter[str]]:
    """Build sentences from descriptions of functions and classes, with `B-PARAM` on each parameter name.

    Labels come from the signature: a word is tagged if it equals one of the parameter names (of `__init__`, for a
    class), except the article `a`. Each sentence has at least one tagged word. Markup that reveals parameters
    (backticks, quotes, asterisks) is removed, so that the model has to use the context: most names are also ordinary
    words. Train sentences come from pretraining modules. Dev and test sentences come from held-out modules and do not
    occur in pretraining text. Dev and test share no module, and no sentence occurs twice.
    """
    modules = list(modules)
    packages = {module.name: module.package for module in modules}
    dropped: Counter[str] = Counter()
    sentences = partial(_sentences, config=config, seen=set(), dropped=dropped)
    train, held_out = items_by_side(modules, sentences, lambda sentence: (" ".join(sentence.words),), dropped)
    rows = first_rows(
        train, held_out, config, lambda one: packages[one.document], num_train_rows=num_train_rows, seed=seed
    )
    return rows, dropped


def words_and_marks(text: str) -> list[str]:
    """Split a text into words and punctuation marks, without quotes and other marks around words.

    >>> words_and_marks("If 'axis' is None, x.size of the x-axis isn't *used*.")
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
                words = words_and_marks(sentence)[: config.max_words]
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
    tags = []
    for word, after in zip(words, [*words[1:], "."], strict=True):
        is_article = word in ("a", "A") and len(after) > 1 and after[0].isalpha() and after not in _AFTER_A_NAME
        tags.append(PARAMETER if word in parameters and not is_article else OUTSIDE)
    return tags


# The task `docs_search`: find the function that a sentence describes.

_MIN_QUERY_WORDS = 4


@dataclass(frozen=True, slots=True)
class _SearchedFunction:
    id: str
    summary: str
    query: str
    """Summary, without the function's name if the document contains it."""
    document: str
    package: str


def docs_search_splits(
    modules: Iterable[ModuleDocs], config: DocsSearchSourceConfig, *, num_train_rows: int | None, seed: int
) -> BuiltTask[QueryRows]:
    """Build queries from summaries, each with one relevant document: the rest of the function's docstring.

    A query is the first sentence of a docstring. Its document is all prose after it, including descriptions of
    parameters and results, truncated to `max_words`. If the document names the function, the name is removed from the
    query. Train functions come from pretraining modules. Dev and test functions come from held-out modules, and their
    queries and documents do not occur in pretraining text. Dev and test share no module, and no query or document
    occurs twice. All splits search one collection, which other functions fill up to `num_documents`.
    Without `num_train_rows`, there are as many train queries as the collection has room for.

    Raises:
        DataError: The collection is too small for the queries.
    """
    dropped: Counter[str] = Counter()
    seen: set[str] = set()
    train, held_out = items_by_side(
        list(modules),
        lambda module: functions_kept(module, lambda each: _searched_function(module, each, config, seen), dropped),
        lambda each: (each.query, each.summary, each.document),
        dropped,
    )
    ordered = ordered_splits(train, held_out, config, lambda function: function.package, seed=seed)
    dev, test = ordered["dev"][: config.num_dev_rows], ordered["test"][: config.num_test_rows]
    room = config.num_documents - len(dev) - len(test)
    if room < (num_train_rows or 1):
        raise DataError(
            f"docs_search: {config.num_documents} documents (source.num_documents) are too few for {len(dev)} dev, "
            f"{len(test)} test and {num_train_rows or 'any'} train queries, each of which has its own."
        )
    # Unused dev and test functions also become documents: distractors of the same kind as the relevant ones.
    others = [*ordered["train"], *ordered["dev"][len(dev) :], *ordered["test"][len(test) :]]
    collection = sorted([*dev, *test, *others[:room]], key=lambda function: function.id)
    documents = Documents(
        [each.id for each in collection], [""] * len(collection), [each.document for each in collection]
    )
    splits = {"train": ordered["train"][: room if num_train_rows is None else num_train_rows], "dev": dev, "test": test}
    rows = {split: _query_rows(functions) for split, functions in splits.items()}
    return BuiltTask(splits=rows, dropped=dropped, collection=documents)


def _query_rows(functions: list[_SearchedFunction]) -> QueryRows:
    return QueryRows(
        [each.id for each in functions],
        [each.query for each in functions],
        [[each.id] for each in functions],
        [[1] for _ in functions],
        clusters=[each.id.partition("#")[0] for each in functions],
    )


def _searched_function(
    module: ModuleDocs, docstring: Docstring, config: DocsSearchSourceConfig, seen: set[str]
) -> _SearchedFunction | str:
    """Return a function with its query and document, or the reason to drop it."""
    identity, own_name = f"{module.name}#{docstring.name}", docstring.name.rpartition(".")[2]
    summary, rest = summary_and_rest(docstring)
    document = " ".join(rest.split()[: config.max_words])
    name = re.compile(rf"(?<!\w){re.escape(own_name)}(?!\w)", re.IGNORECASE)
    query = " ".join(name.sub(" ", summary).split()) if name.search(document) else summary
    keys = (query.casefold(), document.casefold())
    if own_name.startswith("_"):
        return "private_function"
    if len(query.split()) < _MIN_QUERY_WORDS:
        return "query_of_too_few_words"
    if len(document.split()) < config.min_words:
        return "document_of_too_few_words"
    if identity in seen:
        return "repeated_name"
    if seen.intersection(keys):
        return "repeated_text"
    seen.update((identity, *keys))
    return _SearchedFunction(identity, summary, query, document, module.package)
