"""Speed of pretraining, compared with `transformers.BertForPreTraining` under the Hugging Face `Trainer`.

    python benchmarks/pretraining_step.py --model mini --threads 2
    python benchmarks/pretraining_step.py --model base --seq-len 512 --keep
    python benchmarks/pretraining_step.py --model base --lengths artifacts/examples --keep
    python benchmarks/pretraining_step.py --model base --arms bertline --rounds 1 --set runtime.num_workers=8

Requires only torch, Lightning and transformers (with accelerate and PyYAML). All sides take optimizer steps on the same
synthetic sequences, with the same model, dropout, device and number of sequences per step:

bertline  the engine as the pretrain stage runs it, including order, masking, loading, optimizer and metrics log
plain     the Trainer as people run it: its defaults, which are fp32 and logits over the vocabulary at every position
tuned     the Trainer in bf16 if the hardware has it, SDPA without a mask, compiled, fused AdamW, loader workers

All sides run in the environment in which bertline's pipeline starts training (`bertline.training.environment`: freed
memory is kept, in huge pages, and threads spin before they sleep). With --environment own, the peers run in the
environment of the benchmark itself, as people run them: the ratios then include the effect of the environment, and the
record states this.

All sequences have the full length, unless --lengths says otherwise: with `mixed` one of ten is shorter, by any number
of tokens, as the reference code makes them; with the folder of an examples artifact they have its lengths. Only real
tokens count. Such records are not read by the planner.

Each side is a process that waits while another one is timed. Rounds alternate between the sides, so that a busy machine
slows all of them; the median over the rounds counts. The measure is real tokens per second, from the end of one step to
the end of a later one, including data loading; compilation ends during the warm-up and is not counted on any side. Each
round also times a product of two large matrices: `matmul_fraction` is the operations per second of bertline's model
(`bertline.modeling.config`) as a fraction of the product's, in the same dtype. Peak memory is that of the GPU if there
is one, else that of the process. The output ends with a table of the sides and a line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import repository_source  # noqa: F401
import torch
from bare_configuration import parse_changes, section
from made_up_examples import FEWEST_TOKENS, MASK_PROB, write_made_up_examples
from measurements import Measurement, parser_of, variant_of
from processes import EnvironmentChoice, facts_of_environment, side_environment

from bertline.examples.masking import max_targets
from bertline.modeling.config import ModelConfig, flops_per_token

HERE = Path(__file__).parent
ARMS = ("bertline", "plain", "tuned")
VOCAB_SIZES = {"tiny": 8_192, "mini": 8_192, "base": 30_522, "large": 30_522, "m17": 50_368}
STEPS_ON_CPU, STEPS_ON_GPU = {"tiny": 100, "mini": 30}, 50
STEP_TOKENS_ON_CPU = 4_096
STEP_TOKENS_ON_GPU = {"tiny": 65_536, "mini": 65_536, "base": 32_768, "large": 32_768, "m17": 65_536}

_SECTIONS = ("objective", "optimizer", "schedule", "pretrain", "runtime")
_TOLD_APART = (
    "lengths", "vocab_size", "batch_size", "peer_accumulation", "dropout", "arms", "threads", "workers", "precision",
    "set", "environment",
)  # fmt: skip
"""Arguments that are part of a record's file name if they are not the defaults."""


@dataclass(frozen=True)
class Measured:
    """Results of the rounds."""

    facts: dict[str, Any]
    """Device, precision, number of threads and versions."""
    rounds: dict[str, list[dict[str, float]]]
    """Rounds of each side, without the sides that failed."""
    failures: dict[str, str]
    """Error message of each side that failed."""

    def median(self, arm: str, name: str) -> float | None:
        """Return the median of a figure over the rounds; None if the side was not measured."""
        values = [one[name] for one in self.rounds.get(arm, [])]
        return statistics.median(values) if values else None


