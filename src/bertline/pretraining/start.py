"""What pretraining starts from: random weights or a checkpoint, whether it fits, and a head where it has none."""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bertline.encoders.loading import LanguageModel
from bertline.examples.store import ExampleStore, num_segments, read_examples_manifest, token_counts
from bertline.foundation.errors import ArtifactError, ConfigError
from bertline.foundation.progress import say
from bertline.foundation.seeds import seed_for
from bertline.modeling.attention import attention_device
from bertline.modeling.bert import MaskedLanguageModel
from bertline.modeling.checkpoint import MLM_HEAD, Checkpoint
from bertline.modeling.config import ModelConfig
from bertline.modeling.families import FAMILIES
from bertline.modeling.huggingface import load_with_head
from bertline.modeling.initialization import initialize
from bertline.pretraining.job import PretrainJob
from bertline.pretraining.plan import pretraining_attention
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.words import parts_of_new_tokens
from bertline.training.devices import Machine

# Keys of the model section that affect how weights are trained, not their shapes or meaning.
_FREE_MODEL_KEYS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range", "own")
# Weights with a row for each token; the output layer has the embeddings and a bias of its own.
_EMBEDDINGS, _BIAS = "bert.embeddings.word_embeddings.weight", "mlm_head.bias"

# Largest distance between two tokens that co-occur; a pair counts for one over its distance (GloVe, section 4.2).
_WINDOW = 5
# Power of the frequencies of contexts, without which rare contexts have the largest values (Levy et al. 2015).
_CONTEXT_SMOOTHING = 0.75
# Pairs that count for less are left out: the rarest, three quarters of all.
_FEWEST_COUNTS = 1.0
# About how many tokens are counted, in batches from all of the text: more would cost minutes.
_MOST_TOKENS = 1 << 26
_BATCH_TOKENS = 1 << 22
_POWER_ITERATIONS = 4
_Counts = Any  # a sparse matrix of scipy, which has no types and is imported where used


def build_model(job: PretrainJob, tokenizer: Tokenizer, machine: Machine, *, resumes: bool = False) -> LanguageModel:
    """Build the model with the weights of a new training: those of `start_from_folder`, or random ones.

    `resumes` says that a checkpoint replaces all weights, so that none need be computed from the examples.

    Raises:
        ArtifactError: The examples were made with a vocabulary of another size, or for another objective.
        ConfigError: The checkpoint to start from does not fit, or the objective cannot learn from the examples.
    """
    objective = job.objective
    examples = read_examples_manifest(job.examples_folder)
    if num_segments(examples) != objective.num_segments:
        raise ArtifactError(
            f"{job.examples_folder} has sequences of {num_segments(examples)} segment(s), objective.kind="
            f"{objective.kind} learns from {objective.num_segments}: use examples={objective.examples}."
        )
    batch_sizes, num_ranks = [phase.global_batch_size for phase in job.pretrain.phases], machine.ranks.world_size
    if problems := list(objective.problems(examples, batch_sizes, model=job.model, num_ranks=num_ranks)):
        raise ConfigError("\n".join(problems))
    if examples["vocab_size"] != tokenizer.vocab_size:
        raise ArtifactError(
            f"{job.examples_folder} was made with a vocabulary of {examples['vocab_size']} tokens, "
            f"{job.tokenizer_folder} has {tokenizer.vocab_size}. Run the examples stage again."
        )
    train = ExampleStore.open(job.examples_folder, "train", job.pretrain.phases[0].max_length)
    checkpoint = None if job.start_from_folder is None else Checkpoint.open(job.start_from_folder)
    if checkpoint is not None:
        refuse_misfits(checkpoint, misfits(checkpoint, job.model, tokenizer.vocab))
    model: Any
    if FAMILIES[job.model.family].wrapping is not None:
        model = objective.wrapped_model(job.model, tokenizer, checkpoint, seed=job.pretrain.seed)
    else:
        model = _own_model(job, tokenizer, machine)
        if checkpoint is not None:
            _take_weights(model, checkpoint, tokenizer)
        else:
            initialize(model, job.model, seed=job.pretrain.seed)
            objective.start(model)
            if job.pretrain.initial_embeddings is not None and not resumes:
                num_found = start_at_cooccurrences(model, train, seed=job.pretrain.seed)
                of_all = f"{num_found:,} of {tokenizer.vocab_size:,}"
                say(f"{of_all} word embeddings start from co-occurrences in the examples")
    if checkpoint is not None:
        if objective.fills_blanks and not checkpoint.has_mlm_head:
            counts, special_ids = token_counts(train, tokenizer.vocab_size), train.manifest["special_ids"].values()
            start_at_unigrams(model, counts, tuple(special_ids), seed=job.pretrain.seed)
            say("the checkpoint has no masked language model head: it starts with the frequencies of the tokens")
        say(f"pretraining starts from {checkpoint.folder}")
    return model


