"""Human-readable text of a few examples: tokens, masked targets and the kind of pair."""

from __future__ import annotations

import textwrap
from pathlib import Path

from bertline.examples.masking import MaskingPolicy, mask_example
from bertline.examples.store import ExampleStore
from bertline.foundation.files import write_atomically
from bertline.foundation.seeds import generator
from bertline.tokenization.tokenizer import Tokenizer

NUM_READABLE = 20

_LEGEND = """\
{count} of {total:,} training examples of at most {length} tokens, drawn at random, with their masks of epoch 0.
  <word=[MASK]>   a target: the model sees [MASK] and must say word
  <word=other>    a target: the model sees another, random token and must say word
  <word=>         a target: the model sees word itself and must say word
  ##s             continues a word
"""


def write_readable(path: Path, store: ExampleStore, tokenizer: Tokenizer, *, seed: int, policy: MaskingPolicy) -> None:
    """Write `NUM_READABLE` examples, chosen by the seed, to a text file."""
    count = min(NUM_READABLE, len(store))
    chosen = sorted(generator(seed, "readable", store.max_length).choice(len(store), count, replace=False).tolist())
    parts = [_LEGEND.format(count=count, total=len(store), length=store.max_length)]
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
    first = int((example.token_type_ids == 0).sum())
    kind = "a random segment of another document" if example.next_sentence_label else "what follows A"
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
