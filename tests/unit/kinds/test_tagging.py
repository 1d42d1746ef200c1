"""Plain tagging: CoNLL-U files, a tag for every word, accuracy."""

from __future__ import annotations

import unicodedata
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bertline
from bertline.finetuning.finetune import fine_tune
from bertline.foundation.bad_rows import BadRows
from bertline.foundation.errors import DataError
from bertline.kinds.tagging import TaggedWord, Tagging, TaggingTaskConfig, read_conllu, split_words
from bertline.tasks.stored_rows import TaggedRows
from bertline.tasks.tag_predictions import TagPredictions
from bertline.tokenization.tokenizer import Tokenizer
from finished_tasks import Finished, config_of, finish
from sweep_pieces import baselines_of

FILE = """\
# newdoc id = one
# sent_id = 1
# text = Don't go.
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\tVB\t_\t3\taux\t_\t_
2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_
3\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\tSpaceAfter=No
3.1\tgo\tgo\tVERB\tVB\t_\t_\t_\t_\t_
4\t.\t.\tPUNCT\t.\t_\t3\tpunct\t_\t_

# sent_id = 2
1\t#\t#\tSYM\t$\t_\t0\troot\t_\t_

# newdoc id = two
1\tYes\tyes\tINTJ\tUH\t_\t0\troot\t_\t_
"""


def task(path: Path | str = "", **source: Any) -> TaggingTaskConfig:
    return config_of("tagging", {"path": str(path), **source}, window_overlap=4)


def read(folder: Path, text: str, **changes: Any) -> list[Any]:
    (folder / "a.conllu").write_text(text)
    bad_rows = BadRows(changes.get("on_bad_row", "error"))
    sentences = read_conllu(folder / "a.conllu", task(**changes).source, bad_rows)
    bad_rows.end()
    return sentences


