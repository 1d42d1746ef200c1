"""bertline: from raw text to a tracked, tuned, exported BERT encoder with one command."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bertline.inference.model import LoadedModel

__version__ = "0.1.0"
__all__ = ["__version__", "load"]


def load(name_or_folder: str, *, revision: str | None = None, device: str = "auto") -> LoadedModel:
    """Open a finished encoder or fine-tuned model; see `bertline.inference.loading.load`."""
    # Imported on use: `import bertline` must stay quick and must not need torch.
    from bertline.inference.loading import load as load_model

    return load_model(name_or_folder, revision=revision, device=device)
