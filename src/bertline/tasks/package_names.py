"""Take library names out of passages, so that a passage is recognised by what it says and not by whom it names."""

from __future__ import annotations

import re
from collections.abc import Iterable

# What people write for a library besides its import name. A *stem* gives itself away wherever it stands in a word
# (NumPy-like, torch.nn.Linear, matplotlibrc); an *alias* is only meant where it is a word of its own (np, plt.plot).
_STEMS = {
    "python": ("python", "pep"),
    "torch": ("torch", "aten", "autograd", "torchscript"),
    "numpy": ("numpy",),
    "scipy": ("scipy",),
    "pandas": ("pandas",),
    "sklearn": ("sklearn", "scikit"),
    "sympy": ("sympy",),
    "matplotlib": ("matplotlib", "pyplot", "pylab"),
    "networkx": ("networkx",),
    "sqlalchemy": ("sqlalchemy",),
    "optuna": ("optuna",),
    "pytorch_lightning": ("lightning",),
    "mpmath": ("mpmath",),
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
    """The names of a set of libraries, and how they are found and removed.

    Args:
        modules: Import names, as in `python_docs.packages`; a library without known aliases has its own name only.
    """

    def __init__(self, modules: Iterable[str]) -> None:
        modules = tuple(modules)
        stems = {stem for module in modules for stem in (module.lower(), *_STEMS.get(module, ()))}
        aliases = {alias for module in modules for alias in _ALIASES.get(module, ())}
        # A name goes with the whole dotted path or compound that it stands in: `torch.nn.Linear`, `scikit-learn's`.
        word = r"[\w.\-/]*"
        stem = "|".join(sorted(map(re.escape, stems)))
        parts, hints = [rf"{word}(?:{stem}){word}"], [stem]
        if aliases:
            alias = rf"(?<![\w.\-])(?:{'|'.join(sorted(map(re.escape, aliases)))})"
            hints.append(rf"{alias}(?![\w\-])")
            parts.append(rf"{alias}(?:\.\w+)*(?![\w\-])")
        self._pattern = re.compile(rf"(?:{'|'.join(parts)})(?:['’]s\b)?", re.IGNORECASE)
        # Where these find nothing in the text in lower case the pattern would not either. Most texts have no name, and
        # two literal patterns take a thirtieth of the time of one that ignores case.
        self._hints = tuple(map(re.compile, hints))

    def removed_from(self, text: str) -> str:
        """The text without the names.

        Example:
            >>> names = LibraryNames(["numpy", "sklearn"])
            >>> names.removed_from("Convert a NumPy array, as in np.asarray, for scikit-learn's estimators.")
            'Convert a array, as in, for estimators.'
        """

        def without(match: re.Match[str]) -> str:
            # The path swallows the full stop of a sentence that ends with a name; the sentence keeps it.
            return "." if match.group().endswith(".") else ""

        # Ignoring case, a few letters outside ASCII equal an ASCII one that is not their lower case.
        if not text.isascii() or any(hint.search(text.lower()) for hint in self._hints):
            text = self._pattern.sub(without, text)
        text = _EMPTY_BRACKETS.sub("", text)
        return _SPACE_BEFORE_MARK.sub(r"\1", " ".join(text.split()))

    def found_in(self, text: str) -> list[str]:
        """The names that stand in a text, as written there.

        Example:
            >>> LibraryNames(["pandas"]).found_in("Like pd.concat, but for Pandas-like frames.")
            ['pd.concat', 'Pandas-like']
        """
        return self._pattern.findall(text)
