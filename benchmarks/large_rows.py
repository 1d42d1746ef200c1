"""Memory of `bertline finetune` on a large CSV, to its end: rows of about 75 bytes, a random BERT of 2 layers of 64.

    python benchmarks/large_rows.py --rows 200000 1000000 --keep

Two seeds run in two processes. Memory is what each process holds for itself (`RssAnon`), sampled five times a second:
the system can take back the pages of mapped files. The last line is JSON: for each number of rows the bytes of the CSV,
the seconds, and in bytes `largest_process`, `all_processes` together, and `phases`, the largest of all processes
together from one line of the log to the next of another stage; `epochs`, that of each epoch of training, shows whether
memory grows with epochs.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from measurements import keep, parser_of
from processes import ROOT, held_bytes

from bertline.encoders.loading import save_model
from bertline.foundation.parallel import processor_name
from bertline.modeling.bert import BertModel
from bertline.modeling.config import ModelConfig
from bertline.modeling.initialization import initialize

_EVERY_S = 0.2
_SYLLABLES = [first + second for first in "bdfghjklmnprstvz" for second in ("a", "e", "i", "o", "u", "en", "ar", "il")]
_MARKS = (
    ("reading", r"reads \d|: reads "),
    ("encoding", r"Nothing was tuned"),
    ("training", r": step \d"),
    ("test and baselines", r", seed \d: \S+ on dev"),
    ("report and export", r"^sweep@"),
)
"""A phase, and the first line of the log that is of it."""


def write_encoder(folder: Path) -> Path:
    """Write a random BERT whose tokens are syllables."""
    folder.mkdir()
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *_SYLLABLES, *(f"##{one}" for one in _SYLLABLES)]
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    config = ModelConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=256, max_position_embeddings=512,
        type_vocab_size=2, hidden_act="gelu", hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1,
        initializer_range=0.02, layer_norm_eps=1e-12,
    )  # fmt: skip
    model = BertModel(config, vocab_size=len(tokens), pad_token_id=0)
    initialize(model, config, seed=1)
    save_model(model, folder)
    return folder


def write_rows(path: Path, num_rows: int) -> int:
    """Write rows of a text and one of four labels, which a word of nine in ten rows tells; return the bytes."""
    random = np.random.default_rng(1)
    words = np.array(["".join(random.choice(_SYLLABLES, 3)) for _ in range(5000)])
    with path.open("w", encoding="utf-8") as file:
        file.write("text,label\n")
        for start in range(0, num_rows, 10_000):
            drawn = random.integers(0, len(words), (min(10_000, num_rows - start), 12))
            lengths, labels = random.integers(5, 13, len(drawn)), random.integers(0, 4, len(drawn))
            # Where no text told its label, the fit of a linear SVM would take hours.
            drawn[:, 2] = np.where(random.random(len(drawn)) < 0.9, drawn[:, 2] % 50 * 4 + labels, drawn[:, 2])
            file.writelines(
                f"{' '.join(words[row[:length]])},label {label}\n"
                for row, length, label in zip(drawn, lengths, labels, strict=True)
            )
    return path.stat().st_size


def measured(num_rows: int, folder: Path, epochs: int) -> dict[str, Any]:
    """Fine-tune two seeds on so many rows, and return the memory by phase and epoch."""
    encoder = write_encoder(folder / "encoder")
    figures: dict[str, Any] = {"csv_bytes": write_rows(folder / "rows.csv", num_rows)}
    command = [
        sys.executable, "-m", "bertline", "finetune", f"data={folder / 'rows.csv'}", f"start_from={encoder}", "seeds=2",
        "workers=2", f"sweep.fine_tuning.num_epochs={epochs}", "runtime.device=cpu", "tracking.enabled=false",
        "max_length=64", "runtime.progress_every_s=1", "sweep.fine_tuning.batch_size=256",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    samples: list[tuple[float, int, int]] = []
    lines: list[tuple[float, str]] = []
    begun = time.monotonic()
    process = psutil.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )

    def read() -> None:
        for line in process.stdout:
            lines.append((time.monotonic(), line.rstrip()))

    reading = threading.Thread(target=read)
    reading.start()
    while process.poll() is None:
        held = held_bytes(process).values()
        samples.append((time.monotonic(), sum(held), max(held, default=0)))
        time.sleep(_EVERY_S)
    reading.join()
    if process.returncode:
        sys.exit("\n".join(line for _, line in lines[-40:]))
    first = {name: [at for at, line in lines if re.search(mark, line)][:1] for name, mark in _MARKS}
    starts = [("start", begun), *((name, at[0]) for name, at in first.items() if at)]
    ends = [at for _, at in starts[1:]] + [time.monotonic()]
    largest = {
        name: max((both for at, both, _ in samples if start <= at < end), default=0)
        for (name, start), end in zip(starts, ends, strict=True)
    }
    return figures | {
        "wall_s": round(time.monotonic() - begun),
        "seconds": {name: round(end - start) for (name, start), end in zip(starts, ends, strict=True)},
        "longest_silence_s": round(max(later - at for (at, _), (later, _) in itertools.pairwise(lines))),
        "largest_process": max(one for *_, one in samples),
        "all_processes": max(both for _, both, _ in samples),
        "phases": largest,
        "epochs": _by_epoch(lines, samples, epochs),
    }


def _by_epoch(lines: list[tuple[float, str]], samples: list[tuple[float, int, int]], epochs: int) -> list[int]:
    """Return the largest memory of all processes in each epoch, told from the steps of the progress lines."""
    steps = [(at, re.search(r": step ([\d,]+) of ([\d,]+)", line)) for at, line in lines]
    shares = [(at, *(int(one.replace(",", "")) for one in match.groups())) for at, match in steps if match]
    times = [[at for at, step, total in shares if (step - 1) * epochs // total == epoch] for epoch in range(epochs)]
    return [max((both for at, both, _ in samples if of[0] <= at <= of[-1]), default=0) for of in times if of]


def main() -> None:
    """Measure each number of rows, record and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[200_000, 1_000_000])
    parser.add_argument("--epochs", type=int, default=3)
    arguments = parser.parse_args()
    sizes = {}
    for num_rows in arguments.rows:
        with tempfile.TemporaryDirectory(prefix="bertline-large-rows-") as folder:
            sizes[str(num_rows)] = measured(num_rows, Path(folder), arguments.epochs)
        print(json.dumps({"rows": num_rows, **sizes[str(num_rows)]}), flush=True)
    figures = {"device": processor_name(), "epochs": arguments.epochs, "rows": sizes}
    keep("large_rows", figures, arguments)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
