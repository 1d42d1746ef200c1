from __future__ import annotations

from collections import Counter

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
    words_and_marks,
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
        splits = sentences(modules).values()
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


def sentences(modules, *, num_train_rows=None, seed=0, sizes=SIZES, dropped=None):
    made, counts = docs_parameters_sentences(modules, sizes, num_train_rows=num_train_rows, seed=seed)
    if dropped is not None:
        dropped.update(counts)
    return made


def one_module(text, parameters=("axis", "a", "n"), kind="function", name="f"):
    return [ModuleDocs("lib", "lib.mod", "lib.mod", False, (Docstring(name, kind, parameters, text),))]


def tagged(text, **changes):
    found = sentences(one_module(text, **changes))["train"]
    return [" ".join(f"[{w}]" if t == "B-PARAM" else w for w, t in zip(s.words, s.tags, strict=True)) for s in found]


@pytest.fixture
def many():
    """Two libraries of ten modules; the last five of each are held out."""
    return [
        ModuleDocs(
            lib, f"{lib}.m{number}", f"{lib}.m{number}", number >= 5,
            tuple(
                Docstring(f"f{n}", "function", ("axis",), f"Sum {lib} number{number} x{n} along the axis of it.")
                for n in range(6)
            ),
        )
        for lib in ("alib", "blib")
        for number in range(10)
    ]  # fmt: skip


def test_words_of_the_signature_are_tagged_and_only_whole_ones():
    text = "Sum along the axis or axes, n times, n-th x.axis again."
    assert tagged(text) == ["Sum along the [axis] or axes , [n] times , n-th x.axis again ."]


def test_a_paragraph_gives_a_row_for_each_sentence_that_names_a_parameter():
    dropped = Counter()
    text = "Sum along the axis given. Nothing is said here at all. The axis counts from zero.\n\nIt is n."
    found = sentences(one_module(text), dropped=dropped)["train"]
    assert [s.words[:3] for s in sorted(found, key=lambda s: s.id)] == [
        ("Sum", "along", "the"),
        ("The", "axis", "counts"),
    ]
    assert len({s.id for s in found}) == 2
    assert {s.document for s in found} == {"lib.mod"}
    assert dropped == {"names_no_parameter": 1, "too_few_words": 1}


def test_a_sentence_stands_once_and_on_the_side_that_is_pretrained_on(many):
    doubled = [ModuleDocs(m.package, m.name, m.group, m.held_out, (*many[0].docstrings, *m.docstrings)) for m in many]
    splits = sentences(doubled)
    words = [s.words for found in splits.values() for s in found]
    assert len(words) == len(set(words))
    repeated = {tuple(words_and_marks(d.text)) for d in many[0].docstrings}
    assert not repeated & {s.words for split in ("dev", "test") for s in splits[split]}


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


def test_the_same_modules_give_the_same_task_and_another_seed_another_one():
    modules = [module(number, number > 4) for number in range(10)]
    first, again, other = (docs_search_splits(modules, SEARCH, num_train_rows=9, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert first.splits["test"].ids != other.splits["test"].ids
    assert len(first.splits["train"]) == 9 and len(first.collection) == len(set(first.collection.texts)) == 40
    for rows in first.splits.values():
        assert rows.document_ids == [[identity] for identity in rows.ids] and set(rows.ids) <= set(first.collection.ids)
