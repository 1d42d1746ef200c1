from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bertline.corpus.quality.drops import NUM_SAMPLES, DropSamples

REASON = "lines/repeated"


def samples_of(found: list[tuple[str, str]]) -> list[dict[str, str]]:
    samples = DropSamples()
    for where, text in found:
        samples.keep(REASON, where, text)
    kept: list[dict[str, str]] = samples.content()["samples"].get(REASON, [])
    return kept


def test_a_line_of_many_documents_is_shown_once_beside_other_lines() -> None:
    found = [(f"{number}.txt", text) for number in range(40) for text in ("Accept all cookies", "All rights reserved")]

    assert sorted(one["text"] for one in samples_of(found)) == ["Accept all cookies", "All rights reserved"]


def test_files_without_a_text_are_all_considered() -> None:
    assert len(samples_of([(f"{number}.pdf", "") for number in range(40)])) == NUM_SAMPLES


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(["", "one", "two", "three", "four", "five", "six"]))
    ),
    st.randoms(use_true_random=False),
)
def test_samples_do_not_depend_on_the_order(found: list[tuple[str, str]], random) -> None:
    found = list(dict.fromkeys(found))
    shuffled = random.sample(found, len(found))

    assert samples_of(shuffled) == samples_of(found)
