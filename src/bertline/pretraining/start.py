"""What pretraining starts from: random weights or a checkpoint, whether it fits, and a head where it has none."""

import dataclasses
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bertline.encoders.loading import LanguageModel, load_model, spread_layers
from bertline.examples.store import ExampleStore, num_segments, read_examples_manifest, token_counts
from bertline.foundation.errors import ArtifactError, ConfigError
from bertline.foundation.progress import say
from bertline.foundation.seeds import seed_for
from bertline.modeling.attention import attention_device
from bertline.modeling.bert import MaskedLanguageModel
from bertline.modeling.config import ModelConfig
from bertline.modeling.families import FAMILIES
from bertline.modeling.huggingface import MLM_HEAD, has_mlm_head, load_with_head, read_config
from bertline.modeling.initialization import initialize
from bertline.modeling.weight_files import read_weight_names
from bertline.pretraining.job import PretrainJob
from bertline.pretraining.objectives.distilled import Distilled
from bertline.pretraining.objectives.replaced_token import ReplacedToken
from bertline.pretraining.plan import pretraining_attention
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import resolve_folder
from bertline.tokenization.words import parts_of_new_tokens
from bertline.training.devices import Machine

# Keys of the model section that affect how weights are trained, not their shapes or meaning.
_FREE_MODEL_KEYS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range", "own")
# Weights with a row for each token; the output layer has the embeddings and a bias of its own.
_EMBEDDINGS, _BIAS = "bert.embeddings.word_embeddings.weight", "mlm_head.bias"

_WINDOW = 5
"""Largest distance between two tokens that co-occur; a pair counts for one over its distance (GloVe, section 4.2)."""
_CONTEXT_SMOOTHING = 0.75
"""Power of the frequencies of contexts, without which rare contexts have the largest values (Levy et al. 2015)."""
_FEWEST_COUNTS = 1.0
"""Pairs that count for less are left out: the rarest, three quarters of all."""
_MOST_TOKENS = 1 << 26
"""About how many tokens are counted, in batches from all of the text: more would cost minutes."""
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
    examples = read_examples_manifest(job.examples_folder)
    if num_segments(examples) != job.objective.num_segments:
        raise ArtifactError(
            f"{job.examples_folder} has sequences of {num_segments(examples)} segment(s), objective.kind="
            f"{job.objective.kind} learns from {job.objective.num_segments}: use examples={job.objective.examples}."
        )
    batch_sizes, num_ranks = [phase.global_batch_size for phase in job.pretrain.phases], machine.ranks.world_size
    if problems := list(job.objective.problems(examples, batch_sizes, model=job.model, num_ranks=num_ranks)):
        raise ConfigError("\n".join(problems))
    if examples["vocab_size"] != tokenizer.vocab_size:
        raise ArtifactError(
            f"{job.examples_folder} was made with a vocabulary of {examples['vocab_size']} tokens, "
            f"{job.tokenizer_folder} has {tokenizer.vocab_size}. Run the examples stage again."
        )
    if FAMILIES[job.model.family].wrapping is not None:
        return _wrapped(job, tokenizer)
    device = attention_device(machine.device, machine.precision)
    first_length = job.pretrain.phases[0].max_length
    model = job.objective.model_class()(
        job.model,
        vocab_size=tokenizer.vocab_size,
        pad_token_id=tokenizer.pad_id,
        attention=pretraining_attention(job.runtime, job.model, device, first_length).kind,
    )
    if isinstance(job.objective, Distilled):
        # Not registered as a submodule.
        object.__setattr__(model, "teacher", _teacher(job, job.objective, tokenizer).to(machine.device))
    if job.start_from_folder is not None:
        _start_at_checkpoint(model, job, job.start_from_folder, tokenizer)
        return model
    initialize(model, job.model, seed=job.pretrain.seed)
    if isinstance(job.objective, Distilled) and job.objective.start_from_teacher:
        start_at_layers(model, model.teacher)
    if job.pretrain.initial_embeddings is not None and not resumes:
        num_found = start_at_cooccurrences(model, _first_examples(job), seed=job.pretrain.seed)
        say(f"{num_found:,} of {tokenizer.vocab_size:,} word embeddings start from co-occurrences in the examples")
    return model


def _teacher(job: PretrainJob, objective: Distilled, tokenizer: Tokenizer) -> nn.Module:
    """Load the teacher, in evaluation mode; ConfigError if it cannot teach this student."""
    folder = resolve_folder(objective.teacher)
    config, ours, problem = read_config(folder)[0], job.model, None
    if FAMILIES[config.family].wrapping is not None or not has_mlm_head(folder):
        problem = "it is not of BERT's kin, or has no masked language model head"
    elif Tokenizer.load(folder).vocab != tokenizer.vocab:
        problem = (
            "its vocabulary is another one, so its distributions are over other tokens: use tokenizer=existing "
            f"tokenizer.path={objective.teacher}"
        )
    elif ours.num_hidden_layers > config.num_hidden_layers:
        problem = f"the student has more layers ({ours.num_hidden_layers}) than it ({config.num_hidden_layers})"
    elif objective.cosine_weight and ours.hidden_size != config.hidden_size:
        problem = (
            f"its hidden size is {config.hidden_size}, the student's {ours.hidden_size}; use objective.cosine_weight=0 "
            "objective.start_from_teacher=false"
        )
    if problem is not None:
        raise ConfigError(f"objective.teacher names {folder}, which cannot teach this student: {problem}")
    return load_model(folder, "mlm").eval()


