"""The checkpoint that pretraining starts from is checked by `configure`, and can give the model its sizes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file, save_file

import tiny
from bertline.encoders.loading import save_model
from bertline.modeling.bert import BertModel
from bertline.modeling.initialization import initialize
from bertline.tokenization.storage import save_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from fork_server import run_bertline, run_recipe
from projects import copy_project

TOKENS = (*SPECIAL_TOKENS, "the", "cat", "##s")
pytestmark = pytest.mark.usefixtures("fork_server")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a checkpoint of an unusual shape."""
    root = copy_project(tmp_path_factory.mktemp("repository"))
    config = tiny.model_config(
        hidden_size=24, num_hidden_layers=3, num_attention_heads=2, intermediate_size=40, max_position_embeddings=128
    )
    model = BertModel(config, vocab_size=len(TOKENS), pad_token_id=0)
    initialize(model, config, seed=0)
    save_model(model, root / "checkpoint")
    save_tokenizer(Tokenizer(Vocabulary(tokens=TOKENS, lowercase=True)), root / "checkpoint")
    return root


def configured(repository: Path, *arguments: str) -> str:
    done = run_bertline(repository, "configure", *arguments)
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def test_the_model_takes_the_sizes_of_the_checkpoint(repository: Path) -> None:
    start = f"pretrain.start_from={repository / 'checkpoint'}"
    said = configured(repository, "experiment=continued", "model=from_checkpoint", start)
    assert said.startswith("valid; it would change")
    assert "model.hidden_size: 128 -> 24" in said and "model.num_hidden_layers: 2 -> 3" in said
    recipe = str(repository / "pipelines/pretrain.py")
    resolved = run_recipe(
        repository, recipe, "experiment=continued", "model=from_checkpoint", start, "--cfg", "job", "--resolve"
    )
    model = yaml.safe_load(resolved.stdout)["model"]
    assert (model["hidden_size"], model["max_position_embeddings"]) == (24, 128)


def test_a_checkpoint_with_padded_embeddings_fits_its_own_vocabulary(repository: Path, tmp_path: Path) -> None:
    folder = tmp_path / "padded"
    shutil.copytree(repository / "checkpoint", folder)
    weights = load_file(folder / "model.safetensors")
    name = "embeddings.word_embeddings.weight"
    save_file({**weights, name: weights[name].repeat(8, 1)}, folder / "model.safetensors", metadata={"format": "pt"})
    mapping = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**mapping, "vocab_size": 64}))
    said = configured(repository, "experiment=continued", "model=from_checkpoint", f"pretrain.start_from={folder}")
    assert said.startswith("valid; it would change")


@pytest.mark.parametrize("damage", ["shape", "vocabulary", "weights", "config", "missing"])
def test_a_checkpoint_that_does_not_fit_is_refused_before_anything_runs(
    repository: Path, tmp_path: Path, damage: str
) -> None:
    folder, model, expected = tmp_path / "checkpoint", "from_checkpoint", ""
    shutil.copytree(repository / "checkpoint", folder)
    match damage:
        case "shape":
            model, expected = "base", "model.hidden_size is 768, the checkpoint's is 24"
        case "vocabulary":
            (folder / "tokenizer.json").unlink()
            (folder / "vocab.txt").write_text("\n".join([*TOKENS, "dog"]) + "\n")
            expected = "the tokenizer has 9 tokens, the embeddings only 8 rows"
        case "weights":
            (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:400])
            expected = "is not a whole safetensors file"
        case "config":
            mapping = json.loads((folder / "config.json").read_text())
            (folder / "config.json").write_text(json.dumps({**mapping, "vocab_size": 9}))
            expected = "bert.embeddings.word_embeddings.weight has shape [8, 24], config.json makes it [9, 24]"
        case "missing":
            shutil.rmtree(folder)
            expected = "does not exist"
    said = configured(repository, "experiment=continued", f"model={model}", f"pretrain.start_from={folder}", "--save")
    assert said.startswith("error: ") and expected in said
    assert not (repository / "params.yaml").exists() and not (repository / "conf/local/default.yaml").exists()


def test_an_encoder_that_is_not_there_or_named_twice_is_found(repository: Path) -> None:
    assert "sweep.encoders.0: no/such does not exist" in configured(repository, "sweep.encoders=[./no/such]")
    assert "is named twice" in configured(repository, "sweep.encoders=[checkpoint,./checkpoint]")
