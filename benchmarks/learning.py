"""Learning: bertline's held-out loss compared with that of the tuned Hugging Face `Trainer`.

    python benchmarks/learning.py --keep
    python benchmarks/learning.py --examples artifacts/examples --tokenizer artifacts/tokenizer --length 64

Both sides train the same BERT on the same sequences, with the same number of sequences per step, a linear schedule and,
for each seed, the same initial weights. Each side has its own shuffling and masking: the Trainer uses
DataCollatorForLanguageModeling with its defaults, and the NSP labels of the examples. Without --examples the data are
made from the default corpus, the docstrings of Python packages. The measure is the MLM loss (nats) on held-out
sequences with the same fixed masks, computed in fp32 for both sides.

The peer is the tuned Trainer (bf16 if the hardware has it, SDPA, compiled, fused AdamW, loader workers) in the same
process environment. Its optimizer is chosen from a small grid: kind (AdamW, or `torch.optim.Muon` with AdamW for all
but the layers' matrices), learning rate and beta2. Each cell of the grid trains for the number of steps that the peer
takes in bertline's time, with a seed that is not reported; the lowest loss wins, on a dev share of the validation
sequences that is disjoint from the held-out ones. bertline's own optimizer is a preset (--optimizer), not tuned here.

For each seed there are four trainings, in turn:

    loss_ours                 bertline with the optimizer of its preset for short runs
    loss_ours_same_optimizer  bertline with the optimizer that was chosen for the peer: whether the engine itself
                              learns as it should
    loss_peer_equal_steps     the peer, for the same number of steps
    loss_peer_equal_time      the peer, for the number of steps it takes in the time of loss_ours, with a schedule that
                              ends there

Time is training time, including compilation from an empty cache on both sides, without validation.
`same_optimizer_difference` is bertline's loss minus the peer's with the same optimizer after equal steps,
`equal_time_difference` bertline's minus the peer's after equal time, both with their standard error over the seeds. The
last line is JSON: means over the seeds, figures of each seed, the grid, and the exact name of the peer. Dropout and
initialisation are chosen for few steps (notebooks/LOG.md); --dropout 0.1 --initializer-range 0.02 are the paper's.

Finished trainings are kept in --work, so that an interrupted benchmark resumes with the first missing training. With
its defaults it takes one to two hours on two idle cores. With --examples, torch, Lightning and transformers (with
accelerate and PyYAML) are enough; making data requires all of bertline.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import sys
from pathlib import Path
from typing import Any

import repository_source  # noqa: F401
from bare_configuration import CONF, parse_changes, section
from learning_runs import UNREPORTED_SEED, Choice, Optimizer, Training, Trainings, choose, code_digest, steps_within
from measurements import Measurement, parser_of, variant_of
from processes import facts_of_environment

from bertline.foundation.manifests import read_manifest
from bertline.modeling.config import ModelConfig

WORK = Path(__file__).resolve().parents[1] / "runs" / "learning-benchmark"
LOSSES = ("loss_ours", "loss_ours_same_optimizer", "loss_peer_equal_steps", "loss_peer_equal_time")
TIMES = ("time_s", "time_s_same_optimizer", "time_s_peer", "time_s_peer_equal_time")


def main() -> None:
    """Run all trainings; print a line for each, and the JSON line."""
    parser = _parser()
    arguments = checked(parser)
    variant = variant_of(parser, arguments, _TOLD_APART)
    arguments.work.mkdir(parents=True, exist_ok=True)
    if arguments.examples is None:
        make_data(arguments.work / f"data-{code_digest()[:12]}-{arguments.vocab_size}-{arguments.length}", arguments)
    manifest = read_manifest(Path(arguments.examples), kind="examples", format_version=1)
    of_length = manifest["lengths"].get(str(arguments.length)) or sys.exit(
        f"{arguments.examples} has no examples of {arguments.length} tokens"
    )
    print(
        f"{of_length['train']['examples']:,} sequences of at most {arguments.length} tokens, vocabulary of "
        f"{manifest['vocab_size']:,}, entropy of the unigrams {of_length['unigram_entropy']:.3f}\n"
        f"{arguments.model}, {arguments.steps} steps of {arguments.batch_size} sequences; work in {arguments.work}",
        flush=True,
    )
    digest = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    trainings = Trainings(arguments.work, arguments, model_config(arguments), data_digest=digest)
    paced = trainings.run(_ours(arguments, seed=UNREPORTED_SEED, share="dev"))
    choice = choose(trainings, arguments, budget_s=paced["time_s"])
    sides = [compare(seed, choice.best.optimizer, trainings, arguments) for seed in range(arguments.seeds)]
    trainings.forget_compiled()
    figures = figures_of([seed for seed, _ in sides], sides[0][1], choice, arguments)
    figures["unigram_entropy"] = of_length["unigram_entropy"]
    if arguments.keep:
        record = Measurement(
            benchmark="learning", model=arguments.model, seq_len=arguments.length, variant=variant, figures=figures,
            versions=paced["facts"]["versions"], arguments=arguments, not_recorded=("examples", "tokenizer", "work"),
            more={"data": {"vocab_size": manifest["vocab_size"], **of_length}},
        )  # fmt: skip
        print(f"kept in {record.write(Path(arguments.keep), commit=arguments.commit)}")
    print(json.dumps(figures))


def compare(
    seed: int, chosen: Optimizer, trainings: Trainings, arguments: argparse.Namespace
) -> tuple[dict[str, float], dict[str, Any]]:
    """Run the four trainings of a seed; return their figures, and the facts that the peer's process reports.

    Trainings whose times are compared follow one another, because the speed of a shared machine changes within an hour.
    """
    ours = trainings.run(_ours(arguments, seed=seed))
    peer = trainings.run(Training(side="tuned", optimizer=chosen, num_steps=arguments.steps, seed=seed))
    steps = steps_within(ours["time_s"], peer)
    fitted = trainings.run(Training(side="tuned", optimizer=chosen, num_steps=steps, seed=seed))
    same = trainings.run(Training(side="bertline", optimizer=chosen, num_steps=arguments.steps, seed=seed))
    compared = {
        "seed": seed,
        "loss_ours": ours["loss"],
        "loss_ours_same_optimizer": same["loss"],
        "loss_peer_equal_steps": peer["loss"],
        "loss_peer_equal_time": fitted["loss"],
        "time_s": ours["time_s"],
        "time_s_same_optimizer": same["time_s"],
        "time_s_peer": peer["time_s"],
        "time_s_peer_equal_time": fitted["time_s"],
        "startup_s_peer": peer["startup_s"],
        "steps_peer_equal_time": steps,
        "highest_load": max(one["load"] for one in (ours, same, peer, fitted)),
    }
    return compared, peer["facts"]


def figures_of(
    seeds: list[dict[str, float]], peer_facts: dict[str, Any], choice: Choice, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Return the figures of the last line, except those of the data."""
    return {
        "device": peer_facts["device"],
        "device_type": peer_facts["device_type"],
        "precision": peer_facts["precision"],
        "ours": f"bertline, {Optimizer(preset=arguments.optimizer)}",
        "ours_same_optimizer": f"bertline, {choice.best.optimizer}",
        "peer": peer_name(peer_facts, choice.best.optimizer, arguments),
        **{
            name: round(statistics.fmean(seed[name] for seed in seeds), 4)
            for name in (*LOSSES, *TIMES, "steps_peer_equal_time")
        },
        **difference("same_optimizer", seeds, "loss_ours_same_optimizer", "loss_peer_equal_steps"),
        **difference("equal_time", seeds, "loss_ours", "loss_peer_equal_time"),
        "grid": choice.for_record(),
        "environment": "same",
        "environment_variables": facts_of_environment(threads=arguments.threads),
        "seeds": seeds,
        "arguments": {name: getattr(arguments, name) for name in _SHOWN},
    }


