"""What is learned: bertline beside `transformers.BertForPreTraining` under the Hugging Face `Trainer`.

    python benchmarks/learning.py --threads 2 --keep
    python benchmarks/learning.py --examples artifacts/examples --tokenizer artifacts/tokenizer --length 64 --steps 2000

All train on the same sequences and vocabulary, with the same model, dropout, number of sequences a step, steps and
linear schedule, from the same random weights for a seed. Each draws order and masks its own way: the Trainer with
DataCollatorForLanguageModeling, its defaults and the labels of next sentences. Without --examples the data are made
from the default corpus, the documentation strings of Python packages. What counts is the loss of the masked language
model (nats) on held-out sequences with the same fixed masks, computed in fp32 for both.

For each seed, four trainings in turn:

    loss_ours                 bertline with the optimizer of its preset for short runs (--optimizer; Muon, which the
                              Trainer lacks), at the preset's own rates
    loss_ours_same_optimizer  bertline with the Trainer's AdamW at the same rate (--lr) and with the same clipping:
                              whether the engine itself learns as it should
    loss_peer_equal_steps     the peer, of as many steps
    loss_peer_equal_time      the peer, of as many steps as it could take in the time of loss_ours, with a schedule
                              that ends there

`loss_peer_stopped` is the peer's of equal steps, cut off after the time of loss_ours, before its schedule has ended.
`same_optimizer_difference` is ours minus the peer's with the same optimizer after equal steps, with its standard error
over the seeds: two trainings that differ in nothing but order and masks do not end alike either. Time is training,
compiling included, validation not. The last line is JSON: means over the seeds, and each seed's figures. Dropout,
initialisation and AdamW's rate are what few steps need (notebooks/LOG.md); --dropout 0.1 --initializer-range 0.02 are
the paper's.

With --examples, torch, Lightning and transformers (with accelerate and PyYAML) are enough; making data takes all that
bertline needs. --keep writes the figures, with versions and commit, to benchmarks/results.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import repository_source  # noqa: F401
from bare_configuration import CONF, parse_changes, section
from records import Record, add_record_arguments, variant_of
from side_environment import side_environment

from bertline.foundation.manifests import read_manifest
from bertline.modeling.config import ModelConfig

HERE = Path(__file__).parent
LOSSES = (
    "loss_ours", "loss_ours_same_optimizer", "loss_peer_equal_steps", "loss_peer_equal_time", "loss_peer_stopped",
)  # fmt: skip
PEER_OPTIMIZER = "adamw"
"""The preset of conf/optimizer that the Trainer is given the values of."""


def main() -> None:
    """Train all, print a line for each training and the JSON line."""
    parser = _parser()
    arguments = checked(parser)
    variant = variant_of(parser, arguments, _TOLD_APART)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        if arguments.examples is None:
            make_data(Path(folder), arguments)
        manifest = read_manifest(Path(arguments.examples), kind="examples", format_version=1)
        of_length = facts_of_length(manifest, arguments)
        print(
            f"{of_length['train']['examples']:,} sequences of at most {arguments.length} tokens, vocabulary of "
            f"{manifest['vocab_size']:,}, entropy of the unigrams {of_length['unigram_entropy']:.3f}\n"
            f"{arguments.model}, {arguments.steps} steps of {arguments.batch_size} sequences",
            flush=True,
        )
        sides = [compare(seed, Path(folder), arguments) for seed in range(arguments.seeds)]
    seeds, facts = [seed for seed, _ in sides], sides[0][1]
    figures = {
        **{name: facts[name] for name in ("device", "device_type", "precision")},
        **{name: _mean(seeds, name) for name in LOSSES},
        **same_optimizer_difference(seeds),
        "unigram_entropy": of_length["unigram_entropy"],
        "time_s": _mean(seeds, "time_s"),
        "time_s_same_optimizer": _mean(seeds, "time_s_same_optimizer"),
        "time_s_peer": _mean(seeds, "time_s_peer"),
        "seeds": seeds,
        "arguments": {name: getattr(arguments, name) for name in _SHOWN},
    }
    if arguments.keep:
        record = Record(
            benchmark="learning",
            model=arguments.model,
            seq_len=arguments.length,
            variant=variant,
            figures=figures,
            versions=facts["versions"],
            arguments=arguments,
            not_recorded=("examples", "tokenizer"),
            more={"data": {"vocab_size": manifest["vocab_size"], **of_length}},
        )
        print(f"kept in {record.write(Path(arguments.keep), commit=arguments.commit)}")
    print(json.dumps(figures))


def compare(seed: int, folder: Path, arguments: argparse.Namespace) -> tuple[dict[str, float], dict[str, Any]]:
    """The four trainings of a seed, and the facts that bertline's side tells of the machine."""
    ours = train("bertline", arguments.steps, seed, folder, arguments, optimizer=arguments.optimizer)
    same = train("bertline", arguments.steps, seed, folder, arguments)
    peer = train(arguments.peer, arguments.steps, seed, folder, arguments, stop_after_s=ours["time_s"])
    steps = max(1, round(arguments.steps * ours["time_s"] / peer["time_s"]))
    fitted = train(arguments.peer, steps, seed, folder, arguments)
    compared = {
        "seed": seed,
        "loss_ours": ours["loss"],
        "loss_ours_same_optimizer": same["loss"],
        "loss_peer_equal_steps": peer["loss"],
        "loss_peer_equal_time": fitted["loss"],
        "loss_peer_stopped": peer["loss"] if peer["stopped_loss"] is None else peer["stopped_loss"],
        "time_s": ours["time_s"],
        "time_s_same_optimizer": same["time_s"],
        "time_s_peer": peer["time_s"],
        "time_s_peer_equal_time": fitted["time_s"],
        "steps_peer_equal_time": steps,
    }
    return compared, ours["facts"]


