"""Model folders: ours into transformers and transformers' into ours, with no weight lost, changed or made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import tiny
from bertline.encoders.loading import load_encoder, load_model, save_model
from bertline.modeling.bert import BertForMaskedLM, BertForPreTraining, BertForSequenceClassification
from bertline.modeling.checkpoint import Checkpoint
from bertline.modeling.initialization import initialize
from tiny import load_pretraining_model

CONFIG = tiny.model_config(
    hidden_size=24, num_hidden_layers=3, intermediate_size=37, max_position_embeddings=19, hidden_act="gelu_new",
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.2, initializer_range=0.3, layer_norm_eps=1e-10,
)  # fmt: skip


def our_model(kind: type, **arguments: Any) -> Any:
    model = kind(CONFIG, vocab_size=99, pad_token_id=3, **arguments)
    initialize(model, CONFIG, seed=5)
    return model.eval()


def sequences() -> dict[str, torch.Tensor]:
    input_ids = torch.randint(4, 99, (3, 13), generator=torch.Generator().manual_seed(0))
    attention_mask = torch.ones_like(input_ids)
    attention_mask[1, 9:] = 0
    token_type_ids = (torch.arange(13) > 5).long().expand(3, -1).contiguous()
    return {"input_ids": input_ids, "token_type_ids": token_type_ids, "attention_mask": attention_mask}


def everywhere() -> torch.Tensor:
    return torch.arange(13).expand(3, -1)


def loaded_by_transformers(kind: Any, folder: Path) -> Any:
    model, info = kind.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    return model.eval()


@pytest.mark.parametrize("kind", [BertForPreTraining, BertForMaskedLM])
def test_transformers_loads_our_language_models_and_writes_the_same_names_and_values(kind, tmp_path, capsys) -> None:
    model = our_model(kind)
    save_model(model, tmp_path)
    reference = loaded_by_transformers(getattr(transformers, kind.__name__), tmp_path)
    with torch.no_grad():
        expected, found = reference(**sequences()), model(*sequences().values(), everywhere())
        whole = model.forward_everywhere(*sequences().values())
    if kind is BertForPreTraining:
        torch.testing.assert_close(found.nsp_logits, expected.seq_relationship_logits, atol=1e-5, rtol=1e-5)
    logits = (expected.prediction_logits if kind is BertForPreTraining else expected.logits)[0]
    torch.testing.assert_close(found.mlm_logits[0], logits, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(whole.mlm_logits[0], logits, atol=1e-5, rtol=1e-5)

    reference.save_pretrained(tmp_path / "theirs")
    ours, theirs = load_file(tmp_path / "model.safetensors"), load_file(tmp_path / "theirs/model.safetensors")
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
    assert Checkpoint.open(tmp_path / "theirs").architecture == kind.__name__
    read = load_model(tmp_path / "theirs", "mlm")
    has_pooler = kind is BertForPreTraining
    assert isinstance(read, kind) and (read.bert.pooler is not None) == has_pooler
    assert (load_encoder(tmp_path / "theirs").pooler is not None) == has_pooler
    assert "random weights" not in capsys.readouterr().err


def test_transformers_loads_our_classifier_with_its_labels(tmp_path: Path) -> None:
    model = our_model(BertForSequenceClassification, num_labels=3, classifier_dropout=0.4)
    save_model(model, tmp_path, id2label={0: "no", 1: "yes", 2: "ünsure"})
    reference = loaded_by_transformers(transformers.AutoModelForSequenceClassification, tmp_path)
    assert reference.config.id2label == {0: "no", 1: "yes", 2: "ünsure"}
    assert reference.config.label2id == {"no": 0, "yes": 1, "ünsure": 2}
    assert reference.dropout.p == 0.4
    assert Checkpoint.open(tmp_path).labels == ("no", "yes", "ünsure")
    with torch.no_grad():
        torch.testing.assert_close(model(*sequences().values()), reference(**sequences()).logits, atol=1e-5, rtol=1e-5)


@pytest.fixture
def reference(tmp_path: Path) -> transformers.BertForPreTraining:
    """A model in `tmp_path/theirs`, as transformers writes it."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=99, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37,
        max_position_embeddings=19, initializer_range=0.3,
    )  # fmt: skip
    model = transformers.BertForPreTraining(config).eval()
    model.save_pretrained(tmp_path / "theirs")
    return model


def assert_same_encoder(folder: Path, reference: transformers.BertForPreTraining) -> None:
    with torch.no_grad():
        expected = reference.bert(**sequences()).last_hidden_state
        for model in (load_encoder(folder), load_pretraining_model(folder).bert):
            found = model.eval()(*sequences().values()).hidden_states
            torch.testing.assert_close(found[0], expected[0], atol=1e-5, rtol=1e-5)


def test_a_bare_encoder_s_checkpoint_gets_new_heads_and_says_so(reference, tmp_path, capsys) -> None:
    reference.bert.save_pretrained(tmp_path / "bare")
    assert_same_encoder(tmp_path / "bare", reference)
    assert "lacks cls.predictions" in capsys.readouterr().err
    first, second = (load_pretraining_model(tmp_path / "bare") for _ in range(2))
    assert torch.equal(first.nsp_head.weight, second.nsp_head.weight)
    assert first.nsp_head.weight.std() > 0


def test_names_of_old_checkpoints_are_read(reference, tmp_path, capsys) -> None:
    def old(name: str) -> str:
        return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")

    folder = tmp_path / "theirs"
    weights = {old(name): tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    assert any(name.endswith("gamma") for name in weights)
    # Old checkpoints also store the tied output weights, their bias twice, and the numbers of the positions.
    weights["cls.predictions.decoder.weight"] = weights["bert.embeddings.word_embeddings.weight"].clone()
    weights["cls.predictions.decoder.bias"] = weights["cls.predictions.bias"].clone()
    weights["bert.embeddings.position_ids"] = torch.arange(19)[None]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert_same_encoder(folder, reference)
    with torch.no_grad():
        expected = reference(**sequences()).prediction_logits[0]
        found = load_pretraining_model(folder).eval()(*sequences().values(), everywhere()).mlm_logits[0]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert capsys.readouterr().err == ""


def test_sharded_checkpoints_are_read(reference: transformers.BertForPreTraining, tmp_path: Path) -> None:
    reference.save_pretrained(tmp_path / "sharded", max_shard_size="20KB")
    assert not (tmp_path / "sharded/model.safetensors").exists()
    assert_same_encoder(tmp_path / "sharded", reference)
