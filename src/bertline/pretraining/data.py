"""Build the batches of each step from the examples: order, masks and micro-batches, prepared ahead of the model."""

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypedDict, TypeVar, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from bertline.examples.masking import masked_batch, masking_policy, max_targets, target_draws
from bertline.examples.packing import packed_batches, segments_apart
from bertline.examples.store import Array, ExampleStore
from bertline.foundation.errors import ArtifactError
from bertline.foundation.labels import IGNORED_LABEL
from bertline.foundation.parallel import usable_cores
from bertline.modeling.dropout import token_numbers
from bertline.pretraining.objectives.base import Objective
from bertline.pretraining.plan import Plan, RowLayout, share_of, shuffled
from bertline.training.devices import Machine, Ranks
from bertline.training.interruption import ignore_signals_in_worker, starting_workers
from bertline.training.progress import TrainingClock

_Item = TypeVar("_Item")

_END = object()
# Loader processes hand over tensors in shared memory, of which a container often has 64 MB for all of them: few steps
# ahead (of each worker, and of the thread that fetches them), and 12 bytes per token instead of 24 to 42.
_STEPS_AHEAD = 2
_DTYPES = {"token_type_ids": np.uint8, "attention_mask": np.uint8, "position_ids": np.int16}

STEP_COUNTS = ("targets", "sequences", "tokens", "pairs")
"""Each `num_NAME` of a step's share, which is summed over the ranks and the steps of an interval."""


class StepBatch(TypedDict):
    """One rank's share of one optimizer step."""

    micro_batches: list[dict[str, Tensor]]
    num_targets: int
    num_sequences: int
    num_tokens: int
    """Number of real tokens, without padding."""
    num_pairs: int
    """Number of query-key pairs: the sum of the squared lengths of the sequences."""
    global_batch_size: int
    """Number of sequences of the step over all ranks."""


class MaskedExamples:
    """Examples of one split and length, masked on demand with the policy and seed set by the examples stage.

    ArtifactError if the artifact lacks this length, or has fewer examples of it than `neighbours`.
    """

    def __init__(
        self,
        folder: Path,
        split: Literal["train", "validation"],
        length: int,
        *,
        pairs_together: int | None = None,
        neighbours: int = 1,
        with_draws: bool = False,
    ) -> None:
        self.store = ExampleStore.open(folder, split, length)
        self.seed: int = self.store.manifest["seed"]
        self.pairs_together, self.neighbours, self._with_draws = pairs_together, neighbours, with_draws
        self._policy = masking_policy(self.store.manifest)
        if len(self.store) < neighbours:
            counts = f"{len(self.store)} {split} examples of length {length}, fewer than {neighbours}"
            raise ArtifactError(f"{folder} has {counts}. Give the corpus more text.")

    @classmethod
    def by_length(
        cls, folder: Path, split: Literal["train", "validation"], lengths: Iterable[int], objective: Objective
    ) -> dict[int, Self]:
        """Return the examples of these lengths as an objective reads them; only those of training are neighbours."""
        settings: dict[str, Any] = {
            "pairs_together": objective.pairs_together,
            "neighbours": objective.neighbours_together if split == "train" else 1,
            "with_draws": objective.reads_draws,
        }
        return {length: cls(folder, split, length, **settings) for length in lengths}

    def __len__(self) -> int:
        return len(self.store)

    @property
    def fill(self) -> float:
        """Fraction of real tokens in padded rows, in (0, 1]; exactly 1 if every sequence has the full length."""
        store, num_rows, num_tokens = self.store, len(self), self.store.num_tokens
        if self.pairs_together is not None:  # each segment is a sequence with special tokens of its own
            more = len(store.layout.before) + len(store.layout.after) - len(store.layout.between)
            num_rows, num_tokens = 2 * num_rows, num_tokens + more * num_rows
        return num_tokens / (num_rows * store.max_length)

    def batch(self, indices: np.ndarray, *, epoch: int) -> dict[str, np.ndarray]:
        """Return these examples as `masked_batch` (pairs: `segments_apart`) does; with draws, also `draws` [B, P]."""
        masked = masked_batch(self.store, indices, epoch=epoch, seed=self.seed, policy=self._policy)
        if self._with_draws:
            masked["draws"] = target_draws(indices, masked["masked_positions"], seed=self.seed, epoch=epoch)
        if self.pairs_together is None:
            return masked
        first_lengths = self.store.padded(indices).first_segment_lengths
        return segments_apart(masked, first_lengths, self.store.layout, pad_id=self.store.pad_id)

    def micro_batches(self, batch: Mapping[str, np.ndarray], layout: RowLayout) -> Iterator[dict[str, np.ndarray]]:
        """Split a batch into micro-batches; with packed rows, into those of `packed_batches`.

        If all sequences of the store have the full length, padded rows have no `attention_mask`: without one, PyTorch
        can use its fastest kernels. Pairs that are compared with each other are one micro-batch, whatever the layout.
        """
        store, size, rows = self.store, len(batch["input_ids"]), layout.rows
        if self.pairs_together is not None:
            size, rows = 2 * self.pairs_together, None
        elif not layout.packed:
            size = rows or size
            if self.fill == 1:
                batch = {name: values for name, values in batch.items() if name != "attention_mask"}
        most = max_targets(store.max_length, self._policy.mask_prob, num_segments=store.num_segments)
        for start in range(0, len(batch["input_ids"]), size):
            part = {name: values[start : start + size] for name, values in batch.items()}
            if layout.packed:
                yield from packed_batches(part, pad_id=store.pad_id, max_targets=most, rows_per_batch=rows)
            else:
                yield part


