"""identity: code, package versions and the user's data of each stage, for DVC to compare (artifacts/identity).

DVC sees files, not installed packages and not the data that a configuration names, so this stage runs at every
`dvc repro`; it takes a moment. `configure` says what to look at.
"""

from pathlib import Path

import yaml

from bertline.foundation.files import read_json, write_json
from bertline.run.identity import IDENTITY, WATCHED, identity_of_stage
from bertline.run.stopping import in_one_line


def main() -> None:
    """Write a file for each stage, and for each task of a stage that runs once per task."""
    params = yaml.safe_load(Path("params.yaml").read_text(encoding="utf-8"))
    runs_folder = Path(params["runtime"]["runs_folder"])
    for name, watched in read_json(WATCHED).items():
        write_json(IDENTITY / f"{name}.json", identity_of_stage(watched, runs_folder))


if __name__ == "__main__":
    in_one_line(main)
