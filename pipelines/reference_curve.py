"""reference_curve: ship the curves of a finished pretraining with bertline, to be drawn behind others in the report.

python pipelines/reference_curve.py run=runs/pretrain/FINGERPRINT name=docs_tiny device="2 CPU cores"
"""

import on_ctrl_c  # noqa: F401

# isort: split
from pathlib import Path
from typing import Any

from caller import of_caller

from bertline.evaluation.reference import reference_of_run, write_reference
from bertline.foundation.progress import say
from bertline.orchestration.provenance import git_commit
from composition import recipe

CURVES = Path("src/bertline/evaluation/reference_curves")


def main(asked: dict[str, Any]) -> None:
    """Write src/bertline/evaluation/reference_curves/NAME.json."""
    commit = asked["commit"] or git_commit()
    content = reference_of_run(of_caller(asked["run"]), name=asked["name"], device=asked["device"], commit=commit)
    write_reference(CURVES / f"{asked['name']}.json", content)
    last = {key: points[-1][1] for key, points in content["curves"].items() if points}
    say(f"{CURVES / asked['name']}.json: " + ", ".join(f"{key} {value:.4g}" for key, value in last.items()))


if __name__ == "__main__":
    recipe(main, config="reference_curve")()