@dataclass(eq=False)
class StepDataset(Dataset[StepBatch]):
    """Dataset whose item i is this rank's share of step i. Any process can build any item without earlier ones."""

    plan: Plan
    examples: Mapping[int, MaskedExamples]
    """Training examples by sequence length, like the layouts."""
    layouts: Mapping[int, RowLayout]
    ranks: Ranks
    seed: int
    """`pretrain.seed`, which determines the order of the examples."""

    def __len__(self) -> int:
        return self.plan.num_steps

    def __getitem__(self, step: int) -> StepBatch:
        place = self.plan.place(step)
        positions = np.asarray(share_of(place, self.ranks))
        examples, layout = self.examples[place.max_length], self.layouts[place.max_length]
        batch = self._masked(examples, positions)
        num_sequences = len(batch["input_ids"])  # of pairs, twice as many
        first = (positions[0] - place.consumed) * (num_sequences // len(positions))
        batch["sequence_places"] = first + np.arange(num_sequences)  # among those of all ranks
        lengths = batch["attention_mask"].sum(axis=1)
        return StepBatch(
            micro_batches=[compacted(arrays) for arrays in examples.micro_batches(batch, layout)],
            num_targets=int((batch["masked_labels"] != IGNORED_LABEL).sum()),
            num_sequences=len(positions),
            num_tokens=int(lengths.sum()),
            num_pairs=int((lengths**2).sum()),
            global_batch_size=place.global_batch_size,
        )

    def _masked(self, examples: MaskedExamples, positions: np.ndarray) -> dict[str, np.ndarray]:
        """Return the examples at these positions of the order over all epochs; neighbours are shuffled as one."""
        together = examples.neighbours
        size = len(examples) - len(examples) % together
        epochs = positions // size
        parts = []
        for epoch in range(int(epochs[0]), int(epochs[-1]) + 1):
            within = positions[epochs == epoch] - epoch * size
            blocks = shuffled(within // together, size // together, seed=self.seed, epoch=epoch)
            parts.append(examples.batch(blocks * together + within % together, epoch=epoch))
        return parts[0] if len(parts) == 1 else {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def prefetched(items: Iterable[_Item], *, ahead: int) -> Generator[_Item, None, None]:
    """Yield the same items in the same order, with up to `ahead` (at least 1) of them fetched in advance by a thread.

    Receiving a batch from another process takes 1 to 2 ms, which overlap with the model's step here. An exception while
    fetching is raised where its item would have come.
    """
    # The iterator is created here, not in the thread: this makes a loader fork workers, which a thread should not.
    with starting_workers():
        source = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix="prefetching") as thread:
        # One more than are ready is in the thread's hand.
        fetched = deque(thread.submit(next, source, _END) for _ in range(ahead + 1))
        try:
            while (item := fetched.popleft().result()) is not _END:
                fetched.append(thread.submit(next, source, _END))
                yield cast(_Item, item)
        finally:
            thread.shutdown(cancel_futures=True)


class StepLoader:
    """Loads the steps from `first_step` to the end of the plan in order, and records the time waited for them."""

    def __init__(
        self, dataset: StepDataset, machine: Machine, clock: TrainingClock, *, num_workers: int, first_step: int
    ) -> None:
        num_workers, steps = min(num_workers, len(usable_cores())), range(first_step, len(dataset))
        self._clock = clock
        self.loader: DataLoader[StepBatch] = DataLoader(
            dataset,
            batch_size=None,
            sampler=steps,
            num_workers=num_workers,
            prefetch_factor=_STEPS_AHEAD if num_workers else None,
            pin_memory=machine.device.type == "cuda",
            worker_init_fn=ignore_signals_in_worker,
        )

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[StepBatch]:
        with closing(prefetched(self.loader, ahead=_STEPS_AHEAD)) as batches:
            for _ in range(len(self.loader)):
                with self._clock.waiting():
                    batch = next(batches)
                yield batch


def compacted(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    """Return a micro-batch of `examples.masking`, or packed rows of `examples.packing`, in the narrowest dtypes.

    >>> {name: values.dtype for name, values in compacted({"input_ids": np.ones((1, 4), np.int64)}).items()}
    {'input_ids': torch.int32}
    """
    return {name: torch.from_numpy(values.astype(_DTYPES.get(name, np.int32))) for name, values in arrays.items()}


def expanded(sent: Mapping[str, Tensor], dropout_keys: Tensor | None = None) -> dict[str, Tensor]:
    """Return the micro-batch that was compacted in the model's dtypes; with keys, also what `TokenMasks.of` reads."""
    whole = {name: values if name == "boundaries" else values.long() for name, values in sent.items()}
    sequence_places = whole.pop("sequence_places", None)
    if dropout_keys is not None and sequence_places is not None:
        width = whole["input_ids"].shape[1]
        if "sequence_ids" in whole:
            sequences, positions = sequence_places[(whole["sequence_ids"] - 1).clamp(min=0)], whole["position_ids"]
        else:
            sequences, positions = sequence_places[:, None], torch.arange(width)
        whole["dropout_keys"] = dropout_keys
        whole["dropout_tokens"] = token_numbers(dropout_keys, sequences, positions, width)
    return whole
