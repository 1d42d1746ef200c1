"""predict: apply the model of a finished task, or the encoder (for vectors), to a file of any size."""

from pathlib import Path
from typing import Any

import bertline
from bertline.cli.composition import composing, given_overrides, require_counts
from bertline.cli.project import folder_or_name, of_caller
from bertline.corpus.tables import TableLayout
from bertline.foundation.errors import ConfigError
from bertline.foundation.progress import say
from bertline.foundation.validation import validate
from bertline.inference.predict import DocumentsFile, FileColumns, predict_file
from bertline.inference.row_files import format_of
from bertline.stages.registry import stage_named

EXPORTED = stage_named("export").output_of(None)
LAYOUT = ("format", "header", "quoting", "separator", "max_fields", "extra_fields", "encoding")
COLUMNS = ("text", "text_pair", "question", "context", "query", "candidates")
OF_DOCUMENTS = ("document_id_column", "document_text_column", "document_title_column", "top_k")


@composing("predict")
def predict(asked: dict[str, Any]) -> None:
    """Apply the model of a finished task, or the encoder (for vectors), to a file of any size.

    bertline predict model_folder=/path/to/model input=passages.txt output=predictions.jsonl
    bertline predict task_name=docs_library input=passages.txt output=predictions.jsonl
    bertline predict task_name=docs_search input=queries.csv documents=functions.jsonl output=found.jsonl
    bertline predict task_name=embed input=passages.csv text_column=body output=vectors.parquet
    bertline predict task_name=cola input=dev.tsv header=false quoting=false text_column=3 output=found.jsonl

    The output is there when all rows are done.
    """
    check(asked)
    if asked["header"]:  # a name is a text, also one that the command line gives as a number
        names = {key: str(value) for key, value in asked.items() if key.endswith("_column") and isinstance(value, int)}
        asked = {**asked, **names}
    model = bertline.load(str(folder_of(asked)), device=asked["device"])
    if asked["task_name"] != "embed" and model.kind != "classification" and asked["probabilities"] != "all":
        raise ConfigError(f"probabilities={asked['probabilities']} means nothing for a model of the kind {model.kind}.")
    done = predict_file(
        model,
        of_caller(asked["input"]),
        of_caller(asked["output"]),
        columns=FileColumns(**{name: asked[f"{name}_column"] for name in COLUMNS}),
        layout=validate(TableLayout, {key: asked[key] for key in LAYOUT}),
        batch_size=asked["batch_size"],
        num_threads=asked["num_threads"],
        num_probabilities=None if asked["probabilities"] == "all" else asked["probabilities"],
        coverage=asked["coverage"],
        escape_formulas=asked["escape_formulas"],
        output="vectors" if asked["task_name"] == "embed" else "predictions",
        documents=None
        if asked["documents"] is None
        else DocumentsFile(
            path=of_caller(asked["documents"]),
            id_column=asked["document_id_column"],
            text_column=asked["document_text_column"],
            title_column=asked["document_title_column"],
            top_k=asked["top_k"],
        ),
    )
    cut = f", {done.num_truncated:,} of them cut to what the model reads" if done.num_truncated else ""
    say(f"{asked['output']}: {done.num_rows:,} rows{cut}")


def check(asked: dict[str, Any]) -> None:
    """Reject arguments that would fail or have no meaning, before the model is loaded."""
    unread = dict.fromkeys(OF_DOCUMENTS if asked["documents"] is None else (), "documents=FILE")
    of_classifiers = dict.fromkeys(("probabilities", "coverage"), "a classifier")
    unread |= of_classifiers if asked["task_name"] == "embed" else {"batch_size": "task_name=embed"}
    if format_of(Path(asked["output"])) not in ("csv", "tsv"):
        unread["escape_formulas"] = "an output in .csv or .tsv"
    for override in given_overrides():
        if (key := override.partition("=")[0]) in unread:
            raise ConfigError(f"{override} means nothing here: it is for {unread[key]}. Leave it out.")
    require_counts(asked, "batch_size", "num_threads", "top_k")
    wanted = asked["probabilities"]
    if wanted != "all" and (not isinstance(wanted, int) or wanted < 0):
        raise ConfigError(f"probabilities is {wanted!r}; expected all, or how many labels are listed (0 for none)")
    validate(TableLayout, {key: asked[key] for key in LAYOUT})


def folder_of(asked: dict[str, Any]) -> Path | str:
    """Return the folder or hub name of the model: a given one, a task's exported winner, or the exported encoder."""
    if asked["model_folder"] is not None:
        return folder_or_name(asked["model_folder"])
    task = asked["task_name"]
    known = sorted(path.name for path in EXPORTED.glob("*") if path.is_dir() and path.name != "encoder")
    if task == "embed" and (EXPORTED / "encoder").is_dir():
        return EXPORTED / "encoder"
    if task not in known:
        raise ConfigError(
            f"task_name is {task!r}; exported tasks: {', '.join(known) or '(none: run `dvc repro` first)'}, "
            "and embed for vectors. Or name any model with model_folder=FOLDER."
        )
    return EXPORTED / task
