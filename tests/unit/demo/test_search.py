"""Functions are found by their summaries, in a collection that nothing was pretrained on the wrong side of."""

from __future__ import annotations

from bertline.demo.config import DocsSearchSourceConfig
from bertline.demo.docstrings import Docstring, ModuleDocs
from bertline.demo.tasks import docs_search_splits


def config(**changes):
    fields = {
        "kind": "docs_search", "min_words": 4, "max_words": 8, "num_documents": 40, "num_dev_rows": 4,
        "num_test_rows": 8,
    }  # fmt: skip
    return DocsSearchSourceConfig(**{**fields, **changes})


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


def one(*docstrings, **changes):
    others = [module(number, number > 4) for number in range(1, 10)]
    made = docs_search_splits([module(0, False, *docstrings), *others], config(**changes), num_train_rows=None, seed=0)
    train = made.splits["train"]
    return {
        identity: (train.queries[place], made.collection.texts[made.collection.ids.index(identity)])
        for place, identity in enumerate(train.ids)
    }, made


def test_the_query_is_the_first_sentence_and_the_document_the_rest_of_the_prose():
    text = (
        "Return the sum of squares. The squares are summed.\n\nParameters\n----------\nx : int\n    What is squared.\n"
    )
    found, _ = one(Docstring("sumsq", "function", ("x",), text))
    assert found["numpy.m0#sumsq"] == ("Return the sum of squares.", "The squares are summed. What is squared.")


def test_the_functions_name_leaves_the_query_where_the_document_has_it_too():
    telling = Docstring("A.zeta", "function", (), "Compute the Zeta function of numbers. Here zeta is summed slowly.")
    harmless = Docstring("eta", "function", (), "Compute the eta function of others. Here all is summed slowly.")
    found, _ = one(telling, harmless)
    assert found["numpy.m0#A.zeta"][0] == "Compute the function of numbers."
    assert found["numpy.m0#eta"][0] == "Compute the eta function of others."


def test_test_functions_are_held_out_and_no_text_stands_on_two_sides():
    _, made = one(module(0, False).docstrings[0])
    train, dev, test = (made.splits[split] for split in ("train", "dev", "test"))
    numbers = {
        split: {int(each[len("numpy.m") :].split("#")[0]) for each in rows.ids} for split, rows in made.splits.items()
    }
    assert max(numbers["train"]) <= 4 < min(numbers["dev"] | numbers["test"])
    assert not numbers["dev"] & numbers["test"]
    assert (len(dev), len(test)) == (4, 8)
    texts = [*train.queries, *dev.queries, *test.queries, *made.collection.texts]
    assert len(set(texts)) == len(texts)
    assert len(made.collection) == 40
    for rows in made.splits.values():
        assert all(documents == [identity] for identity, documents in zip(rows.ids, rows.document_ids, strict=True))
        assert set(rows.ids) <= set(made.collection.ids)


def test_the_same_modules_give_the_same_task_and_another_seed_another_one():
    modules = [module(number, number > 4) for number in range(10)]
    first, again, other = (docs_search_splits(modules, config(), num_train_rows=9, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert first.splits["test"].ids != other.splits["test"].ids
    assert len(first.splits["train"]) == 9
