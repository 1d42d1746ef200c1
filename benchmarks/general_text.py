"""What an encoder is worth that `experiment=wiki_mini` pretrains on general text in two hours of one CPU core: GLUE.

    python benchmarks/general_text.py --corpus ../shared/data/corpora/wikipedia --data ../shared/data/tasks/glue \\
        --folder FOLDER --keep
    python benchmarks/general_text.py --corpus ... --data ... --folder FOLDER --sets stsb qnli --seeds 1
    python benchmarks/general_text.py --corpus ... --data ... --folder FOLDER --keep --name wiki_mini_glue_3e-4 \\
        --recipe sweep.fine_tuning.learning_rate=3e-4

The stages run in a clone in FOLDER, with one thread, and the processor time of the pretraining worker and all its
children is summed over all its starts. The encoder is then fine-tuned on each set by pipelines/glue.py, with the fixed
recipe of conf/sweep/glue.yaml, or with what --recipe changes in it, which the record says. A call that was killed is
repeated without loss.

The scores are compared with TF-IDF (linear models on n-grams and on what the texts of a pair share, whichever is best
on dev), with the strongest simple method (by dev, too; also linear models on vectors), and with what
google-research/bert publishes for BERT-Tiny and BERT-Mini, whose splits differ (see `DIFFERENCES`). --keep writes the
JSON and the table to benchmarks/results. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import repository_source  # noqa: F401
from processor_time import ProcessorTime
from records import HERE, current_commit

from bertline.foundation.manifests import read_manifest, versions_of
from bertline.foundation.processor import processor_name

ROOT = HERE.parent
LIMIT_S = 7200.0
"""Processor time that the pretraining may take, seconds."""
GOALS = ("sst2", "qnli", "stsb")
"""Sets on which the encoder shall be above TF-IDF."""
PUBLISHED: Mapping[str, Mapping[str, str]] = {
    "BERT-Tiny": {
        "average": "64.2", "cola": "0.0", "sst2": "83.2", "mrpc": "81.1 / 71.1", "stsb": "74.3 / 73.6",
        "qqp": "62.2 / 83.4", "mnli": "70.2 / 70.3", "qnli": "81.5", "rte": "57.2", "wnli": "62.3",
    },
    "BERT-Mini": {
        "average": "65.8", "cola": "0.0", "sst2": "85.9", "mrpc": "81.1 / 71.8", "stsb": "75.4 / 73.3",
        "qqp": "66.4 / 86.2", "mnli": "74.8 / 74.3", "qnli": "84.1", "rte": "57.9", "wnli": "62.3",
    },
}  # fmt: skip
"""Scores on GLUE's test server, in hundredths, by set (google-research/bert, README, release of 11 March 2020)."""
DIFFERENCES = (
    "The published scores are of GLUE's hidden test sets, from the test server. SST-2 here: GLUE's dev. STS-B here: "
    "the test of the original release.",
    "QNLI here: 3,200 rows to train on and 400 to test on, cut from a share of GLUE's dev; published: 105,000 rows to "
    "train on. The two do not compare.",
    "The published encoders were pretrained on English Wikipedia and BooksCorpus, over a hundred times as much text, "
    "and fine-tuned for 4 epochs with the best of 5 batch sizes and 4 learning rates for each set. Here one recipe "
    "serves all sets, and nothing was tuned.",
    "Paragraphs of QNLI come from Wikipedia, so the pretraining text may have some of them, without question and "
    "label.",
)
"""Why the published scores do not compare directly."""


@dataclass(frozen=True, kw_only=True)
class Clone:
    """A clone of this repository in which the stages run."""

    folder: Path

    @staticmethod
    def made(folder: Path) -> Clone:
        """Clone the repository unless that was done before."""
        if not folder.exists():
            subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
        return Clone(folder=folder.resolve())

    def run(self, *command: str) -> None:
        """Run a recipe or a module in the clone.

        Raises:
            SystemExit: It failed; what it says has been printed.
        """
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(self.folder / "src")}
        done = subprocess.run([sys.executable, *command], cwd=self.folder, env=environment, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command)} failed in {self.folder}; after mending it, repeat this call.")


