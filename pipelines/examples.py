"""examples: sentence pairs of each length as memory-mapped shards (artifacts/examples).

python pipelines/examples.py examples.lengths=[64,128]
"""

from typing import Any

from bertline.cli.composition import recipe
from bertline.examples.build import build_examples
from bertline.run.stage import open_stage
from bertline.run.unused import leave_out


@recipe
def main(composed: dict[str, Any]) -> None:
    """Encode the corpus and pair its segments."""
    if leave_out("examples", composed):  # a checkpoint is fine-tuned as it is
        return
    with open_stage("examples", composed) as stage:
        metrics = build_examples(
            stage.config.examples,
            stage.inputs["tokenizer"],
            stage.inputs["corpus"],
            stage.output,
            engine=stage.engine,
            work=stage.shards,
        )
        for sample in sorted(stage.output.glob("readable-*.txt")):
            stage.record.log_artifact(sample, contains_text=True)
        stage.finish(metrics)


if __name__ == "__main__":
    main()
