"""encoders: the encoder that each task starts from, for DVC to compare.

DVC repeats a sweep if its encoder has changed. Only DVC needs this stage: a sweep run by hand finds its encoder itself.
"""

from bertline.foundation.files import folder_written_atomically, sha256_of_path, write_json
from bertline.foundation.work import Work
from bertline.stages.base import ENCODERS, Stage


class Encoders(Stage):
    """Pointers: a sweep with a checkpoint of its own depends on no pretraining."""

    name = "encoders"
    summary = "The encoder that each task starts from."
    sections = ("tasks",)
    inputs = ("artifacts/pretrain",)
    output = str(ENCODERS)
    is_tracked = False

    def build(self, work: Work) -> dict[str, float]:
        """Write `TASK` for every task; those without a checkpoint of their own start from the pretrained encoder."""
        own = {"encoder": "pretrain", "sha256": sha256_of_path(work.inputs["pretrain"])}
        with folder_written_atomically(work.output) as folder:
            folder.mkdir(parents=True, exist_ok=True)
            for name, task in work.config.tasks.items():
                # The task's own section and data/start determine the other checkpoint.
                write_json(folder / name, own if uses_pretrained(task.start_from) else {"encoder": "tasks.start_from"})
        return {}


def uses_pretrained(start_from: str | None) -> bool:
    """Return whether a task's `start_from` needs the pipeline's own encoder, or its architecture and vocabulary."""
    return start_from in (None, "random")
