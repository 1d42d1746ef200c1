"""Filling blanks: scores compared with transformers, masks that only seed, epoch and row decide, and learning."""

from __future__ import annotations

import gzip
import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import transformers

import tiny
from bertline.finetuning.finetune import fine_tune
from bertline.kinds.base import LossOptions
from bertline.kinds.fill_mask import FillMask, FillMaskTaskConfig, _evenly
from bertline.kinds.registry import task_kind
from bertline.sweep.baselines.base import baselines_of
from bertline.tasks.source_config import PlainTextSourceConfig
from bertline.tasks.stored_rows import PlainRows
from bertline.tokenization.tokenizer import Tokenizer


def config(**changes):
    source = PlainTextSourceConfig(
        kind="text", path="", train_file=None, dev_file=None, test_file=None, text_column="text",
        encoding="utf-8", on_bad_row="error",
    )  # fmt: skip
    fields = {
        "kind": "fill_mask", "source": source, "top_k": 3, "mask_prob": 0.15, "max_scored_tokens": None,
        "metric": "top1_accuracy", "max_length": 16, "num_train_rows": None, "label_efficiency_rows": (),
        "max_dev_rows": None, "max_test_rows": None,
        "dev_fraction": 0.1, "test_fraction": 0.1, "split_seed": 0, "start_from": None,
        "teacher": None, "unlabelled": None, "num_trials": None,
        "space": {}, "fine_tuning": {},
    }  # fmt: skip
    return FillMaskTaskConfig(**{**fields, **changes})


def kind(**changes):
    return task_kind(config(**changes), ())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.write_encoder(
        tmp_path_factory.mktemp("heads"), heads=True, initializer_range=0.3, max_position_embeddings=32
    )


@pytest.fixture
def tokenizer(folder):
    return Tokenizer.load(folder)


def passages(count, seed=0):
    """Words that count up from a random one: each follows from its neighbours."""
    random = np.random.default_rng(seed)
    starts, lengths = random.integers(0, 40, count), random.integers(3, 12, count)
    texts = [
        " ".join(f"word{(start + i) % 40}" for i in range(length))
        for start, length in zip(starts, lengths, strict=True)
    ]
    return PlainRows([f"row{i}" for i in range(count)], texts)


def test_scores_are_those_of_masking_each_token_in_turn_with_transformers(folder, tokenizer):
    fill_mask = kind()
    rows = PlainRows(["a", "b", "c"], ["word1 word2 word3", "word7 unheard word9 word2 word1", "word5"])
    reference = transformers.BertForMaskedLM.from_pretrained(folder).eval()
    encode = transformers.AutoTokenizer.from_pretrained(folder)
    expected, ranks = [[], [], []], []
    for row, text in enumerate(rows.texts):
        ids = encode(text, return_tensors="pt")["input_ids"]
        for position in range(1, ids.shape[1] - 1):
            truth = int(ids[0, position])
            if truth == tokenizer.unk_id:
                continue
            masked = ids.clone()
            masked[0, position] = tokenizer.mask_id
            with torch.no_grad():
                log_probs = reference(masked).logits[0, position].log_softmax(-1)
            expected[row].append(float(log_probs[truth]))
            ranks.append(int((log_probs > log_probs[truth]).sum()))
    found = fill_mask.predict(fill_mask.load_model(folder), fill_mask.encode(rows, tokenizer), tiny.machine())
    assert found.log_probs == pytest.approx([value for values in expected for value in values], abs=1e-4)
    assert found.ranks.tolist() == ranks
    statistics = fill_mask.statistics(rows, found, {})
    assert statistics[:, 0] == pytest.approx([sum(values) for values in expected], abs=1e-3)
    assert statistics[:, 1].tolist() == [3, 4, 1]
    scores = fill_mask.scores(statistics)
    assert scores["top1_accuracy"] == sum(rank == 0 for rank in ranks) / 8
    assert scores["topk_accuracy"] == sum(rank < 3 for rank in ranks) / 8
    mean = np.mean([value for values in expected for value in values])
    assert scores["negative_log_perplexity"] == pytest.approx(mean, abs=1e-4)
    assert fill_mask.details(rows, found, {})["pseudo_perplexity"] == pytest.approx(math.exp(-mean), rel=1e-3)


