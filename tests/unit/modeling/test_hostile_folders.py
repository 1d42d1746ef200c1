"""Folders from elsewhere that are damaged, quantized, adapters, wrapped or made to do harm: an error that says so."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

import bertline
import tiny
from bertline.encoders.loading import load_encoder, load_model
from bertline.foundation.errors import ArtifactError, BertlineError
from bertline.modeling.checkpoint import Checkpoint
from bertline.modeling.huggingface import require_whole_checkpoint
from bertline.tokenization.tokenizer import Tokenizer

LABELS = ("bad", "fair", "good")
SIZES = {"vocab_size": 45, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
         "max_position_embeddings": 24, "type_vocab_size": 2, "pad_token_id": 0}  # fmt: skip
WRAPPED = {
    "electra": transformers.ElectraConfig(**SIZES, embedding_size=8),
    "deberta-v2": transformers.DebertaV2Config(**SIZES, relative_attention=True, position_buckets=8),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("folders")
    tiny.write_classifier(folder / "bert", LABELS, seed=1, words=tiny.WORDS)
    for family, config in WRAPPED.items():
        tiny.write_vocabulary(folder / family)
        transformers.AutoModel.from_config(config).save_pretrained(folder / family)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "bert", tmp_path / "folder"))


def change(folder: Path, name: str = "config.json", **changes: Any) -> None:
    path = folder / name
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**content, **changes}))


def rename(folder: Path, names: Any) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file({names(key): tensor for key, tensor in weights.items()}, folder / "model.safetensors")


KEYS = (
    "architectures", "attention_probs_dropout_prob", "classifier_dropout", "dtype", "torch_dtype", "hidden_act",
    "hidden_dropout_prob", "hidden_size", "id2label", "initializer_range", "intermediate_size", "is_decoder",
    "layer_norm_eps", "max_position_embeddings", "model_type", "num_attention_heads", "num_hidden_layers",
    "pad_token_id", "position_embedding_type", "problem_type", "quantization_config", "type_vocab_size", "vocab_size",
    "embedding_size", "position_buckets", "conv_kernel_size", "auto_map", "label2id", "tie_word_embeddings",
    "relative_attention", "pos_att_type", "num_labels", "attn_implementation", "_name_or_path",
)  # fmt: skip
VALUES = (
    None, True, -1, 0, 3, 10_000_000, 10**30, 0.5, -0.5, float("nan"), float("inf"), "", "os.system", "float33",
    [], [None], {}, {"0": None}, {"x": "y"}, {"-1": "a"}, [["a"]], ["BertForNothing"],
)  # fmt: skip


@pytest.mark.parametrize("family", ["bert", *WRAPPED])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(changes=st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), min_size=1, max_size=2))
def test_whatever_stands_in_config_json_only_our_errors_come_out(made, family, tmp_path, changes) -> None:
    folder = Path(shutil.copytree(made / family, tmp_path / "folder", dirs_exist_ok=True))
    change(folder, **changes)
    for read in (lambda path: bertline.load(str(path), device="cpu").embed(["word1"]), require_whole_checkpoint):
        try:
            read(folder)
        except BertlineError as error:
            assert len(str(error)) < 1500


@pytest.mark.parametrize("content", ["[1]", '"text"', "{", "[" * 100_000, "\xff", '{"a": ' * 100_000])
@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "tokenizer.json", "added_tokens.json"])
def test_a_file_that_is_no_object_is_named(folder: Path, name: str, content: str) -> None:
    (folder / name).write_bytes(content.encode("latin-1"))
    with pytest.raises(BertlineError, match=name):
        bertline.load(str(folder), device="cpu")


@pytest.mark.parametrize(
    ("model", "message"),
    [({"type": "BPE"}, "cannot be read"), ({"type": "BPE", "vocab": 3}, "cannot be read"), ({}, "cannot be read"),
     ({"type": "Unigram", "vocab": [["a", "b"]]}, "pad_token"), ({"type": "BPE", "vocab": {"<s>": -1}}, "pad_token")],
)  # fmt: skip
def test_a_tokenizer_that_the_library_does_not_read_is_named(folder: Path, model: Any, message: str) -> None:
    (folder / "tokenizer.json").write_text(json.dumps({"model": model}))
    with pytest.raises(BertlineError, match=rf"folder.*{message}"):
        Tokenizer.load(folder)


def test_a_classifier_that_reads_too_few_tokens_is_named(folder: Path) -> None:
    change(folder, "tokenizer_config.json", model_max_length=2)
    with pytest.raises(ArtifactError, match=r"folder reads 2 tokens at most, too few for its task: max_length must be"):
        bertline.load(str(folder), device="cpu")


def test_sizes_are_compared_with_the_weights_before_memory_is_taken(made: Path, folder: Path, tmp_path: Path) -> None:
    change(folder, vocab_size=9_000_000, hidden_size=1_000_000)  # 36 TB
    with pytest.raises(ArtifactError, match=r"has shape \[45, 32\], config\.json makes it \[9000000, 1000000\]"):
        load_encoder(folder)
    for family, key in (("electra", "embedding_size"), ("deberta-v2", "position_buckets")):
        wrapped = Path(shutil.copytree(made / family, tmp_path / family))
        change(wrapped, **{key: 9_000_000})
        with pytest.raises(ArtifactError, match=f"no weight has the size 9000000 that config.json gives {key}"):
            load_encoder(wrapped)
        change(wrapped, **{key: 8, "num_hidden_layers": 10_000_000})
        with pytest.raises(
            ArtifactError, match=r"num_hidden_layers must be at least 1 and at most 1000, found 10000000"
        ):
            load_encoder(wrapped)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:1234\nsize 4567\n"


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "vocab.txt"])
def test_a_pointer_of_git_lfs_is_told_from_the_file(folder: Path, name: str) -> None:
    (folder / name).write_bytes(POINTER)
    with pytest.raises(ArtifactError, match=rf"{name} is a pointer of git-lfs.*git -C .*folder lfs pull"):
        bertline.load(str(folder), device="cpu")


def test_names_with_the_prefix_of_a_wrapper_are_read_if_all_have_it(made: Path, folder: Path, tmp_path: Path) -> None:
    for family in ("bert", *WRAPPED):
        source = Path(shutil.copytree(made / family, tmp_path / family))
        expected = load_encoder(source).state_dict()
        for prefix in ("module.", "_orig_mod.", "_orig_mod.module.", "module._orig_mod."):
            shutil.copytree(made / family, source, dirs_exist_ok=True)
            rename(source, lambda key, prefix=prefix: prefix + key)
            found = load_encoder(source).state_dict()
            assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    rename(folder, lambda key: f"module.{key}" if "layer.1" in key else key)
    message = r"has 2 sets of weights, whose names begin otherwise: [cb]\S+ and module\.bert\S+layer\.1\S+ are examples"
    with pytest.raises(ArtifactError, match=message):
        load_encoder(folder)


def test_an_adapter_is_refused_with_the_command_that_merges_it(folder: Path) -> None:
    change(folder, "adapter_config.json", task_type="SEQ_CLS", peft_type="LORA")
    for read in (load_encoder, lambda path: load_model(path, "sequence"), lambda path: bertline.load(str(path))):
        with pytest.raises(ArtifactError, match=r"AutoPeftModelFor.*folder.*merge_and_unload\(\).*folder-merged"):
            read(folder)
        (folder / "config.json").unlink(missing_ok=True)  # as an adapter alone
        (folder / "model.safetensors").unlink(missing_ok=True)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int64, torch.float8_e4m3fn])
def test_quantized_weights_are_refused(folder: Path, dtype: torch.dtype) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["bert.encoder.layer.0.output.dense.weight"] = weights["bert.encoder.layer.0.output.dense.weight"].to(dtype)
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(
        ArtifactError, match=r"output\.dense\.weight has the dtype [FIU].*load the full-precision checkpoint"
    ):
        load_encoder(folder)
    change(folder, quantization_config={"bits": 4})
    with pytest.raises(ArtifactError, match="has a quantization_config. Load the full-precision checkpoint"):
        load_encoder(folder)


@pytest.mark.parametrize("place", ["../other.safetensors", "/etc/passwd", "a/b.safetensors", "..", 3, None])
def test_an_index_names_no_file_outside_its_folder(folder: Path, place: Any) -> None:
    weights = folder / "model.safetensors"
    shutil.copy(weights, folder.parent / "other.safetensors")
    weights.unlink()
    for places in ({"bert.pooler.dense.bias": place}, place):
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
        with pytest.raises(ArtifactError, match="weight_map names .*, no file of this folder"):
            load_encoder(folder)


# ---- classifiers


def test_a_gap_in_the_names_of_labels_moves_none(folder: Path) -> None:
    change(folder, id2label={"0": "bad", "2": "good"})
    assert Checkpoint.open(folder).labels == ("bad", "LABEL_1", "good")
    change(folder, id2label={"1": "fair", "3": "best"})
    with pytest.raises(ArtifactError, match="id2label names '3', but the classifier has the outputs 0 to 2"):
        _ = Checkpoint.open(folder).labels


def test_a_classifier_whose_config_names_no_class_is_refused_with_the_key(folder: Path) -> None:
    change(folder, architectures=None)
    with pytest.raises(ArtifactError, match=r'config\.json names no architectures.*Add .*"architectures": \['):
        bertline.load(str(folder), device="cpu")
    load_encoder(folder)
