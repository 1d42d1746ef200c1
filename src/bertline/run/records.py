"""What people see of a stage besides its result: in MLflow name, note, source and figures, in DVC five figures, a page.

The same inputs give the same page; it is sent to a remote server only where `tracking.log_text` allows. What the pages
need is imported by each function: the recipe of the corpus does without torch.
"""

from __future__ import annotations

import dataclasses
import getpass
import os
import re
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertline.config import PipelineConfig
from bertline.evaluation.facts import PipelineFolders, read_result
from bertline.foundation.files import read_json, sha256_of_json, sha256_of_path, write_json
from bertline.foundation.formats import count, escaped, markdown_table
from bertline.foundation.manifests import MANIFEST_NAME, read_manifest
from bertline.foundation.mappings import value_at
from bertline.foundation.progress import say
from bertline.pretraining.objectives.base import Objective, shown_means
from bertline.run.provenance import artifact_digest, git_commit, running_under_dvc
from bertline.run.stages import Stage
from bertline.tasks.metrics import metric_name
from bertline.tracking.record import NAME_TAG, NOTE_TAG, Record, RunRecord

if TYPE_CHECKING:
    from bertline.run.stage import StageRun

# What a person compares pipelines by; `config.yaml` among the artifacts has the rest.
_HEADLINE_PARAMS = (
    "corpus.kind", "tokenizer.vocab_size", "model.num_hidden_layers", "model.hidden_size", "objective.kind",
    "optimizer.kind", "optimizer.lr", "pretrain.start_from", "pretrain.seed",
)  # fmt: skip
_OTHER_FIGURES = 30
"""Most figures of a stage that its note lists; `figures.json` among the artifacts has all."""


def opening_record(run: StageRun, tracked: dict[str, Any], *, enabled: bool) -> Record:
    """Return what the runs of a stage and of its pipeline show from the start.

    Args:
        tracked: Configuration that results depend on; with the commit, it identifies the pipeline's run.
        enabled: Whether they are recorded.
    """
    commit = git_commit()
    tags = {"git.commit": commit, **source_tags(f"pipelines/{run.stage.name}.py")}
    if experiment := os.environ.get("DVC_EXP_NAME"):
        tags["dvc.experiment"] = experiment
    digests = {f"bertline.input_sha256.{key}": sha for key, sha in run.made_of["inputs"].items()}
    return Record(
        tracking=dataclasses.replace(run.config.tracking, enabled=enabled),
        opened_s=time.time(),
        stage=RunRecord(
            key=run.fingerprint,
            name=run.name,
            params=run.made_of["sections"],
            tags={**tags, "bertline.fingerprint": run.fingerprint, **digests},
            inputs={key: (str(path), artifact_digest(path)) for key, path in run.inputs.items()},
            attachments=list(run.stage.attachments),
            tables=list(run.stage.tables),
        ),
        pipeline=RunRecord(
            key=sha256_of_json({"config": tracked, "commit": commit})[:12],
            name=pipeline_name(run.config),
            params={key: value for key in _HEADLINE_PARAMS if (value := value_at(tracked, key)) is not None},
            tags=tags,
            config=tracked,
        ),
    )


def add_result(
    record: RunRecord, config: PipelineConfig, stage: Stage, name: str, metrics: Mapping[str, float], output: Path
) -> None:
    """Add to a stage's record what is known when it has finished: figures, the manifest, name and note."""
    record.log_metrics(charted(metrics))
    # Names of labels are the user's own words.
    record.log_artifact(output / MANIFEST_NAME, contains_text=stage.per_task)
    record.tags.update(stage_page(config, stage, name, metrics, output))
    record.tags["bertline.output_sha256"] = sha256_of_path(output)


def source_tags(recipe: str) -> dict[str, str]:
    """Return the tags that MLflow shows as source, user and commit; `recipe` is a path, as `pipelines/pretrain.py`."""
    tags = {
        "mlflow.source.name": "dvc.yaml" if running_under_dvc() else recipe,
        "mlflow.source.type": "PROJECT" if running_under_dvc() else "LOCAL",
    }
    commit = git_commit().partition("+")[0]
    if commit != "none":
        tags["mlflow.source.git.commit"] = commit
    with suppress(OSError, KeyError):  # an account without a name, as in some containers
        tags["mlflow.user"] = getpass.getuser()
    return tags


