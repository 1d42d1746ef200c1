"""glue: fine-tune on all sets of GLUE in a folder with one recipe; one table (runs/glue/FINGERPRINT/table.md).

References: Wang et al., arXiv 1804.07461, section 3; for WNLI, Devlin et al., arXiv 1810.04805, section 4.1.
"""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from bertline.cli.composition import composing
from bertline.cli.finetune import start_of, sweep
from bertline.cli.project import of_caller
from bertline.foundation.errors import ConfigError
from bertline.foundation.files import read_json, sha256_of_json, write_atomically, write_json
from bertline.foundation.formats import markdown_table, short_title, with_spread
from bertline.foundation.progress import say
from bertline.run.stage import run_stage
from bertline.tokenization.vocabulary import resolve_folder

GLUE: dict[str, dict[str, Any]] = {
    one["name"]: one for one in yaml.safe_load(files("bertline.cli").joinpath("glue.yaml").read_text(encoding="utf-8"))
}
"""The nine data sets by the name of their task in conf/task, as in glue.yaml: those with the fewest rows first."""


@composing("glue", ignored=("corpus", "tokenizer", "examples", "objective", "optimizer", "schedule"))
def glue(composed: dict[str, Any]) -> None:
    """Fine-tune an encoder on all sets of GLUE that a folder has, smallest first, with one recipe; print one table.

        bertline glue data=/path/to/GLUE
        bertline glue data=/path/to/GLUE start_from=google-bert/bert-base-uncased sweep.num_seeds=1
        bertline glue data=/path/to/GLUE sets=[cola,rte] sweep=default

    The table is in runs/glue. After a kill or an error, the same command resumes.
    """
    found = found_sets(of_caller(composed["data"]), composed["sets"])
    named = start_of(composed["start_from"])
    start = None if composed["start_from"] is None else named
    encoder = resolve_folder(named)
    composed = {**composed, "tasks": {one["name"]: task_of(one, composed, start) for one in found}}
    # The same tasks, sweep and encoder write the same table.
    asked = {"tasks": composed["tasks"], "sweep": composed["sweep"], "start_from": start}
    folder = Path(composed["runtime"]["runs_folder"]) / "glue" / sha256_of_json(asked)[:12]
    for number, one in enumerate(found, start=1):
        say(f"GLUE, set {number} of {len(found)}: {one['title']} ({one['path']})")
        of_set = {**composed, "task_name": one["name"]}
        places = {"tasks": run_stage("task_data", of_set), "pretrain": encoder}
        one["result"] = (sweep(of_set, places) / "result.json").as_posix()
        table = glue_table(found[:number], encoder="encoder" if start is None else short_title(start))
        write_json(folder / "table.json", {"encoder": start, "sets": found[:number]})
        write_atomically(folder / "table.md", table)
    say(f"{table}\n{folder / 'table.md'}")


def found_sets(data: Path, wanted: Sequence[str] | None) -> list[dict[str, Any]]:
    """Return the wanted data sets (None: all) in a folder, smallest first, each with its layout and its `path`.

    Raises:
        ConfigError: The folder or a wanted set is missing, no set was found, or a name is unknown.
    """
    for name in wanted or ():
        if name not in GLUE:
            raise ConfigError(f"sets names {name!r}; GLUE has {', '.join(GLUE)}.")
    if not data.is_dir():
        raise ConfigError(f"data is {data}, and no folder is there. Give the folder that has SST-2, CoLA, ... in it.")
    places = {name: _place_of(one, data) for name, one in GLUE.items() if wanted is None or name in wanted}
    found = [place for place in places.values() if place is not None]
    if not found or (wanted and len(found) < len(places)):
        lacking = [name for name, place in places.items() if place is None]
        layouts = [layout for name in lacking for layout in GLUE[name]["layouts"]]
        known = " or ".join(f"{layout['folders'][0]}/{{{','.join(layout['files'])}}}" for layout in layouts)
        raise ConfigError(f"{data} does not have {', '.join(lacking)}. Looked for: {known}.")
    return found


def _place_of(glue_set: Mapping[str, Any], data: Path) -> dict[str, Any] | None:
    places = ((layout, data / folder) for layout in glue_set["layouts"] for folder in layout["folders"])
    whole = (place for place in places if all((place[1] / name).is_file() for name in place[0]["files"]))
    return next(({**glue_set, **layout, "path": str(folder.resolve())} for layout, folder in whole), None)


def task_of(found: Mapping[str, Any], composed: Mapping[str, Any], start: str | None) -> dict[str, Any]:
    """Return a task's composed configuration, changed to read the set where it was found.

    All sets use the recipe of the sweep: a task's own number of trials and training sizes are removed. For the
    pipeline's own encoder (`start` is None), `max_length` is limited to its positions.
    """
    task = composed["tasks"][found["name"]]
    source = {**task["source"], **found.get("source", {}), "path": found["path"]}
    most = task["max_length"] if start is not None else composed["model"]["max_position_embeddings"]
    changes: dict[str, Any] = {"start_from": start, "num_trials": None, "label_efficiency_rows": []}
    return {**task, **changes, "source": source, "max_length": min(task["max_length"], most)}


def glue_table(sets: Sequence[Mapping[str, Any]], *, encoder: str) -> str:
    """Return the table of sets and its notes as Markdown. Each set has the path of its `result`."""
    head = ["set", "metric", encoder, "strongest simple", "train rows", "test rows"]
    notes = ["GLUE's own tests have no labels: its dev is the test, and a tenth of train is dev."]
    lines = []
    for one in sets:
        notes += [f"{one['title']}: {one['note']}"] if "note" in one else []
        result = read_json(Path(one["result"]))
        scores = result["arms"]["encoder"]["scores"]
        simple = result["baselines"].get(result["conclusion"]["opponent"])
        pairs = [(split, metric) for split, metrics in one["scores"].items() for metric in metrics]
        cells = [
            [metric if split == "test" else f"{metric} ({split.removeprefix('test_')})" for split, metric in pairs],
            [with_spread(**scores[split][metric]) for split, metric in pairs],
            ["–" if simple is None else f"{simple['scores'][split][metric]:.3f}" for split, metric in pairs],
        ]
        num_rows = [result["rows"]["train"], sum(result["rows"][split] for split in one["scores"])]
        lines.append([one["title"], *map(" / ".join, cells), *(f"{number:,}" for number in num_rows)])
    return f"{markdown_table(head, lines)}\n\n" + "\n".join(f"- {note}" for note in notes) + "\n"
