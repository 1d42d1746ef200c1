"""versions: package versions that each stage reads or computes with, for DVC to compare (artifacts/versions).

DVC sees files, not installed packages, so this stage runs at every `dvc repro`; it takes a moment.
"""

from pathlib import Path

import yaml

from bertline.foundation.files import write_json
from bertline.run.fingerprints import versions_by_stage
from bertline.run.stopping import in_one_line
from bertline.stages.base import VERSIONS


def main() -> None:
    """Write a file for each stage, and for each task of a stage that runs once per task."""
    for name, versions in versions_by_stage(yaml.safe_load(Path("params.yaml").read_text(encoding="utf-8"))).items():
        write_json(VERSIONS / name, versions)


if __name__ == "__main__":
    in_one_line(main)
