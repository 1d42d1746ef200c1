"""What a finished stage shows people besides its result: a page, in MLflow the report, in the registry the models.

The same inputs give the same page; it is sent to a remote server only where `tracking.log_text` allows. What the pages
need is imported by each function: the recipe of the corpus does without torch.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bertline.corpus.quality.drops import DROPS_NAME, drops_in_words, names_of_files
from bertline.foundation.files import read_json
from bertline.foundation.manifests import read_manifest
from bertline.foundation.progress import say
from bertline.run.provenance import git_commit, running_under_dvc
from bertline.run.stage import StageRun

if TYPE_CHECKING:
    from bertline.evaluation.facts import PipelineFolders


def show_corpus(stage: StageRun) -> None:
    """Print the share of each source, and what was dropped."""
    from bertline.corpus.sources import sources_in_words
    from bertline.corpus.storage import FORMAT_VERSION, KIND

    table = read_manifest(stage.output, kind=KIND, format_version=FORMAT_VERSION).get("sources")
    if table is not None:
        say(f"corpus: {sources_in_words(table)}")
    drops = read_json(stage.output / DROPS_NAME)
    dropped = drops_in_words(drops["counts"], names_of_files(drops))
    say(f"corpus: {dropped}; samples: {stage.output / DROPS_NAME}, and on the page that the tokenizer stage writes")


def show_data(stage: StageRun) -> Path:
    """Write the data page, print what it concludes of the vocabulary, and return where it stands.

    Raises:
        DataError: A vocabulary of `tokenizer.compare` cannot be read.
    """
    from bertline.evaluation.data_page import write_data_page
    from bertline.evaluation.vocabulary_survey import survey_vocabulary
    from bertline.tokenization.config import ByteBpeTokenizerConfig, NoTokenizerConfig, TrainedTokenizerConfig
    from bertline.tokenization.counting import CorpusText

    config, corpus = stage.config.tokenizer, stage.inputs["corpus"]
    assert not isinstance(config, NoTokenizerConfig)  # then the stage was skipped
    survey = survey_vocabulary(
        stage.output,
        CorpusText(corpus, stage.engine, stage.shards),
        compare=config.compare,
        was_trained=isinstance(config, TrainedTokenizerConfig | ByteBpeTokenizerConfig),
    )
    shutil.rmtree(stage.shards, ignore_errors=True)
    assert stage.stage.page is not None
    page = kept = stage.folder / Path(stage.stage.page).name
    write_data_page(page, corpus, survey)
    stage.record.log_artifact(page, contains_text=True)
    if running_under_dvc():
        kept = Path(stage.stage.page)
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, kept)
    answer = f"{survey.conclusion} " if survey.given else ""
    say(f"tokenizer: {answer}Samples of the text, words that are cut, and other vocabularies on this text: {kept}")
    return kept


def show_report(stage: StageRun, metrics: Mapping[str, float], folders: PipelineFolders) -> None:
    """Attach the report to the pipeline's run, with the headline figures and the verdicts."""
    from bertline.run.records import pipeline_page

    report = stage.output / "report.html"
    headline, tags = pipeline_page(stage.config, metrics, folders.sweeps, report)
    pipeline = stage.records.pipeline
    pipeline.log_metrics(headline)
    pipeline.set_tags(tags)
    pipeline.log_artifact(report, contains_text=True)
    pipeline.log_artifact(stage.output / "plots", contains_text=False)


def register_models(stage: StageRun, folders: PipelineFolders) -> None:
    """Register the encoder and the model of each task, unless `export.register` is false."""
    from bertline.export.usage import is_pair
    from bertline.inference.pyfunc import serving_of
    from bertline.run.summary import standing_of
    from bertline.tracking.sending import register
    from bertline.tracking.serving import Registration

    config = stage.config.export
    if not config.register:
        return
    tags = {"git.commit": git_commit(), "bertline.export": stage.fingerprint}
    if stage.config.pretrains:
        encoder = stage.output / "encoder"
        serving = serving_of(encoder, pair=False, dataset=None)
        register(stage.folder, config.model_name, encoder, Registration(alias=config.alias, tags=tags, serving=serving))
    for task, sweep in folders.sweeps.items():
        model = stage.output / task
        pair = is_pair(stage.config.tasks[task], sweep / "predictions.parquet")
        registration = Registration(
            alias=config.alias,
            tags=tags,
            serving=serving_of(model, pair=pair, dataset=(task, folders.tasks[task].as_posix())),
            standing=standing_of(sweep, alias=config.champion_alias),
        )
        register(stage.folder, f"{config.model_name}-{task}", model, registration)
