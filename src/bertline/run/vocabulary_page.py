"""The page of a finished tokenizer stage: in its run folder, in `artifacts/pages`, and in MLflow."""

from __future__ import annotations

import shutil
from pathlib import Path

from bertline.evaluation.vocabulary_page import conclusion, survey_vocabulary, write_vocabulary_page
from bertline.foundation.progress import say
from bertline.run.provenance import running_under_dvc
from bertline.run.stage import StageRun
from bertline.tokenization.config import ByteBpeTokenizerConfig, NoTokenizerConfig, TrainedTokenizerConfig


def show_vocabulary(stage: StageRun) -> Path:
    """Write the page, attach it to the run in MLflow, and print what it says and where it stands.

    The same corpus and vocabularies give the same page. It is sent to a remote server only where `tracking.log_text`
    allows.

    Raises:
        DataError: A vocabulary of `tokenizer.compare` cannot be read.
    """
    config = stage.config.tokenizer
    assert not isinstance(config, NoTokenizerConfig)  # then the stage was skipped
    survey = survey_vocabulary(
        stage.output,
        stage.inputs["corpus"],
        compare=config.compare,
        was_trained=isinstance(config, TrainedTokenizerConfig | ByteBpeTokenizerConfig),
        num_workers=stage.config.runtime.num_workers,
    )
    kept = stage.stage.page
    assert kept is not None
    page = stage.folder / Path(kept).name
    write_vocabulary_page(page, survey)
    stage.record.log_artifact(page, contains_text=True)
    shown = page
    if running_under_dvc():
        Path(kept).parent.mkdir(parents=True, exist_ok=True)
        shown = Path(shutil.copyfile(page, kept))
    answer = f"{conclusion(survey)} " if survey.given else ""
    say(f"tokenizer: {answer}Words that are cut, and other vocabularies on this text: {shown}")
    return shown
