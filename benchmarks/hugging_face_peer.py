"""`transformers.BertForPreTraining` under the Hugging Face `Trainer`, on bertline's examples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import transformers
import transformers.trainer
from torch import Tensor
from torch.utils.data import Dataset

from bertline.examples.store import ExampleStore
from bertline.modeling.config import ModelConfig

transformers.utils.logging.set_verbosity_error()

Collate = Callable[[list[dict[str, Any]]], dict[str, Tensor]]


def peer_config(config: ModelConfig, *, vocab_size: int) -> transformers.BertConfig:
    """The same architecture: the keys have the same names, and those that BERT's paper does not know are left out."""
    known = transformers.BertConfig().to_dict()
    values = {name: getattr(config, name) for name in ModelConfig.__slots__ if name in known}
    return transformers.BertConfig(vocab_size=vocab_size, pad_token_id=0, **values)


class StoredSequences(Dataset[dict[str, Any]]):
    """The examples of a store as a tokenized data set of transformers gives them: dictionaries of lists, unpadded.

    Args:
        store: The examples.
        num_items: How long the data set says it is; past the last example the first one follows.
        special_tokens_mask: Say where special tokens stand, so that the collator need not search for them.
    """

    def __init__(self, store: ExampleStore, *, num_items: int, special_tokens_mask: bool) -> None:
        special = list(store.manifest["special_ids"].values())
        self.num_items = num_items
        self.items = []
        for index in range(len(store)):
            example = store[index]
            item = {
                "input_ids": example.input_ids.tolist(),
                "token_type_ids": example.token_type_ids.tolist(),
                "attention_mask": [1] * len(example.input_ids),
                "next_sentence_label": example.next_sentence_label,
            }
            if special_tokens_mask:
                item["special_tokens_mask"] = np.isin(example.input_ids, special).astype(int).tolist()
            self.items.append(item)

    def __len__(self) -> int:
        return self.num_items

    def __getitem__(self, index: int) -> dict[str, Any]:
        return dict(self.items[index % len(self.items)])


def masking_collator(tokenizer_folder: Path, *, mask_prob: float) -> Collate:
    """Masks anew each time a sequence is met, and pads to the longest of a batch."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(tokenizer_folder)
    return transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=mask_prob)


def without_mask(collate: Collate) -> Collate:
    """For batches without padding: they need no attention mask, and SDPA takes its fastest kernel without one."""

    def collate_without_mask(items: list[dict[str, Any]]) -> dict[str, Tensor]:
        batch = collate(items)
        del batch["attention_mask"]
        return batch

    return collate_without_mask


def require_accelerate() -> None:
    """The Trainer asks for it late and at length.

    Raises:
        SystemExit: It is missing.
    """
    try:
        import accelerate  # noqa: F401
    except ImportError:
        raise SystemExit("the Hugging Face Trainer needs accelerate, which is not installed") from None
