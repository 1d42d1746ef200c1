"""The examples stage: sequences of every configured length, a manifest, and a few examples as readable text.

The manifest has the unigram entropy: the loss of a baseline that knows only token frequencies.
"""

import textwrap
from base64 import b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bertline.corpus.document import Split
from bertline.corpus.storage import counts_of, has_sources, shard_paths
from bertline.examples.bounds import FIGURES, digests_of, figures_of, refuse_outside
from bertline.examples.config import ExamplesConfig, StaticMaskingConfig
from bertline.examples.encoding import COUNTED, EncodedCorpus, encode_file
from bertline.examples.generation import assemble, blocks_of_documents, generate_pairs
from bertline.examples.masking import MaskingPolicy, mask_example, masked_batch, masking_policy
from bertline.examples.store import (
    Array,
    ExampleStore,
    layout_of,
    mapped,
    num_segments,
    shard_files,
    special_ids_of,
    split_folder,
    token_counts,
    write_examples_manifest,
    write_shard,
)
from bertline.foundation.engine import Counts, Engine, shard_folder
from bertline.foundation.errors import DataError
from bertline.foundation.files import folder_written_atomically, link_or_copy, size_of_path, write_atomically
from bertline.foundation.labels import IGNORED_LABEL
from bertline.foundation.manifests import versions_of
from bertline.foundation.seeds import generator
from bertline.foundation.validation import to_mapping
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import CONTINUATION
from bertline.tokenization.words import word_starts

_BATCH_EXAMPLES = 1024
_SPLITS: tuple[Split, ...] = ("train", "validation")
# Of a shard of train examples the counts of tokens and `digests_of`, of one of validation the counts of targets.
_COUNTS, _DIGESTS = "counts.npy", "digests.npy"


def unigram_entropy(train_counts: npt.ArrayLike, target_counts: npt.ArrayLike, special_ids: Sequence[int]) -> float:
    """Return the cross-entropy, in nats, of the train split's token frequencies on the validation targets.

    Both counts are [vocab_size]. One is added to each train count, so that tokens unseen in training do not have
    infinite loss; special tokens, which are never targets, get probability 0.

    >>> round(unigram_entropy([0, 3, 1], [0, 2, 0], special_ids=[0]), 4)  # -log(4 / 6)
    0.4055
    """
    smoothed = np.asarray(train_counts, dtype=np.float64) + 1
    smoothed[list(special_ids)] = 0
    targets = np.asarray(target_counts, dtype=np.float64)
    seen = targets > 0
    return float((targets[seen] * -np.log(smoothed[seen] / smoothed.sum())).sum() / targets.sum())


def target_counts(store: ExampleStore, *, seed: int, policy: MaskingPolicy, first_id: int = 0) -> Array:
    """Return [vocab_size] the count of each token among the targets of epoch 0, whose masks validation always uses."""
    counts = np.zeros(policy.vocab_size, dtype=np.int64)
    for start in range(0, len(store), _BATCH_EXAMPLES):
        indices = np.arange(start, min(start + _BATCH_EXAMPLES, len(store)))
        labels = masked_batch(store, indices, epoch=0, seed=seed, policy=policy, first_id=first_id)["masked_labels"]
        counts += np.bincount(labels[labels != IGNORED_LABEL], minlength=policy.vocab_size)
    return counts


_LEGEND = """\
{count} of {total:,} training examples of at most {length} tokens, drawn at random, with their masks of epoch 0.
  <word={mask}>   a target: the model sees {mask} and must say word
  <word=other>    a target: the model sees another, random token and must say word
  <word=>         a target: the model sees word itself and must say word
  {mark}
"""
_CONTINUES, _BEGINS = f"{CONTINUATION}s             continues a word", "Ġs or ▁s        begins a word"


def write_readable(path: Path, store: ExampleStore, tokenizer: Tokenizer, *, seed: int, policy: MaskingPolicy) -> None:
    """Write examples, chosen by the seed, to a text file."""
    count = min(20, len(store))
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
    kind, segments = "", {"A": tokens}
    if store.num_segments == 2:
        first = example.first_segment_length
        wrong = "what A follows" if store.manifest.get("swapped_prob") else "a random segment of another document"
        label = example.next_sentence_label
        kind = f"B is {wrong if label else 'what follows A'} (label {label}); "
        segments = {"A": tokens[:first], "B": tokens[first:]}
    wrapper = textwrap.TextWrapper(118, subsequent_indent=" " * 5, break_long_words=False, break_on_hyphens=False)
    lines = [f"example {index}: {kind}{len(tokens)} tokens, {len(masked.masked_positions)} targets"]
    lines += [wrapper.fill(f"  {name}: {' '.join(segment)}") for name, segment in segments.items()]
    return "\n".join([*lines, ""])


