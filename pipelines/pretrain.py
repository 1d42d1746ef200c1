"""pretrain: the encoder with the heads of its objective, as a folder that transformers can load (artifacts/pretrain).

    python pipelines/pretrain.py model=small pretrain.max_steps=500
    python pipelines/pretrain.py runtime.profile=true      # where the time of a step goes

`bertline.pretraining.run` is the page to read: it builds tokenizer, model, probes, data and trainer, then trains. It
works in runs/pretrain/FINGERPRINT. After a stop or a kill, the same command resumes. With
experiment=finetune nothing is trained: the checkpoint of pretrain.start_from is read, checked and written as it is.
"""

import on_ctrl_c  # noqa: F401

# isort: split
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertline.foundation.progress import warn
from bertline.orchestration.stage_run import StageRun, open_stage
from bertline.training.environment import use_training_environment
from composition import recipe

WORK = "bertline.pretraining.run:run"


def pretrained(composed: Mapping[str, Any]) -> Path:
    """Pretrain, resume a stopped pretraining, or take a checkpoint as it is; return the encoder's folder."""
    with open_stage("pretrain", composed) as stage:
        if not stage.config.pretrains:
            stage.finish(checkpoint_taken(stage))
            return stage.output
        metrics = stage.work(WORK)
        if stage.config.runtime.profile and not (stage.folder / "profile/top_operations.txt").exists():
            warn("runtime.profile: nothing was trained, so there is no profile; give another pretrain.seed for one")
        stage.finish(metrics)
        return stage.output


def checkpoint_taken(stage: StageRun) -> dict[str, float | int]:
    """Write the configured checkpoint as the encoder; return its headline figures."""
    # Imported here, because they load torch, which a recipe does not need if a worker does the work.
    from bertline.pretraining.config import checkpoint_title
    from bertline.pretraining.result import take_checkpoint
    from bertline.tokenization.vocabulary import resolve_folder

    config = stage.config.pretrain
    assert config.start_from is not None  # validation requires it where there are no phases
    source = resolve_folder(config.start_from, config.start_from_revision)
    return take_checkpoint(source, stage.output, title=checkpoint_title(config))


@recipe
def main(composed: dict[str, Any]) -> None:
    """See `pretrained`."""
    pretrained(composed)


if __name__ == "__main__":
    use_training_environment()
    main()