def test_passages_without_a_token_to_score_are_no_error_and_count_nothing(folder, tokenizer):
    fill_mask, rows = kind(), PlainRows(["a", "b"], ["unheard", "word1"])
    found = fill_mask.predict(fill_mask.load_model(folder), fill_mask.encode(rows, tokenizer), tiny.machine())
    assert fill_mask.statistics(rows, found, {})[0].tolist() == [0, 0, 0, 0]
    table = fill_mask.table(rows, found, {})
    assert table["gold"].to_pylist() == ["", "word1"]
    assert table["tokens"].to_pylist() == [0, 1]
    only_unknown = rows.first(1)
    empty = fill_mask.predict(fill_mask.load_model(folder), fill_mask.encode(only_unknown, tokenizer), tiny.machine())
    assert set(fill_mask.scores(fill_mask.statistics(only_unknown, empty, {})).values()) == {0.0}


def test_the_tokens_that_are_scored_are_spread_evenly(tokenizer):
    rows = PlainRows(["a"], [" ".join(f"word{i}" for i in range(12))])
    encoded = kind(max_scored_tokens=4).encode(rows, tokenizer)
    assert encoded.positions.tolist() == [2, 5, 8, 11]
    for places in range(1, 30):
        for most in range(1, 30):
            chosen = _evenly(np.arange(places), most)
            assert len(set(chosen)) == len(chosen) == min(places, most)


def epochs_of_batches(fill_mask, rows, tokenizer, *, seed, epochs=2, batch_size=4):
    """For each epoch, what each row shows: by its text."""
    batches = fill_mask.training_batches(fill_mask.encode(rows, tokenizer), batch_size=batch_size, seed=seed)
    seen = []
    for _ in range(epochs):
        epoch = {}
        for batch in batches:
            for row in range(len(batch["input_ids"])):
                used = batch["masked_labels"][row] != -100
                shown = batch["input_ids"][row][batch["attention_mask"][row] == 1].clone()
                shown_ids = tuple(shown.tolist())
                positions = batch["masked_positions"][row][used]
                shown[positions] = batch["masked_labels"][row][used]
                epoch[tokenizer.decode(shown.tolist())] = (shown_ids, tuple(positions.tolist()))
        seen.append(epoch)
    return seen


def test_masks_are_a_function_of_seed_epoch_and_row(tokenizer):
    fill_mask, rows = kind(mask_prob=0.4), passages(40)
    rows = rows.take([rows.texts.index(text) for text in sorted(set(rows.texts))])
    first = epochs_of_batches(fill_mask, rows, tokenizer, seed=1)
    assert set(first[0]) == set(rows.texts)  # with the labels put back it is the text again
    assert first == epochs_of_batches(
        fill_mask, rows.take(range(len(rows) - 1, -1, -1)), tokenizer, seed=1, batch_size=7
    )
    assert first[0] != first[1]
    assert first != epochs_of_batches(fill_mask, rows, tokenizer, seed=2)
    for shown, positions in first[0].values():
        share = 0.4 * (len(shown) - 2)
        assert max(1, math.floor(share)) <= len(positions) <= max(1, math.ceil(share))
        assert 0 not in positions and len(shown) - 1 not in positions


def test_the_loss_is_the_mean_over_the_targets_and_none_costs_nothing(folder, tokenizer):
    fill_mask = kind(mask_prob=0.4)
    model = fill_mask.load_model(folder).eval()
    (batch,) = fill_mask.training_batches(fill_mask.encode(passages(6), tokenizer), batch_size=8, seed=0)
    output = model(*(batch[n] for n in ("input_ids", "token_type_ids", "attention_mask", "masked_positions")))
    expected = torch.nn.functional.cross_entropy(
        output.mlm_logits.flatten(0, 1), batch["masked_labels"].flatten(), ignore_index=-100
    )
    torch.testing.assert_close(fill_mask.loss(model, batch, LossOptions()), expected)
    nothing = {**batch, "masked_labels": torch.full_like(batch["masked_labels"], -100)}
    assert fill_mask.loss(model, nothing, LossOptions()).item() == 0.0


def test_training_improves_the_scores_and_a_saved_model_has_them_too(folder, job_of, tmp_path):
    fill_mask = kind()

    def job(num_epochs):
        settings = {"num_epochs": num_epochs, "learning_rate": 5e-3, "dropout_prob": 0.0}
        return job_of(fill_mask, folder, passages(200, 1), passages(20, 2), **settings)

    untrained, trained, dev = fine_tune(job(0)), fine_tune(job(6)), job(0).dev
    assert [(check.share, check.epoch) for check in untrained.checks] == [(1.0, 0)]
    assert trained.dev_scores["negative_log_perplexity"] > untrained.dev_scores["negative_log_perplexity"] + 1
    before = fill_mask.load_model(folder)
    assert torch.equal(trained.model.nsp_head.weight, before.nsp_head.weight)
    fill_mask.save_model(trained.model, tmp_path)
    again = fill_mask.predict(fill_mask.load_model(tmp_path), dev.encoded, tiny.machine())
    assert fill_mask.scores(fill_mask.statistics(dev.rows, again, {})) == pytest.approx(trained.dev_scores)
    transformers.BertForPreTraining.from_pretrained(tmp_path)