def test_words_are_read_and_multiword_tokens_and_empty_nodes_are_not(tmp_path: Path) -> None:
    first, second, third = read(tmp_path, FILE)
    assert (first.words, first.tags) == (("Do", "n't", "go", "."), ("AUX", "PART", "VERB", "PUNCT"))
    assert (second.words, second.tags) == (("#",), ("SYM",))
    assert (first.id, first.document, second.document, third.document) == (
        "a.conllu:4", "a.conllu:1", "a.conllu:1", "a.conllu:14"
    )  # fmt: skip
    assert read(tmp_path, FILE, tags="xpos")[0].tags == ("VB", "RB", "VB", ".")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("3\tgo\tgo\tVERB", "3\tgo\tVERB", "a.conllu:7 has 9 columns"),
        ("3\tgo\tgo\tVERB", "3\tgo\tgo\t_", "a.conllu:7 has no tag in its column upos"),
        ("3\tgo\tgo\tVERB", "3\t\tgo\tVERB", "a.conllu:7 has no word"),
    ],
)
def test_a_wrong_line_is_an_error_with_its_place_or_its_sentence_is_skipped(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    with pytest.raises(DataError, match=said):
        read(tmp_path, FILE.replace(old, new))
    assert [row.id for row in read(tmp_path, FILE.replace(old, new), on_bad_row="skip")] == [
        "a.conllu:12",
        "a.conllu:15",
    ]


def sentence(*words: str) -> str:
    return "".join(
        f"{number}\t{word}\t{word}\t{'NOUN' if word[0].isupper() else 'VERB'}\t_\t_\t0\troot\t_\t_\n"
        for number, word in enumerate(words, start=1)
    )


def test_splits_are_cut_by_document_and_labels_are_sorted(tmp_path: Path) -> None:
    documents = [f"# newdoc\n{sentence(f'Word{n}', 'runs')}\n{sentence('the', f'Cat{n}')}\n" for n in range(40)]
    (tmp_path / "a.conllu").write_text("".join(documents))
    made = Tagging.build("tags", task(tmp_path / "a.conllu"))
    assert made.labels == ("NOUN", "VERB")
    assert sum(len(rows) for rows in made.splits.values()) == 80
    of_split = [set(rows.documents) for rows in made.splits.values()]  # type: ignore[attr-defined]
    assert sum(map(len, of_split)) == len(set().union(*of_split)) == 40
    assert sum(made.more["words_by_split"].values()) == 160


def rows(count: int, seed: int) -> TaggedRows:
    """Words 0 to 19 are nouns, the others verbs, but after word 0 everything is an adjective."""
    random = np.random.default_rng(seed)
    numbers = [random.integers(0, 40, random.integers(2, 10)) for _ in range(count)]
    tags = [
        [
            "ADJ" if before == 0 else "NOUN" if word < 20 else "VERB"
            for before, word in zip([1, *row], row, strict=False)
        ]
        for row in numbers
    ]
    names = [f"row:{number}" for number in range(count)]
    return TaggedRows(names, names, [[f"word{word}" for word in row] for row in numbers], tags)


LABELS = ("ADJ", "NOUN", "VERB")


def test_scores_are_those_of_scikit_learn() -> None:
    from sklearn.metrics import accuracy_score, f1_score

    kind, some, random = Tagging(task(), LABELS), rows(30, 0), np.random.default_rng(1)
    predicted = [random.integers(0, 3, len(tags)) for tags in some.tags]
    statistics = kind.statistics(some, TagPredictions(predicted, np.ones(30)), {})
    gold = [LABELS.index(tag) for tags in some.tags for tag in tags]
    together = np.concatenate(predicted)
    scores = kind.scores(statistics)
    assert scores["accuracy"] == pytest.approx(accuracy_score(gold, together))
    assert scores["macro_f1"] == pytest.approx(f1_score(gold, together, average="macro"))
    details = kind.details(some, TagPredictions(predicted, np.ones(30)), {})["by_type"]
    assert [details[label]["support"] for label in LABELS] == np.bincount(gold).tolist()


def test_a_run_learns_and_the_baselines_are_strong(encoder: Path, job_of: Any) -> None:
    kind = Tagging(task(), LABELS)
    train, dev = rows(200, 0), rows(60, 1)
    most_frequent, window = baselines_of(kind, train, dev, {"test": dev})
    assert (most_frequent.name, window.name) == ("most_frequent_tag", "window_tagger")
    by_word, by_window = (
        kind.scores(kind.statistics(dev, made.predictions["dev"], {}))["accuracy"] for made in (most_frequent, window)
    )
    assert 0.9 < by_word < by_window
    assert "threshold" not in window.settings
    job = job_of(kind, encoder, train, dev, num_epochs=4, learning_rate=1e-2)
    assert fine_tune(job).dev.scores["accuracy"] > 0.9


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return finish("tagging", tmp_path_factory.mktemp("tagging"))


def test_every_word_is_returned_with_its_place(finished: Finished) -> None:
    model = bertline.load(str(finished.folder), device="cpu")
    (found, same, empty) = model.predict(["word1 word2, word3", ["word1", "word2", ",", "word3"], ""])
    assert [(word.text, word.start, word.end) for word in found] == [
        ("word1", 0, 5), ("word2", 6, 11), (",", 11, 12), ("word3", 13, 18)
    ]  # fmt: skip
    assert [(word.tag, word.score) for word in same] == [(word.tag, word.score) for word in found]
    assert all(isinstance(word, TaggedWord) and word.tag in ("ADJ", "NOUN", "VERB") for word in found)
    assert empty == []


ATTACHED = "\u0301\u0903\u00ad\u200b\u200c\u200d\ufe0f\u20e3\U000e0101"
EMOJI = ("🇩🇪", "🇫🇷", "👩🏽‍🦰", "👩‍👩‍👧", "❤️‍🔥", "☺️", "#️⃣", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "!")


tokenizer_in = cache(Tokenizer.load)


def words_in(text: str, finished: Finished) -> list[str]:
    ((read, places),) = split_words([text], tokenizer_in(finished.folder))
    assert read == text
    return [text[start:end] for start, end in places]


@given(text=st.text(alphabet=st.one_of(st.sampled_from(ATTACHED), st.sampled_from("aÉ1_-'.@,( \n語한"))))
@settings(max_examples=200, deadline=None)
def test_marks_and_format_characters_belong_to_the_character_before_them(finished: Finished, text: str) -> None:
    without = str.maketrans("", "", ATTACHED)
    words = words_in(text, finished)
    assert [word.translate(without) for word in words] == words_in(text.translate(without), finished)
    assert all(word[0] not in ATTACHED for word in words)


@given(text=st.text().map(partial(unicodedata.normalize, "NFC")))
@settings(max_examples=200, deadline=None)
def test_words_do_not_depend_on_the_normalization_form(finished: Finished, text: str) -> None:
    decomposed = [unicodedata.normalize("NFD", word) for word in words_in(text, finished)]
    assert words_in(unicodedata.normalize("NFD", text), finished) == decomposed


@given(emoji=st.lists(st.sampled_from(EMOJI)))
@settings(max_examples=100, deadline=None)
def test_a_joined_emoji_is_one_word(finished: Finished, emoji: list[str]) -> None:
    assert words_in("".join(emoji), finished) == emoji


def test_predictions_are_those_of_evaluation(finished: Finished) -> None:
    rows = finished.rows
    assert isinstance(rows, TaggedRows)
    model = bertline.load(str(finished.folder), device="cpu")
    tags = [" ".join(word.tag for word in of_row) for of_row in model.predict(rows.words)]
    assert tags == finished.table()["predicted"]
