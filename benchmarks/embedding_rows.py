"""How much faster fine-tuning is that trains only the rows of the word embeddings that occur, and how equal.

    python benchmarks/embedding_rows.py --model minilm --rounds 3
    python benchmarks/embedding_rows.py --model xlm-roberta-base --rounds 2

Both sides make the same 20 steps (fp32, dropout, warm-up, clipping, weight decay) on texts of 12 random tokens,
frequent ones more often, in turn in one process. A step lasts from the start of its loss to that of the next; the
median is taken, of the processor's time too, which depends less on other load. `largest_difference` is that of any two
weights after the last step. bertline's commands keep freed memory (`training.environment`); in a plain process the
gradient of the whole table costs page faults too (`--plain-environment`). `xlm-roberta-base` has that model's sizes and
random weights. The last line is JSON.
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import os
import statistics
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import repository_source  # noqa: F401
import torch
from finetuning import Clock, TimedClassification, fine_tuning_config, minilm_folder, runtime_config, task_config
from records import Record, add_record_arguments, variant_of
from torch import Tensor, nn

from bertline.encoding.sequences import assemble
from bertline.finetuning import module
from bertline.finetuning.finetune import fine_tune
from bertline.finetuning.job import FineTuningJob, TaskSplit
from bertline.foundation.manifests import versions_of
from bertline.foundation.parallel import processor_name
from bertline.kinds.base import HeadSettings
from bertline.kinds.classification import EncodedTexts
from bertline.modeling.bert import BertForSequenceClassification
from bertline.modeling.checkpoint import Checkpoint
from bertline.modeling.config import ModelConfig
from bertline.modeling.initialization import initialize
from bertline.tasks.stored_rows import TextRows
from bertline.training.devices import resolve_machine
from bertline.training.environment import use_training_environment

LENGTH, BATCH_SIZE, STEPS, WARMUP_STEPS, SEED = 12, 16, 20, 3, 0
ALL, OCCURRING = "all_rows", "occurring_rows"
XLM_ROBERTA = ModelConfig(
    family="xlm-roberta", hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072,
    max_position_embeddings=512, type_vocab_size=1, hidden_act="gelu", hidden_dropout_prob=0.1,
    attention_probs_dropout_prob=0.1, initializer_range=0.02, layer_norm_eps=1e-5,
)  # fmt: skip
VOCAB_SIZES = {"minilm": 30_522, "xlm-roberta-base": 250_002}


class TimedRandomXlmRoberta(TimedClassification):
    """The clock, and a model of XLM-R base's sizes with random weights."""

    def new_model(self, folder: Path, head: HeadSettings) -> nn.Module:
        """Return a copy of the model that the first run draws."""
        return copy.deepcopy(drawn_model(head))


@functools.cache
def drawn_model(head: HeadSettings) -> nn.Module:
    """Draw the weights of XLM-R base with a classifier."""
    sizes = {"vocab_size": VOCAB_SIZES["xlm-roberta-base"], "pad_token_id": 1}
    model = BertForSequenceClassification(XLM_ROBERTA, **sizes, num_labels=2, attention=head.attention)
    initialize(model, XLM_ROBERTA, seed=head.seed)
    return model


def main() -> None:
    """Run both sides in turn, print the JSON line, and record it if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=VOCAB_SIZES, default="minilm")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--plain-environment", action="store_true", help="without the settings of `bertline ...`")
    add_record_arguments(parser)
    arguments = parser.parse_args()
    if not arguments.plain_environment:
        use_training_environment()
    torch.set_num_threads(arguments.threads)
    clocks: dict[str, list[Clock]] = {ALL: [], OCCURRING: []}
    for number in range(arguments.rounds):
        weights = {}
        for side, clocks_of_side in clocks.items():
            weights[side], clock = run(arguments, side)
            clocks_of_side.append(clock)
            print(f"round {number + 1}, {side}: {median_ms(clock.started):.0f} ms a step", flush=True)
    differences = [(weights[ALL][name] - weight).abs().max().item() for name, weight in weights[OCCURRING].items()]
    wall, cpu = (
        {side: statistics.median(median_ms(getattr(clock, times)) for clock in each) for side, each in clocks.items()}
        for times in ("started", "started_cpu")
    )
    figures = {
        "model": arguments.model,
        "ms_per_step": {side: round(value, 1) for side, value in wall.items()},
        "cpu_ms_per_step": {side: round(value, 1) for side, value in cpu.items()},
        "ratio": round(wall[OCCURRING] / wall[ALL], 3),
        "cpu_ratio": round(cpu[OCCURRING] / cpu[ALL], 3),
        "largest_difference": max(differences),
        "load": os.getloadavg()[0],
        "device": processor_name(),
    }
    if arguments.keep:
        record = Record(
            benchmark="embedding_rows", model=arguments.model, seq_len=LENGTH,
            variant=variant_of(parser, arguments, ["plain_environment", "threads", "steps"]), figures=figures,
            versions=versions_of("bertline", "torch"), arguments=arguments,
        )  # fmt: skip
        print(record.write(Path(arguments.keep), commit=arguments.commit))
    print(json.dumps(figures))


def run(arguments: argparse.Namespace, side: str) -> tuple[dict[str, Tensor], Clock]:
    """Fine-tune once; return the weights and when the steps began."""
    is_minilm, labels = arguments.model == "minilm", ("no", "yes")
    kind = (TimedClassification if is_minilm else TimedRandomXlmRoberta)(task_config(LENGTH), labels)
    kind.clock = Clock()
    vocab_size = VOCAB_SIZES[arguments.model]
    random, num_rows = np.random.default_rng(SEED), arguments.steps * BATCH_SIZE
    shares = 1 / np.arange(10, vocab_size + 5)
    ids = 5 + random.choice(vocab_size - 5, (num_rows, LENGTH), p=shares / shares.sum())
    rows = TextRows([*map(str, range(num_rows))], [""] * num_rows, None, random.integers(0, 2, num_rows))
    pad_id = Checkpoint.open(minilm_folder()).pad_token_id if is_minilm else 1
    sequences = assemble(list(ids), [LENGTH] * num_rows, pad_id=pad_id)
    split = TaskSplit(rows=rows, encoded=EncodedTexts(sequences, np.arange(num_rows), rows.labels))
    runtime = runtime_config(arguments.threads)
    job = FineTuningJob(
        kind=kind, config=fine_tuning_config(BATCH_SIZE), encoder="pretrained", encoder_folder=minilm_folder(),
        train=split, dev=split, seed=SEED, machine=resolve_machine(runtime, "fp32"), runtime=runtime,
    )  # fmt: skip
    changed: dict[str, Any] = {"return_value": None} if side == ALL else {"wraps": module.rows_to_train}
    with mock.patch.object(module, "rows_to_train", **changed):
        model = fine_tune(job).model
    return model.state_dict(), kind.clock


def median_ms(started: list[float]) -> float:
    """Return the median time of a step after the warm-up."""
    return 1000 * statistics.median(np.diff(started)[WARMUP_STEPS:])


if __name__ == "__main__":
    main()
