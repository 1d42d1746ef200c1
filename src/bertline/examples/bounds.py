"""What the examples of a length are like, and bounds on it: text from which little would be learned stops the pipeline.

A GPU shows such text only as a loss that is too low (sequences that repeat) or that does not fall (tokens that are cut
off or unknown), after hours.
"""

import hashlib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

import numpy as np

from bertline.examples.config import ExamplesConfig, StaticMaskingConfig
from bertline.examples.store import Array, ExampleStore
from bertline.foundation.errors import DataError
from bertline.tokenization.vocabulary import UNK

FIGURES = (
    "duplicate_share", "fill", "truncated_share", "unknown_share", "unknown_character_share", "rare_share",
    "surface_accuracy",
)  # fmt: skip
FEWEST_JUDGED = 1000  # train sequences, below which the shares say nothing
RARE_BELOW = 10  # occurrences in the train sequences below which a token is rare: its embedding is hardly trained
_MOST_PAIRS = 1 << 20  # that the surface is judged by


def figures_of(
    store: ExampleStore,
    counts: Mapping[str, float],
    token_counts: Array,
    digests: Iterable[Array],
    vocab: Sequence[str],
) -> dict[str, float]:
    """Return the figures that have bounds, of the train sequences of one length.

    They are computed from the sequences, their `counts`, the count [vocab_size] of each token in them, and `digests_of`
    the shards: `duplicate_share`, sequences equal to an earlier one, of all; `fill`, tokens of the positions that there
    are; `truncated_share`, tokens that were cut off, of all; `unknown_share`, `[UNK]`, of all tokens;
    `unknown_character_share`, characters of the train text that are in words which become `[UNK]`; `rare_share`, tokens
    of the vocabulary, without special ones, that occur fewer than `RARE_BELOW` times; of pairs, `surface_accuracy`.
    """
    special = store.manifest["special_ids"]
    of_words, unknown = np.delete(token_counts, list(special.values())), int(token_counts[special[UNK]])
    cut, text = counts["truncated_tokens"], store.manifest["corpus"]["train"]
    surface = surface_accuracy(store, vocab) if store.num_segments == 2 else None
    return {
        "duplicate_share": duplicate_share(digests),
        "fill": counts["tokens"] / (counts["examples"] * store.max_length),
        "truncated_share": cut / max(1, cut + counts["tokens"]),
        "unknown_share": unknown / max(1, int(of_words.sum()) + unknown),
        "unknown_character_share": text["unknown_characters"] / max(1, text["characters"]),
        "rare_share": float(np.mean(of_words < RARE_BELOW)),
        **({} if surface is None else {"surface_accuracy": surface}),
    }


def duplicate_share(digests_of_shards: Iterable[Array]) -> float:
    """Return the fraction of sequences that are equal to an earlier one, token by token, from `digests_of` shards."""
    ordered = np.sort(np.concatenate([*digests_of_shards]))  # a hundred times as fast as `np.unique`, which hashes
    return 1 - (1 + np.count_nonzero(ordered[1:] != ordered[:-1])) / len(ordered)


def digests_of(ids: Array, rows: Array) -> Array:
    """Return [examples] uint64 hashes of the sequences of a shard."""
    hashes = (
        hashlib.blake2b(ids[start : start + length].tobytes(), digest_size=8).digest()
        for start, length in rows[:, :2].tolist()
    )
    return np.frombuffer(b"".join(hashes), dtype="<u8")