class Arm:
    """One side: a process that runs step_arms.py."""

    def __init__(self, name: str, *, threads: int, verbose: bool, environment: EnvironmentChoice) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "step_arms.py"), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if verbose else subprocess.DEVNULL,
            env=side_environment(name, threads=threads, choice=environment),
            text=True,
        )

    def go(self, settings: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send the settings, which start the warm-up, or request a round; return the answer of the process."""
        assert self._process.stdin is not None and self._process.stdout is not None  # piped
        with suppress(BrokenPipeError):  # if the process has ended, the line below is empty
            print(json.dumps(settings), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        return json.loads(line) if line else {"failed": f"ended with status {self._process.wait()} (see --verbose)"}

    def end(self) -> None:
        """Close the input of the process and wait for its end."""
        self._process.communicate()


def main() -> None:
    """Measure, print a table and the JSON line, and write the record if asked."""
    parser = _parser()
    arguments = parser.parse_args()
    config = checked_model_config(arguments)
    variant = variant_of(parser, arguments, _TOLD_APART)
    vocab_size = arguments.vocab_size or VOCAB_SIZES[arguments.model]
    how = {"threads": arguments.threads, "verbose": arguments.verbose, "environment": arguments.environment}
    arms = [Arm(name, **how) for name in ("matmul", *arguments.arms)]
    try:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            lengths = write_made_up_examples(
                Path(folder), vocab_size=vocab_size, seq_len=arguments.seq_len, lengths=arguments.lengths
            )
            measured = measure(arms, config, vocab_size, Path(folder), arguments, mean_length=float(lengths.mean()))
    finally:
        for arm in arms:
            arm.end()
    figures = figures_of(measured, config, vocab_size, arguments, lengths)
    print(table_of(figures, measured))
    if arguments.keep:
        record = Measurement(
            benchmark="pretraining_step" if arguments.lengths == "full" else "real_lengths", model=arguments.model,
            seq_len=arguments.seq_len, variant=variant, figures=figures, versions=measured.facts["versions"],
            arguments=arguments, more={"rounds": measured.rounds},
        )  # fmt: skip
        print(f"kept in {record.write(Path(arguments.keep), commit=arguments.commit)}")
    print(json.dumps(figures))


def measure(
    arms: list[Arm],
    config: ModelConfig,
    vocab_size: int,
    folder: Path,
    arguments: argparse.Namespace,
    *,
    mean_length: float,
) -> Measured:
    """Warm up the sides one by one, then take the rounds. Sets the arguments that the command line left open.

    Raises:
        SystemExit: bertline or the matrix product failed.
    """
    settings = {
        "model": asdict(config),
        "vocab_size": vocab_size,
        "seq_len": arguments.seq_len,
        "mean_length": mean_length,
        "peer_accumulation": arguments.peer_accumulation,
        "rounds": arguments.rounds,
        "precision": arguments.precision,
        "device": arguments.device,
        "threads": arguments.threads,
        "folder": str(folder),
        "changes": parse_changes(arguments.set),
    }
    matmul = arms[0]
    facts = matmul.go({**settings, "batch_size": 1, "workers": 0, "steps": 1})
    if "failed" in facts:
        sys.exit(f"the matrix product: {facts['failed']}")
    is_cpu = facts["device_type"] == "cpu"
    step_tokens = STEP_TOKENS_ON_CPU if is_cpu else STEP_TOKENS_ON_GPU[arguments.model]
    arguments.batch_size = arguments.batch_size or max(1, step_tokens // arguments.seq_len)
    if arguments.workers is None:  # steps of a GPU are short, and its host has spare cores
        arguments.workers = 2 if is_cpu else max(2, min(8, (os.cpu_count() or 1) - 2))
    arguments.steps = arguments.steps or (STEPS_ON_CPU.get(arguments.model, 20) if is_cpu else STEPS_ON_GPU)
    print(
        f"{facts['device']}, {facts['precision']}, {facts['threads']} threads, {facts['versions']}\n"
        f"{arguments.model}: steps of {arguments.batch_size} sequences of {arguments.seq_len} tokens, "
        f"dropout {config.hidden_dropout_prob}",
        flush=True,
    )
    settings.update(batch_size=arguments.batch_size, workers=arguments.workers, steps=arguments.steps)
    failures: dict[str, str] = {}
    for arm in arms[1:]:
        _note_failure(failures, arm.name, arm.go(settings))
    rounds: dict[str, list[dict[str, float]]] = {}
    for number in range(arguments.rounds):
        for arm in arms:
            if arm.name in failures:
                continue
            answer = arm.go()
            if _note_failure(failures, arm.name, answer):
                rounds.pop(arm.name, None)
            else:
                rounds.setdefault(arm.name, []).append(answer)
                load = os.getloadavg()[0]
                print(f"round {number + 1}, {_describe(arm.name, answer)} (load {load:.1f})", flush=True)
    for name, failure in failures.items():
        print(f"{name} is left out: {failure}", flush=True)
    return Measured(facts, rounds, failures)


def figures_of(
    measured: Measured, config: ModelConfig, vocab_size: int, arguments: argparse.Namespace, lengths: np.ndarray
) -> dict[str, Any]:
    """Return the content of the last line."""
    seq_len = arguments.seq_len
    share = max_targets(seq_len, MASK_PROB) / seq_len
    # Of attention, a token takes as many operations as its sequence has tokens.
    attended = float((lengths**2).sum() / lengths.sum())
    flops = flops_per_token(config, vocab_size=vocab_size, seq_len=attended, target_fraction=share)
    speeds = {arm: measured.median(arm, "tokens_per_s") for arm in ARMS}
    peaks = {arm: measured.median(arm, "peak_memory_bytes") for arm in ARMS}
    product = measured.median("matmul", "flops_per_s")
    assert product is not None  # `measure` exits without it
    ours = speeds["bertline"]
    waiting = measured.median("bertline", "data_wait_fraction")

    def rounded(value: float | None) -> int | None:
        return None if value is None else round(value)

    def ratio(peer: str) -> float | None:
        other = speeds[peer]
        return round(ours / other, 2) if ours and other else None

    return {
        "device": measured.facts["device"],
        "device_type": measured.facts["device_type"],
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "precision": measured.facts["precision"],
        "threads": measured.facts["threads"],
        "model": arguments.model,
        "seq_len": seq_len,
        "lengths": arguments.lengths,
        "fill": round(float(lengths.mean()) / seq_len, 4),
        "vocab_size": vocab_size,
        "batch_size": arguments.batch_size,
        "dropout": config.hidden_dropout_prob,
        "environment": arguments.environment,
        "environment_variables": facts_of_environment(threads=arguments.threads, choice=arguments.environment),
        "tokens_per_s": rounded(ours),
        "tokens_per_s_plain": rounded(speeds["plain"]),
        "tokens_per_s_tuned": rounded(speeds["tuned"]),
        "flops_per_token": flops,
        "ratio_to_plain": ratio("plain"),
        "ratio_to_tuned": ratio("tuned"),
        "matmul_flops_per_s": product,
        "matmul_fraction": round(ours * flops / product, 4) if ours else None,
        "data_wait_fraction": None if waiting is None else round(waiting, 4),
        "peak_memory_bytes": rounded(peaks["bertline"]),
        "peak_memory_bytes_plain": rounded(peaks["plain"]),
        "peak_memory_bytes_tuned": rounded(peaks["tuned"]),
        "left_out": measured.failures,
    }


def checked_model_config(arguments: argparse.Namespace) -> ModelConfig:
    """Check the arguments and return the model. Arms are put in order; a dropout equal to the preset's becomes None.

    Raises:
        SystemExit: An argument is not valid.
    """
    config, preset = model_config(arguments), model_config(argparse.Namespace(model=arguments.model, dropout=None))
    if config == preset:
        arguments.dropout = None
    arguments.arms = [arm for arm in ARMS if arm in arguments.arms]
    if not FEWEST_TOKENS <= arguments.seq_len <= config.max_position_embeddings:
        sys.exit(
            f"--seq-len is {arguments.seq_len}; sequences have at least {FEWEST_TOKENS} tokens, and {arguments.model} "
            f"has positions for {config.max_position_embeddings} (conf/model, max_position_embeddings)"
        )
    unknown = parse_changes(arguments.set).keys() - set(_SECTIONS)
    if unknown:
        sys.exit(f"--set knows the sections {', '.join(_SECTIONS)}, found {', '.join(sorted(unknown))}")
    return config


def model_config(arguments: argparse.Namespace) -> ModelConfig:
    """Return the preset of conf/model with the given dropout; m17 is `mini` with seven layers."""
    changes = {}
    if arguments.dropout is not None:
        changes = {"hidden_dropout_prob": arguments.dropout, "attention_probs_dropout_prob": arguments.dropout}
    if arguments.model == "m17":
        return section(ModelConfig, "model/mini", num_hidden_layers=7, **changes)
    return section(ModelConfig, f"model/{arguments.model}", **changes)


def table_of(figures: dict[str, Any], measured: Measured) -> str:
    """Return a table of speed, ratio, utilisation and peak memory of each side."""
    whose = {"same": "all sides in one environment", "own": "bertline in its own environment, the peers without it"}
    lines = [
        f"\n{whose[figures['environment']]}",
        f"{'':10s}{'tokens/s':>12s}{'bertline is':>13s}{'utilisation':>13s}{'peak memory':>14s}",
    ]
    for arm in ARMS:
        speed, peak = measured.median(arm, "tokens_per_s"), measured.median(arm, "peak_memory_bytes")
        if speed is None or peak is None:
            lines.append(f"{arm:10s}{'left out' if arm in measured.failures else 'not measured':>12s}")
            continue
        ratio = figures.get(f"ratio_to_{arm}")
        share = speed * figures["flops_per_token"] / figures["matmul_flops_per_s"]
        times = "" if ratio is None else f"{ratio:.2f} times"
        lines.append(f"{arm:10s}{speed:12,.0f}{times:>13s}{share:13.1%}{peak / 2**30:10.2f} GiB")
    return "\n".join(lines)


def _note_failure(failures: dict[str, str], name: str, answer: dict[str, Any]) -> bool:
    """Record the failure of a side and return whether it failed; exit if it is bertline or the matrix product."""
    if "failed" not in answer:
        return False
    if name in ("bertline", "matmul"):
        sys.exit(f"{name} failed: {answer['failed']}")
    failures[name] = answer["failed"]
    return True


def _describe(name: str, answer: dict[str, float]) -> str:
    if name == "matmul":
        return f"{name:8s} {answer['flops_per_s'] / 1e12:12.3f} TFLOP/s"
    return (
        f"{name:8s} {answer['tokens_per_s']:12,.0f} tokens/s, {1e3 * answer['step_s']:.1f} ms per step, "
        f"{answer['data_wait_fraction']:.1%} waiting for data, {answer['peak_memory_bytes'] / 2**30:.2f} GiB"
    )


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(__doc__)
    parser.add_argument("--model", choices=tuple(VOCAB_SIZES), default="mini")
    parser.add_argument("--seq-len", type=int, default=128)
    parser.add_argument("--lengths", default="full", help="full, mixed, or an examples folder; see above")
    parser.add_argument("--vocab-size", type=int, help="without it, what belongs to the model")
    parser.add_argument("--batch-size", type=int, default=0, help="sequences a step; without it, by device and model")
    parser.add_argument("--peer-accumulation", type=int, default=1, help="parts of a step in plain and tuned")
    parser.add_argument("--dropout", type=float, help="of all sides; without it, what the model's preset says (0.1)")
    parser.add_argument("--steps", type=int, default=0, help="timed steps per round; without it, by device")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--workers", type=int, help="loader processes of bertline and tuned; without it, by device")
    parser.add_argument("--precision", choices=("auto", "fp32", "bf16"), default="auto", help="of bertline")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--set", nargs="+", default=[], metavar="SECTION.KEY=VALUE", help="bertline's configuration")
    parser.add_argument("--environment", choices=("same", "own"), default="same", help="that of the peers; see above")
    parser.add_argument("--verbose", action="store_true", help="show what the sides print")
    return parser


if __name__ == "__main__":
    main()
