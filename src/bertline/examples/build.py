"""The examples stage: sequences of every configured length, a manifest, and a few examples as readable text.

The manifest has the unigram entropy: the loss of a baseline that knows only token frequencies.
"""

from __future__ import annotations

import shutil
import textwrap
from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bertline.corpus.document import Split
from bertline.corpus.storage import has_sources, num_documents, read_documents
from bertline.examples.bounds import FIGURES, figures_of, refuse_outside
from bertline.examples.config import ExamplesConfig, StaticMaskingConfig
from bertline.examples.encoding import EncodedCorpus, SourcesOfDocuments, encode_corpus
from bertline.examples.generation import blocks_of_documents, generate_block, shuffled
from bertline.examples.masking import MaskingPolicy, mask_example, masked_batch, masking_policy
from bertline.examples.store import (
    FORMAT_VERSION,
    KIND,
    Array,
    ExampleStore,
    ExampleWriter,
    layout_of,
    num_segments,
    special_ids_of,
    split_folder,
    token_counts,
)
from bertline.foundation.errors import DataError
from bertline.foundation.files import folder_written_atomically, size_of_path, write_atomically
from bertline.foundation.labels import IGNORED_LABEL
from bertline.foundation.manifests import versions_of, write_manifest
from bertline.foundation.parallel import ordered_map
from bertline.foundation.progress import progress, warn
from bertline.foundation.seeds import generator
from bertline.foundation.validation import to_mapping
from bertline.tokenization.tokenizer import Layout, Tokenizer
from bertline.tokenization.vocabulary import CONTINUATION
from bertline.tokenization.words import word_starts

_BATCH_EXAMPLES = 1024


def unigram_entropy(train_counts: npt.ArrayLike, target_counts: npt.ArrayLike, special_ids: Sequence[int]) -> float:
    """Return the cross-entropy, in nats, of the train split's token frequencies on the validation targets.

    Args:
        train_counts: [vocab_size] count of each token in the train examples. One is added to each count, so that
            tokens unseen in training do not have infinite loss.
        target_counts: [vocab_size] count of each token among the validation targets.
        special_ids: Ids of tokens that are never targets; they get probability 0.

    Example:
        >>> round(unigram_entropy([0, 3, 1], [0, 2, 0], special_ids=[0]), 4)  # -log(4 / 6)
        0.4055
    """
    smoothed = np.asarray(train_counts, dtype=np.float64) + 1
    smoothed[list(special_ids)] = 0
    targets = np.asarray(target_counts, dtype=np.float64)
    seen = targets > 0
    surprise = -np.log(smoothed[seen] / smoothed.sum())
    return float((targets[seen] * surprise).sum() / targets.sum())


def target_counts(store: ExampleStore, *, seed: int, policy: MaskingPolicy) -> Array:
    """Return [vocab_size] the count of each token among the targets of epoch 0, whose masks validation always uses."""
    counts = np.zeros(policy.vocab_size, dtype=np.int64)
    for start in range(0, len(store), _BATCH_EXAMPLES):
        indices = np.arange(start, min(start + _BATCH_EXAMPLES, len(store)))
        labels = masked_batch(store, indices, epoch=0, seed=seed, policy=policy)["masked_labels"]
        counts += np.bincount(labels[labels != IGNORED_LABEL], minlength=policy.vocab_size)
    return counts


NUM_READABLE = 20

_LEGEND = """\
{count} of {total:,} training examples of at most {length} tokens, drawn at random, with their masks of epoch 0.
  <word={mask}>   a target: the model sees {mask} and must say word
  <word=other>    a target: the model sees another, random token and must say word
  <word=>         a target: the model sees word itself and must say word
  {mark}
"""
_CONTINUES, _BEGINS = f"{CONTINUATION}s             continues a word", "Ġs or ▁s        begins a word"


def write_readable(path: Path, store: ExampleStore, tokenizer: Tokenizer, *, seed: int, policy: MaskingPolicy) -> None:
    """Write `NUM_READABLE` examples, chosen by the seed, to a text file."""
    count = min(NUM_READABLE, len(store))
    chosen = sorted(generator(seed, "readable", store.max_length).choice(len(store), count, replace=False).tolist())
    mask, mark = tokenizer.mask_token, _CONTINUES if tokenizer.is_wordpiece else _BEGINS
    parts = [_LEGEND.format(count=count, total=len(store), length=store.max_length, mask=mask, mark=mark)]
    parts += [describe_example(store, index, tokenizer, seed=seed, policy=policy) for index in chosen]
    write_atomically(path, "\n".join(parts))


