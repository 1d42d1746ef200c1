"""A stage in a process of its own, in a folder with params.yaml and the inputs of `pretrain`.

The work counts to five in `steps`, a line a step, resumes there, and waits at step 3 for the file `go`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import yaml

from bertline.foundation.errors import BertlineError
from bertline.foundation.files import folder_written_atomically, write_json
from bertline.foundation.work import Work
from bertline.run.stage import run_stage
from bertline.run.stopping import in_one_line
from bertline.stages.pretrain import Pretrain


def run(work: Work) -> dict[str, float]:
    """Count to five."""
    steps = work.folder / "steps"
    while (done := len(steps.read_text().splitlines()) if steps.exists() else 0) < 5:
        (work.folder / "at").write_text(str(done))
        while done == 3 and not Path("go").exists():
            time.sleep(0.02)
        if done == 3 and "FAILS" in os.environ:
            raise BertlineError("the work failed as asked")
        with steps.open("a") as handle:
            handle.write(f"{os.getpid()}\n")
    with folder_written_atomically(work.folder / "result") as result:
        write_json(result / "manifest.json", {"steps": 5})
    return {"val/mlm_loss": 3.64}


def main() -> None:
    """Run the stage `pretrain` with other work."""
    Pretrain.build = lambda self, work: run(work)  # type: ignore[method-assign]
    run_stage("pretrain", yaml.safe_load(Path("params.yaml").read_text()))


if __name__ == "__main__":
    in_one_line(main)
