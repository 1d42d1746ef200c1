"""Vocabularies and examples stay what they were in every supported version of Python, numpy and tokenizers.

`tokenizer_and_examples.json` was read through against the text below: merges, pairs and their labels, masks.
`PYTHONPATH=tests/support python tests/golden/test_tokenizer_and_examples.py` writes it again, only after a change that
is meant to change vocabularies or examples; say so in the CHANGELOG, because every user's pipeline then runs again from
that stage on.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from pathlib import Path
from typing import Any

import staged_runs
from bertline.corpus.document import Document
from bertline.examples.build import build_examples
from bertline.examples.masking import masked_batch, masking_policy
from bertline.examples.store import ExampleStore
from bertline.foundation.files import read_json
from bertline.tokenization.build import build_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from corpora import local, write_corpus

GOLDEN = Path(__file__).with_name("tokenizer_and_examples.json")
NOUNS = ("matrix", "vector", "kernel", "frame", "series", "tensor", "index", "naïve café")
VERBS = ("sorts", "filters", "reshapes", "computes", "transforms")
TOKENIZER = dataclasses.replace(staged_runs.TOKENIZER, vocab_size=100, max_alphabet=50, sample_characters=10**6)
EXAMPLES = dataclasses.replace(staged_runs.EXAMPLES, lengths=(24,), shard_sequences=1000)


def made(folder: Path) -> dict[str, Any]:
    """A vocabulary and examples from a text that this module spells out."""
    documents = list(map(document, NOUNS))
    write_corpus(folder / "corpus", documents[:6], documents[6:], shard_documents=100)
    build_tokenizer(TOKENIZER, folder / "corpus", folder / "tokenizer", **local(folder / "tokenizer"))
    inputs = folder / "tokenizer", folder / "corpus"
    figures = build_examples(EXAMPLES, *inputs, folder / "examples", **local(folder / "examples"))
    store = ExampleStore.open(folder / "examples", "train", 24)
    batch = masked_batch(store, range(6), epoch=1, seed=0, policy=masking_policy(store.manifest))
    return {
        "tokens": list(Tokenizer.load(folder / "tokenizer").vocab),
        "examples": figures["length_24/train_examples"],
        "unigram_entropy": round(figures["length_24/unigram_entropy"], 9),
        "input_ids": [store[index].input_ids.tolist() for index in range(6)],
        "next_sentence_labels": batch["next_sentence_labels"].tolist(),
        "masked_input_ids": batch["input_ids"].tolist(),
        "masked_positions": batch["masked_positions"].tolist(),
    }


def document(noun: str) -> Document:
    sentences = [f"The {noun} {verb} what the other {noun} left, and returns it." for verb in VERBS]
    return Document(noun, noun, (f"Notes on every {noun}.", *sentences))


def test_vocabulary_and_examples_are_those_recorded(tmp_path: Path) -> None:
    assert made(tmp_path) == read_json(GOLDEN)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(made(Path(temporary)).items()))
        GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")  # a line for each part
