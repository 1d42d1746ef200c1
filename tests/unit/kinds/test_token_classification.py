"""Tagging words with softmax and with a CRF: it learns, scores as defined, and is stored as Hugging Face stores it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers

import tiny
from bertline.baselines.base import BaselineInputs
from bertline.baselines.linear import window_tagger
from bertline.finetuning.finetune import fine_tune
from bertline.foundation.labels import IGNORED_LABEL
from bertline.kinds.base import HeadSettings, LossOptions
from bertline.kinds.tagging import OUTSIDE_MARGIN, most_likely_tags
from bertline.kinds.token_classification import TokenClassification
from bertline.tasks.stored_rows import TaggedRows
from bertline.tokenization.tokenizer import Tokenizer

LABELS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
HEADS = ("softmax", "crf")


def task(**changes):
    return tiny.tagging_task(source=tiny.conll_source(train_file="train.conll"), **changes)


def rows(num_rows, *, seed=0, longest=12):
    """Words 0 to 4 begin a person, 5 to 9 a place; words 10 to 14 continue whatever is before them."""
    random = np.random.default_rng(seed)
    words = [random.integers(0, 40, random.integers(1, longest)) for _ in range(num_rows)]
    # Continuations are frequent enough to meet.
    words = [np.where(random.random(len(row)) < 0.3, random.integers(10, 15, len(row)), row) for row in words]
    tags = []
    for row in words:
        before, found = "O", []
        for word in row:
            inside = f"I-{before[2:]}" if before != "O" else "O"
            before = "B-PER" if word < 5 else "B-LOC" if word < 10 else inside if word < 15 else "O"
            found.append(before)
        tags.append(found)
    names = [f"row:{number}" for number in range(num_rows)]
    return TaggedRows(names, names, [[f"word{word}" for word in row] for row in words], tags)


def kind(**changes):
    return TokenClassification(task(**changes), LABELS)


def new_model(kind, encoder, seed=0):
    return kind.new_model(encoder, HeadSettings(dropout_prob=0.0, seed=seed, attention="plain")).eval()


def with_opinions(model):
    """Scores far enough apart for rounding not to matter; a CRF that has a will of its own."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        model.classifier.weight.copy_(torch.randn(model.classifier.weight.shape, generator=generator))
        for weight in model.crf.parameters() if hasattr(model, "crf") else ():
            weight.copy_(0.01 * torch.randn(weight.shape, generator=generator))
    return model


@pytest.mark.parametrize("head", HEADS)
def test_a_run_learns_what_can_be_learnt(encoder, job_of, head):
    """In so few steps an encoder of random weights learns each word's own tag; a CRF also what follows what."""
    tagging = kind(head=head)
    train, dev = (rows(number, seed=number) for number in (200, 60))
    result = fine_tune(job_of(tagging, encoder, train, dev, num_epochs=4, learning_rate=1e-2))
    baseline = tagging.baselines(BaselineInputs(kind=tagging, train=train, dev=dev, tests={}))[0]
    by_words = tagging.scores(tagging.statistics(dev, baseline.predictions["dev"], {}))["entity_f1"]
    found = result.dev.scores["entity_f1"]
    # Words alone do not tell whether a continuation is of a person or of a place.
    assert found > by_words + 0.2 if head == "crf" else found > 0.9 * by_words


@pytest.mark.parametrize("head", HEADS)
def test_predictions_do_not_depend_on_what_else_is_in_the_batch(encoder, tokenizer, head):
    tagging = kind(head=head)
    model, some = with_opinions(new_model(tagging, encoder)), rows(30)
    together = tagging.predict(model, tagging.encode(some, tokenizer), tiny.machine())
    assert len(np.unique(np.concatenate(together.labels))) > 2
    for row in range(len(some)):
        alone = tagging.predict(model, tagging.encode(some.take([row]), tokenizer), tiny.machine())
        assert alone.labels[0].tolist() == together.labels[row].tolist()
        assert alone.confidences[0] == pytest.approx(together.confidences[row], rel=1e-3)


