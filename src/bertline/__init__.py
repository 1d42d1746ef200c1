"""bertline: from raw text to a tracked, tuned, exported BERT encoder with one command."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bertline.inference.model import LoadedModel

# Nothing phones home. Libraries read these when they are imported, and every entry point imports bertline before them;
# processes that it starts inherit them. What a user has set stays.
NO_TELEMETRY = {
    "DO_NOT_TRACK": "1",
    "DVC_NO_ANALYTICS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "ORT_DISABLE_TELEMETRY": "1",  # onnxruntime writes a device id and looks up an address as it is imported
}
for _name, _value in NO_TELEMETRY.items():
    os.environ.setdefault(_name, _value)

# torch chooses a folder in TMPDIR as it is imported, which another user of the machine can make first, with code in it.
if os.access(_home := os.environ.get("HOME", ""), os.W_OK):
    _cache = os.environ.get("XDG_CACHE_HOME") or f"{_home}/.cache"
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{_cache}/bertline/torchinductor")

__version__ = "0.1.0"
__all__ = ["NO_TELEMETRY", "__version__", "fit", "load"]


def fit(
    train: Any,
    dev: Any = None,
    test: Any = None,
    *,
    text: str | tuple[str, str] = "text",
    label: str | Sequence[str] = "label",
    group: str | None = None,
    start_from: str | Path | None = None,
    **overrides: Any,
) -> LoadedModel:
    """Fine-tune a checkpoint on labelled rows, as `bertline finetune` does on files: tuned, compared, exported.

    All is written to `runs/` in the present folder; the same call again resumes or takes the result. In a script, call
    it under `if __name__ == "__main__":`, because seeds are trained in several processes.

    Args:
        train: A data frame, a dataset of `datasets`, a list of dictionaries, or a path: what `data=` takes, such as a
            file of any format or a folder with queries, documents and relevances.
        dev: Rows to choose on; None cuts them from train.
        test: Rows to score, once; None cuts them from train.
        text: Column of the text, or of both texts of a pair; for tags, of a list of words, or of a word.
        label: Column of the label; with `kind="regression"` of a number; of spans of the text, or tags of the words;
            or columns of 0 and 1, one for each label of a row.
        group: Column of the patient, author or the like, whose rows must be in one split; of a word, its sentence.
        start_from: The checkpoint: a folder, a hub name, or an installed package that contains one.
        overrides: Other arguments of the command: `seeds=5`, `metric="auroc"`, `**{"sweep.fine_tuning.num_epochs": 2}`.

    Returns:
        What does best on dev, as `load` returns it: the encoder, or a linear model that only predicts. Its `result` has
        the scores and the paths of export, encoder and report.

    Raises:
        ConfigError: An argument is unknown, or does not fit the rows.
        DataError: A row or a column is invalid. The message names the index of the row.
    """
    from bertline.cli.finetune import fit_tables

    first, second = (text, None) if isinstance(text, str) else text
    one, several = (label, None) if isinstance(label, str) else (None, list(label))
    columns: dict[str, Any] = {"text_column": first, "text_pair_column": second, "group_column": group}
    columns |= {"label_column": one, "label_columns": several}
    splits = {name: rows for name, rows in (("train", train), ("dev", dev), ("test", test)) if rows is not None}
    return fit_tables(splits, columns, start_from, overrides)


def load(name_or_folder: str, *, revision: str | None = None, device: str = "auto") -> LoadedModel:
    """Load a model with its tokenizer.

    Args:
        name_or_folder: A bertline folder (`artifacts/pretrain`, `artifacts/export/TASK`, a run's `latest`), any
            folder with a BERT checkpoint in the Hugging Face format, an installed package that contains one, or a
            model name on the Hugging Face hub.
        revision: Commit, tag or branch of the hub model.
        device: `auto` (a GPU if available), `cpu`, `cuda`, `cuda:1`, `mps`.

    Raises:
        DataError: There is neither a folder nor a reachable hub model of that name.
        ArtifactError: The folder is not a complete BERT checkpoint.
        MachineError: The device is not available.
    """
    # Imported on use: `import bertline` must stay quick and must not need torch.
    from bertline.inference.loading import load_folder

    return load_folder(name_or_folder, revision=revision, device=device)