def surface_accuracy(store: ExampleStore, vocab: Sequence[str]) -> float | None:
    """Return how well random pairs are told from true ones without a look at words, or None if all are of one kind.

    A table of lengths and final punctuation marks of A and B, learned from every other pair, gives its guesses on the
    rest; the accuracy is the mean of both labels, so that 0.5 is chance whatever `random_next_prob` is.
    """
    is_mark = np.array([token != "" and unicodedata.category(token[-1]).startswith("P") for token in vocab])
    step = -(-len(store) // _MOST_PAIRS)
    num_before, num_between, num_after = map(len, (store.layout.before, store.layout.between, store.layout.after))
    marks, lengths, labels = [], [], []
    for ids, rows in store.shards:
        start, length, first, label = rows[::step].astype(np.int64).T
        last_of_a, last_of_b = start + first - num_between - 1, start + length - num_after - 1
        marks.append(2 * is_mark[ids[last_of_a]] + is_mark[ids[last_of_b]])
        lengths.append(np.stack([first - num_before - num_between, length - first - num_after]))
        labels.append(label)
    label, mark, (a, b) = np.concatenate(labels), np.concatenate(marks), np.concatenate(lengths, axis=1)
    if len(np.unique(label)) < 2:
        return None
    by_lengths, by_sum = (mark * 8 + _eighths(a)) * 8 + _eighths(b), mark * 2 * store.max_length + a + b
    return max(_told_by(by_lengths, label), _told_by(by_sum, label))


def _eighths(values: Array) -> Array:
    """Return in which eighth of all values each one is."""
    return np.searchsorted(np.quantile(values, np.arange(1, 8) / 8), values, side="right")


def _told_by(cells: Array, labels: Array) -> float:
    """Return the accuracy of guesses by cell on every other example, learned from the rest; both labels count alike."""
    learned, judged = slice(0, None, 2), slice(1, None, 2)
    shares = [np.bincount(cells[learned][labels[learned] == label], minlength=cells.max() + 1) for label in (0, 1)]
    guesses = shares[1] / max(1, shares[1].sum()) > shares[0] / max(1, shares[0].sum())
    right = guesses[cells[judged]] == labels[judged]
    return float(np.mean([right[labels[judged] == label].mean() for label in np.unique(labels[judged])]))


def refuse_outside(config: ExamplesConfig, length: int, facts: Mapping[str, float]) -> None:
    """Check the figures of the train sequences of one length.

    Raises:
        DataError: Figures are outside of their bounds; with each, what it means and what to do.
    """
    if facts["examples"] < FEWEST_JUDGED:
        return
    share = config.random_next_prob
    figures = {
        "max_duplicate_share": 0 if isinstance(config.masking, StaticMaskingConfig) else facts["duplicate_share"],
        "min_fill": facts["fill"],
        "max_truncated_share": facts["truncated_share"],
        "max_unknown_share": max(facts["unknown_share"], facts["unknown_character_share"]),
        "max_surface_accuracy": facts.get("surface_accuracy", 0),
        "max_rare_share": facts["rare_share"],
        "max_random_next_error": abs(facts["random_next_share"] - share) if share else 0,
    }
    bounds = {name: bound for name, bound in asdict(config.bounds).items() if bound is not None}
    broken = [
        f"  - {_OUTSIDE[name].format(**facts, random_next_prob=share, rare_below=RARE_BELOW)} ({name} {bound})."
        for name, bound in bounds.items()
        if (figures[name] < bound if name == "min_fill" else figures[name] > bound)
    ]
    if broken:
        raise DataError(
            f"The {facts['examples']:,} train sequences of {length} tokens are outside of examples.bounds:\n"
            + "\n".join(broken)
            + "\nA bound of null allows everything, such as examples.bounds.min_fill=null."
        )


# What a figure outside of each bound means, and what to do.
_OUTSIDE = {
    "max_duplicate_share": "{duplicate_share:.1%} of them repeat an earlier one: they are learned by heart. Remove "
    "what recurs in the text (corpus.deduplicate, corpus.near_duplicates.threshold)",
    "min_fill": "their tokens fill {fill:.1%} of the positions: documents are shorter. Lower examples.lengths, or do "
    "not cut the text into such short documents (corpus.document)",
    "max_truncated_share": "{truncated_share:.1%} of the tokens were cut off: sentences are longer than a sequence. "
    "Raise examples.lengths, or see whether the text is split into sentences at all (corpus/sentences)",
    "max_unknown_share": "{unknown_share:.1%} of the tokens are [UNK], and these stand for "
    "{unknown_character_share:.1%} of the characters of the text: it has characters that the vocabulary lacks, or "
    "stretches without a space that are longer than a word can be (the stage tokenizer says which). Train a vocabulary "
    "on it (tokenizer=wordpiece), raise tokenizer.max_alphabet, or put spaces between words",
    "max_surface_accuracy": "{surface_accuracy:.1%} are told, true or not, by final marks and lengths alone (50 % is "
    "chance), so that little else is learned from them. Join short documents into longer ones (corpus.document), lower "
    "examples.lengths, or learn without pairs (examples=full_sentences objective=mlm)",
    "max_rare_share": "{rare_share:.1%} of the vocabulary occur fewer than {rare_below} times: too little text for so "
    "many tokens. Lower tokenizer.vocab_size",
    "max_random_next_error": "{random_next_share:.1%} of the pairs have a random second segment, where "
    "random_next_prob is {random_next_prob}: documents of one segment have nothing that follows. Join them into longer "
    "documents (corpus.document), lower examples.lengths, or learn without pairs (examples=full_sentences "
    "objective=mlm)",
}
