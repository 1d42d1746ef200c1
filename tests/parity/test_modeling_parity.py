"""bertline's BERT against transformers': forward, loss and gradients, on tiny random weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import transformers

import tiny
from bertline.examples.packing import packed_batches
from bertline.modeling.attention import AttentionKind
from bertline.modeling.bert import BertForPreTraining, set_attention
from bertline.modeling.losses import masked_lm_loss_sum, sequence_loss_sum
from bertline.modeling.weight_files import to_disk
from bertline.pretraining.module import PreTrainingLosses
from tiny import load_masked_lm, load_pretraining_model

KINDS: tuple[AttentionKind, ...] = ("eager", "plain", "sdpa")
VOCAB_SIZE = 99
# (hidden, layers, heads, intermediate): each size class of google-research/bert in small, with its own depth and
# head width, and one with odd numbers throughout.
SIZES = {
    "tiny": (16, 2, 2, 64), "mini": (32, 4, 4, 128), "small": (64, 4, 8, 256), "medium": (64, 8, 8, 256),
    "base": (48, 12, 12, 192), "large": (32, 24, 16, 128), "odd": (21, 3, 7, 37),
}  # fmt: skip


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Matrices this small are slower on several threads, far slower on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def reference_config(size: str, **changes: object) -> transformers.BertConfig:
    hidden, layers, heads, intermediate = SIZES[size]
    settings = {
        "vocab_size": VOCAB_SIZE, "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "intermediate_size": intermediate, "max_position_embeddings": 19, "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        # Large enough for attention that is far from uniform and biases, so that a wrong formula shows.
        "initializer_range": 0.2,
    }  # fmt: skip
    return transformers.BertConfig(**{**settings, **changes})


def reference_model(size: str, **changes: object) -> transformers.BertForPreTraining:
    torch.manual_seed(0)
    model = transformers.BertForPreTraining(reference_config(size, **changes))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:  # biases and LayerNorm at their initial 0 and 1 would hide mistakes
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def copied(reference: transformers.BertForPreTraining, folder: Path, attention: AttentionKind) -> BertForPreTraining:
    reference.save_pretrained(folder)
    return load_pretraining_model(folder, attention=attention)


def batch(length: int = 13) -> dict[str, torch.Tensor]:
    """Three sequences: full, padded, and nearly all padding; two segments; three, two and one targets."""
    generator = torch.Generator().manual_seed(1)
    attention_mask = torch.ones(3, length, dtype=torch.long)
    attention_mask[1, length - 3 :] = 0
    attention_mask[2, 2:] = 0
    input_ids = torch.randint(1, VOCAB_SIZE, (3, length), generator=generator) * attention_mask
    token_type_ids = (torch.arange(length) >= length // 2).long() * attention_mask
    return {
        "input_ids": input_ids,
        "token_type_ids": token_type_ids,
        "attention_mask": attention_mask,
        "masked_positions": torch.tensor([[1, length - 1, 3], [2, 0, 0], [1, 0, 0]]),
        "masked_labels": torch.tensor([[5, 98, 7], [11, -100, -100], [5, -100, -100]]),
        "next_sentence_labels": torch.tensor([0, 1, 1]),
    }


def reference_labels(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    labels = torch.full_like(inputs["input_ids"], -100)
    for row, (positions, targets) in enumerate(zip(inputs["masked_positions"], inputs["masked_labels"], strict=True)):
        for position, target in zip(positions[targets >= 0], targets[targets >= 0], strict=True):
            labels[row, position] = target
    return labels


def reference_outputs(model: transformers.BertForPreTraining, inputs: dict[str, torch.Tensor]) -> object:
    return model(
        input_ids=inputs["input_ids"],
        token_type_ids=inputs["token_type_ids"],
        attention_mask=inputs["attention_mask"],
        labels=reference_labels(inputs),
        next_sentence_label=inputs["next_sentence_labels"],
    )


def our_loss(model: BertForPreTraining, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    output = model(inputs["input_ids"], inputs["token_type_ids"], inputs["attention_mask"], inputs["masked_positions"])
    mlm_loss, num_targets = masked_lm_loss_sum(output.mlm_logits, inputs["masked_labels"])
    nsp_loss = sequence_loss_sum(output.nsp_logits, inputs["next_sentence_labels"])
    return mlm_loss / num_targets + nsp_loss / len(inputs["next_sentence_labels"])


def assert_close(found: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5, msg=lambda message: f"{what}: {message}")


def loss_and_gradients(loss: torch.Tensor, model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The loss in double precision and all gradients, by the names of transformers."""
    model.zero_grad()
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    is_ours = not isinstance(model, transformers.PreTrainedModel)
    return {"loss": loss.detach().double(), **(to_disk(gradients) if is_ours else gradients)}


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], kind: str) -> None:
    assert found.keys() == expected.keys()
    for name, value in found.items():
        assert_close(value, expected[name], f"{kind}, {name}")


