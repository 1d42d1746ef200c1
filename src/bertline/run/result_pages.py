"""What MLflow shows of a finished pipeline: the report with its headline, and the exported models in the registry."""

from __future__ import annotations

from collections.abc import Mapping

from bertline.evaluation.facts import PipelineFolders
from bertline.export.usage import is_pair
from bertline.inference.pyfunc import serving_of
from bertline.run.provenance import git_commit
from bertline.run.records import pipeline_page
from bertline.run.stage import StageRun
from bertline.run.summary import standing_of
from bertline.tracking.sending import register
from bertline.tracking.serving import Registration


def show_report(stage: StageRun, metrics: Mapping[str, float], folders: PipelineFolders) -> None:
    """Attach the report to the pipeline's run, with the headline figures and the verdicts."""
    report = stage.output / "report.html"
    headline, tags = pipeline_page(stage.config, metrics, folders.sweeps, report)
    pipeline = stage.records.pipeline
    pipeline.log_metrics(headline)
    pipeline.set_tags(tags)
    pipeline.log_artifact(report, contains_text=True)
    pipeline.log_artifact(stage.output / "plots", contains_text=False)


def register_models(stage: StageRun, folders: PipelineFolders) -> None:
    """Register the encoder and the model of each task, unless `export.register` is false."""
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