def _own_model(job: PretrainJob, tokenizer: Tokenizer, machine: Machine) -> MaskedLanguageModel:
    """Return a model of bertline's own layers, without weights, beside its teacher."""
    device = attention_device(machine.device, machine.precision)
    model = job.objective.model_class()(
        job.model,
        vocab_size=tokenizer.vocab_size,
        pad_token_id=tokenizer.pad_id,
        attention=pretraining_attention(job.runtime, job.model, device, job.pretrain.phases[0].max_length).kind,
    )
    if (teacher := job.objective.load_teacher(job.model, tokenizer)) is not None:
        object.__setattr__(model, "teacher", teacher.to(machine.device))  # not registered as a submodule
    return model


def _take_weights(model: MaskedLanguageModel, checkpoint: Checkpoint, tokenizer: Tokenizer) -> None:
    """Load the weights of the checkpoint, with new tokens; another head that it lacks is random, with a warning."""
    new_head = () if checkpoint.has_mlm_head else (MLM_HEAD,)
    start = load_with_head(checkpoint, type(model), new_head=new_head)
    theirs = checkpoint.tokenizer
    parts = parts_of_new_tokens(theirs, tokenizer)
    model.load_state_dict(with_rows_of_tokens(start.state_dict(), num_old=theirs.vocab_size, parts=parts))
    if parts:
        say(f"{len(parts):,} new tokens begin as the means of their old subwords")
    if padding := start.bert.vocab_size - theirs.vocab_size:
        say(f"{padding:,} rows of the checkpoint's embeddings that stand for no token are left out")


def misfits(checkpoint: Checkpoint, model: ModelConfig, vocab: Sequence[str] | None) -> Iterator[str]:
    """Yield a line for each way in which a checkpoint does not fit the model section, and a vocabulary if there is one.

    The vocabulary fits if it begins with that of the checkpoint.
    """
    ours, theirs = dataclasses.asdict(model), dataclasses.asdict(checkpoint.config)
    for key in ours:
        if key not in _FREE_MODEL_KEYS and ours[key] != theirs[key]:
            yield f"model.{key} is {ours[key]}, the checkpoint's is {theirs[key]}"
    if vocab is None:
        return
    old = checkpoint.tokenizer.vocab
    index = next((index for index, pair in enumerate(zip(vocab, old, strict=False)) if pair[0] != pair[1]), None)
    if index is not None:
        yield f"token {index} is {vocab[index]!r} in the tokenizer and {old[index]!r} in the checkpoint"
    elif len(vocab) < len(old):
        yield f"the tokenizer has {len(vocab)} tokens, the checkpoint {len(old)}"


def refuse_misfits(checkpoint: Checkpoint, problems: Iterable[str]) -> None:
    """Raise ConfigError if there are `misfits`."""
    if lines := [f"  - {problem}" for problem in problems]:
        raise ConfigError(
            f"pretrain.start_from names {checkpoint.folder}, which does not fit:\n"
            + "\n".join(lines)
            + "\nmodel=from_checkpoint takes the checkpoint's sizes; tokenizer=existing tokenizer.path=FOLDER its "
            "vocabulary (experiment=continued does), and tokenizer=extended that with words of the corpus behind it."
        )