def packed(inputs: dict[str, torch.Tensor], rows_per_batch: int | None) -> list[dict[str, torch.Tensor]]:
    arrays = {name: values.numpy() for name, values in inputs.items()}
    batches = packed_batches(arrays, pad_id=0, max_targets=3, rows_per_batch=rows_per_batch)
    return [{name: torch.from_numpy(values) for name, values in one.items()} for one in batches]


@pytest.mark.parametrize(
    ("size", "activation"), [*((size, "gelu") for size in SIZES), ("odd", "gelu_new"), ("odd", "relu")]
)
def test_loss_and_all_gradients_equal(size: str, activation: str, tmp_path: Path) -> None:
    # Copied in fp32, compared in fp64: the depth of `large` would else need a tolerance that could hide a mistake.
    reference = reference_model(size, hidden_act=activation)
    model = copied(reference, tmp_path, "plain").double()
    reference = reference.double()
    inputs = batch(7)
    expected = loss_and_gradients(reference_outputs(reference, inputs).loss, reference)
    for kind in KINDS:
        set_attention(model, kind)
        assert_same(loss_and_gradients(our_loss(model, inputs), model), expected, kind)


@pytest.mark.parametrize("rows_per_batch", [None, 1])
def test_packed_rows_give_the_loss_and_gradients_of_the_reference(rows_per_batch: int | None, tmp_path: Path) -> None:
    reference = reference_model("odd")
    model = copied(reference, tmp_path, "plain").double()
    reference = reference.double()
    inputs = batch()
    expected = loss_and_gradients(reference_outputs(reference, inputs).loss, reference)
    losses, batches = PreTrainingLosses(model, tiny.mlm_nsp()), packed(inputs, rows_per_batch)
    assert sum(len(one["input_ids"]) for one in batches) == 2  # of three sequences two share a row
    for kind in KINDS:
        set_attention(model, kind)
        sums = [losses(one) for one in batches]
        num_targets, num_sequences = 5, 3
        loss = sum(one["mlm_loss"] for one in sums) / num_targets + sum(one["nsp_loss"] for one in sums) / num_sequences
        assert_same(loss_and_gradients(loss, model), expected, kind)


@pytest.mark.parametrize("attention", KINDS)
def test_bf16_stays_near_fp32_and_losses_are_fp32(attention: AttentionKind, tmp_path: Path) -> None:
    reference = reference_model("tiny", initializer_range=0.02)
    model = copied(reference, tmp_path, attention)
    inputs = batch()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = our_loss(model, inputs)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(our_loss(model, inputs).item(), abs=0.02)
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_the_masked_language_model_alone_has_the_loss_and_gradients_of_the_reference(tmp_path: Path) -> None:
    torch.manual_seed(0)
    reference = transformers.BertForMaskedLM(reference_config("odd"))
    reference.save_pretrained(tmp_path)
    losses = PreTrainingLosses(load_masked_lm(tmp_path), tiny.mlm()).double()
    reference, inputs = reference.double(), {**batch(), "token_type_ids": torch.zeros(3, 13, dtype=torch.long)}
    names = ("input_ids", "token_type_ids", "attention_mask")
    loss = reference(**{name: inputs[name] for name in names}, labels=reference_labels(inputs)).loss
    expected = loss_and_gradients(loss, reference)
    for batches in ([inputs], packed(inputs, 1)):
        for kind in KINDS:
            set_attention(losses.model, kind)
            loss = sum(losses(one)["mlm_loss"] for one in batches) / 5
            assert_same(loss_and_gradients(loss, losses.model), expected, kind)
