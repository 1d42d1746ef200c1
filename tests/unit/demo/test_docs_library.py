"""No name of a library is left in a passage."""

from __future__ import annotations

import pytest

from bertline.demo.tasks import LibraryNames

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