def pretrained(clone: Clone, arguments: argparse.Namespace) -> dict[str, Any]:
    """Pretrain, or resume, or take what is there; return the figures of the pretraining."""
    times = ProcessorTime(
        clone.folder / "processor_time.json", folder=clone.folder, named="bertline.orchestration.worker runs/pretrain/"
    )
    if not (clone.folder / "conf/local/default.yaml").exists():
        choices = ["experiment=wiki_mini", f"corpus.path={Path(arguments.corpus).resolve()}"]
        threads = ["runtime.num_threads=1", "runtime.num_workers=0"]
        clone.run("pipelines/configure.py", *choices, *threads, *arguments.set, "--save")
    with times:
        clone.run("-m", "dvc", "repro", "pretrain")
    metrics = read_manifest(clone.folder / "artifacts/pretrain", kind="pretrain", format_version=1)["metrics"]
    names = ("steps", "num_tokens", "num_parameters", "train_time_s", "val/mlm_loss", "val/mlm_accuracy")
    figures = {name: metrics[name] for name in (*names, "val/nsp_accuracy", "unigram_entropy") if name in metrics}
    return {**figures, "processor_s": round(times.seconds), "processor_limit_s": LIMIT_S}


def fine_tuned(clone: Clone, arguments: argparse.Namespace) -> dict[str, Any]:
    """Fine-tune the encoder on the sets with pipelines/glue.py; return the content of its table."""
    before = set(_tables(clone))
    sets = [f"sets=[{','.join(arguments.sets)}]"] if arguments.sets else []
    clone.run(
        "pipelines/glue.py", f"data={Path(arguments.data).resolve()}", f"sweep.num_seeds={arguments.seeds}",
        "runtime.num_threads=1", "runtime.sweep_workers=1", *arguments.recipe, *sets,
    )  # fmt: skip
    tables = _tables(clone)
    newest = max(set(tables) - before or tables, key=lambda path: path.stat().st_mtime)
    content: dict[str, Any] = json.loads(newest.read_text(encoding="utf-8"))
    return content


def _tables(clone: Clone) -> list[Path]:
    return list((clone.folder / "runs/glue").glob("*/table.json"))


