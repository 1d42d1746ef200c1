"""glue: fine-tune on all sets of GLUE in a folder with one recipe; one table (runs/glue/FINGERPRINT/table.md)."""

from pathlib import Path
from typing import Any

from bertline.cli.composition import composing
from bertline.cli.finetune import start_of, sweep
from bertline.cli.project import of_caller
from bertline.foundation.errors import BertlineError
from bertline.foundation.files import read_json, sha256_of_json, write_atomically, write_json
from bertline.foundation.progress import say
from bertline.run.stage import run_stage
from bertline.sweep.glue import FoundSet, found_sets, glue_average, glue_markdown, glue_row, task_of
from bertline.tokenization.vocabulary import resolve_folder

IGNORED = ("corpus", "tokenizer", "examples", "objective", "optimizer", "schedule")


@composing("glue", ignored=IGNORED)
def glue(composed: dict[str, Any]) -> None:
    """Fine-tune an encoder on all sets of GLUE that a folder has, smallest first, with one recipe; print one table.

        bertline glue data=/path/to/GLUE
        bertline glue data=/path/to/GLUE start_from=google-bert/bert-base-uncased sweep.num_seeds=1
        bertline glue data=/path/to/GLUE sets=[cola,rte] sweep=default

    The table is in runs/glue. After a kill, the same command resumes. A set that fails is reported, and the others
    still run.
    """
    found, absent = found_sets(of_caller(composed["data"]), composed["sets"])
    start, encoder = encoder_of(composed)
    composed = {**composed, "tasks": {one.name: task(one, composed, start) for one in found}}
    # The same tasks, sweep and encoder write the same table.
    asked = {"tasks": composed["tasks"], "sweep": composed["sweep"], "start_from": start}
    folder = Path(composed["runtime"]["runs_folder"]) / "glue" / sha256_of_json(asked)[:12]
    title = "the encoder of the pipeline" if start is None else "/".join(Path(start).parts[-2:])
    rows: list[dict[str, Any]] = []
    for one in found:
        say(f"GLUE, set {len(rows) + 1} of {len(found)}: {one.title} ({one.path})")
        rows.append(row_of(one, composed, encoder))
        table = glue_markdown(rows, absent, encoder=title)
        content = {"encoder": start, "sets": rows, "absent": absent, **glue_average(rows)}
        write_json(folder / "table.json", content)
        write_atomically(folder / "table.md", table)
    say(f"{table}\n{folder / 'table.md'}")
    if failed := [row["title"] for row in rows if row["problem"]]:
        raise BertlineError(f"failed: {', '.join(failed)}. Fix it and run the same command again; the rest is kept.")


def encoder_of(composed: dict[str, Any]) -> tuple[str | None, Path]:
    """Return `start_from` (with absolute paths; None for the pipeline's own encoder) and the encoder's folder."""
    named = start_of(composed["start_from"])
    return None if composed["start_from"] is None else named, resolve_folder(named)


def task(found: FoundSet, composed: dict[str, Any], start: str | None) -> dict[str, Any]:
    """Return the set as a task; for the pipeline's own encoder, `max_length` is limited to its positions."""
    content = {**task_of(found, composed["tasks"][found.name]), "start_from": start}
    if start is None:
        content["max_length"] = min(content["max_length"], composed["model"]["max_position_embeddings"])
    return content


def row_of(found: FoundSet, composed: dict[str, Any], encoder: Path) -> dict[str, Any]:
    """Make the rows of one set and run its sweep; return the set's row of the table."""
    asked = {**composed, "task_name": found.name}
    try:
        places = {"tasks": run_stage("task_data", asked), "pretrain": encoder}
        return glue_row(found, read_json(sweep(asked, places) / "result.json"))
    except BertlineError as error:
        say(f"{found.title} failed: {error}")
        return glue_row(found, None, str(error))