def describe_example(store: ExampleStore, index: int, tokenizer: Tokenizer, *, seed: int, policy: MaskingPolicy) -> str:
    """Return the text of one example: a heading, then segment A and segment B, each starting on a new line."""
    example = store[index]
    masked = mask_example(example, seed=seed, epoch=0, example_id=index, policy=policy)
    tokens = tokenizer.tokens(masked.input_ids.tolist())
    true_tokens = tokenizer.tokens(example.input_ids.tolist())
    for position in masked.masked_positions.tolist():
        shown, true = tokens[position], true_tokens[position]
        tokens[position] = f"<{true}={'' if shown == true else shown}>"
    figures = f"{len(tokens)} tokens, {len(masked.masked_positions)} targets"
    if store.num_segments == 1:
        return "\n".join([f"example {index}: {figures}", _segment("A", tokens), ""])
    first = example.first_segment_length
    wrong = "what A follows" if store.manifest.get("swapped_prob") else "a random segment of another document"
    kind = wrong if example.next_sentence_label else "what follows A"
    heading = f"example {index}: B is {kind} (label {example.next_sentence_label}); {figures}"
    return "\n".join([heading, _segment("A", tokens[:first]), _segment("B", tokens[first:]), ""])


def _segment(name: str, tokens: list[str]) -> str:
    return textwrap.fill(
        " ".join(tokens),
        width=118,
        initial_indent=f"  {name}: ",
        subsequent_indent="     ",
        break_long_words=False,
        break_on_hyphens=False,
    )


_SPLITS: tuple[Split, ...] = ("train", "validation")
_MUCH_TRUNCATED = 0.5


def build_examples(
    config: ExamplesConfig, tokenizer_folder: Path, corpus_folder: Path, out: Path, *, num_workers: int
) -> dict[str, float | int]:
    """Build the examples artifact: shards for each length and split, `readable-LENGTH.txt`, `manifest.json`.

    The output bytes depend only on corpus, tokenizer and configuration, not on `num_workers`. Memory is bounded by a
    few batches and one shard; the encoded corpus is stored on disk during the build (2 or 4 bytes per token).

    Returns:
        Summary metrics for each length: examples, tokens, fraction of random next segments, unigram entropy.

    Raises:
        DataError: A split has too few documents, or too little text, to make pairs from.
    """
    tokenizer = Tokenizer.load(tokenizer_folder)
    for split in _SPLITS:  # both, before either is encoded, which can take hours
        _refuse_too_few(split, config, num_documents(corpus_folder, split), without_tokens=0)
    with folder_written_atomically(out) as folder:
        encoded = folder / "encoded"
        corpus_counts = {
            split: _encode(split, config, tokenizer_folder, corpus_folder, encoded / split, num_workers)
            for split in _SPLITS
        }
        masking, starts = to_mapping(config.masking), {}
        if masking["unit"] == "token":
            del masking["unit"]
        else:
            starts["word_starts"] = b64encode(np.packbits(word_starts(tokenizer)).tobytes()).decode()
        manifest: dict[str, Any] = {
            "seed": config.seed,
            "masking": masking,
            "dupe_factor": _dupe_factor(config),
            "random_next_prob": config.random_next_prob,
            "short_sequence_prob": config.short_sequence_prob,
            "shard_sequences": config.shard_sequences,
            **({"shuffle_sentences": config.shuffle_sentences} if config.shuffle_sentences else {}),
            **({"swapped_prob": config.swapped_prob} if config.swapped_prob else {}),
            **starts,
            "vocab_size": tokenizer.vocab_size,
            "special_ids": special_ids_of(tokenizer),
            "corpus": corpus_counts,
            "lengths": {},
            "versions": versions_of("numpy", "tokenizers"),
        }
        layout = tokenizer.single if config.num_segments == 1 else tokenizer.pair
        if layout != layout_of(manifest):
            manifest["layout"] = to_mapping(layout)
        for length in config.lengths:
            manifest["lengths"][str(length)] = {
                split: _write_examples(split, length, config, layout, folder, num_workers) for split in _SPLITS
            }
        shutil.rmtree(encoded)
        manifest["bytes"] = size_of_path(folder)
        for length in config.lengths:
            facts = manifest["lengths"][str(length)]
            facts["unigram_entropy"] = _finish_length(length, manifest, tokenizer, folder)
            refuse_outside(config.bounds, length, config, facts["train"])
        write_manifest(folder, kind=KIND, format_version=FORMAT_VERSION, content=manifest)
    return _headline(manifest)


