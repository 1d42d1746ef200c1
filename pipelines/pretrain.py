"""pretrain: the encoder with its MLM and NSP heads, as a folder that transformers loads (artifacts/pretrain).

    python pipelines/pretrain.py model=small pretrain.max_steps=500
    python pipelines/pretrain.py runtime.profile=true      # where the time of a step goes

The work runs in a worker at runs/pretrain/FINGERPRINT. Kill it and run the same command again: it goes on.
"""

from typing import Any

from bertline.foundation.progress import warn
from bertline.line.opened import open_stage
from composition import recipe


@recipe
def main(composed: dict[str, Any]) -> None:
    """Pretrain, or go on with a pretraining that was stopped."""
    with open_stage("pretrain", composed) as stage:
        # The film strip quotes sentences of the configuration, which are the user's own (see tracking.log_text).
        stage.record.follow_artifact(stage.folder / "film_strip.txt", contains_text=True)
        stage.record.follow_artifact(stage.folder / "health.jsonl", contains_text=False)
        operations = stage.folder / "profile/top_operations.txt"
        stage.record.follow_artifact(operations, contains_text=False)
        metrics = stage.work()
        stage.record.log_artifact(stage.folder / "film_strip.jsonl", contains_text=True)
        if stage.config.runtime.profile and not operations.exists():
            warn("runtime.profile: nothing was trained, so there is no profile; give another pretrain.seed for one")
        stage.finish(metrics)


if __name__ == "__main__":
    main()
