"""The batches of each step, and how they travel."""

import threading

import numpy as np
import pytest
import torch

import pretraining_inputs
from bertline.pretraining import data
from bertline.pretraining.config import PhaseConfig
from bertline.pretraining.data import MaskedExamples, StepDataset, compacted, expanded, prefetched
from bertline.pretraining.plan import Plan, RowLayout
from bertline.training.devices import Ranks
from servers import wait_until

NUM_TRAIN = 50


def dataset(inputs, *, batch=8, steps=40, ranks=None, rows=None, packed=False, seed=0, length=16) -> StepDataset:
    plan = Plan([PhaseConfig(steps=steps, max_length=length, global_batch_size=batch)], num_steps=steps)
    examples = {length: MaskedExamples(inputs / "examples", "train", length)}
    layouts = {length: RowLayout(packed=packed, rows=rows)}
    return StepDataset(plan, examples, layouts, ranks=ranks or Ranks(), seed=seed)


def joined(batches) -> dict[str, torch.Tensor]:
    micro_batches = [expanded(micro) for batch in batches for micro in batch["micro_batches"]]
    return {key: torch.cat([micro[key] for micro in micro_batches]) for key in micro_batches[0]}


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[key], right[key]) for key in left)


def test_micro_batches_cut_a_step_and_change_nothing(inputs):
    whole, cut = dataset(inputs)[5], dataset(inputs, rows=3)[5]
    assert [len(micro["input_ids"]) for micro in cut["micro_batches"]] == [3, 3, 2]
    assert same(joined([whole]), joined([cut]))
    assert {key: whole[key] for key in ("num_targets", "num_sequences", "num_tokens")} == {
        key: cut[key] for key in ("num_targets", "num_sequences", "num_tokens")
    }


def test_the_ranks_together_take_the_step_of_one(inputs):
    alone = dataset(inputs)[9]
    ranks = [dataset(inputs, ranks=Ranks(rank=rank, world_size=3, local_rank=rank))[9] for rank in range(3)]
    assert same(joined([alone]), joined(ranks))
    assert sum(batch["num_targets"] for batch in ranks) == alone["num_targets"]
    assert {batch["global_batch_size"] for batch in ranks} == {8}


def test_a_step_across_the_end_of_an_epoch_takes_from_both(inputs):
    batches = joined(dataset(inputs, batch=20)[step] for step in range(5))  # 100 sequences: two epochs
    counts = np.unique(batches["next_sentence_labels"].numpy(), return_counts=True)[1]
    store = MaskedExamples(inputs / "examples", "train", 16).store
    labels = [store[index].next_sentence_label for index in range(NUM_TRAIN)]
    assert counts.tolist() == [2 * labels.count(0), 2 * labels.count(1)]


@pytest.mark.parametrize("packed", [False, True])
def test_all_steps_have_one_memory_layout_so_that_a_compiled_model_is_compiled_once(inputs, packed):
    steps = dataset(inputs, batch=20, packed=packed, rows=4 if packed else None)  # step 2 joins two epochs
    layouts = [
        {name: (values.shape, values.stride(), values.dtype) for name, values in micro.items()}
        for step in range(5)
        for micro in steps[step]["micro_batches"]
    ]
    assert all(layout == layouts[0] for layout in layouts)


def test_counts_are_those_of_the_arrays(inputs):
    batch = dataset(inputs)[0]
    arrays = joined([batch])
    assert batch["num_targets"] == int((arrays["masked_labels"] != -100).sum())
    lengths = (arrays["input_ids"] != 0).sum(dim=1)
    assert (batch["num_tokens"], batch["num_pairs"]) == (lengths.sum(), lengths.square().sum())
    assert batch["num_sequences"] == 8


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("prefetching")]


def test_an_error_is_raised_where_its_item_would_have_come():
    def items():
        yield 1
        yield 2
        raise ValueError("torn")

    found = []
    with pytest.raises(ValueError, match="torn"):
        for item in prefetched(items(), ahead=5):
            found.append(item)
    assert found == [1, 2]
    assert not threads()


def test_no_more_is_fetched_ahead_than_was_asked_for():
    fetched = []

    def items():
        for number in range(100):
            fetched.append(number)
            yield number

    taken = prefetched(items(), ahead=2)
    assert next(taken) == 0
    for number in range(4, 60):  # one taken, two ready, one in the thread's hand
        wait_until(lambda number=number: len(fetched) >= number, every_s=0.001)
        assert len(fetched) == number
        next(taken)
    taken.close()
    assert not threads()


LENGTH = 128
LAYOUTS = {
    "padded": RowLayout(packed=False, rows=None),
    "full": RowLayout(packed=False, rows=None),
    "cut": RowLayout(packed=False, rows=24),
    "packed": RowLayout(packed=True, rows=None),
    "packed and cut": RowLayout(packed=True, rows=5),  # the last micro-batch is filled up with empty rows
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folders = {}
    for name, full_lengths in (("padded", ()), ("full", (LENGTH,))):
        folders[name] = tmp_path_factory.mktemp(name)
        pretraining_inputs.write_inputs(folders[name], lengths=(LENGTH,), full_lengths=full_lengths, num_train=64)
    return folders


def micro_batches(folders, layout: str) -> list[dict[str, np.ndarray]]:
    folder = folders["full" if layout == "full" else "padded"]
    examples = MaskedExamples(folder / "examples", "train", LENGTH)
    return list(examples.micro_batches(examples.batch(np.arange(64), epoch=0), LAYOUTS[layout]))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_expanded_is_what_was_compacted(folders, layout):
    for arrays in micro_batches(folders, layout):
        whole = expanded(compacted(arrays))
        assert whole.keys() == arrays.keys()
        for name, values in arrays.items():
            assert whole[name].dtype == torch.from_numpy(values).dtype, name
            assert torch.equal(whole[name], torch.from_numpy(values)), name


@pytest.mark.parametrize("layout", LAYOUTS)
def test_eight_workers_with_their_steps_ahead_fit_in_the_shared_memory_of_a_container(folders, layout):
    sent = [compacted(arrays) for arrays in micro_batches(folders, layout)]
    num_bytes = sum(values.nbytes for one in sent for values in one.values())
    num_tokens = sum(one["input_ids"].numel() for one in sent)
    tokens_per_step = 131_072
    assert 8 * data._STEPS_AHEAD * tokens_per_step * num_bytes / num_tokens < 0.5 * (64 << 20)
