"""`transformers.BertForPreTraining` under the Hugging Face `Trainer`, on bertline's examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import repository_source  # noqa: F401
import torch
import transformers
import transformers.trainer
from torch import Tensor, nn
from torch.utils.data import Dataset

from bertline.examples.store import ExampleStore
from bertline.modeling.config import ModelConfig
from bertline.training.devices import Machine
from bertline.training.optimizers import MuonConfig

transformers.utils.logging.set_verbosity_error()

BATCHES_AHEAD = 4
"""Batches prepared ahead by each loader process, as many as in bertline (`pretraining.data`)."""

Collate = Callable[[list[dict[str, Any]]], dict[str, Tensor]]


@dataclass(frozen=True, kw_only=True)
class PeerJob:
    """Settings of a training with the Trainer."""

    kind: Literal["plain", "tuned"]
    """`plain` keeps the Trainer's defaults; `tuned` sets the options that make it fast."""
    model: ModelConfig
    store: ExampleStore
    tokenizer_folder: Path
    full_length: bool
    """Whether every sequence has the full length."""
    sequences_an_epoch: int
    """Sequences per epoch; may exceed those of the store, which then repeat from the first."""
    machine: Machine
    workers: int
    """Number of loader processes of `tuned`."""
    batch_size: int
    """Sequences per optimizer step."""
    accumulation: int = 1
    """Gradient accumulation steps per optimizer step."""
    num_steps: int
    out: Path
    """Output folder of the Trainer."""
    start_from: Path | None = None
    """Folder of the initial weights; None initializes them as transformers does."""
    options: dict[str, Any] = field(default_factory=dict)
    """Further fields of `transformers.TrainingArguments`."""
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] | None = None
    """Function that builds an optimizer for the model; None lets the Trainer build it from its arguments."""


def train_peer(job: PeerJob, callbacks: Sequence[transformers.TrainerCallback]) -> transformers.BertForPreTraining:
    """Train, and return the model."""
    tuned = job.kind == "tuned"
    arguments = transformers.TrainingArguments(
        output_dir=str(job.out),
        use_cpu=job.machine.device.type == "cpu",
        per_device_train_batch_size=job.batch_size // job.accumulation,
        gradient_accumulation_steps=job.accumulation,
        max_steps=job.num_steps,
        dataloader_drop_last=True,  # every step has the same number of sequences
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        **(_tuned_options(job) if tuned else {}),
        **job.options,
    )
    transformers.set_seed(arguments.seed)
    config = _config(job.model, vocab_size=job.store.manifest["vocab_size"])
    if tuned:
        config._attn_implementation = "sdpa"
    if job.start_from is None:
        model = transformers.BertForPreTraining(config)
    else:
        model = transformers.BertForPreTraining.from_pretrained(job.start_from, config=config)
    trainer = transformers.Trainer(
        model=model,
        args=arguments,
        data_collator=_collator(job),
        train_dataset=StoredSequences(job.store, num_items=job.sequences_an_epoch, special_tokens_mask=tuned),
        callbacks=list(callbacks),
        optimizers=(None if job.optimizer is None else job.optimizer(model), None),
    )
    trainer.train()
    return model


class StoredSequences(Dataset[dict[str, Any]]):
    """Examples of a store in the form of a tokenized data set for transformers: dictionaries of lists, unpadded.

    Args:
        store: The examples.
        num_items: Length of the data set; after the last example it repeats from the first.
        special_tokens_mask: Whether to mark the special tokens, so that the collator need not search for them.
    """

    def __init__(self, store: ExampleStore, *, num_items: int, special_tokens_mask: bool) -> None:
        self.store = store
        self.num_items = num_items
        self.special = list(store.manifest["special_ids"].values()) if special_tokens_mask else None

    def __len__(self) -> int:
        return self.num_items

    def __getitem__(self, index: int) -> dict[str, Any]:
        example = self.store[index % len(self.store)]
        item = {
            "input_ids": example.input_ids.tolist(),
            "token_type_ids": example.token_type_ids.tolist(),
            "attention_mask": [1] * len(example.input_ids),
            "next_sentence_label": example.next_sentence_label,
        }
        if self.special is not None:
            item["special_tokens_mask"] = np.isin(example.input_ids, self.special).astype(int).tolist()
        return item


