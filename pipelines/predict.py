"""predict: a finished task's classifier, or the encoder's vectors, over a file of any size.

python pipelines/predict.py task_name=docs_library input=passages.txt output=predictions.jsonl
python pipelines/predict.py task_name=embed input=passages.csv text_column=body output=vectors.parquet
"""

from pathlib import Path
from typing import Any

import bertline
from bertline.foundation.errors import ConfigError
from bertline.foundation.progress import say
from bertline.inference.predict import FileColumns, predict_file
from bertline.line.stages import stage_named
from composition import recipe

EXPORTED = Path(stage_named("export").output)


def main(asked: dict[str, Any]) -> None:
    """Stream the input through the model."""
    model = bertline.load(str(folder_of(asked)), device=asked["device"])
    done = predict_file(
        model,
        Path(asked["input"]),
        Path(asked["output"]),
        columns=FileColumns(text=asked["text_column"], text_pair=asked["text_pair_column"], encoding=asked["encoding"]),
        batch_size=asked["batch_size"],
        output="vectors" if asked["task_name"] == "embed" else "labels",
    )
    cut = f", {done.num_truncated:,} of them cut to what the model reads" if done.num_truncated else ""
    say(f"{asked['output']}: {done.num_rows:,} rows{cut}")


def folder_of(asked: dict[str, Any]) -> Path | str:
    """The model that is asked for: a given one, a task's exported winner, or the exported encoder."""
    if asked["model"] is not None:
        return asked["model"]
    task = asked["task_name"]
    known = sorted(path.name for path in EXPORTED.glob("*") if path.is_dir() and path.name != "encoder")
    if task == "embed" and (EXPORTED / "encoder").is_dir():
        return EXPORTED / "encoder"
    if task not in known:
        raise ConfigError(
            f"task_name is {task!r}; exported tasks: {', '.join(known) or '(none: run `dvc repro` first)'}, "
            "and embed for vectors. Or name any model with model=FOLDER."
        )
    return EXPORTED / task


if __name__ == "__main__":
    recipe(main, config="predict")()
