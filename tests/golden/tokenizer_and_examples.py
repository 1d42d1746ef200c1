"""Write `tokenizer_and_examples.json` again: `python tests/golden/tokenizer_and_examples.py`.

Only after a change that is meant to change vocabularies or examples; say so in the CHANGELOG, because every user's line
then runs again from that stage on.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from bertline.corpus.document import Document
from bertline.examples.build import build_examples
from bertline.examples.config import DynamicMaskingConfig, ExamplesConfig
from bertline.examples.masking import masked_batch, masking_policy
from bertline.examples.store import ExampleStore
from bertline.foundation.files import write_json
from bertline.tokenization.build import build_tokenizer
from bertline.tokenization.config import TrainedTokenizerConfig
from bertline.tokenization.tokenizer import Tokenizer
from corpora import write_corpus
from engines import local

GOLDEN = Path(__file__).with_suffix(".json")
NOUNS = ("matrix", "vector", "kernel", "frame", "series", "tensor", "index", "naïve café")
VERBS = ("sorts", "filters", "reshapes", "computes", "transforms")


def made() -> dict[str, Any]:
    """A vocabulary and examples from a text that this function spells out."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        documents = list(map(_document, NOUNS))
        write_corpus(folder / "corpus", documents[:6], documents[6:], shard_documents=100)
        tokenizer_config = TrainedTokenizerConfig(
            kind="trained",
            vocab_size=100,
            lowercase=True,
            strip_accents=None,
            min_frequency=2,
            max_alphabet=50,
            sample_characters=10**6,
            user_words=(),
            compare=(),
        )
        build_tokenizer(tokenizer_config, folder / "corpus", folder / "tokenizer", **local(folder / "tokenizer"))
        masking = DynamicMaskingConfig(
            kind="dynamic", mask_prob=0.15, replace_with_mask_prob=0.8, replace_with_random_prob=0.1
        )
        examples_config = ExamplesConfig(
            seed=0, lengths=(24,), random_next_prob=0.5, short_sequence_prob=0.1, shard_sequences=1000, masking=masking
        )
        inputs = folder / "tokenizer", folder / "corpus"
        figures = build_examples(examples_config, *inputs, folder / "examples", **local(folder / "examples"))
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


def _document(noun: str) -> Document:
    sentences = [f"The {noun} {verb} what the other {noun} left, and returns it." for verb in VERBS]
    return Document(noun, noun, (f"Notes on every {noun}.", *sentences))


if __name__ == "__main__":
    write_json(GOLDEN, made())
    print(json.dumps(made())[:200])