def test_the_baseline_is_the_frequency_in_train(tokenizer):
    fill_mask = kind(top_k=2)
    assert isinstance(fill_mask, FillMask)
    train = PlainRows(["a", "b"], ["word1 word1 word2 word3", "word2 word1 unheard"])
    dev = PlainRows(["d"], ["word2 word1 word9"])
    (unigram,) = baselines_of(fill_mask, train, dev, {"test": dev}, tokenizer)
    found = unigram.predictions["test"]
    # 6 known tokens and 40 ordinary tokens: word2 has 2 + 1, word1 3 + 1, word9 0 + 1.
    assert found.log_probs == pytest.approx(np.log([3 / 46, 4 / 46, 1 / 46]))
    assert found.guesses.tolist() == [tokenizer.encode("word1")[0]] * 3
    assert found.ranks.tolist()[:2] == [1, 0]
    scores = fill_mask.scores(fill_mask.statistics(dev, found, {}))
    assert (scores["top1_accuracy"], scores["topk_accuracy"]) == (1 / 3, 2 / 3)
    assert sorted(found.ranks.tolist())[-1] < 40
    total = sum(
        math.exp(fill_mask_log_prob)
        for fill_mask_log_prob in baselines_of(
            fill_mask, train, PlainRows([str(i) for i in range(40)], [f"word{i}" for i in range(40)]), {}, tokenizer
        )[0]
        .predictions["dev"]
        .log_probs
    )
    assert total == pytest.approx(1.0, abs=1e-5)


# Passages from text files and tables.


def data_config(path, source=None, **changes):
    fields = {
        "kind": "text", "path": str(path), "train_file": None, "dev_file": None, "test_file": None,
        "text_column": "text", "encoding": "utf-8-sig", "on_bad_row": "error",
    }  # fmt: skip
    task = {
        "kind": "fill_mask", "source": PlainTextSourceConfig(**{**fields, **(source or {})}), "top_k": 5,
        "mask_prob": 0.15, "max_scored_tokens": 8, "metric": "top1_accuracy",
        **tiny.task_fields(max_length=32, dev_fraction=0.2, test_fraction=0.2, split_seed=0),
    }  # fmt: skip
    return FillMaskTaskConfig(**{**task, **changes})


def fill_mask_task(made_of):
    return FillMask.build("blanks", made_of)


def all_texts(task):
    return sorted(text for rows in task.splits.values() for text in rows.texts)


TEXTS = [f'passage, "number"\t{i} stands here' for i in range(50)]


def write(path, texts):
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"text": texts}), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    elif path.suffix == ".csv":
        rows = ['"' + text.replace('"', '""') + '"' for text in texts]
        path.write_text("\n".join(["text", *rows]) + "\n", encoding="utf-8")
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress("\n".join(texts).encode()))
    else:
        path.write_text("\ufeff" + "\r\n \r\n".join(texts) + "\r\n\r\n", encoding="utf-8")


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.jsonl", "a.csv", "a.parquet"])
def test_the_same_passages_come_out_of_every_format(tmp_path, name):
    write(tmp_path / name, TEXTS)
    task = fill_mask_task(data_config(tmp_path / name))
    assert all_texts(task) == sorted(TEXTS)
    assert task.labels == ()
    assert all(len(rows) >= 5 for rows in task.splits.values())
    ids = [row for rows in task.splits.values() for row in rows.ids]
    assert len(set(ids)) == 50 and all(row.startswith(f"{name}:") for row in ids)


def test_equal_passages_are_on_one_side_and_the_order_is_that_of_the_seed(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join([*TEXTS, *(text.upper() for text in TEXTS)]))
    task = fill_mask_task(data_config(tmp_path / "a.txt"))
    sides = {split: {text.casefold() for text in rows.texts} for split, rows in task.splits.items()}
    assert not (sides["train"] & sides["test"] or sides["train"] & sides["dev"] or sides["dev"] & sides["test"])
    assert sum(len(rows) for rows in task.splits.values()) == 100
    again, other = (fill_mask_task(data_config(tmp_path / "a.txt", split_seed=seed)) for seed in (0, 1))
    assert again.splits["train"].ids == task.splits["train"].ids != other.splits["train"].ids
