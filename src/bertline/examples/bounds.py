"""What the examples of a length are like, and bounds on it: text from which little would be learned stops the pipeline.

A GPU shows such text only as a loss that is too low (sequences that repeat) or that does not fall (tokens that are cut
off or unknown), after hours.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

import numpy as np

from bertline.examples.config import BoundsConfig, ExamplesConfig, StaticMaskingConfig
from bertline.examples.store import Array, ExampleStore
from bertline.foundation.errors import DataError

FIGURES = ("duplicate_share", "fill", "truncated_share", "unknown_share", "rare_share")
FEWEST_JUDGED = 1000
"""Train sequences below which the shares say nothing."""
RARE_BELOW = 10
"""Occurrences in the train sequences below which a token is rare: its embedding is hardly trained."""
_MOST_DIGESTS = 1 << 23


def figures_of(store: ExampleStore, counts: Mapping[str, float], token_counts: Array) -> dict[str, float]:
    """Return the figures that have bounds, of the train sequences of one length.

    Args:
        store: The train sequences.
        counts: Their counts, as the manifest has them.
        token_counts: [vocab_size] count of each token.

    Returns:
        `duplicate_share`, sequences equal to an earlier one, of all; `fill`, tokens of the positions that there are;
        `truncated_share`, tokens that were cut off, of all; `unknown_share`, `[UNK]`, of all tokens; `rare_share`,
        tokens of the vocabulary, without special ones, that occur fewer than `RARE_BELOW` times.
    """
    special = store.manifest["special_ids"]
    of_words = np.delete(token_counts, list(special.values()))
    unknown = int(token_counts[special["[UNK]"]])
    total = int(of_words.sum()) + unknown
    cut = counts.get("truncated_tokens", 0)
    return {
        "duplicate_share": duplicate_share(store),
        "fill": counts["tokens"] / (counts["examples"] * store.max_length),
        "truncated_share": cut / max(1, cut + counts["tokens"]),
        "unknown_share": unknown / max(1, total),
        "rare_share": float(np.mean(of_words < RARE_BELOW)),
    }


def duplicate_share(store: ExampleStore) -> float:
    """Return the fraction of sequences that are equal to an earlier one, token by token.

    Of very many sequences a sample is judged, drawn by their hashes, so that equal ones are in it together.
    """
    digests: list[Array] = []
    mask, kept = np.uint64(0), 0
    for batch in _digests(store):
        digests.append(batch[(batch & mask) == 0])
        kept += len(digests[-1])
        while kept > _MOST_DIGESTS:
            mask = (mask << np.uint64(1)) | np.uint64(1)
            digests = [each[(each & mask) == 0] for each in digests]
            kept = sum(map(len, digests))
    return 1 - len(np.unique(np.concatenate(digests))) / kept if kept else 0.0


def _digests(store: ExampleStore) -> Iterator[Array]:
    """Yield hashes of the sequences, shard by shard."""
    for ids, rows in store.shards():
        found = np.empty(len(rows), dtype=np.uint64)
        for number, (start, length) in enumerate(rows[:, :2].tolist()):
            digest = hashlib.blake2b(ids[start : start + length].tobytes(), digest_size=8).digest()
            found[number] = int.from_bytes(digest, "little")
        yield found


def refuse_outside(bounds: BoundsConfig, length: int, config: ExamplesConfig, facts: Mapping[str, float]) -> None:
    """Check the figures of the train sequences of one length.

    Args:
        bounds: What is allowed.
        length: Maximum length of the sequences.
        config: Configuration of the stage.
        facts: `figures_of` them, with their counts.

    Raises:
        DataError: Figures are outside of their bounds; with each, what it means and what to do.
    """
    if facts["examples"] < FEWEST_JUDGED:
        return
    broken = list(_broken(bounds, config, facts))
    if broken:
        raise DataError(
            f"The {facts['examples']:,} train sequences of {length} tokens are outside of examples.bounds:\n"
            + "\n".join(f"  - {one}" for one in broken)
            + "\nA bound of null allows everything, such as examples.bounds.min_fill=null."
        )


def _broken(bounds: BoundsConfig, config: ExamplesConfig, facts: Mapping[str, float]) -> Iterator[str]:
    copies = isinstance(config.masking, StaticMaskingConfig)
    if bounds.max_duplicate_share is not None and not copies and facts["duplicate_share"] > bounds.max_duplicate_share:
        yield (
            f"{facts['duplicate_share']:.1%} of them repeat an earlier one (max_duplicate_share "
            f"{bounds.max_duplicate_share}): they are learned by heart. Remove what recurs in the text "
            "(corpus.deduplicate, corpus.near_duplicates.threshold)."
        )
    if bounds.min_fill is not None and facts["fill"] < bounds.min_fill:
        yield (
            f"their tokens fill {facts['fill']:.1%} of the positions (min_fill {bounds.min_fill}): documents are "
            "shorter. Lower examples.lengths, or do not cut the text into such short documents (corpus.document)."
        )
    if bounds.max_truncated_share is not None and facts["truncated_share"] > bounds.max_truncated_share:
        yield (
            f"{facts['truncated_share']:.1%} of the tokens were cut off (max_truncated_share "
            f"{bounds.max_truncated_share}): sentences are longer than a sequence. Raise examples.lengths, or see "
            "whether the text is split into sentences at all (corpus/sentences)."
        )
    if bounds.max_unknown_share is not None and facts["unknown_share"] > bounds.max_unknown_share:
        yield (
            f"{facts['unknown_share']:.1%} of the tokens are [UNK] (max_unknown_share {bounds.max_unknown_share}): the "
            "vocabulary lacks characters of the text. Train one on it (tokenizer=wordpiece), or raise "
            "tokenizer.max_alphabet."
        )
    if bounds.max_rare_share is not None and facts["rare_share"] > bounds.max_rare_share:
        yield (
            f"{facts['rare_share']:.1%} of the vocabulary occur fewer than {RARE_BELOW} times (max_rare_share "
            f"{bounds.max_rare_share}): too little text for so many tokens. Lower tokenizer.vocab_size."
        )
    if bounds.max_random_next_error is not None and config.random_next_prob:
        error = abs(facts["random_next_share"] - config.random_next_prob)
        if error > bounds.max_random_next_error:
            yield (
                f"{facts['random_next_share']:.1%} of the pairs have a random second segment, where random_next_prob "
                f"is {config.random_next_prob} (max_random_next_error {bounds.max_random_next_error}): documents of "
                "one segment have nothing that follows. Join them into longer documents (corpus.document), lower "
                "examples.lengths, or learn without pairs (examples=full_sentences objective=mlm)."
            )
