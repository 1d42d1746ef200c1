"""The stages corpus, tokenizer and examples on a text that is spelt out here."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from bertline.corpus.build import build_corpus
from bertline.corpus.reader import CleaningConfig, NearDuplicatesConfig
from bertline.corpus.sentences.learned import LearnedConfig
from bertline.examples.build import build_examples
from bertline.examples.config import DynamicMaskingConfig, ExamplesConfig
from bertline.foundation.engine import Engine
from bertline.foundation.files import drop_leftovers, read_json
from bertline.tokenization.build import build_tokenizer
from bertline.tokenization.config import TrainedTokenizerConfig
from corpora import NO_PACKAGES
from reading import TextCorpusConfig

TOKENIZER = TrainedTokenizerConfig(
    kind="trained", vocab_size=150, lowercase=True, strip_accents=None, min_frequency=2, max_alphabet=100,
    sample_characters=10**9, user_words=(), compare=(),
)  # fmt: skip
MASKING = {"mask_prob": 0.15, "replace_with_mask_prob": 0.8, "replace_with_random_prob": 0.1}
EXAMPLES = ExamplesConfig(
    seed=0, lengths=(32, 64), random_next_prob=0.5, short_sequence_prob=0.1, shard_sequences=100,
    masking=DynamicMaskingConfig(kind="dynamic", **MASKING),
)  # fmt: skip


class Built(NamedTuple):
    """An artifact of a stage, and the figures of the stage."""

    folder: Path
    headline: dict[str, float | int]

    @property
    def manifest(self) -> dict[str, Any]:
        """What the artifact says of itself."""
        return read_json(self.folder / "manifest.json")


def write_stages(folder: Path, engine: Engine, *, texts: int = 60) -> None:
    """Write `corpus`, `tokenizer` and `examples` in a folder; what was done is resumed."""
    text = folder.parent / "text"
    write_text(text, texts)
    for name in ("corpus", "tokenizer", "examples"):
        drop_leftovers(folder / name)  # as a stage does
    with patch("bertline.corpus.build.SHARD_BYTES", 20_000):
        build_corpus(corpus_config(text), NO_PACKAGES, folder / "corpus", engine=engine, work=folder / "work/corpus")
    build_tokenizer(TOKENIZER, folder / "corpus", folder / "tokenizer", engine=engine, work=folder / "work/tokenizer")
    inputs = folder / "tokenizer", folder / "corpus"
    build_examples(EXAMPLES, *inputs, folder / "examples", engine=engine, work=folder / "work/examples")


def corpus_config(text: Path) -> Any:
    """Return a corpus of documents of a line each, in which everything is looked for."""
    return TextCorpusConfig(
        kind="text", path=str(text), document="blank_line", document_start=None, encoding="utf-8",
        validation_fraction=0.1, split_seed=0, deduplicate="paragraph", min_document_characters=20,
        on_undecodable="fail", sentences=LearnedConfig(kind="learned", abbreviations=()),
        near_duplicates=NearDuplicatesConfig(threshold=0.7, ngram=3),
        cleaning=CleaningConfig(fix_mojibake=True, join_hyphens=True, markup="remove"),
    )  # fmt: skip


def write_text(folder: Path, texts: int) -> None:
    """Write documents of made-up words, ten to a file, some of them nearly or wholly equal."""
    rng = random.Random(0)
    words = ["".join(rng.choices("aeioubdfgklmnprstz", k=rng.randint(2, 9))) for _ in range(300)]
    folder.mkdir(parents=True, exist_ok=True)
    documents: list[str] = []
    for number in range(texts):
        sentences = [" ".join(rng.choices(words, k=rng.randint(3, 12))).capitalize() for _ in range(rng.randint(1, 12))]
        earlier = documents[rng.randrange(number)] if number % 5 == 4 else ""
        documents.append(earlier + " So it is." * (number % 2) if earlier else ". ".join(sentences) + ".")
    for start in range(0, texts, 10):
        path = folder / f"{start:05}.txt"
        if not path.exists():
            path.write_text("\n\n".join(documents[start : start + 10]))
