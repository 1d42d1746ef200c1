"""examples: sentence pairs of each length as memory-mapped shards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bertline.foundation.work import Work
from bertline.stages.base import Stage, matching
from bertline.tracking.tracked_runs import TrackedRuns


class Examples(Stage):
    """The corpus, encoded and paired."""

    name = "examples"
    summary = "Examples of each length, encoded and paired, for pretraining."
    sections = ("examples",)
    inputs = ("artifacts/corpus", "artifacts/tokenizer")
    output = "artifacts/examples"
    packages = ("numpy", "tokenizers", "nanotoken")
    is_of_pretraining = True

    def build(self, work: Work) -> dict[str, float]:
        from bertline.examples.build import build_examples

        tokenizer, corpus = work.inputs["tokenizer"], work.inputs["corpus"]
        return build_examples(
            work.config.examples, tokenizer, corpus, work.output, engine=work.engine, work=work.shards
        )

    def show(self, work: Work, runs: TrackedRuns, metrics: Mapping[str, float]) -> None:
        for sample in sorted(work.output.glob("readable-*.txt")):
            runs.stage.log_artifact(sample, contains_text=True)

    def headline(self, metrics: Mapping[str, float], objective: Any) -> dict[str, float]:
        rows = matching(metrics, r"length_\d+/train_examples")
        return {"rows": sum(rows)} if rows else {}