def build_examples(
    config: ExamplesConfig, tokenizer_folder: Path, corpus_folder: Path, out: Path, *, engine: Engine, work: Path
) -> dict[str, float | int]:
    """Build the examples artifact: shards for each length and split, `readable-LENGTH.txt`, `manifest.json`.

    The output bytes depend only on corpus, tokenizer and configuration, not on the engine. A process holds the text of
    a file of the corpus, the segments of its examples, or a shard of examples. In `work` lie the encoded corpus (2 or 4
    bytes per token), the segments of the examples, and the shards.

    Returns:
        Summary metrics for each length: examples, tokens, fraction of random next segments, unigram entropy.

    Raises:
        DataError: A split has too few documents, or too little text, to make pairs from.
    """
    tokenizer = Tokenizer.load(tokenizer_folder)
    for split in _SPLITS:  # both, before either is encoded, which can take hours
        _refuse_too_few(split, config, counts_of(corpus_folder, split)["documents"], without_tokens=0)
    work = work.absolute()  # processes of a cluster start elsewhere
    encoded = {
        split: _encoded(split, config, tokenizer_folder.absolute(), corpus_folder.absolute(), engine, work / split)
        for split in _SPLITS
    }
    masking, optional = to_mapping(config.masking), {}
    for name in ("shuffle_sentences", "swapped_prob"):
        if setting := getattr(config, name):
            optional[name] = setting
    if masking["unit"] == "token":
        del masking["unit"]
    else:
        optional["word_starts"] = b64encode(np.packbits(word_starts(tokenizer)).tobytes()).decode()
    manifest: dict[str, Any] = {
        "seed": config.seed,
        "masking": masking,
        "dupe_factor": _dupe_factor(config),
        "random_next_prob": config.random_next_prob,
        "short_sequence_prob": config.short_sequence_prob,
        "shard_sequences": config.shard_sequences,
        **optional,
        "vocab_size": tokenizer.vocab_size,
        "special_ids": special_ids_of(tokenizer),
        "corpus": {split: counts for split, (_, counts) in encoded.items()},
        "lengths": {},
        "versions": versions_of("nanotoken", "numpy", "tokenizers"),
    }
    layout = tokenizer.single if config.num_segments == 1 else tokenizer.pair
    if layout != layout_of(manifest):
        manifest["layout"] = to_mapping(layout)
    with folder_written_atomically(out) as folder:
        for length in config.lengths:
            manifest["lengths"][str(length)] = {
                split: _write_examples(split, length, config, manifest, encoded[split][0], engine, work, folder)
                for split in _SPLITS
            }
        manifest["bytes"] = size_of_path(folder)
        for length in config.lengths:
            _finish_length(length, manifest, tokenizer, work, folder)
            refuse_outside(config, length, manifest["lengths"][str(length)]["train"])
        write_examples_manifest(folder, manifest)
    return _headline(manifest)


def _encoded(
    split: Split, config: ExamplesConfig, tokenizer_folder: Path, corpus_folder: Path, engine: Engine, work: Path
) -> tuple[EncodedCorpus, dict[str, int]]:
    """Encode a split, and return it with the counts of the manifest."""
    has_labels = bool(has_sources(corpus_folder) and config.random_next_prob)
    task = partial(encode_file, tokenizer_folder=tokenizer_folder, config=config, has_labels=has_labels)
    files = shard_paths(corpus_folder, split)
    counts = engine.map(task, files, work / "encoded", description=f"encoding {split} documents, files")
    corpus = EncodedCorpus([shard_folder(work / "encoded", number) for number in range(len(files))], counts)
    total = {name: sum(each[name] for each in counts) for name in COUNTED}
    if copies := sum(each.get("documents/copies", 0) for each in counts):
        total["documents/copies"] = copies
    _refuse_too_few(split, config, total["documents"] - copies, without_tokens=total["documents/no_tokens"])
    if config.swapped_prob:
        single = total["documents/one_sentence"] = sum(each["one_sentence"] for each in counts)
        if single == total["documents"]:
            raise DataError(
                f"Each of the {single} documents of the {split} split has one sentence, so none has two parts to swap "
                "(examples.swapped_prob). Join them into longer documents (corpus.document), see whether the text is "
                "split into sentences (corpus/sentences), or use objective=mlm examples=full_sentences."
            )
    return corpus, total


def _refuse_too_few(split: Split, config: ExamplesConfig, documents: int, *, without_tokens: int) -> None:
    if documents < config.min_documents:
        raise DataError(
            f"The corpus has {documents} documents with text in its {split} split ({without_tokens} more had none "
            f"left); examples need at least {config.min_documents} (a random second segment comes from another one). "
            "Give more documents, raise corpus.validation_fraction, or cut the text into smaller documents."
        )