def train(
    side: str,
    num_steps: int,
    seed: int,
    folder: Path,
    arguments: argparse.Namespace,
    *,
    optimizer: str | None = None,
    stop_after_s: float | None = None,
) -> dict[str, Any]:
    """One training, in a process of its own: with a preset of conf/optimizer as it is, or the peer's at --lr."""
    settings = {
        "side": side,
        "model": asdict(model_config(arguments)),
        "length": arguments.length,
        "batch_size": arguments.batch_size,
        "num_steps": num_steps,
        "warmup_fraction": arguments.warmup_fraction,
        "optimizer": optimizer or PEER_OPTIMIZER,
        "lr": None if optimizer else arguments.lr,
        "seed": seed,
        "stop_after_s": stop_after_s,
        "validation_sequences": arguments.validation_sequences,
        "device": arguments.device,
        "threads": arguments.threads,
        "workers": arguments.workers,
        "changes": parse_changes(arguments.set).get("runtime", {}),
        "examples": str(arguments.examples),
        "tokenizer": str(arguments.tokenizer),
        "folder": str(folder / f"{side}-{optimizer}-{seed}-{num_steps}"),
    }
    process = subprocess.run(
        [sys.executable, HERE / "learning_side.py", json.dumps(settings)],
        check=False,
        stdout=subprocess.PIPE,
        stderr=None if arguments.verbose else subprocess.PIPE,
        env=side_environment(side, threads=arguments.threads),
        text=True,
    )
    if process.returncode:
        sys.exit(f"{process.stderr or ''}{side} failed")
    told = json.loads(process.stdout)
    print(
        f"seed {seed}, {side:8s} {optimizer or PEER_OPTIMIZER:10s} {num_steps:6d} steps in {told['time_s']:7.1f} s: "
        f"held-out loss {told['loss']:.4f}",
        flush=True,
    )
    return told


def same_optimizer_difference(seeds: list[dict[str, float]]) -> dict[str, float | None]:
    """Ours minus the peer's after equal steps with the same optimizer: mean and standard error; None for one seed."""
    differences = [seed["loss_ours_same_optimizer"] - seed["loss_peer_equal_steps"] for seed in seeds]
    error = statistics.stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else None
    return {
        "same_optimizer_difference": round(statistics.fmean(differences), 4),
        "same_optimizer_standard_error": None if error is None else round(error, 4),
    }


