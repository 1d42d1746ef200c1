"""bertline: from raw text to a tracked, tuned, exported BERT encoder with one command."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bertline.inference.model import LoadedModel

# Nothing phones home. Libraries read these when they are imported, and every entry point imports bertline before them;
# processes that it starts inherit them. What a user has set stays.
NO_TELEMETRY = {
    "DO_NOT_TRACK": "1",
    "DVC_NO_ANALYTICS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
for _name, _value in NO_TELEMETRY.items():
    os.environ.setdefault(_name, _value)

__version__ = "0.1.0"
__all__ = ["NO_TELEMETRY", "__version__", "load"]


def load(name_or_folder: str, *, revision: str | None = None, device: str = "auto") -> LoadedModel:
    """Load a model with its tokenizer.

    Args:
        name_or_folder: A bertline folder (`artifacts/pretrain`, `artifacts/export/TASK`, a run's `latest`), any
            folder with a BERT checkpoint in the Hugging Face format, or a model name on the Hugging Face hub.
        revision: Commit, tag or branch of the hub model.
        device: `auto` (a GPU if available), `cpu`, `cuda`, `cuda:1`, `mps`.

    Raises:
        DataError: There is neither a folder nor a reachable hub model of that name.
        ArtifactError: The folder is not a complete BERT checkpoint.
        MachineError: The device is not available.
    """
    # Imported on use: `import bertline` must stay quick and must not need torch.
    from bertline.inference.loading import load as load_model

    return load_model(name_or_folder, revision=revision, device=device)
