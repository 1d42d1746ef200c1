"""What pretraining starts from: random weights or a checkpoint, whether it fits, and a head where it has none."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bertline.encoders.loading import LanguageModel, load_model, spread_layers
from bertline.examples.store import ExampleStore, num_segments, token_counts
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
from bertline.pretraining.data import read_examples_manifest
from bertline.pretraining.job import PretrainJob
from bertline.pretraining.objectives.distilled import Distilled
from bertline.pretraining.objectives.replaced_token import ReplacedToken
from bertline.pretraining.row_layout import pretraining_attention
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import resolve_folder
from bertline.tokenization.words import parts_of_new_tokens
from bertline.training.devices import Machine

# Keys of the model section that affect how weights are trained, not their shapes or meaning.
_FREE_MODEL_KEYS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range", "own")
# Weights with a row for each token; the output layer has the embeddings and a bias of its own.
_EMBEDDINGS, _BIAS = "bert.embeddings.word_embeddings.weight", "mlm_head.bias"


def build_model(job: PretrainJob, tokenizer: Tokenizer, machine: Machine, *, resumes: bool = False) -> LanguageModel:
    """Build the model with the weights of a new training: those of `start_from_folder`, or random ones.

    Args:
        resumes: Whether a checkpoint replaces all weights, so that none need be computed from the examples.

    Raises:
        ArtifactError: The examples were made with a vocabulary of another size, or for another objective.
        ConfigError: The checkpoint to start from has another shape or vocabulary, or the objective cannot learn from
            the examples in the steps of the phases.
    """
    examples = read_examples_manifest(job.examples_folder)
    if num_segments(examples) != job.objective.num_segments:
        raise ArtifactError(
            f"{job.examples_folder} has sequences of {num_segments(examples)} segment(s), objective.kind="
            f"{job.objective.kind} learns from {job.objective.num_segments}. Run the examples stage again with "
            f"examples={job.objective.examples}."
        )
    batch_sizes = [phase.global_batch_size for phase in job.pretrain.phases]
    ranks = machine.ranks.world_size
    problems = list(job.objective.problems(examples, batch_sizes, model=job.model, num_ranks=ranks))
    if problems:
        raise ConfigError("\n".join(problems))
    encoded_with = examples["vocab_size"]
    if encoded_with != tokenizer.vocab_size:
        raise ArtifactError(
            f"{job.examples_folder} was made with a vocabulary of {encoded_with} tokens, {job.tokenizer_folder} has "
            f"{tokenizer.vocab_size}. Run the examples stage again."
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
    """Load the teacher, in evaluation mode.

    Raises:
        ConfigError: It cannot teach this student.
    """
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
        problem = (
            f"the student has more layers ({ours.num_hidden_layers}) than it has ({config.num_hidden_layers}); lower "
            "model.num_hidden_layers"
        )
    elif objective.cosine_weight and ours.hidden_size != config.hidden_size:
        problem = (
            f"its hidden size is {config.hidden_size}, the student's {ours.hidden_size}, and vectors of two sizes "
            "have no cosine; use objective.cosine_weight=0 objective.start_from_teacher=false"
        )
    if problem is not None:
        raise ConfigError(f"objective.teacher names {folder}, which cannot teach this student: {problem}")
    return load_model(folder, "mlm").eval()


def start_at_layers(student: Any, teacher: Any) -> None:
    """Copy layers of the teacher (`spread_layers`), and all that both have besides (arXiv 1910.01108, section 3).

    Raises:
        ConfigError: A weight has another shape.
    """
    layers = spread_layers(len(teacher.bert.layers), len(student.bert.layers))
    theirs, weights = teacher.state_dict(), student.state_dict()
    for name, weight in weights.items():
        source = re.sub(r"(?<=layers\.)\d+", lambda number: str(layers[int(number[0])]), name)
        if source in theirs and theirs[source].shape != weight.shape:
            raise ConfigError(
                f"objective.start_from_teacher: {name} is {list(weight.shape)} in the student and "
                f"{list(theirs[source].shape)} in the teacher. Give the model the teacher's sizes, but for its layers, "
                "or set it to false."
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
    """Let the masked language model head that a checkpoint lacks begin at the frequencies of the examples."""
    train = _first_examples(job)
    counts, special_ids = token_counts(train, tokenizer.vocab_size), tuple(train.manifest["special_ids"].values())
    start_at_unigrams(model, counts, special_ids, seed=job.pretrain.seed)
    say("the checkpoint has no masked language model head: it starts with the frequencies of the tokens")


def _start_at_checkpoint(model: MaskedLanguageModel, job: PretrainJob, folder: Path, tokenizer: Tokenizer) -> None:
    """Load the weights of the checkpoint, with new tokens and a head that it lacks."""
    refuse_other_vocabulary(job.model, folder, tokenizer)
    # Another head that the checkpoint lacks is initialised randomly, with a warning.
    starts_neutral = not has_mlm_head(folder)
    new_head = (MLM_HEAD,) if starts_neutral else ()
    start = load_with_head(folder, job.objective.model_class(), new_head=new_head)
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
    """Return why a vocabulary does not begin with that of a checkpoint, in a line; empty if it does.

    Rows of the embeddings behind the checkpoint's own tokens are padding to a round size, and are not compared.
    """
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

    The embedding of a new token is the mean of those of its parts, and so is its bias in the masked language model
    head, so that the model begins with what it knows of the parts.

    Args:
        num_old: Number of tokens of the model. Rows behind them, which pad embeddings to a round size, are left out.
        parts: [new tokens] ids of the old tokens that stood for each new one; at least one each.
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

    A random head on a trained encoder is confident and wrong, worse than a uniform guess, and its gradients reach the
    encoder. Here the transform starts neutral: weights 0 and a random bias, so its output is one constant vector `n`
    with the size that the LayerNorm gives. The output bias is `log p - E n` with the embeddings `E`, so that the logits
    are `log p`. The first step reaches the transform's weights, the second the encoder.

    Args:
        counts: [vocab_size] count of each token in the train examples. One is added to each.
        special_ids: Ids of tokens that are never targets; they count as never seen.

    References:
        Zero-initialised residual branches begin neutral in the same way: arXiv 1706.02677, section 5.1.
    """
    if not isinstance(model, MaskedLanguageModel):
        model.start_neutral(_log_frequencies(counts, special_ids), seed=seed_for(seed, "mlm_head.transform.bias"))
        return
    head, words = model.mlm_head, model.bert.embeddings.word_embeddings.weight
    generator = torch.Generator(device="cpu").manual_seed(seed_for(seed, "mlm_head.transform.bias"))
    head.transform.weight.zero_()
    # Standard deviation 1: small ones would let the LayerNorm turn a single step into another vector.
    head.transform.bias.copy_(torch.empty(head.transform.bias.shape).normal_(generator=generator))
    head.norm.weight.fill_(1.0)
    head.norm.bias.zero_()
    constant = head.norm(head.activation(head.transform.bias))
    head.bias.copy_(_log_frequencies(counts, special_ids) - words @ constant)


@torch.no_grad()
def start_at_cooccurrences(model: MaskedLanguageModel, train: ExampleStore, *, seed: int) -> int:
    """Replace random word embeddings by those of co-occurrences, scaled to their length; return how many.

    The output bias starts at the logarithms of the frequencies: the product of two embeddings grows with the
    information of a pair beyond the frequencies of its tokens. Tokens that co-occur with none keep their random
    embeddings. With several ranks, each computes them, and training begins with those of the first.

    Raises:
        ConfigError: There are no more tokens than components.
    """
    # Imported here, because it needs SciPy and scikit-learn, which a bare GPU image lacks.
    from bertline.pretraining.cooccurrence import cooccurrence_embeddings

    words = model.bert.embeddings.word_embeddings.weight
    vocab_size, hidden_size = words.shape
    if vocab_size <= hidden_size:
        raise ConfigError(
            f"pretrain.initial_embeddings needs more tokens than components, found {vocab_size} tokens and "
            f"model.hidden_size={hidden_size}. Set it to null, or take a larger tokenizer.vocab_size."
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
