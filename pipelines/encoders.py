"""encoders: record the encoder that each task starts from, so that DVC compares it (artifacts/encoders).

DVC repeats a sweep if its encoder has changed. Only DVC needs this stage: a sweep run by hand finds its encoder itself.
"""

import on_ctrl_c  # noqa: F401

# isort: split
from pathlib import Path
from typing import Any

from bertline.foundation.progress import say
from bertline.orchestration.config import SECTIONS, pipeline_config
from bertline.orchestration.stages import stage_named
from bertline.orchestration.unused import uses_pretrained, write_encoder_pointers
from composition import recipe


@recipe
def main(composed: dict[str, Any]) -> None:
    """Write the pointers. Nothing is computed, so no run is tracked."""
    config = pipeline_config({key: composed[key] for key in SECTIONS})
    write_encoder_pointers(config, Path(stage_named("pretrain").output), Path(stage_named("encoders").output))
    others = [name for name, task in config.tasks.items() if not uses_pretrained(task.start_from)]
    say(f"encoders: {len(config.tasks) - len(others)} tasks start from the pipeline's own encoder, {len(others)} not")


if __name__ == "__main__":
    main()