def with_rows_of_tokens(
    weights: Mapping[str, Tensor], *, num_old: int, parts: Sequence[Sequence[int]]
) -> dict[str, Tensor]:
    """Return the weights of a model with one row for each token: the old ones as they are, behind them the new ones.

    The embedding of a new token is the mean of those of its `parts`, the ids of the old tokens that stood for it, and
    so is its bias in the masked language model head. Rows behind the `num_old` tokens, which pad embeddings to a round
    size, are left out.
    """
    resized = dict(weights)
    for name in (_EMBEDDINGS, _BIAS):
        old = weights[name][:num_old]
        means = [old[list(ids)].double().mean(0, keepdim=True).to(old.dtype) for ids in parts]
        resized[name] = torch.cat([old, *means])
    return resized


@torch.no_grad()
def start_at_unigrams(model: LanguageModel, counts: npt.ArrayLike, special_ids: Sequence[int], *, seed: int) -> None:
    """Make the masked language model head predict the frequencies of tokens, whatever the encoder says.

    A random head on a trained encoder is confident and wrong, and its gradients reach the encoder. Here the transform
    starts neutral (as in arXiv 1706.02677, section 5.1): weights 0 and a random bias, so its output is one constant
    vector `n`. The output bias is `log p - E n` with the embeddings `E`, so that the logits are `log p`. The first step
    reaches the transform's weights, the second the encoder. Where the transform has no bias (ModernBERT), the norm
    behind it has the scale 0.

    Args:
        counts: [vocab_size] count of each token in the train examples. One is added to each.
        special_ids: Ids of tokens that are never targets; they count as never seen.
    """
    parts = [part for _, part in model.head]
    modules = [module for part in parts for module in part.modules()]
    words, vocab_size = model.bert.word_embeddings, model.bert.vocab_size
    dense = next(each for each in modules if isinstance(each, nn.Linear) and each.out_features != vocab_size)
    norm = next(module for module in modules if isinstance(module, nn.LayerNorm))
    output_bias = next(weight for part in parts for weight in part.parameters() if weight.shape == (vocab_size,))
    output_bias.zero_()
    norm.weight.fill_(0.0 if dense.bias is None else 1.0)
    if dense.bias is not None:
        generator = torch.Generator(device="cpu").manual_seed(seed_for(seed, "mlm_head.transform.bias"))
        dense.weight.zero_()
        # Standard deviation 1: small ones would let the LayerNorm turn a single step into another vector.
        dense.bias.copy_(torch.empty(dense.bias.shape).normal_(generator=generator))
    if norm.bias is not None:
        norm.bias.zero_()
    constant = model.mlm_logits(words.new_zeros(1, 1, model.bert.config.hidden_size))[0, 0]
    frequencies = _log_frequencies(counts, special_ids)
    # Rows of the embeddings behind the tokens pad them to a round size, and are as rare as can be.
    output_bias.fill_(float(frequencies.min()))
    output_bias[: len(frequencies)] = frequencies
    output_bias -= constant


@torch.no_grad()
def start_at_cooccurrences(model: MaskedLanguageModel, train: ExampleStore, *, seed: int) -> int:
    """Replace random word embeddings by those of co-occurrences, scaled to their length; return how many.

    With random embeddings the first hundreds of steps teach the model little beyond the frequencies of tokens. The
    output bias starts at their logarithms; tokens that co-occur with none keep their random embeddings. With several
    ranks, each computes them, and training begins with those of the first.
    """
    words = model.bert.embeddings.word_embeddings.weight
    vocab_size, hidden_size = words.shape
    if vocab_size <= hidden_size:
        raise ConfigError(
            f"pretrain.initial_embeddings needs more tokens than components, found {vocab_size} tokens and "
            f"model.hidden_size={hidden_size}. Set it to null."
        )
    found = cooccurrence_embeddings(train, vocab_size=vocab_size, hidden_size=hidden_size, seed=seed)
    is_found = found.norm(dim=1) > 0
    words[is_found] = found[is_found] * words.norm(dim=1).median()
    special_ids = tuple(train.manifest["special_ids"].values())
    model.mlm_head.bias.copy_(_log_frequencies(token_counts(train, vocab_size), special_ids))
    return int(is_found.sum())


def _log_frequencies(counts: npt.ArrayLike, special_ids: Sequence[int]) -> Tensor:
    """Return [vocab_size] the logarithms of the frequencies, each count one higher, special tokens as if never seen."""
    smoothed = np.asarray(counts, dtype=np.float64) + 1
    smoothed[list(special_ids)] = 1  # not 0, whose logarithm would be infinite
    return torch.from_numpy(np.log(smoothed / smoothed.sum())).float()


