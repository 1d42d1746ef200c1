"""encoders: the encoder that each task starts from, for DVC to compare (artifacts/encoders).

DVC repeats a sweep if its encoder has changed. Only DVC needs this stage: a sweep run by hand finds its encoder itself.
"""

from pathlib import Path
from typing import Any

from bertline.cli.composition import recipe, sections_in
from bertline.run.stages import stage_named
from bertline.run.unused import write_encoder_pointers


@recipe
def main(composed: dict[str, Any]) -> None:
    """Write the pointers. Nothing is computed, so no run is tracked."""
    pretrained, out = (Path(stage_named(name).output) for name in ("pretrain", "encoders"))
    write_encoder_pointers(sections_in(composed), pretrained, out)


if __name__ == "__main__":
    main()