@pytest.mark.parametrize("head", HEADS)
def test_each_word_of_a_long_row_has_a_label_and_how_sure_it_is_fits_how_sure_the_row_is(encoder, tokenizer, head):
    tagging = kind(head=head, max_length=10)
    some = rows(30, longest=60)
    found = tagging.predict(with_opinions(new_model(tagging, encoder)), tagging.encode(some, tokenizer), tiny.machine())
    for row, of_words in enumerate(found.word_confidences):
        assert len(of_words) == len(some.words[row])
        # No word can be less likely than the whole row; words that do not know each other multiply to it.
        assert found.confidences[row] <= of_words.min() * (1 + 1e-3)
        assert of_words.max() <= 1 + 1e-3
        if head == "softmax" or len(of_words) == 1:
            assert of_words.prod() == pytest.approx(found.confidences[row], rel=1e-3)


def test_a_crf_reads_a_long_row_as_one_chain(encoder, tokenizer):
    tagging = kind(head="crf", max_length=10)
    some = rows(20, longest=60)
    model = with_opinions(new_model(tagging, encoder))
    for labels in tagging.predict(model, tagging.encode(some, tokenizer), tiny.machine()).labels:
        before = "O"
        for label in (LABELS[number] for number in labels):
            assert not label.startswith("I-") or before[1:] == label[1:]
            before = label


def test_the_softmax_loss_is_that_of_transformers(encoder, tokenizer, tmp_path):
    tagging = kind()
    model = with_opinions(new_model(tagging, encoder))
    tagging.save_model(model, tmp_path)
    reference = transformers.BertForTokenClassification.from_pretrained(tmp_path).eval()
    some = rows(6)
    encoded = tagging.encode(some, tokenizer)
    batch = encoded.batch(np.arange(6))
    labels = torch.full_like(batch["input_ids"], -100)
    for row, count in enumerate(batch["num_words"]):
        labels[row, batch["word_places"][row, :count]] = batch["word_labels"][row, :count]
    with torch.no_grad():
        expected = reference(
            input_ids=batch["input_ids"], attention_mask=batch["attention_mask"],
            token_type_ids=batch["token_type_ids"], labels=labels,
        ).loss  # fmt: skip
        torch.testing.assert_close(tagging.loss(model, batch, LossOptions()), expected, rtol=1e-5, atol=1e-5)


def test_class_weights_and_smoothing_of_the_softmax_loss(encoder, tokenizer):
    tagging, weights = kind(), torch.tensor([0.1, 1.0, 2.0, 3.0, 5.0])
    model, batch = new_model(tagging, encoder), tagging.encode(rows(6), tokenizer).batch(np.arange(6))
    logits, labels = tagging.training_outputs(model, batch), batch["word_labels"]
    is_word = labels != IGNORED_LABEL
    assert len(labels[is_word].unique()) > 1
    for smoothing in (0.0, 0.2):
        expected = F.cross_entropy(logits[is_word], labels[is_word], weight=weights, label_smoothing=smoothing)
        torch.testing.assert_close(tagging.loss(model, batch, LossOptions(smoothing, weights)), expected)


def test_the_mean_is_that_of_all_tokens_of_a_word(tmp_path):
    encoder = tiny.write_encoder(tmp_path, words=("go", "##es", "##ing", "x"))
    tagging, tokenizer = kind(word_logits="mean"), Tokenizer.load(tmp_path)
    some = TaggedRows(["a"], ["a"], [["goes", "x", "going", "goesing"]], [["O"] * 4])
    encoded, model = tagging.encode(some, tokenizer), with_opinions(new_model(tagging, encoder))
    batch = encoded.sequences.batch(np.array([0]))
    raw = model(batch["input_ids"], batch["token_type_ids"], batch["attention_mask"])[0]
    expected = [raw[1:3].mean(0), raw[3], raw[4:6].mean(0), raw[6:9].mean(0)]
    found = tagging.predict(model, encoded, tiny.machine()).word_log_probabilities[0]
    expected = torch.stack(expected).log_softmax(-1).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert raw.shape[0] == 10
    first = kind().predict(model, kind().encode(some, tokenizer), tiny.machine()).word_log_probabilities[0]
    assert not np.allclose(found[0], first[0])


def rows_of_case(num_rows, *, seed):
    """A word is a person where it has a capital; which words there are says nothing."""
    random = np.random.default_rng(seed)
    words = [[f"{'Word' if random.random() < 0.3 else 'word'}{n}" for n in random.integers(0, 40, 6)] for _ in
             range(num_rows)]  # fmt: skip
    names = [str(number) for number in range(num_rows)]
    return TaggedRows(names, names, words, [["B-PER" if word[0] == "W" else "O" for word in row] for row in words])


