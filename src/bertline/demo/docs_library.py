"""The task `docs_library`: predict which library a passage documents."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache

from bertline.demo.config import DocsLibrarySourceConfig
from bertline.demo.docstrings import ModuleDocs
from bertline.demo.rows import first_rows, items_by_side, ordered_splits
from bertline.tasks.rows import LabelledRow, SourceRows

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
    """Finder and remover of the names of a set of libraries.

    Args:
        modules: Import names, as in `python_docs.packages`. For a library without known aliases only this name counts.
    """

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

        Example:
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

    def found_in(self, text: str) -> list[str]:
        """Return the names that occur in a text, as written there.

        Example:
            >>> LibraryNames(["pandas"]).found_in("Like pd.concat, but for Pandas-like frames.")
            ['pd.concat', 'Pandas-like']
        """
        return self._pattern.findall(text)


def docs_library_rows(
    modules: Iterable[ModuleDocs], config: DocsLibrarySourceConfig, *, num_train_rows: int | None, seed: int
) -> SourceRows:
    """Build passages labelled with the library they come from.

    A passage is a prose paragraph of a docstring, without the names of the libraries, truncated to `max_words`. Train
    passages come from pretraining modules. Dev and test passages come from held-out modules and do not occur in
    pretraining text. Dev and test share no module, and no passage occurs twice. Labels are balanced as far as possible:
    every library contributes the same number of rows until small libraries run out.

    Args:
        modules: Modules from `bertline.demo.docstrings.read_modules`.
        config: Sizes of passages and splits.
        num_train_rows: Number of train rows; None returns all.
        seed: `split_seed` of the task.
    """
    modules = list(modules)
    without_names = cache(LibraryNames({module.package for module in modules}).removed_from)
    dropped: Counter[str] = Counter()
    seen: set[str] = set()
    train, held_out = items_by_side(
        modules,
        lambda module: _passages(module, config, without_names, seen, dropped),
        lambda row: (row.text,),
        dropped,
        also_as=without_names,
    )
    ordered = ordered_splits(train, held_out, config, lambda row: row.label, seed=seed)
    rows = first_rows(ordered, config, num_train_rows)
    return SourceRows(rows["train"], rows["dev"], rows["test"], dropped)


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