def peer_name(facts: dict[str, Any], optimizer: Optimizer, arguments: argparse.Namespace) -> str:
    """Return the exact name of the peer: every setting that distinguishes it from other peers."""
    compiled = "compiled" if facts["compiled"] else "not compiled"
    return f"Trainer, {facts['precision']}, SDPA, {compiled}, {arguments.workers} loader workers, {optimizer}"


def difference(name: str, seeds: list[dict[str, float]], ours: str, peers: str) -> dict[str, float | None]:
    """Return mean and standard error over the seeds of ours minus the peer's; the error is None for a single seed."""
    differences = [seed[ours] - seed[peers] for seed in seeds]
    error = statistics.stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else None
    return {
        f"{name}_difference": round(statistics.fmean(differences), 4),
        f"{name}_standard_error": None if error is None else round(error, 4),
    }


def make_data(folder: Path, arguments: argparse.Namespace) -> None:
    """Make corpus, tokenizer and examples as the first stages do, unless they exist; set the arguments to the folders.

    Raises:
        SystemExit: A package that only these stages need is not installed.
    """
    try:  # imported here, so that training on existing examples does not need pyarrow
        from bertline.corpus.build import build_corpus
        from bertline.corpus.registry import CorpusConfig
        from bertline.demo.config import PythonDocsConfig
        from bertline.examples.build import build_examples
        from bertline.examples.config import ExamplesConfig
        from bertline.foundation.engine import LocalEngine
        from bertline.tokenization.build import build_tokenizer
        from bertline.tokenization.config import TokenizerConfig
    except ModuleNotFoundError as error:
        sys.exit(
            f"making data needs {error.name}, which is not installed: give --examples and --tokenizer, made elsewhere"
        )
    arguments.examples, arguments.tokenizer = folder / "examples", folder / "tokenizer"
    finished = folder / "finished"
    if finished.exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    corpus = section(CorpusConfig, "corpus/python_docs")
    engine = LocalEngine(arguments.workers)
    packages = section(PythonDocsConfig, "python_docs/default")
    build_corpus(corpus, packages, folder / "corpus", engine=engine, work=folder / "shards")
    tokenizer = section(TokenizerConfig, "tokenizer/wordpiece", vocab_size=arguments.vocab_size)
    build_tokenizer(tokenizer, folder / "corpus", arguments.tokenizer, engine=engine, work=folder / "words")
    examples = section(ExamplesConfig, "examples/sentence_pairs", lengths=[arguments.length])
    work = folder / "work"
    build_examples(examples, arguments.tokenizer, folder / "corpus", arguments.examples, engine=engine, work=work)
    finished.touch()