def _encode(
    split: Split, config: ExamplesConfig, tokenizer_folder: Path, corpus_folder: Path, folder: Path, num_workers: int
) -> dict[str, int]:
    documents = read_documents(corpus_folder, split)
    if (together := config.shuffle_sentences) is not None:
        documents = (shuffled(document, together=together, seed=config.seed) for document in documents)
    documents = progress(documents, description=f"encoding {split} documents")
    sources = SourcesOfDocuments() if has_sources(corpus_folder) and config.random_next_prob else None
    counts = encode_corpus(documents, tokenizer_folder, folder, num_workers=num_workers, sources=sources)
    different = counts["documents"] - counts["documents/copies"]
    _refuse_too_few(split, config, different, without_tokens=counts["documents/no_tokens"])
    if config.swapped_prob:
        single = int((np.diff(EncodedCorpus.open(folder).document_starts) == 1).sum())
        counts["documents/one_sentence"] = single
        if single == counts["documents"]:
            raise DataError(
                f"Each of the {single} documents of the {split} split has one sentence, so none has two parts to swap "
                "(examples.swapped_prob). Join them into longer documents (corpus.document), see whether the text is "
                "split into sentences (corpus/sentences), or use objective=mlm examples=full_sentences."
            )
    return dict(counts)


def _refuse_too_few(split: Split, config: ExamplesConfig, documents: int, *, without_tokens: int) -> None:
    needed = config.min_documents
    if documents < needed:
        fix = "Give more documents" + (" or raise corpus.validation_fraction" if split == "validation" else "")
        why = ", because a random second segment comes from another document" if needed > 1 else ""
        raise DataError(
            f"The corpus has {documents} documents with text in its {split} split ({without_tokens} more had none "
            f"left); examples need at least {needed}{why}. {fix}, or cut the text into smaller documents."
        )


def _write_examples(
    split: Split, length: int, config: ExamplesConfig, layout: Layout, folder: Path, num_workers: int
) -> dict[str, float | int]:
    encoded = folder / "encoded" / split
    generate = partial(generate_block, corpus_folder=encoded, split=split, length=length, config=config, layout=layout)
    # One copy of the validation pairs: more copies of the same text would add no information.
    num_copies = _dupe_factor(config) if split == "train" else 1
    blocks = blocks_of_documents(EncodedCorpus.open(encoded), num_copies)
    results = ordered_map(generate, blocks, num_workers=num_workers)
    writer = ExampleWriter(split_folder(folder, split, length), config.shard_sequences)
    counts: Counter[str] = Counter()
    description = f"{split} examples of {length} tokens, blocks"
    for examples, block_counts in progress(results, description=description, total=len(blocks)):
        writer.write(examples)
        counts.update(block_counts)
    writer.close()
    if not counts["examples"]:
        raise DataError(f"The {split} split has no two tokens in one document, so no example can be made from it.")
    truncated = counts["truncated_tokens"]
    if truncated > _MUCH_TRUNCATED * (truncated + counts["tokens"]):
        warn(
            f"of the {split} text, sequences of {length} tokens keep less than half: its sentences are longer than "
            "that. Check that the corpus splits sentences in this language, or raise examples.lengths."
        )
    return {
        **counts,
        f"{config.wrong_next}_share": counts[config.wrong_next] / counts["examples"],
        "short_share": counts["short"] / counts["examples"],
    }


def _finish_length(length: int, manifest: dict[str, Any], tokenizer: Tokenizer, folder: Path) -> float:
    """Write the readable examples of one length, add the figures that have bounds, and return its unigram entropy."""
    policy = masking_policy(manifest)
    train, validation = (ExampleStore(folder, split, length, manifest) for split in _SPLITS)
    readable = folder / f"readable-{length:04d}.txt"
    write_readable(readable, train, tokenizer, seed=manifest["seed"], policy=policy)
    counts = token_counts(train, policy.vocab_size)
    facts = manifest["lengths"][str(length)]["train"]
    facts.update(figures_of(train, facts, counts, tokenizer.vocab))
    return unigram_entropy(counts, target_counts(validation, seed=manifest["seed"], policy=policy), policy.special_ids)


def _dupe_factor(config: ExamplesConfig) -> int:
    return config.masking.dupe_factor if isinstance(config.masking, StaticMaskingConfig) else 1


def _headline(manifest: dict[str, Any]) -> dict[str, float | int]:
    headline: dict[str, float | int] = {}
    for length, facts in manifest["lengths"].items():
        for split in _SPLITS:
            headline[f"length_{length}/{split}_examples"] = facts[split]["examples"]
            headline[f"length_{length}/{split}_tokens"] = facts[split]["tokens"]
        if num_segments(manifest) == 2:
            share = "swapped_share" if "swapped_prob" in manifest else "random_next_share"
            headline[f"length_{length}/{share}"] = facts["train"][share]
        headline[f"length_{length}/unigram_entropy"] = facts["unigram_entropy"]
        headline.update({f"length_{length}/{name}": facts["train"][name] for name in FIGURES if name in facts["train"]})
    return headline
