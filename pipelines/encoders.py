"""encoders: the encoder that each task starts from, for DVC to compare (artifacts/encoders).

DVC repeats a sweep if its encoder has changed: a sweep with a checkpoint of its own depends on no pretraining. Only DVC
needs this stage: a sweep run by hand finds its encoder itself.
"""

from pathlib import Path

import yaml

from bertline.foundation.files import folder_written_atomically, sha256_of_path, write_json
from bertline.run.stopping import in_one_line
from bertline.stages.base import ENCODERS
from bertline.stages.sweep import uses_pretrained


def main() -> None:
    """Write `TASK` for every task; those without a checkpoint of their own start from the pretrained encoder."""
    tasks = yaml.safe_load(Path("params.yaml").read_text(encoding="utf-8"))["tasks"]
    pretrained = {"encoder": "pretrain", "sha256": sha256_of_path(Path("artifacts/pretrain"))}
    with folder_written_atomically(ENCODERS) as folder:
        folder.mkdir(parents=True, exist_ok=True)
        for name, task in tasks.items():
            # The task's own section and the digest of its checkpoint determine the other one.
            is_pretrained = uses_pretrained(task.get("start_from"))
            write_json(folder / name, pretrained if is_pretrained else {"encoder": "tasks.start_from"})


if __name__ == "__main__":
    in_one_line(main)