def charted(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the scores, losses and rates among a stage's figures: counts and constants make no chart."""
    return {key: value for key, value in metrics.items() if "/" in key and isinstance(value, float)}


def stage_page(
    config: PipelineConfig, stage: Stage, name: str, metrics: Mapping[str, float], output: Path
) -> dict[str, str]:
    """Return name and note of a finished stage's run; `name` has its task, such as `sweep@docs_library`."""
    blocks = [f"{stage.summary} Result: `{output.as_posix()}`."]
    title = name
    if stage.name == "sweep":
        result = read_result(output / "result.json")
        title = f"{name}: {metric_name(result['metric'])} {result['arms']['encoder']['test_mean']:.3f}"
        alone, among = (escaped(result[part]["sentence"]) for part in ("conclusion", "encoders"))
        blocks += filter(None, [alone, _arms(result), among])
        tables = result["encoders"]["tables"]
        blocks += [markdown_table(head, [list(map(escaped, row)) for row in rows]) for head, rows in tables]
    else:
        if stage.name == "pretrain":
            title = ": ".join([name, *_loss(config, metrics)])
        shown = sorted(metrics.items(), key=lambda item: item[0] not in charted(metrics))[:_OTHER_FIGURES]
        blocks.append(markdown_table(["figure", "value"], [(f"`{key}`", short_number(value)) for key, value in shown]))
    return {NAME_TAG: title, NOTE_TAG: "\n\n".join(blocks)}


def pipeline_name(config: PipelineConfig) -> str:
    """Return what a pipeline is called: its preset, or the title of its report."""
    return config.evaluate.title if config.evaluate.preset == "none" else config.evaluate.preset


def pipeline_page(
    config: PipelineConfig, metrics: Mapping[str, float], sweeps: Mapping[str, Path], report: Path
) -> tuple[dict[str, float], dict[str, str]]:
    """Return the headline metrics of the pipeline's run, from those of `evaluate`, and its name and note."""
    results = {task: read_result(folder / "result.json") for task, folder in sweeps.items()}
    scores_shown = [f"val/{mean.name}" for mean in shown_means(config.objective)]
    headline = {key: metrics[key] for key in scores_shown if key in metrics}
    rows, sentences = [], []
    for task, result in results.items():
        arm, metric = result["arms"]["encoder"], result["metric"]
        headline[f"{task}/{metric}"] = arm["test_mean"]
        opponent = result["baselines"].get(result["conclusion"]["opponent"])
        strongest = f"{opponent['test']:.3f} ({escaped(opponent['title'])})" if opponent else "–"
        rows.append((task, metric_name(metric), _with_std(arm), strongest))
        sentences.append(f"- **{task}**: {escaped(result['conclusion']['sentence'])}")
    scores = _loss(config, metrics)
    if not scores:  # a checkpoint was fine-tuned
        scores = [f"{task} {result['arms']['encoder']['test_mean']:.3f}" for task, result in results.items()]
    note = [
        f"Report: `{report.as_posix()}`, and `report.html` among the artifacts below; `config.yaml` there is the whole "
        f"configuration. Commit {git_commit()[:10]}."
    ]
    if rows:  # first: MLflow folds all but the first lines away
        table = markdown_table(["task", "metric", "encoder", "strongest simple opponent"], rows)
        note = ["\n".join(sentences), table, *note]
    return headline, {NAME_TAG: ": ".join([pipeline_name(config), *scores[:1]]), NOTE_TAG: "\n\n".join(note)}


def _loss(config: PipelineConfig, metrics: Mapping[str, float]) -> list[str]:
    """Return `["MLM 3.64"]`; empty where nothing was pretrained or validated."""
    name = config.objective.judged_by
    loss = metrics.get(f"val/{name}")
    return [] if loss is None else [f"{name.removesuffix('_loss').upper()} {loss:.2f}"]


def _arms(result: Mapping[str, Any]) -> str:
    rows = [(escaped(one["title"]), _with_std(one), one["test_mean"]) for one in result["arms"].values() if one]
    rows += [(one["title"], f"{one['test']:.3f}", one["test"]) for one in result["baselines"].values()]
    best_first = sorted(rows, key=lambda row: -row[2])
    return markdown_table(["model", f"test {metric_name(result['metric'])}"], [row[:2] for row in best_first])


def _with_std(arm: Mapping[str, Any]) -> str:
    spread = f" ± {arm['test_std']:.3f} over {len(arm['seeds'])} seeds" if len(arm["seeds"]) > 1 else ""
    return f"{arm['test_mean']:.3f}{spread}"


def short_number(value: float) -> str:
    """Format a figure with four digits, and a large one or a count as such."""
    return count(value) if isinstance(value, int) or abs(value) >= 1000 else f"{value:.4g}"


NAMES = ("score", "baseline", "loss", "rows", "seconds")


def headline(stage: str, metrics: Mapping[str, float], objective: Objective, *, seconds: float) -> dict[str, float]:
    """Return the figures that a person compares first; those that a stage does not have are left out.

    Returns:
        `score` (of pretraining the score that the objective shows, on held-out text; of a sweep the test score, of
        `evaluate` the mean of those), `baseline` (of pretraining that of its loss; of a sweep the test score of the
        strongest simple opponent), `loss` (by which the objective is judged, on held-out text), `rows` (documents,
        tokens of the vocabulary, examples or labelled rows to train on; models exported) and `seconds`.
    """
    matching = {
        name: [value for key, value in metrics.items() if re.fullmatch(pattern, key)]
        for name, pattern in _patterns(stage, objective).items()
    }
    figures: dict[str, float] = {name: values[0] for name, values in matching.items() if values}
    if "rows" in figures:
        figures["rows"] = len(matching["rows"]) if stage == "export" else sum(matching["rows"])
    if stage == "evaluate" and "score" in figures:
        figures["score"] = sum(matching["score"]) / len(matching["score"])
    difference = metrics.get("encoder/difference_from_strongest")
    if stage == "sweep" and "score" in figures and difference is not None:
        figures["baseline"] = figures["score"] - difference
    figures["seconds"] = round(seconds, 1)
    return {name: figures[name] for name in NAMES if name in figures}


def write_headline(
    path: Path, stage: str, metrics: Mapping[str, float], objective: Objective, *, seconds: float, kept: Path
) -> None:
    """Write a stage's headline figures.

    Args:
        kept: The same file in the run folder. Where a result without a time of its own is taken from there, the longer
            time is that of the work.
    """
    before = read_json(kept).get("seconds", 0.0) if kept.exists() else 0.0
    figures = headline(stage, metrics, objective, seconds=max(before, seconds))
    for target in (kept, path):
        write_json(target, figures)


def _patterns(stage: str, objective: Objective) -> dict[str, str]:
    """Return the patterns of the keys of a stage's figures by headline name; an empty one matches no key."""
    loss = f"val/{objective.judged_by}"
    baseline = next(term.figure for term in objective.terms if term.name == objective.judged_by) or ""
    patterns = {
        "corpus": {"rows": "train/documents"},
        "tokenizer": {"rows": "vocab_size"},
        "examples": {"rows": r"length_\d+/train_examples"},
        "task_data": {"rows": "train_rows"},
        "pretrain": {"score": f"val/{objective.metrics[0].name}", "baseline": baseline, "loss": loss},
        "sweep": {"score": r"test/.+_mean"},
        "evaluate": {"score": r"[^/]+/encoder/.+_mean", "loss": loss},
        "export": {"rows": r"[^/]+/bytes"},
    }
    return patterns[stage]


def show_corpus(stage: StageRun) -> None:
    """Print the share of each source, and what was dropped."""
    from bertline.corpus.quality.drops import DROPS_NAME, drops_in_words, names_of_files
    from bertline.corpus.sources import sources_in_words
    from bertline.corpus.storage import FORMAT_VERSION, KIND

    table = read_manifest(stage.output, kind=KIND, format_version=FORMAT_VERSION).get("sources")
    if table is not None:
        say(f"corpus: {sources_in_words(table)}")
    drops = read_json(stage.output / DROPS_NAME)
    dropped = drops_in_words(drops["counts"], names_of_files(drops))
    say(f"corpus: {dropped}; samples: {stage.output / DROPS_NAME}, and on the page that the tokenizer stage writes")


def show_data(stage: StageRun) -> Path:
    """Write the data page, print what it concludes of the vocabulary, and return where it stands."""
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
    report = stage.output / "report.html"
    headline, tags = pipeline_page(stage.config, metrics, folders.sweeps, report)
    pipeline = stage.records.pipeline
    pipeline.log_metrics(headline)
    pipeline.tags.update(tags)
    pipeline.log_artifact(report, contains_text=True)
    pipeline.log_artifact(stage.output / "plots", contains_text=False)


def register_models(stage: StageRun, folders: PipelineFolders) -> None:
    """Register the encoder and the model of each task, unless `export.register` is false."""
    from bertline.inference.pyfunc import serving_of
    from bertline.run.summary import standing_of
    from bertline.tracking.registration import Registration
    from bertline.tracking.sending import register

    config = stage.config.export
    if not config.register:
        return
    tags = {"git.commit": git_commit(), "bertline.export": stage.fingerprint}
    if stage.config.pretrains:
        encoder = stage.output / "encoder"
        serving = serving_of(encoder, dataset=None)
        register(stage.folder, config.model_name, encoder, Registration(alias=config.alias, tags=tags, serving=serving))
    for task, sweep in folders.sweeps.items():
        model = stage.output / task
        registration = Registration(
            alias=config.alias,
            tags=tags,
            serving=serving_of(model, dataset=(task, folders.tasks[task].as_posix())),
            standing=standing_of(sweep, alias=config.champion_alias),
        )
        register(stage.folder, f"{config.model_name}-{task}", model, registration)
