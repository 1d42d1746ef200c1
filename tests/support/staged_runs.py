"""The stages tokenizer and examples on a text that is spelt out here."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from bertline.examples.build import build_examples
from bertline.examples.config import DynamicMaskingConfig, ExamplesConfig
from bertline.foundation.engine import Engine
from bertline.tokenization.build import build_tokenizer
from bertline.tokenization.config import TrainedTokenizerConfig
from corpora import write_corpus

TOKENIZER = TrainedTokenizerConfig(
    kind="trained", vocab_size=150, lowercase=True, strip_accents=None, min_frequency=2, max_alphabet=100,
    sample_characters=10**9, user_words=(), compare=(),
)  # fmt: skip
MASKING = {"mask_prob": 0.15, "replace_with_mask_prob": 0.8, "replace_with_random_prob": 0.1}
EXAMPLES = ExamplesConfig(
    seed=0, lengths=(32, 64), random_next_prob=0.5, short_sequence_prob=0.1, shard_sequences=100,
    masking=DynamicMaskingConfig(kind="dynamic", **MASKING),
)  # fmt: skip


def write_stages(folder: Path, engine: Engine, *, texts: int = 60) -> None:
    """Write `corpus`, `tokenizer` and `examples` in a folder; what was done of the last two is resumed."""
    if not (folder / "corpus/manifest.json").exists():
        shutil.rmtree(folder / "corpus", ignore_errors=True)
        _write_texts(folder / "corpus", texts)
    build_tokenizer(TOKENIZER, folder / "corpus", folder / "tokenizer", engine=engine, work=folder / "work/tokenizer")
    inputs = folder / "tokenizer", folder / "corpus"
    build_examples(EXAMPLES, *inputs, folder / "examples", engine=engine, work=folder / "work/examples")


def _write_texts(folder: Path, texts: int) -> None:
    """Write documents of made-up words, ten to a file."""
    rng = random.Random(0)
    words = ["".join(rng.choices("aeioubdfgklmnprstz", k=rng.randint(2, 9))) for _ in range(300)]
    documents = [
        [" ".join(rng.choices(words, k=rng.randint(3, 12))) for _ in range(rng.randint(1, 12))]
        for _ in range(texts + texts // 10)
    ]
    write_corpus(folder, documents[:texts], documents[texts:], shard_documents=10)
