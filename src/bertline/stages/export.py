"""export: Hugging Face folders with ONNX files and model cards, checked and registered."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertline.foundation.files import read_json
from bertline.foundation.work import Work
from bertline.stages.base import Stage, matching
from bertline.tracking.tracked_runs import TrackedRuns

if TYPE_CHECKING:
    from bertline.tracking.registry import Standing


class Export(Stage):
    """Hugging Face folders, each checked against transformers; only models that pass are registered."""

    name = "export"
    summary = "Hugging Face folders with ONNX files and model cards, checked and registered."
    sections = ("export", "tasks")
    inputs = ("artifacts/pretrain", "artifacts/tasks", "artifacts/sweep", "artifacts/evaluate")
    output = "artifacts/export"
    packages = ("torch", "numpy", "pandas", "scipy", "tokenizers", "transformers", "onnx", "onnxruntime")

    def build(self, work: Work) -> dict[str, float]:
        from bertline.export.build import build_export
        from bertline.stages.pipeline import of_tasks, pipeline_facts

        config = work.config
        facts, sweeps = pipeline_facts(config, work.commit), of_tasks(config, work.inputs["sweep"])
        return build_export(config.export, work.inputs["pretrain"], sweeps, facts, work.output)

    def show(self, work: Work, runs: TrackedRuns, metrics: Mapping[str, float]) -> None:
        """Register the encoder and the model of each task, if `export.register` and tracking are on."""
        config = work.config.export
        if not (config.register and runs.tracking.enabled):
            return
        from bertline.inference.pyfunc import serving_of
        from bertline.stages.pipeline import of_tasks
        from bertline.tracking.registry import Registration, register  # imports MLflow, which takes 2 s

        tags = {"git.commit": work.commit, "bertline.export": work.folder.name}
        if work.config.pretrains:
            encoder = work.output / "encoder"
            registration = Registration(alias=config.alias, tags=tags, serving=serving_of(encoder, dataset=None))
            register(work.folder, config.model_name, encoder, registration)
        rows = of_tasks(work.config, work.inputs["tasks"])
        for task, sweep in of_tasks(work.config, work.inputs["sweep"]).items():
            model = work.output / task
            registration = Registration(
                alias=config.alias,
                tags=tags,
                serving=serving_of(model, dataset=(task, rows[task].as_posix())),
                standing=standing_of(sweep, alias=config.champion_alias),
            )
            register(work.folder, f"{config.model_name}-{task}", model, registration)

    def headline(self, metrics: Mapping[str, float], objective: Any) -> dict[str, float]:
        models = matching(metrics, r"[^/]+/bytes")
        return {"rows": len(models)} if models else {}


def standing_of(sweep_folder: Path, *, alias: str) -> Standing:
    """Return the scores of a sweep's winner for the registry: on dev, to compare versions, and on test, for display."""
    from bertline.foundation.verdicts import Measured
    from bertline.tracking.registry import Standing

    result = read_json(sweep_folder / "result.json")
    arm, baseline = result["arms"]["encoder"], result["baselines"].get(result.get("winner", {}).get("name"))
    return Standing(
        alias=alias,
        data_hash=result["data_hash"],
        metric=result["metric"],
        dev=Measured.from_json(read_json(sweep_folder / "standing.json")),
        test_score=arm["test_mean"] if baseline is None else baseline["test"],
        test_std=arm["test_std"] if baseline is None else None,
    )