def _write_examples(
    split: Split,
    length: int,
    config: ExamplesConfig,
    manifest: Mapping[str, Any],
    corpus: EncodedCorpus,
    engine: Engine,
    work: Path,
    folder: Path,
) -> dict[str, float | int]:
    """Choose the examples of a split, write them shard by shard, and put the shards into the artifact."""
    layout = layout_of(manifest)
    room = layout.room(length)
    generate = partial(generate_pairs, corpus=corpus, split=split, length=length, room=room, config=config)
    # One copy of the validation pairs: more copies of the same text would add no information.
    num_copies = _dupe_factor(config) if split == "train" else 1
    blocks, pairs = blocks_of_documents(corpus, num_copies), work / f"{split}/pairs-{length}"
    what = f"{split} examples of {length} tokens"
    of_blocks = engine.map(generate, blocks, pairs, description=f"{what}, files")
    counts = {name: sum(each[name] for each in of_blocks) for name in of_blocks[0]}
    if not counts["examples"]:
        raise DataError(f"The {split} split has no two tokens in one document, so no example can be made from it.")
    bounds = list(accumulate((each["examples"] for each in of_blocks), initial=0))
    starts = range(0, counts["examples"], config.shard_sequences)
    shards = [range(start, min(start + config.shard_sequences, counts["examples"])) for start in starts]
    write = partial(
        _write_shard, pairs=pairs, bounds=bounds, corpus=corpus, split=split, length=length, manifest=manifest
    )
    engine.map(write, shards, work / f"{split}/shards-{length}", description=f"{what}, shards")
    target = split_folder(folder, split, length)
    target.mkdir(parents=True)
    for number in range(len(shards)):
        for name in shard_files(number):
            link_or_copy(shard_folder(work / f"{split}/shards-{length}", number) / name, target / name)
    return {
        **counts,
        f"{config.wrong_next}_share": counts[config.wrong_next] / counts["examples"],
        "short_share": counts["short"] / counts["examples"],
    }


def _write_shard(
    numbers: range,
    out: Path,
    *,
    pairs: Path,
    bounds: list[int],
    corpus: EncodedCorpus,
    split: Split,
    length: int,
    manifest: Mapping[str, Any],
) -> Counts:
    """Write the examples with these numbers as a shard, and what is counted of them; the task of a shard."""
    first, last = bisect_right(bounds, numbers.start) - 1, bisect_left(bounds, numbers.stop)
    parts = [
        mapped(shard_folder(pairs, block) / "pairs.npy")[
            max(0, numbers.start - bounds[block]) : max(0, numbers.stop - bounds[block])
        ]
        for block in range(first, last)
    ]
    block = assemble(corpus, np.concatenate(parts), layout_of(manifest))
    shard = write_shard(out, numbers.start // manifest["shard_sequences"], block)
    store, policy = ExampleStore([shard], length, manifest), masking_policy(manifest)
    if split == "train":
        counts = token_counts(store, policy.vocab_size)
        np.save(out / _DIGESTS, digests_of(*shard))
    else:
        counts = target_counts(store, seed=manifest["seed"], policy=policy, first_id=numbers.start)
    np.save(out / _COUNTS, counts)
    return {}


def _finish_length(length: int, manifest: dict[str, Any], tokenizer: Tokenizer, work: Path, folder: Path) -> None:
    """Write the readable examples of one length, and add its unigram entropy and the figures that have bounds."""
    policy, train = masking_policy(manifest), ExampleStore.open(folder, "train", length, manifest)
    write_readable(folder / f"readable-{length:04d}.txt", train, tokenizer, seed=manifest["seed"], policy=policy)
    of_train, of_validation = (sorted((work / f"{split}/shards-{length}").glob(f"*/{_COUNTS}")) for split in _SPLITS)
    counts: Array = sum(map(np.load, of_train))
    facts = manifest["lengths"][str(length)]
    facts["unigram_entropy"] = unigram_entropy(counts, sum(map(np.load, of_validation)), policy.special_ids)
    digests = (np.load(path.with_name(_DIGESTS)) for path in of_train)
    facts["train"] |= figures_of(train, facts["train"], counts, digests, tokenizer.vocab)


def _dupe_factor(config: ExamplesConfig) -> int:
    return config.masking.dupe_factor if isinstance(config.masking, StaticMaskingConfig) else 1


def _headline(manifest: dict[str, Any]) -> dict[str, float | int]:
    share = ["swapped_share" if "swapped_prob" in manifest else "random_next_share"] * (num_segments(manifest) == 2)
    headline: dict[str, float | int] = {}
    for length, facts in manifest["lengths"].items():
        figures = {f"{split}_{name}": facts[split][name] for split in _SPLITS for name in ("examples", "tokens")}
        train = {**facts["train"], "unigram_entropy": facts["unigram_entropy"]}
        figures |= {name: train[name] for name in (*share, "unigram_entropy", *FIGURES) if name in train}
        headline |= {f"length_{length}/{name}": figure for name, figure in figures.items()}
    return headline
