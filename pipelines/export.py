"""export: Hugging Face folders with ONNX files and model cards, checked and registered (artifacts/export).

python pipelines/export.py export.model_name=my-encoder
"""

import on_ctrl_c  # noqa: F401

# isort: split
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertline.export.build import build_export
from bertline.export.usage import is_pair
from bertline.inference.pyfunc import serving_of
from bertline.orchestration.provenance import git_commit
from bertline.orchestration.stage_run import open_stage
from bertline.orchestration.summary import pipeline_facts, pipeline_folders, standing_of
from bertline.tracking.sending import register
from bertline.tracking.serving import Registration
from composition import recipe


def exported(composed: Mapping[str, Any], places: Mapping[str, Path] | None = None) -> Path:
    """Export and check against transformers; only models that pass are registered. Return the folder of all models.

    Args:
        composed: Composed configuration.
        places: Input folders of a single task that is run by hand; see `open_stage`.
    """
    with open_stage("export", composed, places=places) as stage:
        config = stage.config.export
        folders = pipeline_folders(stage.config, places)
        metrics = build_export(
            config,
            pretrain_folder=folders.pretrain,
            sweep_folders=folders.sweeps,
            pipeline_facts=pipeline_facts(stage.config),
            out=stage.output,
        )
        stage.finish(metrics)
        if config.register:
            tags = {"git.commit": git_commit(), "bertline.export": stage.fingerprint}
            if stage.config.pretrains:
                encoder = stage.output / "encoder"
                serving = serving_of(encoder, pair=False, dataset=None)
                registration = Registration(alias=config.alias, tags=tags, serving=serving)
                register(stage.folder, config.model_name, encoder, registration)
            for task, sweep in folders.sweeps.items():
                pair = is_pair(stage.config.tasks[task], sweep / "predictions.parquet")
                registration = Registration(
                    alias=config.alias,
                    tags=tags,
                    serving=serving_of(stage.output / task, pair=pair, dataset=(task, folders.tasks[task].as_posix())),
                    standing=standing_of(sweep, alias=config.champion_alias),
                )
                register(stage.folder, f"{config.model_name}-{task}", stage.output / task, registration)
        return stage.output


@recipe
def main(composed: dict[str, Any]) -> None:
    """See `exported`."""
    exported(composed)


if __name__ == "__main__":
    main()
