"""No name of a library is left in a passage."""

from __future__ import annotations

import pytest

from bertline.demo.docs_library import LibraryNames

ALL = LibraryNames(
    ["python", "torch", "numpy", "scipy", "pandas", "sklearn", "sympy", "matplotlib", "networkx", "sqlalchemy",
     "optuna", "pytorch_lightning", "mpmath"]
)  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "NumPy", "np", "np.asarray", "numpy.ndarray", "PyTorch", "torch.nn.Linear", "nn.Module", "pandas", "pd.concat",
        "scikit-learn", "sklearn.base", "SciPy", "scipy.stats.norm", "Matplotlib", "plt", "mpl", "matplotlibrc",
        "pyplot", "NetworkX", "nx.Graph", "SQLAlchemy", "sa.Column", "Optuna", "optuna.trial.Trial", "Lightning",
        "pytorch_lightning", "LightningModule", "mpmath", "mp.dps", "SymPy", "sympy.core", "Python", "CPython",
        "python3", "PEP", "pep-8",
    ],
)  # fmt: skip
def test_names_aliases_and_paths_are_removed(name):
    text = f"Pass the result to {name} before the next call."
    assert ALL.removed_from(text) == "Pass the result to before the next call."
    assert ALL.found_in(text) == [name]


@pytest.mark.parametrize("text", ["The input, a map.", "Stop the pump.", "Use an sample of spans.", "Return planes."])
def test_words_that_only_contain_an_alias_stay(text):
    assert ALL.removed_from(text) == text


def test_the_end_of_a_sentence_stays():
    assert (
        ALL.removed_from("It works like numpy.sum. Then it stops, as in (torch).")
        == "It works like. Then it stops, as in."
    )


def test_a_library_without_known_aliases_has_its_own_name():
    assert LibraryNames(["polars"]).removed_from("A polars.DataFrame here") == "A here"
