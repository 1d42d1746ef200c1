"""The door to a finished model: blanks, vectors, labels, attention, and what it says when it cannot."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bertline
from bertline.encoding.sequences import unit
from bertline.foundation.errors import ArtifactError, DataError, MachineError
from bertline.inference.loading import load_folder
from bertline.inference.model import LoadedModel
from bertline.tasks.entities import entities
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, OtherTokenizer
from finished_tasks import KINDS, Finished, collection
from tiny import load_pretraining_model


def test_blanks_are_filled_with_the_model_head_probabilities(encoder_folder: Path) -> None:
    model = load_folder(str(encoder_folder), device="cpu")
    guesses, other = model.fill_mask("the [MASK] sat [MASK]", top_k=14)
    assert guesses != other and [one.probability for one in guesses] == sorted((p for _, p in guesses), reverse=True)
    assert not {guess.token for guess in guesses} & {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
    raw = load_pretraining_model(encoder_folder).eval()
    ids = torch.tensor([[2, 5, 4, 7, 4, 3]])
    logits = raw(ids, torch.zeros_like(ids), None, torch.tensor([[2]])).mlm_logits
    expected = logits[0, 0].softmax(-1)
    for token, probability in guesses:
        assert probability == pytest.approx(expected[model.tokenizer.vocab.index(token)].item(), abs=1e-6)


def test_what_a_model_cannot_read_or_do_is_named(encoder_folder: Path, classifier_folder: Path) -> None:
    encoder = load_folder(str(encoder_folder))
    with pytest.raises(DataError, match=r"no \[MASK\]"):
        encoder.fill_mask("the cat")
    with pytest.raises(DataError, match="reads at most 12"):
        encoder.fill_mask("the " * 20 + "[MASK]")
    with pytest.raises(ArtifactError, match="cannot classify"):
        encoder.predict(["the"])
    with pytest.raises(ArtifactError, match="cannot fill blanks"):
        load_folder(str(classifier_folder)).fill_mask("the [MASK]")


def test_vectors_do_not_depend_on_the_company(encoder_folder: Path, classifier_folder: Path) -> None:
    texts = ["the cat", "a dog sat on the mat .", "", "the cat sat"]
    for model in (load_folder(str(encoder_folder)), load_folder(str(classifier_folder))):
        together = model.embed(texts, batch_size=2)
        assert together.shape == (4, 16) and together.dtype == np.float32
        np.testing.assert_allclose(together, np.concatenate([model.embed([text]) for text in texts]), atol=1e-5)


def test_each_part_of_attention_follows_from_those_before_it(encoder_folder: Path) -> None:
    model = load_folder(str(encoder_folder), device="cpu")
    seen = model.inside("The cats", "a Café")
    query, key, value, scores = seen.query, seen.key, seen.value, seen.scores
    assert query is not None and key is not None and value is not None and scores is not None
    assert seen.segments == (0, 0, 0, 0, 0, 1, 1, 1) and seen.hidden_states.shape == (3, 8, 16)
    np.testing.assert_allclose(scores, query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1]), atol=1e-5)
    np.testing.assert_allclose(seen.probabilities, np.exp(scores) / np.exp(scores).sum(-1, keepdims=True), atol=1e-5)
    first = model.encoder.layers[0]
    with torch.no_grad():
        projected = first.query_key_value(torch.from_numpy(seen.hidden_states[0]))[:, 32:]
    np.testing.assert_allclose(value[0].swapaxes(0, 1).reshape(8, 16), projected, atol=1e-5)
    np.testing.assert_array_equal(seen.probabilities, model.attentions("The cats", "a Café").probabilities)


def test_a_word_has_the_mean_vector_of_its_tokens_at_each_place(encoder_folder: Path) -> None:
    model = load_folder(str(encoder_folder), device="cpu")
    found = model.word_vectors("cats and Cats sat: the cats", "cats")
    states = model.inside("cats and Cats sat: the cats").hidden_states
    assert found.tokens == ("cat", "##s") and found.starts == (0, 23)
    expected = np.stack([states[:, 1:3].mean(1), states[:, -3:-1].mean(1)], axis=1)
    np.testing.assert_allclose(found.vectors, expected, atol=1e-6)
    for text, word in (("the cats", "cat"), ("the cats", ""), ("the dogs", "cats")):
        with pytest.raises(DataError, match="is not in"):
            model.word_vectors(text, word)
    with pytest.raises(DataError, match="reads at most 12"):
        model.word_vectors("cat " * 20, "cat")


def test_the_same_tokens_are_seen_by_all_that_look_inside(encoder_folder: Path) -> None:
    model, text = load_folder(str(encoder_folder), device="cpu"), "[MASK] cats sat [MASK] the cats"
    inside = model.inside(text)
    assert inside.tokens == ("[CLS]", "[MASK]", "cat", "##s", "sat", "[MASK]", "the", "cat", "##s", "[SEP]")
    assert [model.tokenizer.vocab[index] for index in inside.ids] == [*inside.tokens]
    cats = model.word_vectors(text, "cats")
    assert cats.starts == (7, 27)
    np.testing.assert_array_equal(cats.vectors[:, 1], inside.hidden_states[:, 7:9].mean(1))
    np.testing.assert_array_equal(model.word_vectors(text, "[MASK]").vectors[:, 1], inside.hidden_states[:, 5])
    np.testing.assert_array_equal(model.token_vectors(text).vectors, inside.hidden_states[-1])
    assert model.attentions(text).tokens == inside.tokens


@pytest.mark.parametrize("mask", ["<m>", "<blank-token>"])
def test_a_mask_of_another_spelling_moves_no_word(encoder_folder: Path, mask: str) -> None:
    other, model = load_folder(str(encoder_folder), device="cpu"), load_folder(str(encoder_folder), device="cpu")
    content = model.tokenizer.backend.to_str().replace("[MASK]", mask)
    other.tokenizer = Tokenizer(OtherTokenizer(content=content, special_tokens=(*SPECIAL_TOKENS[:-1], mask)))
    for text, word in (("[MASK] cat [MASK] dog", "dog"), ("a [MASK] cat", "[MASK] cat"), ("a cat [MASK]", "cat")):
        found, expected = other.word_vectors(text, word), model.word_vectors(text, word)
        assert found.starts == expected.starts
        assert found.tokens == tuple(token.replace("[MASK]", mask) for token in expected.tokens)
        np.testing.assert_array_equal(found.vectors, expected.vectors)


def test_similar_words_are_the_nearest_input_embeddings(encoder_folder: Path) -> None:
    model = load_folder(str(encoder_folder), device="cpu")
    table = unit(model.encoder.word_embeddings.detach().numpy())
    vocab = model.tokenizer.vocab
    (nearest, similarity), *_ = model.similar_words("cat", top_k=3)
    expected = table @ table[vocab.index("cat")]
    others = [at for at, token in enumerate(vocab) if token not in ("cat", *SPECIAL_TOKENS)]
    assert vocab.index(nearest) == max(others, key=expected.__getitem__)
    assert similarity == pytest.approx(expected[vocab.index(nearest)], abs=1e-6)
    assert {word for word, _ in model.similar_words("cat", top_k=99)} == {vocab[at] for at in others}
    for word, top_k, sentence in (("zebra", 3, "'zebra' has no token"), (" ", 3, "no token"), ("cat", 0, "top_k is 0")):
        with pytest.raises(DataError, match=sentence):
            model.similar_words(word, top_k)


def test_the_probability_of_the_next_sentence_is_that_of_class_0(encoder_folder: Path, classifier_folder: Path) -> None:
    model = load_folder(str(encoder_folder), device="cpu")
    raw = load_pretraining_model(encoder_folder).eval()
    ids, types = torch.tensor([[2, 5, 3, 5, 3]]), torch.tensor([[0, 0, 0, 1, 1]])
    expected = raw.forward_everywhere(ids, types).nsp_logits
    assert expected is not None
    assert model.next_sentence("the", "the") == pytest.approx(expected.softmax(-1)[0, 0].item(), abs=1e-6)
    for texts in (("", "the"), ("the", " "), ("", "")):
        with pytest.raises(DataError, match="a text is empty"):
            model.next_sentence(*texts)
    assert model.inside("").tokens == ("[CLS]", "[SEP]")
    with pytest.raises(ArtifactError, match="no next sentence head"):
        load_folder(str(classifier_folder)).next_sentence("the", "the")


def test_a_folder_that_is_none_and_a_device_that_is_not_there_are_named(encoder_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        load_folder(str(tmp_path / "nowhere"))
    with pytest.raises(ArtifactError, match=r"config\.json is missing"):
        load_folder(str(tmp_path))
    with pytest.raises(MachineError, match="cannot be used here"):
        load_folder(str(encoder_folder), device="abacus")


Open = Callable[[str], tuple[Finished, LoadedModel]]


@pytest.mark.parametrize("name", ["classification", "windows", "multi_label"])
def test_labels_are_those_of_evaluation(open_task: Open, name: str) -> None:
    finished, model = open_task(name)
    table, found = finished.table(), model.predict(finished.rows.texts, getattr(finished.rows, "text_pairs", None))
    for label in finished.kind.labels:
        expected = table[f"probability_{label}"]
        np.testing.assert_allclose([each.probabilities[label] for each in found], expected, atol=1e-5)
    if name == "multi_label":  # 0.4 is its threshold
        likely = [tuple(label for label, p in each.probabilities.items() if p >= 0.4) for each in found]
        assert [each.labels for each in found] == likely
    shown = [", ".join(each.labels) if name == "multi_label" else each.label for each in found]
    assert shown == table["predicted"] and len(set(shown)) > 1, "the same class for all would show little"


@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_numbers_are_those_of_evaluation(open_task: Open, name: str) -> None:
    finished, model = open_task(name)
    found = model.predict(finished.rows.texts, finished.rows.text_pairs)
    np.testing.assert_allclose(found, finished.table()["predicted_number"], atol=1e-5)
    assert len({round(number, 3) for number in found}) > 4, "numbers cut off at the ends of the scale show little"
    if name == "cosine":
        first, second = (unit(model.embed(texts)) for texts in (finished.rows.texts, finished.rows.text_pairs))
        np.testing.assert_allclose(found, 5 * (first * second).sum(1), atol=1e-5)


@pytest.mark.parametrize("name", ["softmax", "cased", "crf"])
def test_entities_are_those_of_evaluation(open_task: Open, name: str) -> None:
    finished, model = open_task(name)
    found = model.predict(finished.rows.words)
    tags = [row.split() for row in finished.table()["predicted"]]
    for words, row_tags, row_entities in zip(finished.rows.words, tags, found, strict=True):
        expected = {(kind, " ".join(words[first : last + 1])) for kind, first, last in entities(row_tags)}
        assert {(entity.type, entity.text) for entity in row_entities} == expected
        for entity in row_entities:
            assert " ".join(words)[entity.start : entity.end] == entity.text and 0 < entity.score <= 1
    assert sum(map(len, found)) > 3


def test_answers_are_those_of_evaluation_with_their_place(open_task: Open) -> None:
    finished, model = open_task("question_answering")
    table = finished.table()
    found = model.predict(finished.rows.questions, finished.rows.contexts)
    assert [answer.text for answer in found] == table["predicted"]
    np.testing.assert_allclose([answer.score for answer in found], table["score"], atol=1e-5)
    assert {bool(answer.text) for answer in found} == {True, False}, "both answers and none"
    for answer, context in zip(found, finished.rows.contexts, strict=True):
        assert answer.start == (context.find(answer.text, answer.start) if answer.text else None)


def test_documents_are_found_as_evaluation_ranks_them(open_task: Open) -> None:
    finished, model = open_task("retrieval")
    documents = collection()
    found = model.search(finished.rows.queries, documents.texts, top_k=10)
    ranked = [", ".join(documents.ids[hit.number] for hit in hits) for hits in found]
    assert ranked == finished.table()["predicted"]
    assert model.predict(finished.rows.queries, documents.texts, top_k=10) == found
    queries = unit(model.embed(finished.rows.queries, role="query"))
    vectors = unit(model.embed(documents.texts, role="document"))
    for query, hits in zip(queries, found, strict=True):
        expected = vectors[[hit.number for hit in hits]] @ query
        np.testing.assert_allclose([hit.score for hit in hits], expected, atol=1e-5)


def test_candidates_are_ordered_as_evaluation_does(open_task: Open) -> None:
    finished, model = open_task("reranking")
    found = model.predict(finished.rows.queries, finished.rows.candidates)
    for ranked, scores, candidates in zip(found, finished.predictions(), finished.rows.candidates, strict=True):
        assert [each.number for each in ranked] == np.argsort(-scores, kind="stable").tolist()
        assert [each.text for each in ranked] == [candidates[each.number] for each in ranked]
        np.testing.assert_allclose([each.score for each in ranked], np.sort(scores)[::-1], atol=1e-5)
    assert model.predict(["word1", "word2"], [[], ["word3"]])[0] == []


def test_summaries_are_those_of_evaluation(open_task: Open) -> None:
    finished, model = open_task("summarisation")
    found = model.predict(finished.rows.sentences)
    assert [summary.text for summary in found] == finished.table()["predicted"]
    # A made-up word with a full stop behind it may be an abbreviation.
    long = [place for place, document in enumerate(finished.rows.sentences) if all(" " in one for one in document)]
    running = [" ".join(sentence.capitalize() for sentence in finished.rows.sentences[place]) for place in long]
    assert len(long) > 1
    assert [summary.places for summary in model.predict(running)] == [found[place].places for place in long]
    with pytest.raises(DataError, match=r"texts\[1\] has no sentence"):
        model.predict(["Word1.", " "])


@pytest.mark.parametrize(
    ("name", "inputs", "message"),
    [
        ("question_answering", (["who"], []), "1 questions and 0 contexts"),
        ("reranking", (["who"], ["me"]), "expected a list of strings"),
        ("reranking", (["who"], []), "1 queries and 0 candidates"),
        ("softmax", ("Berlin",), "expected a list of strings"),
        ("retrieval", (["who"], []), "documents is empty"),
        ("windows", (["a"], ["b"]), r"trained on single texts; leave second texts out \(text_pairs"),
        ("cosine", (["a"],), r"trained on pairs of texts; give the second texts too \(text_pairs"),
    ],
)
def test_inputs_of_another_form_are_named(open_task: Open, name: str, inputs: Any, message: str) -> None:
    _, model = open_task(name)
    with pytest.raises(DataError, match=message):
        model.predict(*inputs)


def inputs_of(model: LoadedModel) -> list[list[Any]]:
    match model.kind:
        case "reranking":
            return [["word1", "word2"], [["word3", "word4"], ["word5"]]]
        case "question_answering" | "retrieval":
            return [["word1", "word2"], ["word3 word4", "word5"]]
        case _:
            assert model.task is not None
            return [["word1 word2.", "word3."]] * (1 + bool(model.task.kind.config.reads_pairs))


NO_TEXTS: list[Any] = [None, 5, float("nan"), b"word1", "word1\ud800", {"word1": 1}, np.array([["word1"]])]


@pytest.mark.parametrize("name", KINDS)
def test_iterators_are_read_as_lists_and_what_is_no_text_is_named(open_task: Open, name: str) -> None:
    _, model = open_task(name)
    inputs = inputs_of(model)
    nested = ([iter(each) if isinstance(each, list) else each for each in values] for values in inputs)
    assert model.predict(*map(iter, nested)) == model.predict(*inputs)
    assert np.array_equal(model.embed(iter(inputs[0])), model.embed(inputs[0]))
    for place, value in itertools.product(range(len(inputs)), NO_TEXTS):
        for wrong in (value, [value], [inputs[place][0], value]):
            with pytest.raises(DataError, match="expected a|half of a character|trained on pairs"):
                model.predict(*inputs[:place], wrong, *inputs[place + 1 :])
    if model.kind in ("tagging", "token_classification"):
        assert model.predict([iter(["word1", "word2"])]) == model.predict([["word1", "word2"]])


@pytest.mark.parametrize("value", NO_TEXTS)
def test_no_method_of_an_encoder_reads_what_is_no_text(encoder_folder: Path, value: Any) -> None:
    model = load_folder(str(encoder_folder), device="cpu")
    calls: list[Callable[[], Any]] = [
        *(partial(read, value) for read in (model.fill_mask, model.attentions, model.token_vectors, model.embed)),
        *(partial(read, value) for read in (model.inside, model.similar_words)),
        *(partial(model.embed, texts) for texts in ([value], ["cat", value])),
        *(partial(read, "cat", value) for read in (model.word_vectors, model.next_sentence)),
        *(partial(read, value, "cat") for read in (model.word_vectors, model.next_sentence, model.attentions)),
        *(partial(model.search, *texts) for texts in ((["cat"], [value]), ([value], ["cat"]), (["cat"], value))),
        *([] if value is None else [partial(model.attentions, "cat", value)]),
    ]
    for call in calls:
        with pytest.raises(DataError, match="expected a|half of a character"):
            call()


@pytest.mark.parametrize("name", ["windows", "marked", "linear", "cosine", "multi_label", "retrieval", "reranking"])
def test_outer_white_space_is_not_read(open_task: Open, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in training, for tokenizers too that keep it."""
    _, model = open_task(name)
    read: list[str] = []
    encode = Tokenizer.encode_literally

    def recorded(tokenizer: Tokenizer, texts: list[str], **options: Any) -> Any:
        read.extend(texts)
        return encode(tokenizer, texts, **options)

    monkeypatch.setattr(Tokenizer, "encode_literally", recorded)
    inputs = inputs_of(model)
    plain, plainly_read = model.predict(*inputs), read[:]
    read.clear()
    spaced = [
        [f" {each}\n" if isinstance(each, str) else [f"\t{one} " for one in each] for each in of] for of in inputs
    ]
    found = model.predict(*spaced)
    assert read == plainly_read
    if model.kind != "reranking":  # whose answers hold the texts that were given
        assert found == plain


@pytest.mark.parametrize("name", ["classification", "multi_label", "softmax", "question_answering", "reranking"])
def test_folders_of_others_have_the_task_of_their_head(open_task: Open, name: str, tmp_path: Path) -> None:
    """As downloaded: without task.json."""
    finished, model = open_task(name)
    shutil.copytree(finished.folder, tmp_path, ignore=shutil.ignore_patterns("task.json"), dirs_exist_ok=True)
    plain = bertline.load(str(tmp_path), device="cpu")
    assert plain.kind == model.kind
    found, expected = (each.predict(*inputs_of(model)) for each in (plain, model))
    match name:
        case "multi_label":
            assert [each.probabilities for each in found] == [each.probabilities for each in expected]
        case "question_answering":
            assert found[0].text, "without a threshold there is always an answer"
        case _:
            assert found == expected
