"""Every scheme says the same entities, and what it cannot say is found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertline.tasks.tags import to_iob2

# Runs of words: how many, and of which type (None: outside). Neighbouring runs of one type are two entities.
runs = st.lists(st.tuples(st.integers(1, 4), st.sampled_from([None, "PER", "LOC", "creative-work"])), min_size=1)


def written(runs, scheme):
    """The tags of the runs, in the words of each scheme's definition."""
    tags = []
    before = None  # the type of the entity that ends on the word before
    for length, kind in runs:
        if kind is None:
            tags += ["O"] * length
        elif scheme == "iob2":
            tags += [f"B-{kind}"] + [f"I-{kind}"] * (length - 1)
        elif scheme == "iob1":
            tags += [f"{'B' if before == kind else 'I'}-{kind}"] + [f"I-{kind}"] * (length - 1)
        else:
            begin, inside, end, single = "BIES" if scheme == "iobes" else "BILU"
            tags += [f"{single}-{kind}"] if length == 1 else []
            tags += [f"{begin}-{kind}", *[f"{inside}-{kind}"] * (length - 2), f"{end}-{kind}"] if length > 1 else []
        before = kind
    return tags


@pytest.mark.parametrize("scheme", ["iob1", "iob2", "iobes", "bilou"])
@given(runs=runs)
def test_every_scheme_comes_to_the_same_tags(scheme, runs):
    assert to_iob2(written(runs, scheme), "iobes" if scheme == "bilou" else scheme) == (written(runs, "iob2"), [])


@pytest.mark.parametrize("scheme", ["iob1", "iob2", "iobes"])
@given(data=st.data())
def test_whatever_the_order_the_result_is_sound_iob2_and_keeps_what_is_inside(scheme, data):
    letters = "BIES" if scheme == "iobes" else "BI"
    tag = st.sampled_from(["O", *(f"{letter}-{kind}" for letter in letters for kind in ("PER", "LOC"))])
    tags = data.draw(st.lists(tag, min_size=1))
    found, broken = to_iob2(tags, scheme)
    assert to_iob2(found, "iob2") == (found, [])
    assert [tag.partition("-")[2] for tag in found] == [tag.partition("-")[2] for tag in tags]
    assert all(0 <= one.index < len(tags) for one in broken)
    # B- and S- always begin an entity.
    assert all(new[0] == "B" for old, new in zip(tags, found, strict=True) if old[0] in "BS")


@pytest.mark.parametrize(
    ("tags", "scheme", "expected", "broken"),
    [
        ("O I-PER I-PER", "iob2", "O B-PER I-PER", [(1, "I-PER follows O")]),
        ("I-PER", "iob2", "B-PER", [(0, "I-PER begins the sentence")]),
        ("B-PER I-LOC", "iob2", "B-PER B-LOC", [(1, "I-LOC follows B-PER")]),
        ("I-PER I-LOC", "iob1", "B-PER B-LOC", []),
        ("B-PER O", "iobes", "B-PER O", [(0, "B-PER is not closed by E-PER")]),
        ("B-PER I-PER", "iobes", "B-PER I-PER", [(1, "I-PER is not closed by E-PER")]),
        ("B-PER S-PER", "iobes", "B-PER B-PER", [(0, "B-PER is not closed by E-PER")]),
        ("O E-PER", "iobes", "O B-PER", [(1, "E-PER follows O")]),
        ("B-PER E-PER I-PER E-PER", "iobes", "B-PER I-PER B-PER I-PER", [(2, "I-PER follows E-PER")]),
        (
            "B-PER E-LOC",
            "iobes",
            "B-PER B-LOC",
            [(0, "B-PER is not closed by E-PER"), (1, "E-LOC follows B-PER")],
        ),
    ],
)
def test_broken_orders_are_named_and_begin_an_entity(tags, scheme, expected, broken):
    found, problems = to_iob2(tags.split(), scheme)
    assert found == expected.split()
    assert [(problem.index, problem.problem) for problem in problems] == broken


def test_tags_of_another_scheme_are_refused():
    with pytest.raises(ValueError, match="'E-PER'; iob2 has O, I-TYPE, B-TYPE"):
        to_iob2(["B-PER", "E-PER"], "iob2")