def _tuned_options(job: PeerJob) -> dict[str, Any]:
    """Return the options that make the Trainer fast."""
    return {
        "bf16": job.machine.precision == "bf16",
        "torch_compile": job.machine.compile,
        "optim": "adamw_torch_fused",
        "dataloader_num_workers": job.workers,
        "dataloader_prefetch_factor": BATCHES_AHEAD if job.workers else None,
        "dataloader_persistent_workers": job.workers > 0,
        "logging_nan_inf_filter": False,  # it would wait for the device in every step
        "remove_unused_columns": False,
    }


def _collator(job: PeerJob) -> Collate:
    """Return a collator with new masks each time; `plain` pads to the longest of a batch, `tuned` to one shape.

    If all sequences have the full length, `tuned` has no attention mask: SDPA uses its fastest kernel without one.
    """
    tokenizer = transformers.AutoTokenizer.from_pretrained(job.tokenizer_folder)
    tuned = job.kind == "tuned"
    collate = transformers.DataCollatorForLanguageModeling(
        tokenizer,
        mlm_probability=job.store.manifest["masking"]["mask_prob"],
        pad_to_multiple_of=job.store.max_length if tuned else None,
    )
    return _without_mask(collate) if tuned and job.full_length else collate


def _without_mask(collate: Collate) -> Collate:
    def collate_without_mask(items: list[dict[str, Any]]) -> dict[str, Tensor]:
        batch = collate(items)
        del batch["attention_mask"]
        return batch

    return collate_without_mask


def _config(config: ModelConfig, *, vocab_size: int) -> transformers.BertConfig:
    """Return the same architecture for transformers: keys have the same names; those it does not know are left out."""
    known = transformers.BertConfig().to_dict()
    values = {name: getattr(config, name) for name in ModelConfig.__slots__ if name in known}
    return transformers.BertConfig(vocab_size=vocab_size, pad_token_id=0, **values)


class MuonAndAdamW(torch.optim.Optimizer):
    """Two PyTorch optimizers as one, because the Trainer and its schedule take a single optimizer.

    The weights are divided between them as in `bertline.training.optimizers`, and learning rates have the same meaning:
    Muon's updates are scaled to the size of AdamW's (arXiv 2502.16982, section 2.2). Vectors have no weight decay.

    Args:
        model: BERT model of transformers.
        config: Learning rates, weight decay, momentum and betas.
    """

    def __init__(self, model: nn.Module, config: MuonConfig) -> None:
        named = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
        of_layers = [weight for name, weight in named if ".encoder.layer." in name and weight.ndim == 2]
        chosen = set(map(id, of_layers))
        others = [weight for _, weight in named if id(weight) not in chosen]
        self.muon = torch.optim.Muon(
            of_layers,
            lr=config.lr,
            weight_decay=config.weight_decay,
            momentum=config.momentum,
            adjust_lr_fn="match_rms_adamw",
        )
        self.adamw = torch.optim.AdamW(
            [
                {"params": [weight for weight in others if weight.ndim >= 2], "weight_decay": config.weight_decay},
                {"params": [weight for weight in others if weight.ndim < 2], "weight_decay": 0.0},
            ],
            lr=config.adamw_lr,
            betas=(config.beta1, config.beta2),
            eps=config.eps,
            fused=True,
        )
        super().__init__([*self.muon.param_groups, *self.adamw.param_groups], {})

    def step(self, closure: Any = None) -> Any:
        """Take one step with each optimizer."""
        result = None if closure is None else closure()
        # Schedules set the rates of this optimizer's groups, which are copies once accelerate has prepared it.
        scheduled = iter(self.param_groups)
        for optimizer in (self.muon, self.adamw):
            for group, own in zip(optimizer.param_groups, scheduled, strict=False):
                group["lr"] = own["lr"]
        self.muon.step()
        self.adamw.step()
        return result
