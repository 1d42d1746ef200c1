"""What an encoder is worth that `experiment=wiki_mini` pretrains on general text in two hours of one CPU core: GLUE.

    python benchmarks/general_text.py --corpus ../shared/data/corpora/wikipedia --data ../shared/data/tasks/glue \\
        --folder FOLDER --keep
    python benchmarks/general_text.py --corpus ... --data ... --folder FOLDER --keep --name wiki_mini_glue_3e-4 \\
        --recipe sweep.fine_tuning.learning_rate=3e-4

The stages run in a clone in FOLDER, with one thread unless --cores says more. The processor time is that of the
pretraining's last start. The encoder is then fine-tuned on each set by `bertline glue`, with the fixed recipe of
conf/sweep/glue.yaml, or with what --recipe changes in it, which the record says; --at-once fine-tunes with several
seeds beside each other. A call that was killed is repeated without loss.

Each score is compared with TF-IDF as it was when the goal was set, with today's n-grams and with what the texts of a
pair share, each with a verdict. Several recipes, each with a record of its own, are compared on dev. The last line is
JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import general_text_page
from measurements import keep, parser_of
from processes import Clone, processor_seconds

from bertline.foundation.files import read_json, write_json
from bertline.foundation.manifests import read_manifest, versions_of
from bertline.foundation.parallel import processor_name

LIMIT_S = 7200.0
"""Processor time that the pretraining may take, seconds."""


def pretrained(clone: Clone, arguments: argparse.Namespace) -> dict[str, Any]:
    """Pretrain, or resume, or take what is there; return the figures of the pretraining."""
    if not (clone.folder / "conf/local/default.yaml").exists():
        choices = ["experiment=wiki_mini", f"corpus.path={Path(arguments.corpus).resolve()}"]
        threads = [f"runtime.num_threads={arguments.cores}", "runtime.num_workers=0"]
        clone.configure(*choices, *threads, *arguments.set)
    took = clone.folder / "processor_s.json"
    if not took.exists():
        clone.reproduce("examples")
        before = processor_seconds()
        clone.reproduce("pretrain")
        write_json(took, round(processor_seconds() - before))
    metrics = read_manifest(clone.folder / "artifacts/pretrain", kind="pretrain", format_version=1)["metrics"]
    names = ("steps", "num_tokens", "num_parameters", "train_time_s", "val/mlm_loss", "val/mlm_accuracy")
    more = ("val/nsp_accuracy", "val/shared_accuracy", "unigram_entropy")
    figures = {name: metrics[name] for name in (*names, *more) if name in metrics}
    return {**figures, "threads": arguments.cores, "processor_s": read_json(took), "processor_limit_s": LIMIT_S}


def fine_tuned(clone: Clone, arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Fine-tune the encoder on the sets with `bertline glue`; return what the record has of each set."""
    before = set(_tables(clone))
    chosen = [f"sets=[{','.join(arguments.sets)}]"] if arguments.sets else []
    clone.run(
        "-m", "bertline", "glue", f"data={Path(arguments.data).resolve()}", f"sweep.num_seeds={arguments.seeds}",
        "runtime.num_threads=1", f"runtime.sweep_workers={arguments.at_once}", *arguments.recipe, *chosen,
    )  # fmt: skip
    tables = _tables(clone)
    newest = max(set(tables) - before or tables, key=lambda path: path.stat().st_mtime)
    finished = [one for one in read_json(newest)["sets"] if "result" in one]
    return {
        one["name"]: general_text_page.set_content(one, read_json(clone.folder / one["result"])) for one in finished
    }


def _tables(clone: Clone) -> list[Path]:
    return list((clone.folder / "runs/glue").glob("*/table.json"))


def main() -> None:
    """Pretrain, fine-tune, compare, and print the JSON line."""
    parser = parser_of(__doc__)
    parser.add_argument("--folder", required=True, help="for clone, artifacts and runs")
    parser.add_argument("--corpus", required=True, help="WikiExtractor's output")
    parser.add_argument("--data", required=True, help="folder of the GLUE download, or of some of its sets")
    parser.add_argument("--sets", nargs="+", help="only these")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=1, help="threads of the pretraining")
    parser.add_argument("--at-once", type=int, default=1, help="fine-tunings beside each other, one thread each")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="other choices of configuration")
    parser.add_argument("--recipe", nargs="+", default=[], metavar="KEY=VALUE", help="changes to the fixed recipe")
    name = general_text_page.NAME
    parser.add_argument("--name", default=name, help=f"of the record's file; begins with {name}")
    arguments = parser.parse_args()
    clone = Clone(Path(arguments.folder) / "pipeline")
    training = pretrained(clone, arguments)
    sets = fine_tuned(clone, arguments)
    record = {
        "sets": sets,
        # A set with two metrics counts as their mean (arXiv 1804.07461, section 3).
        "average": statistics.fmean(statistics.fmean(one["encoder"]) for one in sets.values()),
        "settings": list(arguments.set),
        "recipe": list(arguments.recipe),
        "pretraining": training,
        "device": processor_name(),
        "versions": versions_of("torch", "pytorch-lightning", "tokenizers"),
    }
    keep(arguments.name, record, arguments)
    print(json.dumps(record))


if __name__ == "__main__":
    main()