def checked(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Parse and check the arguments.

    Raises:
        SystemExit: An argument is not valid.
    """
    arguments = parser.parse_args()
    if (arguments.examples is None) != (arguments.tokenizer is None):
        parser.error("give both --examples and --tokenizer, or neither")
    positions = model_config(arguments).max_position_embeddings
    if arguments.length > positions:
        parser.error(f"--length is {arguments.length}, but {arguments.model} has positions for {positions} tokens")
    others = parse_changes(arguments.set).keys() - {"runtime"}
    if others:
        parser.error(f"--set changes bertline's runtime section alone, found {', '.join(sorted(others))}")
    return arguments


def model_config(arguments: argparse.Namespace) -> ModelConfig:
    """Return the preset of conf/model with the given dropout and initialisation (conf/experiment/docs_tiny.yaml)."""
    return section(
        ModelConfig,
        f"model/{arguments.model}",
        hidden_dropout_prob=arguments.dropout,
        attention_probs_dropout_prob=arguments.dropout,
        initializer_range=arguments.initializer_range,
    )


def _ours(arguments: argparse.Namespace, *, seed: int, share: str = "held_out") -> Training:
    optimizer = Optimizer(preset=arguments.optimizer)
    return Training(side="bertline", optimizer=optimizer, num_steps=arguments.steps, seed=seed, share=share)


_SHOWN = (
    "model", "length", "batch_size", "steps", "optimizer", "warmup_fraction", "dropout", "initializer_range",
    "peer_optimizers", "rates", "beta2", "threads", "device",
)  # fmt: skip
_TOLD_APART = (
    "vocab_size", "batch_size", "steps", "seeds", "optimizer", "warmup_fraction", "dropout", "initializer_range",
    "peer_optimizers", "rates", "beta2", "threads", "set",
)  # fmt: skip
"""Arguments that are part of a record's file name if they are not the defaults."""


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(__doc__)
    parser.add_argument("--examples", type=Path, help="an examples artifact; without it, one is made")
    parser.add_argument("--tokenizer", type=Path, help="the tokenizer that it was made with")
    parser.add_argument("--vocab-size", type=int, default=8192, help="where the data are made")
    parser.add_argument("--model", default="tiny", help="a preset of conf/model")
    parser.add_argument("--length", type=int, default=32, help="the most tokens of a sequence")
    parser.add_argument("--batch-size", type=int, default=64, help="sequences a step")
    parser.add_argument("--steps", type=int, default=4000, help="enough that compile time does not decide")
    parser.add_argument("--seeds", type=int, default=3)
    presets = sorted(path.stem for path in (CONF / "optimizer").glob("*.yaml"))
    parser.add_argument("--optimizer", choices=presets, default="muon_short", help="of loss_ours, as it is")
    parser.add_argument("--warmup-fraction", type=float, default=0.1)
    parser.add_argument("--dropout", type=float, default=0.0, help="of both sides")
    parser.add_argument("--initializer-range", type=float, default=0.05, help="of both sides")
    tried = ["adamw_short", "muon_short"]
    parser.add_argument("--peer-optimizers", nargs="+", choices=presets, default=tried, help="tried for the peer")
    parser.add_argument("--rates", nargs="+", type=float, default=[0.5, 1.0, 2.0], help="multiples of the preset's")
    parser.add_argument("--beta2", nargs="+", type=float, default=[0.98, 0.999], help="values to try")
    parser.add_argument("--work", type=Path, default=WORK, help="where finished trainings are kept")
    parser.add_argument("--validation-sequences", type=int, default=2048, help="held out; the same number again is dev")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--set", nargs="+", default=[], metavar="runtime.KEY=VALUE", help="bertline's runtime section")
    parser.add_argument("--verbose", action="store_true", help="show what the sides print")
    return parser


if __name__ == "__main__":
    main()
