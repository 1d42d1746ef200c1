"""Model folders: ours into transformers and transformers' into ours, with no weight lost, changed or made up."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import tiny
from bertline.encoders.loading import load_encoder, load_model, save_model
from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.initialization import initialize
from tiny import load_pretraining_model

CONFIG = tiny.model_config(
    hidden_size=24, num_hidden_layers=3, intermediate_size=37, max_position_embeddings=19, hidden_act="gelu_new",
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.2, initializer_range=0.3, layer_norm_eps=1e-10,
)  # fmt: skip


def sequences() -> dict[str, torch.Tensor]:
    input_ids = torch.randint(4, 99, (3, 13), generator=torch.Generator().manual_seed(0))
    attention_mask = torch.ones_like(input_ids)
    attention_mask[1, 9:] = 0
    token_type_ids = (torch.arange(13) > 5).long().expand(3, -1).contiguous()
    return {"input_ids": input_ids, "token_type_ids": token_type_ids, "attention_mask": attention_mask}


def everywhere() -> torch.Tensor:
    return torch.arange(13).expand(3, -1)


def test_transformers_loads_our_language_model_and_writes_the_same_names_and_values(tmp_path, capsys) -> None:
    model = BertForPreTraining(CONFIG, vocab_size=99, pad_token_id=3).eval()
    initialize(model, CONFIG, seed=5)
    save_model(model, tmp_path)
    reference, info = transformers.BertForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    with torch.no_grad():
        expected = reference(**sequences())
        found, whole = model(*sequences().values(), everywhere()), model.forward_everywhere(*sequences().values())
    torch.testing.assert_close(found.nsp_logits, expected.seq_relationship_logits, atol=1e-5, rtol=1e-5)
    for output in (found, whole):
        torch.testing.assert_close(output.mlm_logits[0], expected.prediction_logits[0], atol=1e-5, rtol=1e-5)

    reference.save_pretrained(tmp_path / "theirs")
    ours, theirs = load_file(tmp_path / "model.safetensors"), load_file(tmp_path / "theirs/model.safetensors")
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
    read = load_model(tmp_path / "theirs", "mlm")
    assert isinstance(read, BertForPreTraining) and read.bert.pooler is not None
    assert load_encoder(tmp_path / "theirs").pooler is not None
    assert "random weights" not in capsys.readouterr().err


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
