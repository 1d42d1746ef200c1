from __future__ import annotations

import re
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from bertline.corpus.quality.word_hashes import hashes_of_documents, word_hashes

WORDS = st.lists(
    st.one_of(
        st.text(st.characters(codec="utf-8"), max_size=4),
        st.text("ab'.- \t\x1f\x00éßÉ\u0301", max_size=12),
        st.integers(500, 530).map("x".__mul__),
    ),
    max_size=8,
)


def core(word: str) -> str:
    return "".join(part for part in word if part.isalnum() or unicodedata.category(part).startswith("M")).casefold()


@given(st.lists(WORDS, max_size=4))
def test_hashes_are_equal_where_letters_and_digits_are(documents: list[list[str]]) -> None:
    """Of all documents at once, whatever their script, as of each word alone."""
    spaceless = re.compile("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
    spread = [spaceless.sub(r" \g<0> ", " ".join(texts)).split() for texts in documents]
    cores = [[found for word in words if (found := core(word))] for words in spread]

    hashes = [one.tolist() for one in hashes_of_documents(documents)]

    assert [len(one) for one in hashes] == [len(one) for one in cores]
    pairs = {
        (found, word) for one, words in zip(hashes, cores, strict=True) for found, word in zip(one, words, strict=True)
    }
    assert len(pairs) == len({found for found, _ in pairs}) == len({word for _, word in pairs})
    assert hashes == [word_hashes(texts).tolist() for texts in documents]
