"""Word embeddings that start from co-occurrences: the counts, the information in them, and the run that follows."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from bertline.examples.store import ExampleStore, split_folder, token_counts
from bertline.foundation.errors import ConfigError
from bertline.foundation.manifests import write_manifest
from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.initialization import initialize
from bertline.pretraining.run import run_pretraining
from bertline.pretraining.start import build_model, cooccurrence_embeddings, cooccurrences, positive_information
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import resolve_machine
from example_shards import write_shards

CLS, SEP, FIRST = 2, 3, 5


@pytest.fixture(scope="module")
def store_of(pretraining, tmp_path_factory):
    """A maker of stores with the given sequences of token ids, [CLS] and [SEP] included."""

    def make(sequences, vocab_size=40, shard_sequences=1000):
        folder = tmp_path_factory.mktemp("examples")
        lengths, labels = [len(sequence) for sequence in sequences], [0] * len(sequences)
        tokens = write_shards(split_folder(folder, "train", 64), sequences, lengths, labels, shard_sequences)
        manifest = pretraining.examples_manifest(vocab_size, shard_sequences=shard_sequences)
        manifest["lengths"]["64"] = {"train": {"examples": len(sequences), "tokens": tokens}}
        write_manifest(folder, kind="examples", format_version=1, content=manifest)
        return ExampleStore.open(folder, "train", 64)

    return make


def brute_force(sequences, vocab_size):
    """The counts by the definition, one pair at a time."""
    counts = np.zeros((vocab_size, vocab_size))
    for sequence in sequences:
        for place, token in enumerate(sequence):
            for other in range(place + 1, min(place + 6, len(sequence))):
                if any(each < FIRST for each in sequence[place : other + 1]):
                    break
                counts[token, sequence[other]] += 1 / (other - place)
                counts[sequence[other], token] += 1 / (other - place)
    return counts


SEQUENCES = st.lists(
    st.lists(st.integers(FIRST, 12), min_size=1, max_size=9).map(lambda body: [CLS, *body[:4], SEP, *body[4:], SEP]),
    min_size=1,
    max_size=5,
)


@settings(max_examples=40)
@given(sequences=SEQUENCES)
def test_a_pair_counts_for_one_over_its_distance_within_a_segment(store_of, sequences):
    counts = cooccurrences(store_of(sequences, vocab_size=13, shard_sequences=2), 13)
    np.testing.assert_allclose(counts.toarray(), brute_force(sequences, 13), rtol=1e-5)


def test_information_is_that_of_the_definition_where_it_is_positive():
    counts = np.random.default_rng(0).poisson(2.0, size=(9, 9)) / 4
    counts += counts.T  # some below 1: they add to the frequencies of tokens, but have no information
    together, token = counts / counts.sum(), counts.sum(axis=1) / counts.sum()
    context = token**0.75 / (token**0.75).sum()
    with np.errstate(divide="ignore"):
        expected = np.where(counts >= 1, np.maximum(np.log(together / np.outer(token, context)), 0), 0)
    assert 0 < (expected > 0).sum() < expected.size and ((counts > 0) & (counts < 1)).any()
    np.testing.assert_allclose(positive_information(sparse.csr_matrix(counts)).toarray(), expected, rtol=1e-5)


def test_tokens_with_the_same_neighbours_get_near_embeddings(store_of):
    generator = np.random.default_rng(1)
    topics = [np.arange(FIRST, 15), np.arange(15, 25), np.arange(25, 35)]
    sequences = [[CLS, *generator.choice(topics[number % 3], 12), SEP] for number in range(300)]
    found = cooccurrence_embeddings(store_of(sequences), vocab_size=40, hidden_size=8, seed=0)
    near = found @ found.T
    same = torch.block_diag(*(torch.ones(10, 10) for _ in topics)).bool()
    among = near[FIRST:35, FIRST:35]
    assert among[same].mean() > 0.4 > 0.2 > among[~same].abs().mean()
    lengths = found.norm(dim=1)
    assert torch.allclose(lengths[FIRST:35], torch.ones(30))
    assert not lengths[:FIRST].any() and not lengths[35:].any()  # special tokens, and tokens never seen


def test_a_run_starts_from_them_and_all_else_is_as_with_random_ones(make_job, capfd):
    job = make_job(pretrain__initial_embeddings="cooccurrence")
    tokenizer = Tokenizer.load(job.tokenizer_folder)
    model = build_model(job, tokenizer, resolve_machine(job.runtime, "fp32"))
    plain = BertForPreTraining(job.model, vocab_size=tokenizer.vocab_size, pad_token_id=tokenizer.pad_id)
    initialize(plain, job.model, seed=job.pretrain.seed)
    name = "bert.embeddings.word_embeddings.weight"
    ours, random = model.state_dict(), plain.state_dict()
    assert {key for key in ours if not torch.equal(ours[key], random[key])} == {name, "mlm_head.bias"}
    moved = (ours[name] != random[name]).any(dim=1)
    assert not moved[:FIRST].any() and moved.sum() > 40
    assert (
        f"{moved.sum():,} of {tokenizer.vocab_size} word embeddings start from co-occurrences" in capfd.readouterr().out
    )
    assert torch.allclose(ours[name][moved].norm(dim=1), random[name].norm(dim=1).median())
    train = ExampleStore.open(job.examples_folder, "train", 16)
    counts = token_counts(train, tokenizer.vocab_size)[FIRST:] + 1
    expected = torch.from_numpy(np.log(counts / counts.sum())).float()
    assert torch.allclose(ours["mlm_head.bias"][FIRST:].log_softmax(0), expected, atol=1e-4)


def test_they_need_more_tokens_than_components(make_job):
    job = make_job(pretrain__initial_embeddings="cooccurrence", model__hidden_size=64)
    with pytest.raises(
        ConfigError, match=r"needs more tokens than components, found \d+ tokens and model.hidden_size=64"
    ):
        run_pretraining(job)
