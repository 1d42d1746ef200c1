"""Labelling of sentences in context: JSONL with lists, a label for each sentence, all read together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertline
import tiny
from bertline.baselines.frozen_encoder import FrozenEncoder
from bertline.finetuning.finetune import fine_tune
from bertline.foundation.errors import DataError
from bertline.foundation.labels import IGNORED_LABEL
from bertline.kinds.sentence_labelling import SentenceLabelling, SentenceLabellingTaskConfig, SentenceRows
from bertline.tasks.stored_rows import BuiltTask
from bertline.tokenization.tokenizer import Tokenizer
from finished_tasks import Finished, config_of, finish
from sweep_pieces import baselines_of

LABELS = ("first", "later")


def task(path: Path | str = "", *, on_bad_row: Any = "error", **changes: Any) -> SentenceLabellingTaskConfig:
    source = {"path": str(path), "on_bad_row": on_bad_row}
    return config_of("sentence_labelling", source, **{"max_length": 64, **changes})


def document(number: int, *labels: Any) -> dict[str, Any]:
    return {"sentences": [f"Sentence {number} {place}." for place in range(len(labels))], "labels": list(labels)}


def built(folder: Path, documents: list[dict[str, Any]], **changes: Any) -> BuiltTask:
    (folder / "a.jsonl").write_text("".join(json.dumps(each) + "\n" for each in documents))
    return SentenceLabelling.build("roles", task(folder / "a.jsonl", **changes))


def test_documents_are_split_and_their_labels_are_those_of_train(tmp_path: Path) -> None:
    documents = [document(number, "aim", "method", 3) for number in range(40)]
    made = built(tmp_path, documents)
    assert made.labels == ("3", "aim", "method")
    assert sum(len(rows) for rows in made.splits.values()) == 40
    assert all(rows.labels == [[1, 2, 0]] * len(rows) for rows in made.splits.values())  # type: ignore[attr-defined]
    assert sum(counts["aim"] for counts in made.more["labels_by_split"].values()) == 40


@pytest.mark.parametrize(
    ("wrong", "said", "reason"),
    [
        ({"sentences": ["One."], "labels": ["x", "y"]}, "there are 1 sentences and 2 labels", "different_lengths"),
        ({"sentences": ["One.", " "], "labels": ["x", "y"]}, "a sentence is empty", "empty_sentence"),
        ({"sentences": [], "labels": []}, "the document has no sentence", "empty_sentence"),
        ({"sentences": "One.", "labels": ["x"]}, "'sentences' is not a list of str", "wrong_type"),
    ],
)
def test_a_wrong_row_is_an_error_with_its_line_or_is_skipped(
    tmp_path: Path, wrong: dict[str, Any], said: str, reason: str
) -> None:
    documents = [*(document(number, "x", "y") for number in range(30)), wrong]
    with pytest.raises(DataError, match=rf"a.jsonl:31: .*{said}"):
        built(tmp_path, documents)
    made = built(tmp_path, documents, on_bad_row="skip")
    assert made.dropped[reason] == 1
    assert sum(len(rows) for rows in made.splits.values()) == 30


def rows(count: int, seed: int) -> SentenceRows:
    """A sentence with word1 is `later` if an earlier sentence of the document has it; the text alone does not tell."""
    random = np.random.default_rng(seed)
    sentences, labels = [], []
    for _ in range(count):
        has = random.random(4) < 0.5
        words = [["word1"] * bool(each) + [f"word{n}" for n in random.integers(5, 40, 2)] for each in has]
        sentences.append([" ".join(sentence) for sentence in words])
        labels.append([int(has[:place].any()) for place in range(4)])
    return SentenceRows([f"row:{number}" for number in range(count)], sentences, labels)


def test_a_long_document_is_read_in_groups_of_whole_sentences_and_all_are_trained(tokenizer: Tokenizer) -> None:
    kind = SentenceLabelling(task(max_length=9), LABELS)
    encoded = kind.encode(SentenceRows(["a"], [["word1 word2", "word3", "word4 word5 word6"]], [[0, 1, 1]]), tokenizer)
    assert encoded.sequences.lengths.tolist() == [7, 5]
    assert [labels[labels != IGNORED_LABEL].tolist() for labels in encoded.labels] == [[0, 1], [1]]
    (batch,) = kind.training_batches(encoded, batch_size=2, seed=0)
    assert sorted(batch["labels"][batch["labels"] != IGNORED_LABEL].tolist()) == [0, 1, 1]


def test_a_run_learns_what_only_the_context_tells(encoder: Path, tokenizer: Tokenizer, job_of: Any) -> None:
    kind = SentenceLabelling(task(), LABELS)
    train, dev = rows(120, 0), rows(60, 1)
    job = job_of(kind, encoder, train, dev, num_epochs=8, learning_rate=1e-2)
    frozen = FrozenEncoder(encoder, tiny.machine(), max_length=64)
    made = {one.name: one for one in baselines_of(kind, train, dev, {"test": dev}, frozen)}
    assert list(made) == ["majority", "word_ngrams", "context_ngrams", "static_embeddings", "frozen_encoder"]
    scores = {
        name: kind.scores(kind.statistics(dev, one.predictions["test"], {}))["accuracy"] for name, one in made.items()
    }
    alone = max(scores["word_ngrams"], scores["majority"])
    assert scores["context_ngrams"] > alone + 0.1
    assert fine_tune(job).dev.scores["accuracy"] > alone + 0.1


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return finish("sentence_labelling", tmp_path_factory.mktemp("sentence_labelling"))


def test_predictions_are_those_of_evaluation(finished: Finished) -> None:
    rows = finished.rows
    assert isinstance(rows, SentenceRows)
    found = bertline.load(str(finished.folder), device="cpu").predict(rows.sentences)
    table = finished.table()
    assert [[each.label for each in document] for document in found] == table["predicted"]
    assert [np.mean([each.probability for each in document]) for document in found] == pytest.approx(table["score"])


def test_a_text_is_split_into_sentences_and_an_empty_one_is_an_error(finished: Finished) -> None:
    model = bertline.load(str(finished.folder), device="cpu")
    (found,) = model.predict(["Word1 word2. Word3 word4."])
    assert [each.text for each in found] == ["Word1 word2.", "Word3 word4."]
    with pytest.raises(DataError, match=r"texts\[0\] has no sentence"):
        model.predict([""])
