from __future__ import annotations

import pytest

from bertline.demo.config import (
    DocsLibrarySourceConfig,
    DocsMatchSourceConfig,
    DocsParametersSourceConfig,
    DocsSearchSourceConfig,
)
from bertline.demo.docstrings import Docstring, ModuleDocs
from bertline.demo.rows import held_out_sides
from bertline.demo.tasks import (
    MATCH,
    MISMATCH,
    LibraryNames,
    docs_library_rows,
    docs_match_rows,
    docs_parameters_sentences,
    docs_search_splits,
)

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


LIBRARY = DocsLibrarySourceConfig(kind="docs_library", min_words=6, max_words=12, num_dev_rows=30, num_test_rows=60)
MATCHING = DocsMatchSourceConfig(kind="docs_match", min_words=4, num_dev_rows=30, num_test_rows=60)


def make(kind, modules, num_train_rows=None, seed=0):
    if kind == "library":
        return docs_library_rows(modules, LIBRARY, num_train_rows=num_train_rows, seed=seed)[0]
    return docs_match_rows(modules, MATCHING, num_train_rows=num_train_rows, seed=seed)[0]


def of_task(kind, modules):
    """Modules and texts of the rows of each split."""
    if kind == "search":
        made = docs_search_splits(modules, SEARCH, num_train_rows=None, seed=0)
        return [([i.partition("#")[0] for i in rows.ids], rows.queries) for rows in made.splits.values()]
    if kind == "parameters":
        splits = sentences(modules)[0].values()
        return [([row.document for row in rows], [row.words for row in rows]) for rows in splits]
    source = make(kind, modules)
    splits = (source["train"], source["dev"], source["test"])
    return [([row.id.partition("#")[0] for row in rows], [row.content_key() for row in rows]) for rows in splits]


@pytest.mark.parametrize("kind", ["library", "match", "parameters", "search"])
def test_train_is_pretrained_on_dev_and_test_are_held_out_and_share_no_module_and_no_text_stands_twice(kind, modules):
    if kind == "search":
        modules = [module(number, number > 4) for number in range(10)]
    (train, *train_texts), (dev, *dev_texts), (test, *test_texts) = of_task(kind, modules)
    held_out = {module.name for module in modules if module.held_out}
    assert train and dev and test
    assert not set(train) & held_out and set(dev) | set(test) <= held_out and not set(dev) & set(test)
    texts = [text for (of_split,) in (train_texts, dev_texts, test_texts) for text in of_split]
    assert len(texts) == len(set(texts))


def test_no_library_is_named_in_a_passage(modules):
    names = LibraryNames(["numpy", "pandas", "mpmath"])
    source = make("library", modules)
    passages = [row.text for rows in source.values() for row in rows]
    assert passages
    assert [text for text in passages if names.removed_from(text) != text] == []


def test_signature_alone_and_summary_alone_say_nothing(modules):
    rows = make("match", modules)["train"]
    for column in ("text", "text_pair"):
        labels = {}
        for row in rows:
            labels.setdefault((row.id.partition("#")[0], getattr(row, column)), []).append(row.label)
        assert all(sorted(found) == [MATCH, MISMATCH] for found in labels.values())


def test_a_mismatch_has_the_summary_of_another_function_of_the_same_module(modules):
    own = {
        f"{module.name}#{docstring.name}": docstring.text.split("\n")[0]
        for module in modules
        for docstring in module.docstrings
    }
    by_summary = {summary: id_.partition("#")[0] for id_, summary in own.items()}
    for row in make("match", modules)["train"]:
        function = row.id.rpartition(":")[0]
        assert (own[function] == row.text_pair) == (row.label == MATCH)
        assert by_summary[row.text_pair] == function.partition("#")[0]


def test_modules_that_come_or_grow_move_no_other_to_another_side():
    before = {f"m{number}": [number] for number in range(20)}
    after = {"another": [1] * 500, **{name: items * 50 for name, items in reversed(before.items())}, "last": [3]}
    first, second = (
        {
            item: side
            for side, items in held_out_sides(each, num_dev_rows=1, num_test_rows=2, seed=0).items()
            for item in items
        }
        for each in ({name: [name] for name in before}, {name: [name] for name in after})
    )
    assert {name: second[name] for name in before} == first
    assert set(first.values()) == {"dev", "test"}


SIZES = DocsParametersSourceConfig(kind="docs_parameters", min_words=5, max_words=14, num_dev_rows=10, num_test_rows=20)
SEARCH = DocsSearchSourceConfig(
    kind="docs_search", min_words=4, max_words=8, num_documents=40, num_dev_rows=4, num_test_rows=8
)


def sentences(modules):
    return docs_parameters_sentences(modules, SIZES, num_train_rows=None, seed=0)


def test_a_row_is_a_sentence_that_names_a_parameter_with_whole_words_tagged():
    text = "Sum along the axis or axes, n times, n-th x.axis. Nothing is said at all. The axis counts from zero."
    docstring = Docstring("f", "function", ("axis", "a", "n"), f"{text}\n\nIt is n.")
    made, dropped = sentences([ModuleDocs("lib", "lib.mod", "lib.mod", False, (docstring,))])
    tagged = {
        " ".join(f"[{word}]" if tag == "B-PARAM" else word for word, tag in zip(row.words, row.tags, strict=True))
        for row in made["train"]
    }
    assert tagged == {"Sum along the [axis] or axes , [n] times , n-th x.axis .", "The [axis] counts from zero ."}
    assert len({row.id for row in made["train"]}) == 2
    assert dropped == {"names_no_parameter": 1, "too_few_words": 1}


def module(number, held_out, *docstrings):
    if not docstrings:
        docstrings = [
            Docstring(
                f"f{place}", "function", (),
                f"Return value {place} of module {number} quickly. Then value {place} of {number} is kept in place.",
            )
            for place in range(5)
        ]  # fmt: skip
    return ModuleDocs("numpy", f"numpy.m{number}", "numpy.m", held_out, tuple(docstrings))


def one(*docstrings):
    others = [module(number, number > 4) for number in range(1, 10)]
    made = docs_search_splits([module(0, False, *docstrings), *others], SEARCH, num_train_rows=None, seed=0)
    train, texts = made.splits["train"], dict(zip(made.collection.ids, made.collection.texts, strict=True))
    return {identity: (query, texts[identity]) for identity, query in zip(train.ids, train.queries, strict=True)}


def test_the_query_is_the_first_sentence_and_the_document_the_rest_of_the_prose():
    text = (
        "Return the sum of squares. The squares are summed.\n\nParameters\n----------\nx : int\n    What is squared.\n"
    )
    found = one(Docstring("sumsq", "function", ("x",), text))
    assert found["numpy.m0#sumsq"] == ("Return the sum of squares.", "The squares are summed. What is squared.")


def test_the_functions_name_leaves_the_query_where_the_document_has_it_too():
    telling = Docstring("A.zeta", "function", (), "Compute the Zeta function of numbers. Here zeta is summed slowly.")
    harmless = Docstring("eta", "function", (), "Compute the eta function of others. Here all is summed slowly.")
    found = one(telling, harmless)
    assert found["numpy.m0#A.zeta"][0] == "Compute the function of numbers."
    assert found["numpy.m0#eta"][0] == "Compute the eta function of others."