def cooccurrence_embeddings(store: ExampleStore, *, vocab_size: int, hidden_size: int, seed: int) -> Tensor:
    """Return [vocab_size, hidden_size] embeddings of length 1; rows of 0 for tokens that co-occur with none.

    They are the left singular vectors of the positive pointwise mutual information of tokens, each times the square
    root of its singular value, so that the product of two embeddings grows with the information of the pair. A random
    rotation spreads what the first vectors hold over all components. `vocab_size` is above `hidden_size`.

    Reference: Levy, Goldberg and Dagan, Improving Distributional Similarity with Lessons Learned from Word Embeddings
    (TACL 2015), sections 3.1 and 3.3. Halko et al. (arXiv 0909.4061), algorithm 5.1.
    """
    from sklearn.utils.extmath import randomized_svd

    information = positive_information(cooccurrences(store, vocab_size))
    generator = np.random.default_rng(seed_for(seed, "cooccurrence_embeddings"))
    drawn = int(generator.integers(1 << 31))
    left, values, _ = randomized_svd(information, hidden_size, n_iter=_POWER_ITERATIONS, random_state=drawn)
    rotation, _ = np.linalg.qr(generator.normal(size=(hidden_size, hidden_size)))
    rows = (left * np.sqrt(values)) @ rotation
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    is_known = np.asarray(information.getnnz(axis=1) > 0)[:, None] & (lengths > 0)
    return torch.from_numpy(np.divide(rows, lengths, out=np.zeros_like(rows), where=is_known).astype(np.float32))


def cooccurrences(store: ExampleStore, vocab_size: int) -> _Counts:
    """Return [vocab_size, vocab_size] how often two tokens stand near each other, the nearer the more; symmetric."""
    from scipy import sparse

    special_ids = np.array(sorted(store.manifest["special_ids"].values()))
    counts = sparse.csr_matrix((vocab_size, vocab_size), dtype=np.float32)
    every = max(1, math.ceil(store.num_tokens / _MOST_TOKENS))
    size = _BATCH_TOKENS
    batches = (ids[start : start + size] for ids, _ in store.shards for start in range(0, len(ids), size))
    for batch in itertools.islice(batches, 0, None, every):
        counts += _one_sided(batch, special_ids, vocab_size)
    return counts + counts.T


def _one_sided(ids: npt.NDArray[np.unsignedinteger], special_ids: npt.NDArray[np.int64], vocab_size: int) -> _Counts:
    from scipy import sparse

    is_special = np.isin(ids, special_ids)
    segments = np.cumsum(is_special)
    rows, columns, weights = [], [], []
    for distance in range(1, _WINDOW + 1):
        left, right = ids[:-distance], ids[distance:]
        together = (segments[:-distance] == segments[distance:]) & ~is_special[:-distance]
        rows.append(left[together])
        columns.append(right[together])
        weights.append(np.full(int(together.sum()), 1 / distance, dtype=np.float32))
    pairs = (np.concatenate(rows).astype(np.int32), np.concatenate(columns).astype(np.int32))
    return sparse.coo_matrix((np.concatenate(weights), pairs), shape=(vocab_size, vocab_size)).tocsr()


def positive_information(counts: _Counts) -> _Counts:
    """Return the positive pointwise mutual information: `max(0, log(p(token, context) / (p(token) p(context))))`."""
    from scipy import sparse

    of_token = np.asarray(counts.sum(axis=1), dtype=np.float64).ravel()
    of_context = of_token**_CONTEXT_SMOOTHING
    pairs = counts.tocoo(copy=False)
    is_frequent = pairs.data >= _FEWEST_COUNTS  # first, as only a quarter are left to compute
    rows, columns, together = pairs.row[is_frequent], pairs.col[is_frequent], pairs.data[is_frequent]
    expected = of_token[rows] * of_context[columns] / max(of_context.sum(), 1e-9)
    values = np.log(together / expected)
    above = values > 0
    return sparse.csr_matrix((values[above].astype(np.float32), (rows[above], columns[above])), shape=counts.shape)
