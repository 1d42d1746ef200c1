"""pretrain: the encoder with the heads of its objective, as a folder that transformers can load (artifacts/pretrain).

    python pipelines/pretrain.py model=small pretrain.max_steps=500
    python pipelines/pretrain.py runtime.profile=true      # where the time of a step goes

`bertline.pretraining.run` is the page to read: it builds tokenizer, model, probes, data and trainer, then trains, in
runs/pretrain/FINGERPRINT. After a stop or a kill, the same command resumes. With experiment=finetune nothing is
trained: the checkpoint of pretrain.start_from is read, checked and written as it is.
"""

from typing import Any

from bertline.cli.composition import recipe
from bertline.foundation.progress import warn
from bertline.run.stage import open_stage
from bertline.training.environment import use_training_environment

WORK = "bertline.pretraining.run:run"


@recipe
def main(composed: dict[str, Any]) -> None:
    """Pretrain, resume a stopped pretraining, or take a checkpoint as it is."""
    with open_stage("pretrain", composed) as stage:
        if not stage.config.pretrains:
            from bertline.pretraining.job import take_checkpoint  # loads torch

            stage.finish(take_checkpoint(stage.config.pretrain, stage.output))
            return
        metrics = stage.work(WORK)
        if stage.config.runtime.profile and not (stage.folder / "profile/top_operations.txt").exists():
            warn("runtime.profile: nothing was trained, so there is no profile; give another pretrain.seed for one")
        stage.finish(metrics)


if __name__ == "__main__":
    use_training_environment()
    main()