def make_data(folder: Path, arguments: argparse.Namespace) -> None:
    """Corpus, tokenizer and examples as the first stages make them; sets where they are.

    Raises:
        SystemExit: Something that only these stages need is not installed.
    """
    try:  # here, so that finished examples can be trained on where there is no pyarrow
        from bertline.corpus.build import build_corpus
        from bertline.corpus.config import CorpusConfig, PythonDocsConfig
        from bertline.examples.build import build_examples
        from bertline.examples.config import ExamplesConfig
        from bertline.tokenization.build import build_tokenizer
        from bertline.tokenization.config import TokenizerConfig
    except ModuleNotFoundError as error:
        sys.exit(
            f"making data needs {error.name}, which is not installed: give --examples and --tokenizer, made elsewhere"
        )
    corpus = section(CorpusConfig, "corpus/python_docs")
    build_corpus(
        corpus, section(PythonDocsConfig, "python_docs/default"), folder / "corpus", num_workers=arguments.workers
    )
    arguments.examples, arguments.tokenizer = folder / "examples", folder / "tokenizer"
    tokenizer = section(TokenizerConfig, "tokenizer/wordpiece", vocab_size=arguments.vocab_size)
    build_tokenizer(tokenizer, folder / "corpus", arguments.tokenizer, num_workers=arguments.workers)
    examples = section(ExamplesConfig, "examples/sentence_pairs", lengths=[arguments.length])
    build_examples(examples, arguments.tokenizer, folder / "corpus", arguments.examples, num_workers=arguments.workers)


def facts_of_length(manifest: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """What the examples' manifest says of the length.

    Raises:
        SystemExit: They have none of it.
    """
    lengths = manifest["lengths"]
    if str(arguments.length) not in lengths:
        sys.exit(f"--length is {arguments.length}; {arguments.examples} has examples of {', '.join(lengths)} tokens")
    return lengths[str(arguments.length)]


def checked(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The arguments, once they make sense.

    Raises:
        SystemExit: They do not.
    """
    arguments = parser.parse_args()
    if (arguments.examples is None) != (arguments.tokenizer is None):
        parser.error("give both --examples and --tokenizer, or neither")
    positions = model_config(arguments).max_position_embeddings
    if arguments.length > positions:
        parser.error(f"--length is {arguments.length}, but {arguments.model} has positions for {positions} tokens")
    presets = sorted(path.stem for path in (CONF / "optimizer").glob("*.yaml"))
    if arguments.optimizer not in presets:
        parser.error(f"--optimizer is one of {', '.join(presets)} (conf/optimizer), found {arguments.optimizer}")
    others = parse_changes(arguments.set).keys() - {"runtime"}
    if others:
        parser.error(f"--set changes bertline's runtime section alone, found {', '.join(sorted(others))}")
    return arguments


def model_config(arguments: argparse.Namespace) -> ModelConfig:
    """A preset of conf/model, with dropout and initialisation for few steps (conf/experiment/docs_tiny.yaml)."""
    return section(
        ModelConfig,
        f"model/{arguments.model}",
        hidden_dropout_prob=arguments.dropout,
        attention_probs_dropout_prob=arguments.dropout,
        initializer_range=arguments.initializer_range,
    )


_SHOWN = (
    "model", "length", "batch_size", "steps", "optimizer", "lr", "warmup_fraction", "dropout", "initializer_range",
    "peer", "threads", "device",
)  # fmt: skip
_TOLD_APART = (
    "vocab_size", "batch_size", "steps", "seeds", "optimizer", "lr", "warmup_fraction", "dropout", "initializer_range",
    "peer", "threads", "set",
)  # fmt: skip
"""Arguments that stand in the name of a record where they are not the default ones."""


def _mean(seeds: list[dict[str, float]], name: str) -> float:
    return round(statistics.fmean(seed[name] for seed in seeds), 4)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=Path, help="an examples artifact; without it, one is made")
    parser.add_argument("--tokenizer", type=Path, help="the tokenizer that it was made with")
    parser.add_argument("--vocab-size", type=int, default=8192, help="where the data are made")
    parser.add_argument("--model", default="tiny", help="a preset of conf/model")
    parser.add_argument("--length", type=int, default=32, help="the most tokens of a sequence")
    parser.add_argument("--batch-size", type=int, default=64, help="sequences a step")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--optimizer", default="muon_short", help="of loss_ours: a preset of conf/optimizer, as it is")
    parser.add_argument("--lr", type=float, default=1e-3, help="of AdamW, on both sides")
    parser.add_argument("--warmup-fraction", type=float, default=0.1)
    parser.add_argument("--dropout", type=float, default=0.0, help="of both sides")
    parser.add_argument("--initializer-range", type=float, default=0.05, help="of both sides")
    parser.add_argument("--peer", choices=("plain", "tuned"), default="plain", help="as in pretraining_step.py")
    parser.add_argument("--validation-sequences", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--set", nargs="+", default=[], metavar="runtime.KEY=VALUE", help="bertline's runtime section")
    add_record_arguments(parser)
    parser.add_argument("--verbose", action="store_true", help="show what the sides print")
    return parser


if __name__ == "__main__":
    main()
