"""corpus: clean text, split into documents of sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bertline.foundation.files import read_json
from bertline.foundation.manifests import read_manifest
from bertline.foundation.mappings import value_at
from bertline.foundation.progress import say
from bertline.foundation.work import Work
from bertline.stages.base import PYTHON_DOCS, Stage, picked
from bertline.tracking.tracked_runs import TrackedRuns


class Corpus(Stage):
    """Text in; clean, de-duplicated, split documents out."""

    name = "corpus"
    summary = "Clean text, split into documents of sentences, for training and validation."
    sections = ("corpus", "python_docs")
    data = ("corpus",)
    inputs = ()
    output = "artifacts/corpus"
    packages = ("pyarrow",)
    is_of_pretraining = True

    def more_packages(self, config: Mapping[str, Any], task: str | None) -> Iterator[str]:
        corpus = config["corpus"]
        of_kinds = {"python_docs": [PYTHON_DOCS], "hub": ["datasets"], "sources": ["datasets"]}
        yield from of_kinds.get(corpus["kind"], [])
        if value_at(corpus, "near_duplicates.threshold") is not None:
            yield from ("rensa", "numpy")
        if value_at(corpus, "cleaning.fix_mojibake"):
            yield "ftfy"

    def build(self, work: Work) -> dict[str, float]:
        from bertline.corpus.build import build_corpus

        config = work.config
        return build_corpus(config.corpus, config.python_docs, work.output, engine=work.engine, work=work.shards)

    def show(self, work: Work, runs: TrackedRuns, metrics: Mapping[str, float]) -> None:
        """Print the share of each source and what was dropped; show some documents in MLflow."""
        from bertline.corpus.quality.drops import DROPS_NAME, drops_in_words
        from bertline.corpus.sources import sources_in_words
        from bertline.corpus.storage import FORMAT_VERSION, KIND

        for shard in sorted(work.output.glob("train-*.parquet"))[:1]:
            runs.stage.log_table(shard, "documents", num_rows=20)
        table = read_manifest(work.output, kind=KIND, format_version=FORMAT_VERSION).get("sources")
        if table is not None:
            say(f"corpus: {sources_in_words(table)}")
        dropped = drops_in_words(read_json(work.output / DROPS_NAME)["counts"])
        say(f"corpus: {dropped}; samples: {work.output / DROPS_NAME}, and on the page that the tokenizer stage writes")

    def headline(self, metrics: Mapping[str, float], objective: Any) -> dict[str, float]:
        return picked(metrics, rows="train/documents")
