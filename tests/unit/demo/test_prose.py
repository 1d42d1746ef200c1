from __future__ import annotations

import inspect

import pytest

from bertline.demo.prose import plain_text, prose_paragraphs

NUMPYDOC = """
    Solve the linear equations.

    The matrix is factorised
    once and kept.

    Parameters
    ----------
    matrix : array_like, shape (n, n)
        The left side of
        the equations.
    other_side, more : ndarray
        One or many right sides.

    Returns
    -------
    ndarray
        The solution of the system.

    See Also
    --------
    inverse : The inverse of a matrix.

    Notes
    -----
    The cost grows with the cube of the size [1]_.

    .. math:: x = A^{-1} b

    References
    ----------
    .. [1] Somebody, "A book of matrices", 1990.

    Examples
    --------
    Solve a tiny system:

    >>> solve([[2]], [4])
    array([2.])
"""

GOOGLE = """Train the model for some steps.

Args:
    steps (int): How many steps
        to take at most.
    **options: Passed on to the optimizer.

Returns:
    The loss after the last step.

Example::

    train(steps=3)
"""

SPHINX = """Connect to the database now.

:param url: the address, such as a
  :class:`~.URL` or a string
:type url: str
:return: an open connection

.. note:: Connections are never shared
   between threads.

.. sourcecode:: python

    connect("sqlite://")

.. versionadded:: 2.0
   It can be awaited since then.
"""


PARAGRAPHS = {
    NUMPYDOC: (
        "Solve the linear equations.",
        "The matrix is factorised once and kept.",
        "The left side of the equations.",
        "One or many right sides.",
        "The solution of the system.",
        "The cost grows with the cube of the size.",
        "Solve a tiny system:",
    ),
    GOOGLE: (
        "Train the model for some steps.",
        "How many steps to take at most.",
        "Passed on to the optimizer.",
        "The loss after the last step.",
    ),
    SPHINX: (
        "Connect to the database now.",
        "the address, such as a URL or a string",
        "an open connection",
        "Connections are never shared between threads.",
        "It can be awaited since then.",
    ),
}


@pytest.mark.parametrize("text", PARAGRAPHS, ids=["numpydoc", "google", "sphinx"])
def test_sentences_and_descriptions_are_kept_without_names_and_types(text: str) -> None:
    found = prose_paragraphs(inspect.cleandoc(text))
    assert found.paragraphs == PARAGRAPHS[text]
    if text == NUMPYDOC:
        counts = {"directive": 1, "doctest": 1, "heading": 6, "parameter_header": 3, "reference": 1, "see_also": 1}
        assert found.dropped == counts


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("name   age\n=====  ===\nAnn    3\n=====  ===", "table"),
        ("+---+---+\n| a | b |\n+---+---+", "table"),
        (">>> run()\n1", "doctest"),
        ("arange(start, stop, step=1, dtype=None) -> array", "signature"),
        ("x = solve(a, b)", "code"),
        ("import numpy as np", "code"),
        (r"\frac{a}{b} and \sqrt{x} over \alpha for all of them", "formula"),
        ("n_samples n_features", "too_few_words"),
        ("a[0] <= 3; b[1] >= 4; c{2} != 5 and so on it", "not_prose"),
    ],
)
def test_what_is_not_prose_is_dropped_under_its_reason(text: str, reason: str) -> None:
    found = prose_paragraphs(text)

    assert found.paragraphs == ()
    assert reason in found.dropped


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        ("the ``x`` and `y`", "the x and y"),
        (":meth:`~a.b.C.run` of :class:`a.b.C`", "run of a.b.C"),
        (":ref:`the guide <guide-label>`", "the guide"),
        ("`pages <https://example.org>`__ here", "pages here"),
        ("*very* **bold** 2 * 3 * 4 and **kwargs", "very bold 2 * 3 * 4 and **kwargs"),
        ("shown before [12]_.", "shown before."),
    ],
)
def test_markup_becomes_the_words_it_shows(marked: str, plain: str) -> None:
    assert plain_text(marked) == plain
