"""export: Hugging Face folders with ONNX files and model cards, checked and registered (artifacts/export).

python pipelines/export.py export.model_name=my-encoder
"""

from typing import Any

from bertline.cli.composition import recipe
from bertline.export.build import build_export
from bertline.run.records import register_models
from bertline.run.stage import open_stage
from bertline.run.summary import pipeline_facts, pipeline_folders


@recipe
def main(composed: dict[str, Any]) -> None:
    """Export and check against transformers; only models that pass are registered."""
    with open_stage("export", composed) as stage:
        folders = pipeline_folders(stage.config)
        facts = pipeline_facts(stage.config)
        metrics = build_export(stage.config.export, folders.pretrain, folders.sweeps, facts, stage.output)
        stage.finish(metrics)
        register_models(stage, folders)


if __name__ == "__main__":
    main()
