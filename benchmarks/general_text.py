"""What an encoder is worth that `experiment=wiki_mini` pretrains on general text in two hours of one CPU core: GLUE.

    python benchmarks/general_text.py --corpus ../shared/data/corpora/wikipedia --data ../shared/data/tasks/glue \\
        --folder FOLDER --keep
    python benchmarks/general_text.py --corpus ... --data ... --folder FOLDER --sets stsb qnli --seeds 1
    python benchmarks/general_text.py --corpus ... --data ... --folder FOLDER --keep --name wiki_mini_glue_3e-4 \\
        --recipe sweep.fine_tuning.learning_rate=3e-4

The stages run in a clone in FOLDER, with one thread unless --cores says more, and the processor time of the pretraining
worker and all its children is summed over all its starts. The encoder is then fine-tuned on each set by
`bertline glue`, with the fixed recipe of conf/sweep/glue.yaml, or with what --recipe changes in it, which the record
says; --at-once fine-tunes with several seeds beside each other. A call that was killed is repeated without loss.

Each score is compared with TF-IDF as it was published when the goal was set (results/glue.md), with today's n-grams and
with what the texts of a pair share, each with a verdict, and with what google-research/bert publishes for BERT-Tiny and
BERT-Mini, whose splits differ (`general_text_page.differences`). Several recipes, each with a record of its own, are
compared on dev. --keep writes the JSON to benchmarks/results and renders all pages. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import general_text_page
import repository_source  # noqa: F401
from processor_time import ProcessorTime
from records import HERE, current_commit

from bertline.foundation.files import read_json
from bertline.foundation.manifests import read_manifest, versions_of
from bertline.foundation.parallel import processor_name

ROOT = HERE.parent
LIMIT_S = 7200.0
"""Processor time that the pretraining may take, seconds."""


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
    times = ProcessorTime(clone.folder / "processor_time.json", folder=clone.folder, named="pipelines/pretrain.py")
    if not (clone.folder / "conf/local/default.yaml").exists():
        choices = ["experiment=wiki_mini", f"corpus.path={Path(arguments.corpus).resolve()}"]
        threads = [f"runtime.num_threads={arguments.cores}", "runtime.num_workers=0"]
        clone.run("-m", "bertline", "configure", *choices, *threads, *arguments.set, "--save")
    with times:
        clone.run("-m", "dvc", "repro", "pretrain")
    metrics = read_manifest(clone.folder / "artifacts/pretrain", kind="pretrain", format_version=1)["metrics"]
    names = ("steps", "num_tokens", "num_parameters", "train_time_s", "val/mlm_loss", "val/mlm_accuracy")
    figures = {
        name: metrics[name]
        for name in (*names, "val/nsp_accuracy", "val/shared_accuracy", "unigram_entropy")
        if name in metrics
    }
    return {**figures, "threads": arguments.cores, "processor_s": round(times.seconds), "processor_limit_s": LIMIT_S}


def fine_tuned(clone: Clone, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Fine-tune the encoder on the sets with `bertline glue`; return what each set has."""
    before = set(_tables(clone))
    sets = [f"sets=[{','.join(arguments.sets)}]"] if arguments.sets else []
    clone.run(
        "-m", "bertline", "glue", f"data={Path(arguments.data).resolve()}", f"sweep.num_seeds={arguments.seeds}",
        "runtime.num_threads=1", f"runtime.sweep_workers={arguments.at_once}", *arguments.recipe, *sets,
    )  # fmt: skip
    tables = _tables(clone)
    newest = max(set(tables) - before or tables, key=lambda path: path.stat().st_mtime)
    sets = json.loads(newest.read_text(encoding="utf-8"))["sets"]
    return [general_text_page.row_of(one, read_json(clone.folder / one["result"])) for one in sets if "result" in one]


def _tables(clone: Clone) -> list[Path]:
    return list((clone.folder / "runs/glue").glob("*/table.json"))


def main() -> None:
    """Pretrain, fine-tune, compare, and print the JSON line."""
    arguments = _arguments()
    clone = Clone.made(Path(arguments.folder) / "pipeline")
    training = pretrained(clone, arguments)
    rows = fine_tuned(clone, arguments)
    goal = general_text_page.goal_scores()
    record = {
        "sets": {row["name"]: general_text_page.set_content(row, goal.get(row["title"])) for row in rows},
        "average": general_text_page.average(rows),
        "settings": list(arguments.set),
        "recipe": list(arguments.recipe),
        "pretraining": training,
        "published": {"source": "github.com/google-research/bert, README.md", **general_text_page.PUBLISHED},
        "device": processor_name(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": current_commit(),
        "versions": versions_of("torch", "pytorch-lightning", "tokenizers"),
    }
    results = Path(arguments.keep or general_text_page.RESULTS)
    records = {**general_text_page.kept_records(results), arguments.name: record}
    if arguments.keep:
        results.mkdir(parents=True, exist_ok=True)
        (results / f"{arguments.name}.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        for name in records:
            (results / f"{name}.md").write_text(general_text_page.page(name, records), encoding="utf-8")
    print(general_text_page.page(arguments.name, records))
    print(json.dumps(record))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", required=True, help="for clone, artifacts and runs")
    parser.add_argument("--corpus", required=True, help="WikiExtractor's output")
    parser.add_argument("--data", required=True, help="folder of the GLUE download, or of some of its sets")
    parser.add_argument("--sets", nargs="+", help="only these")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=1, help="threads of the pretraining")
    parser.add_argument("--at-once", type=int, default=1, help="fine-tunings beside each other, one thread each")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="other choices of configuration")
    parser.add_argument("--recipe", nargs="+", default=[], metavar="KEY=VALUE", help="changes to the fixed recipe")
    parser.add_argument(
        "--name", default=general_text_page.NAME, help=f"of the record's files; begins with {general_text_page.NAME}"
    )
    results = str(HERE / "results")
    parser.add_argument("--keep", nargs="?", const=results, metavar="FOLDER", help="write the record there")
    return parser.parse_args()


if __name__ == "__main__":
    main()