def compared_with_simple(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a set's scores and those of TF-IDF and of the strongest simple method, both chosen on dev.

    Args:
        row: A row of the table of pipelines/glue.py.

    Returns:
        `metrics`, and for each of `encoder`, `std` (None for one seed), `trivial`, `tfidf` and `simple` a list of
        scores; `simple_name`; `above_tfidf` and `above_simple`, which compare the means of the metrics.

    >>> score = {"split": "test", "metric": "accuracy", "mean": 0.8, "std": None, "trivial": 0.5}
    >>> found = {"dev": 0.7, "scores": {"test": {"accuracy": 0.75}}}
    >>> best = {"dev": 0.9, "scores": {"test": {"accuracy": 0.85}}}
    >>> row = {"scores": [score], "baselines": {"word_ngrams": found, "frozen_encoder": best}}
    >>> result = compared_with_simple(row)
    >>> result["tfidf"], result["above_tfidf"], result["simple_name"], result["above_simple"]
    ([0.75], True, 'frozen_encoder', False)
    """
    scores, baselines = row["scores"], row["baselines"]
    by_dev = sorted(baselines, key=lambda name: -baselines[name]["dev"])
    tfidf = next(name for name in by_dev if name.endswith("_ngrams") or name == "pair_features")

    def scores_of(name: str) -> list[float]:
        return [baselines[name]["scores"][one["split"]][one["metric"]] for one in scores]

    found: dict[str, Any] = {
        "metrics": [one["metric"] for one in scores],
        "encoder": [one["mean"] for one in scores],
        "std": [one["std"] for one in scores],
        "trivial": [one["trivial"] for one in scores],
        "tfidf": scores_of(tfidf),
        "simple": scores_of(by_dev[0]),
        "simple_name": by_dev[0],
    }
    for name in ("tfidf", "simple"):
        found[f"above_{name}"] = sum(found["encoder"]) > sum(found[name])
    return found


def table(record: Mapping[str, Any]) -> str:
    """Return the record as a page of Markdown."""
    head = ["set", "metric", "wiki_mini", "trivial", "TF-IDF", "strongest simple", *PUBLISHED]
    lines = [[*head, "train rows", "test rows"], ["---"] * (len(head) + 2)]
    for name, one in record["sets"].items():
        spread = [
            f"{mean:.3f}" if std is None else f"{mean:.3f} ± {std:.3f}"
            for mean, std in zip(one["encoder"], one["std"], strict=True)
        ]
        published = [PUBLISHED[model].get(name, "–") for model in PUBLISHED]
        simple = f"{_joined(one['simple'])} ({one['simple_name']})"
        cells = [one["title"], " / ".join(one["metrics"]), " / ".join(spread), _joined(one["trivial"])]
        rows = [f"{one[key]:,}" for key in ("train_rows", "test_rows")]
        lines.append([*cells, _joined(one["tfidf"]), simple, *published, *rows])
    average = [f"average of {len(record['sets'])}", "", f"{record['average']:.3f}", "", "", ""]
    lines.append([*average, *(f"{PUBLISHED[model]['average']} (of all)" for model in PUBLISHED), "", ""])
    return "\n".join((*_introduction(record), *(f"| {' | '.join(line)} |" for line in lines), "", *_notes(record), ""))


def _introduction(record: Mapping[str, Any]) -> Sequence[str]:
    training = record["pretraining"]
    goal = ", ".join(
        f"{record['sets'][name]['title']} {'above' if record['sets'][name]['above_tfidf'] else 'not above'}"
        for name in GOALS
        if name in record["sets"]
    )
    changes = ", ".join(f"`{one}`" for one in record["recipe"])
    recipe = f"its fixed recipe but {changes}" if changes else "its fixed recipe"
    return (
        "# General text: wiki_mini on GLUE",
        "",
        f"`experiment=wiki_mini` (4 layers of 256), {training['steps']:,} steps, {training['num_tokens'] / 1e6:.0f} "
        f"million tokens of Wikipedia, {training['processor_s'] / 3600:.2f} hours of processor time (limit "
        f"{training['processor_limit_s'] / 3600:.0f}) on one thread of {record['device']}: held-out MLM loss "
        f"{training['val/mlm_loss']:.3f} nats. Fine-tuned by `pipelines/glue.py` with {recipe}. By "
        f"`benchmarks/general_text.py`, {record['date']}.",
        "",
        f"Compared with TF-IDF: {goal or 'none of the sets with a goal was scored'}.",
        "",
    )


def _notes(record: Mapping[str, Any]) -> Sequence[str]:
    seeds = sorted({one["num_seeds"] for one in record["sets"].values()})
    spread = f"Mean ± standard deviation over {seeds[-1]} seeds" if seeds[-1] > 1 else "One seed"
    return [
        f"- {spread}. `TF-IDF` is a linear model on n-grams or on what the two texts share, `strongest simple` also "
        "one on vectors; both are chosen on dev.",
        *(f"- {one}" for one in DIFFERENCES),
    ]


def _joined(values: Sequence[float | None]) -> str:
    return " / ".join("–" if value is None else f"{value:.3f}" for value in values)


def main() -> None:
    """Pretrain, fine-tune, compare, and print the JSON line."""
    arguments = _arguments()
    clone = Clone.made(Path(arguments.folder) / "pipeline")
    training = pretrained(clone, arguments)
    content = fine_tuned(clone, arguments)
    kept = ("title", "note", "train_rows", "test_rows", "num_seeds", "num_diverged", "minutes")
    record = {
        "sets": {
            row["name"]: {**{key: row[key] for key in kept}, **compared_with_simple(row)}
            for row in content["sets"]
            if row["scores"]
        },
        "average": content["average"],
        "recipe": list(arguments.recipe),
        "pretraining": training,
        "published": {"source": "github.com/google-research/bert, README.md", **PUBLISHED},
        "differences": DIFFERENCES,
        "device": processor_name(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": current_commit(),
        "versions": versions_of("torch", "pytorch-lightning", "tokenizers"),
    }
    page = table(record)
    if arguments.keep:
        results = Path(arguments.keep)
        results.mkdir(parents=True, exist_ok=True)
        (results / f"{arguments.name}.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        (results / f"{arguments.name}.md").write_text(page, encoding="utf-8")
    print(page)
    print(json.dumps(record))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", required=True, help="for clone, artifacts and runs")
    parser.add_argument("--corpus", required=True, help="WikiExtractor's output")
    parser.add_argument("--data", required=True, help="folder of the GLUE download, or of some of its sets")
    parser.add_argument("--sets", nargs="+", help="only these")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="other choices of configuration")
    parser.add_argument("--recipe", nargs="+", default=[], metavar="KEY=VALUE", help="changes to the fixed recipe")
    parser.add_argument("--name", default="wiki_mini_glue", help="of the record's files")
    results = str(HERE / "results")
    parser.add_argument("--keep", nargs="?", const=results, metavar="FOLDER", help="write the record there")
    return parser.parse_args()


if __name__ == "__main__":
    main()
