"""tokenizer: a vocabulary trained on the corpus, or a given one."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertline.foundation.progress import say
from bertline.foundation.work import Work
from bertline.stages.base import Stage, picked
from bertline.tracking.tracked_runs import TrackedRuns


class Tokenizer(Stage):
    """A vocabulary, the same bytes every time."""

    name = "tokenizer"
    summary = "A WordPiece vocabulary, trained on the corpus or given."
    sections = ("tokenizer",)
    data = sections
    inputs = ("artifacts/corpus",)
    output = "artifacts/tokenizer"
    page = "artifacts/pages/data.html"
    packages = ("tokenizers",)
    is_of_pretraining = True

    def build(self, work: Work) -> dict[str, float]:
        from bertline.tokenization.build import build_tokenizer

        corpus = work.inputs["corpus"]
        return build_tokenizer(work.config.tokenizer, corpus, work.output, engine=work.engine, work=work.shards)

    def show(self, work: Work, runs: TrackedRuns, metrics: Mapping[str, float]) -> None:
        """Write the data page to the run folder, and print what it concludes of the vocabulary."""
        from bertline.evaluation.data_page import write_data_page
        from bertline.evaluation.vocabulary_survey import survey_vocabulary
        from bertline.tokenization.config import ByteBpeTokenizerConfig, TrainedTokenizerConfig
        from bertline.tokenization.counting import CorpusText

        for vocabulary in work.output.glob("vocab.txt"):  # of a WordPiece
            runs.stage.log_artifact(vocabulary, contains_text=True)
        config, corpus = work.config.tokenizer, work.inputs["corpus"]
        survey = survey_vocabulary(
            work.output,
            CorpusText(corpus, work.engine, work.shards),
            compare=config.compare,
            was_trained=isinstance(config, TrainedTokenizerConfig | ByteBpeTokenizerConfig),
        )
        shutil.rmtree(work.shards, ignore_errors=True)
        page = work.folder / Path(str(self.page)).name
        write_data_page(page, corpus, survey)
        runs.stage.log_artifact(page, contains_text=True)
        answer = f"{survey.conclusion} " if survey.given else ""
        shown = self.page if work.output == self.output_of(None) else page
        say(f"tokenizer: {answer}Samples of the text, words that are cut, and other vocabularies on this text: {shown}")

    def headline(self, metrics: Mapping[str, float], objective: Any) -> dict[str, float]:
        return picked(metrics, rows="vocab_size")