def start_at_layers(student: Any, teacher: Any) -> None:
    """Copy layers of the teacher (`spread_layers`), and all that both have besides (arXiv 1910.01108, section 3)."""
    layers = spread_layers(len(teacher.bert.layers), len(student.bert.layers))
    theirs, weights = teacher.state_dict(), student.state_dict()
    for name, weight in weights.items():
        source = re.sub(r"(?<=layers\.)\d+", lambda number: str(layers[int(number[0])]), name)
        if source in theirs and theirs[source].shape != weight.shape:
            raise ConfigError(
                f"objective.start_from_teacher: {name} is {list(weight.shape)} in the student and "
                f"{list(theirs[source].shape)} in the teacher. Give the model the teacher's sizes, or set it to false."
            )
        weight.copy_(theirs.get(source, weight))


def _wrapped(job: PretrainJob, tokenizer: Tokenizer) -> LanguageModel:
    """Build the model of a wrapped family: from scratch or from a checkpoint, whose rows of embeddings all stay."""
    from bertline.encoders.wrapped import load_wrapped, new_language_model, start_replaced_token  # loads transformers

    folder, seed = job.start_from_folder, job.pretrain.seed
    if folder is not None:
        refuse_other_vocabulary(job.model, folder, tokenizer)
    if isinstance(job.objective, ReplacedToken):
        return start_replaced_token(job.model, tokenizer, job.objective.generator_width, folder=folder, seed=seed)
    head = "pretraining" if job.objective.with_pooler else "mlm"
    if folder is None:
        return new_language_model(job.model, tokenizer, head, seed=seed)
    is_new = not any(name.startswith(MLM_HEAD) for name in read_weight_names(folder))
    dropouts = (job.model.hidden_dropout_prob, job.model.attention_probs_dropout_prob)
    model: Any = load_wrapped(folder, head, num_outputs=None, is_new=is_new, dropout_probs=dropouts, seed=seed)
    if not has_mlm_head(folder):
        _start_neutral(model, job, tokenizer)
    say(f"pretraining starts from {folder}")
    return model


def _start_neutral(model: LanguageModel, job: PretrainJob, tokenizer: Tokenizer) -> None:
    train = _first_examples(job)
    counts, special_ids = token_counts(train, tokenizer.vocab_size), tuple(train.manifest["special_ids"].values())
    start_at_unigrams(model, counts, special_ids, seed=job.pretrain.seed)
    say("the checkpoint has no masked language model head: it starts with the frequencies of the tokens")


def _start_at_checkpoint(model: MaskedLanguageModel, job: PretrainJob, folder: Path, tokenizer: Tokenizer) -> None:
    """Load the weights of the checkpoint, with new tokens; another head that it lacks is random, with a warning."""
    refuse_other_vocabulary(job.model, folder, tokenizer)
    starts_neutral = not has_mlm_head(folder)
    start = load_with_head(folder, job.objective.model_class(), new_head=(MLM_HEAD,) if starts_neutral else ())
    theirs = Tokenizer.load(folder)
    parts = parts_of_new_tokens(theirs, tokenizer)
    model.load_state_dict(with_rows_of_tokens(start.state_dict(), num_old=theirs.vocab_size, parts=parts))
    if parts:
        say(f"{len(parts):,} new tokens begin as the means of their old subwords")
    if padding := start.bert.vocab_size - theirs.vocab_size:
        say(f"{padding:,} rows of the checkpoint's embeddings that stand for no token are left out")
    if starts_neutral:
        _start_neutral(model, job, tokenizer)
    say(f"pretraining starts from {folder}")


def _first_examples(job: PretrainJob) -> ExampleStore:
    return ExampleStore.open(job.examples_folder, "train", job.pretrain.phases[0].max_length)


def refuse_other_vocabulary(model: ModelConfig, folder: Path, tokenizer: Tokenizer) -> None:
    """Raise ConfigError unless a checkpoint has the sizes of the model section, and the vocabulary or its beginning."""
    refuse_misfits(folder, [*shape_differences(model, folder), *vocabulary_differences(tokenizer.vocab, folder)])


def refuse_misfits(folder: Path, problems: Sequence[str]) -> None:
    """Raise ConfigError if a checkpoint does not fit."""
    if problems:
        raise ConfigError(
            f"pretrain.start_from names {folder}, which does not fit:\n"
            + "\n".join(f"  - {problem}" for problem in problems)
            + "\nmodel=from_checkpoint takes the checkpoint's sizes; tokenizer=existing tokenizer.path=FOLDER its "
            "vocabulary (experiment=continued does), and tokenizer=extended that with words of the corpus behind it."
        )


def shape_differences(model: ModelConfig, folder: Path) -> list[str]:
    """Return a line for each key in which the model section differs from a checkpoint's config.json."""
    ours, theirs = dataclasses.asdict(model), dataclasses.asdict(read_config(folder)[0])
    return [
        f"model.{key} is {ours[key]}, the checkpoint's is {theirs[key]}"
        for key in ours
        if key not in _FREE_MODEL_KEYS and ours[key] != theirs[key]
    ]


def vocabulary_differences(ours: Sequence[str], folder: Path) -> list[str]:
    """Return why a vocabulary does not begin with that of a checkpoint, in a line; empty if it does."""
    theirs, rows = Tokenizer.load(folder).vocab, read_config(folder)[1]
    for index, (our, their) in enumerate(zip(ours, theirs, strict=False)):
        if our != their:
            return [f"token {index} is {our!r} in the tokenizer and {their!r} in the checkpoint"]
    if len(ours) < len(theirs):
        return [f"the tokenizer has {len(ours)} tokens, the checkpoint {len(theirs)}"]
    return [f"the checkpoint has {len(theirs)} tokens, but {rows} rows of embeddings"] if rows < len(theirs) else []


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
    parts = [model.mlm_head] if isinstance(model, MaskedLanguageModel) else [part for _, part in model.head]
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