@pytest.mark.parametrize(("word_case", "low", "high"), [("marked", 0.95, 1.0), ("plain", 0.0, 0.6)])
def test_marks_show_what_a_lower_casing_tokenizer_drops(encoder, job_of, word_case, low, high):
    tagging = kind(word_case=word_case)
    train, dev = rows_of_case(160, seed=1), rows_of_case(60, seed=2)
    job = job_of(tagging, encoder, train, dev, num_epochs=4)
    assert low <= fine_tune(job).dev.scores["entity_f1"] <= high


class TestOutsideMargin:
    def of_log_odds(self, odds, tag_of_word):
        """Predictions of rows of words: O against one tag, at these log odds."""
        of_rows = []
        for row, tags in zip(odds, tag_of_word, strict=True):
            logits = np.full((len(row), len(LABELS)), -30.0)
            logits[:, 0] = row
            logits[np.arange(len(row)), tags] = 0.0
            of_rows.append(torch.log_softmax(torch.from_numpy(logits), dim=-1).numpy())
        return most_likely_tags(of_rows, 0.0)

    def test_dev_chooses_the_margin_that_finds_what_argmax_misses(self):
        tagging = kind(outside_margin="dev")
        some = TaggedRows(["a", "b"], ["a", "b"], [["x", "y"], ["z", "w"]], [["B-PER", "O"], ["B-LOC", "O"]])
        predictions = self.of_log_odds([[0.62, 1.3], [-2.0, 1.7]], [[3, 3], [1, 1]])
        assert tagging.scores(tagging.statistics(some, predictions, {}))["entity_f1"] == pytest.approx(2 / 3)
        calibration = tagging.calibrate(some, predictions)
        assert calibration == {OUTSIDE_MARGIN: 0.7}
        assert tagging.scores(tagging.statistics(some, predictions, calibration))["entity_f1"] == 1.0
        first, second = tagging.table(some, predictions, calibration).to_pylist()
        assert (first["predicted"], second["predicted"]) == ("B-PER O", "B-LOC O")
        sure = 1 / (1 + np.exp(0.62)) * 1 / (1 + np.exp(-1.3))
        assert first["score"] == pytest.approx(sure)
        assert tagging.calibrate(some, self.of_log_odds([[-1.0, 1.0], [-1.0, 1.0]], [[3, 3], [1, 1]])) == {
            OUTSIDE_MARGIN: 0.0
        }


def test_words_have_their_most_frequent_tag_and_unknown_ones_none():
    tagging = kind()
    train = TaggedRows(
        ["a"], ["a"], [["Ada", "Ada", "Ada", "ada", "in", "Rome"]], [["B-PER", "B-PER", "O", "O", "O", "B-LOC"]]
    )
    test = TaggedRows(["t"], ["t"], [["Ada", "ADA", "ada", "Rome"]], [["B-PER", "O", "O", "B-LOC"]])
    given = BaselineInputs(kind=tagging, train=train, dev=test, tests={"test": test, "test_more": test})
    baseline = given.kind.baselines(given)[0]
    assert baseline.name == "most_frequent_tag"
    assert set(baseline.predictions) == {"dev", "test", "test_more"}
    assert baseline.predictions["test"].labels[0].tolist() == [3, 0, 0, 1]


class TestLinearTaggers:
    def test_dev_decides_how_readily_a_tag_is_given(self):
        """Half of the same words are names in train and nearly all are in dev: without a threshold they are O."""

        def made(num_rows, names_of):
            ids = [str(row) for row in range(num_rows)]
            tags = [["O", "B-PER" if row % names_of else "O"] for row in range(num_rows)]
            return TaggedRows(ids, ids, [["see", "x"]] * num_rows, tags)

        train = made(60, 2).take([*range(0, 60, 2), *range(1, 40, 2)])
        (tagger,) = window_tagger(BaselineInputs(kind=kind(), train=train, dev=made(40, 20), tests={}))
        assert tagger.settings["threshold"] > 0
        assert all(labels.tolist() == [0, 3] for labels in tagger.predictions["dev"].labels)
