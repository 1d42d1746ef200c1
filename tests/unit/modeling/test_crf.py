"""The CRF against all label sequences written out, and a batch against its sentences one by one."""

from __future__ import annotations

import itertools

import pytest
import torch

import tiny
from bertline.modeling.crf import CRF_NAME, BertForTokenClassificationWithCrf, LinearChainCrf, read_crf, write_crf
from bertline.modeling.heads import BertForTokenClassification

LABELS = ("O", "B-A", "I-A", "B-B", "I-B")


def crf(seed=0, labels=LABELS, spread=0.01):
    """With scores of about 1."""
    made = LinearChainCrf(labels)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in made.parameters():
            weight.copy_(spread * torch.randn(weight.shape, generator=generator))
    return made


def emissions(batch, words, seed=1, num_labels=5):
    return torch.randn(batch, words, num_labels, generator=torch.Generator().manual_seed(seed))


def score(model, of_words, path):
    """By the definition, one number after the other."""
    start, transitions, end = (scores.detach() for scores in model.scores())
    total = start[path[0]] + end[path[-1]]
    total = total + sum(of_words[place, label] for place, label in enumerate(path))
    return total + sum(transitions[before, after] for before, after in itertools.pairwise(path))


def is_allowed(path):
    before = "O"
    for label in path:
        if LABELS[label].startswith("I-") and before[1:] != LABELS[label][1:]:
            return False
        before = LABELS[label]
    return True


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("words", [1, 2, 4])
def test_the_partition_is_the_sum_over_all_sequences_and_decoding_finds_the_best_allowed_one(words, seed):
    model, of_words, length = crf(seed, spread=0.03), emissions(1, words, seed + 10), torch.tensor([words])
    scores = {path: score(model, of_words[0], path) for path in itertools.product(range(len(LABELS)), repeat=words)}
    partition = torch.logsumexp(torch.stack(list(scores.values())), 0)
    torch.testing.assert_close(model.log_partition(of_words, length)[0], partition, rtol=1e-5, atol=1e-5)
    best = max(filter(is_allowed, scores), key=scores.__getitem__)
    labels, log_probability = model.decode(of_words, length)
    assert tuple(labels[0].tolist()) == best
    torch.testing.assert_close(log_probability[0], scores[best] - partition, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("labels", [LABELS, ("O",), ("O", "B-A", "I-A")])
def test_what_is_decoded_is_never_broken_however_much_the_scores_ask_for_it(labels):
    model = crf(labels=labels)
    of_words = emissions(40, 7, num_labels=len(labels))
    for number, label in enumerate(labels):
        of_words[:, :, number] += 50.0 * label.startswith("I-")
    found, _ = model.decode(of_words, torch.full((40,), 7))
    assert all(is_allowed([LABELS.index(labels[label]) for label in path]) for path in found.tolist())
    if len(labels) > 1:
        assert any(labels[label].startswith("I-") for path in found.tolist() for label in path)


def test_a_batch_says_what_its_sentences_say_one_by_one():
    model = crf()
    lengths = torch.tensor([1, 5, 3, 5, 2])
    of_words = emissions(5, 5)
    labels = torch.randint(len(LABELS), (5, 5), generator=torch.Generator().manual_seed(3))
    together = model.log_likelihood(of_words, labels, lengths)
    paths, log_probabilities = model.decode(of_words, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = of_words[row : row + 1, :length]
        one = lengths[row : row + 1]
        torch.testing.assert_close(together[row], model.log_likelihood(alone, labels[row : row + 1, :length], one)[0])
        path, log_probability = model.decode(alone, one)
        assert paths[row].tolist() == path[0].tolist() + [0] * (5 - length)
        torch.testing.assert_close(log_probabilities[row], log_probability[0])


def test_gradients_are_those_of_the_scores():
    """The weights are worth a multiple in the scores, but feel the slope of the score itself."""
    model, of_words = crf(), emissions(2, 3).requires_grad_()
    labels, lengths = torch.tensor([[0, 1, 2], [3, 4, 0]]), torch.tensor([3, 2])
    model.log_likelihood(of_words, labels, lengths).sum().backward()
    # The slope in an emission is whether the label is gold, less its probability; it sums to nothing over the labels.
    torch.testing.assert_close(of_words.grad.sum(-1), torch.zeros(2, 3), atol=1e-5, rtol=0)
    assert of_words.grad[1, 2].abs().sum() == 0
    step, values = 1e-3, []
    for sign in (1, -1):
        moved = crf()
        with torch.no_grad():
            moved.transitions[3] += sign * step / 100  # what moves the score by one step
            values.append(moved.log_likelihood(of_words, labels, lengths).sum())
    slope = (values[0] - values[1]) / (2 * step)
    torch.testing.assert_close(model.transitions.grad[3], slope, rtol=2e-2, atol=2e-3)


def test_the_tagger_inside_shares_its_weights_and_has_one_name_for_each():
    tagger = BertForTokenClassification(
        tiny.model_config(), vocab_size=9, pad_token_id=0, num_labels=len(LABELS), classifier_dropout=0.0
    )
    model = BertForTokenClassificationWithCrf(tagger, LABELS)
    assert model.tagger is tagger
    names = set(model.state_dict())
    assert names - set(tagger.state_dict()) == {"crf.start", "crf.end", "crf.transitions"}
    ids = torch.tensor([[2, 5, 3]])
    model.double().eval()
    assert torch.equal(model(ids, torch.zeros_like(ids)), tagger(ids, torch.zeros_like(ids)))


def test_scores_come_back_from_the_file_as_they_were(tmp_path):
    model, other = crf(), LinearChainCrf(LABELS)
    write_crf(model, tmp_path)
    read_crf(other, tmp_path)
    for one, same in zip(model.scores(), other.scores(), strict=True):
        torch.testing.assert_close(one, same)
    assert [path.name for path in tmp_path.iterdir()] == [CRF_NAME]
