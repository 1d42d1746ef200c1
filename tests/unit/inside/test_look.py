"""The page of `bertline look`: its numbers are the model's, its text is harmless, and what it cannot show is said."""

from __future__ import annotations

import base64
import json
import re
import zlib
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
import yaml

import bertline
import tiny
from bertline.cli import inside, project
from bertline.foundation.errors import ArtifactError, DataError
from bertline.inference.model import LoadedModel
from bertline.inside import look as module
from bertline.inside.look import facts_of, look_page, packed

ROOT = Path(__file__).resolve().parents[3]

WORDS = ("the", "cat", "sat", "on", "a", "mat", "##s", "<", ">", "/", "script", "é", "\u05e9\u05dc\u05d5\u05dd", ".")
HARMFUL = (
    "</script><img src=x onerror=alert(1)> & 'the' \"cat\" \u05e9\u05dc\u05d5\u05dd \U0001f469\u200d\U0001f467 ]]>"
)
TEXT, PAIR = "the cat sat on a ___ .", "the mats sat"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    changes: dict[str, Any] = {"max_position_embeddings": 64, "initializer_range": 0.6}
    return tiny.write_encoder(tmp_path_factory.mktemp("look"), heads=True, words=WORDS, **changes)


@pytest.fixture(scope="module")
def model(folder: Path) -> LoadedModel:
    return bertline.load(str(folder), device="cpu")


def unpacked(layout: dict[str, Any], text: str) -> dict[str, np.ndarray]:
    """Decode the numbers of a page with whole numbers of Python."""
    data = zlib.decompress(base64.b64decode(text))
    arrays = {}
    for name, array in layout["arrays"].items():
        size, steps = int(np.prod(array["shape"])), np.array(array["steps"])
        low, high, data = data[:size], data[size : 2 * size], data[2 * size :]
        whole = [a + 256 * b for a, b in zip(low, high, strict=True)]
        signed = np.array([n // 2 if n % 2 == 0 else -(n + 1) // 2 for n in whole])
        arrays[name] = (signed.reshape(len(steps), -1) * steps[:, None]).reshape(array["shape"])
    return arrays


def in_page(html: str) -> tuple[dict[str, Any], list[str]]:
    """The facts of a page and the numbers of each model."""
    facts = re.search(r'<script type="application/json" id="page">(.*?)</script>', html, re.DOTALL)
    assert facts is not None
    return json.loads(facts[1]), re.findall(r'<script type="text/plain" class="numbers">(.*?)</script>', html)


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def test_the_numbers_of_the_page_are_those_of_the_model(model: LoadedModel) -> None:
    html, left_out = look_page([model], TEXT, PAIR)
    ((facts,), (text,)) = in_page(html)[0]["models"], in_page(html)[1]
    arrays, inside = unpacked(facts, text), model.inside(TEXT.replace("___", "[MASK]"), PAIR)
    assert left_out == [] and facts["tokens"] == list(inside.tokens) and facts["segments"] == list(inside.segments)
    np.testing.assert_allclose(softmax(arrays["scores"]), inside.probabilities, atol=1e-3)
    assert np.abs(softmax(arrays["scores"]).sum(-1) - 1).max() < 1e-6
    for name in ("query", "key", "value"):
        expected = getattr(inside, name)
        assert np.abs(arrays[name] - expected).max() < 0.01 * np.square(expected).mean() ** 0.5 + 0.01
    rows = facts["embedding_rows"]
    added = arrays["token"] + arrays["position"] + arrays["segment"][rows["segment"]]
    normal = torch.nn.functional.layer_norm(torch.tensor(added), added.shape[-1:], *map(torch.tensor, arrays["norm"]))
    np.testing.assert_allclose(normal, inside.hidden_states[0], atol=0.05)
    apart = inside.hidden_states - inside.hidden_states.mean(1, keepdims=True)
    cosine = torch.nn.functional.cosine_similarity(*map(torch.tensor, (apart[:, :, None], apart[:, None])), dim=-1)
    np.testing.assert_allclose(arrays["similarity"], cosine, atol=2e-3)


@pytest.mark.parametrize("name", ["norm", "token", "query"])
def test_one_number_far_beyond_the_others_is_not_cut(name: str) -> None:
    """Weights of layer normalisation above 15, and embeddings with an outlier, are in published checkpoints."""
    values = np.random.default_rng(3).normal(0, 1e-3, (1, 1, 320, 384)).astype(np.float32)
    values[0, 0, 5, 7] = -15
    values[0, 0, 6, 8] = 11.9
    layout, text = packed({name: values})
    (step,) = layout["arrays"][name]["steps"]
    assert np.abs(unpacked(layout, text)[name] - values).max() <= 0.51 * step < 3e-4


def test_the_map_shows_as_much_of_all_layers_as_two_directions_can(model: LoadedModel) -> None:
    states = model.inside("the cat sat on a mat .").hidden_states
    apart = states - states.mean(1, keepdims=True)
    unit = (apart / np.linalg.norm(apart, axis=-1, keepdims=True)).reshape(-1, states.shape[-1])
    largest = np.linalg.svd(unit, compute_uv=False)[:2]
    shown = facts_of(model, "the cat sat on a mat .")["arrays"]["map"].reshape(-1, 2)
    np.testing.assert_allclose(np.linalg.norm(shown, axis=0), largest, rtol=1e-4)


def test_the_last_layer_fills_a_blank_as_fill_mask_does(model: LoadedModel) -> None:
    lens = facts_of(model, TEXT)["lens"]
    assert lens is not None and lens["are_blanks"] and lens["places"] == [6]
    (expected,) = model.fill_mask(TEXT.replace("___", "[MASK]"), top_k=4)
    assert [lens["words"][index] for index in lens["ids"][-1][0]] == [guess.token for guess in expected]
    np.testing.assert_allclose(lens["probabilities"][-1][0], [guess.probability for guess in expected], atol=5e-4)
    without = facts_of(model, "the cat")["lens"]
    assert without is not None and not without["are_blanks"] and without["places"] == [0, 1, 2, 3]


def test_what_a_long_text_attends_to_beyond_the_page_is_its_last_column(model, monkeypatch) -> None:
    monkeypatch.setattr(module, "_MAX_WEIGHTS", 2 * 4 * 6 * 6)
    facts, inside = facts_of(model, TEXT), model.inside(TEXT.replace("___", "[MASK]"))
    found = softmax(facts["arrays"]["scores"])
    np.testing.assert_allclose(found[..., :6], inside.probabilities[:, :, :6, :6], atol=1e-5)
    np.testing.assert_allclose(found[..., 6], inside.probabilities[:, :, :6, 6:].sum(-1), atol=1e-5)
    assert facts["tokens"] == [*inside.tokens[:6], "(3 more)"]
    assert "query" not in facts["arrays"] and "queries, keys and values of 9 tokens" in facts["missing"]["vectors"]
    assert [sentence for sentence in facts["left_out"] if "first 6 are shown" in sentence]
    html, left_out = look_page([model], TEXT)
    assert left_out == [f"{facts['name']}: {sentence}" for sentence in facts["left_out"]]
    assert "· 9 tokens, 6 shown<" in html and "· 4 tokens<" in look_page([model], "the cat")[0]
    pair = facts_of(model, "the cat", TEXT)  # its blank is beyond the page, too
    assert pair["segments"] == [0, 0, 0, 0, 1, 1] and pair["left_out"][-1].endswith("which belongs to neither text.")
    assert pair["lens"] is not None and pair["lens"]["are_blanks"] and pair["lens"]["places"] == [9]


@pytest.mark.parametrize(("shape", "most"), [((12, 12, 32, 64), 1e6), ((24, 16, 64, 64), 7e6)])
def test_the_page_of_a_large_model_keeps_to_its_size(model, shape: tuple[int, ...], most: float) -> None:
    num_layers, num_heads, num_tokens, channels = shape
    random, hidden_size = np.random.default_rng(0), num_heads * channels

    def normal(*sizes: int) -> np.ndarray:
        return random.normal(0, 2, sizes).astype(np.float32)

    arrays = {"scores": normal(*shape[:3], num_tokens)}
    arrays |= {name: normal(*shape) for name in ("query", "key", "value")}
    arrays |= {name: normal(num_tokens, hidden_size) for name in ("token", "position")}
    arrays |= {"segment": normal(2, hidden_size), "norm": normal(2, hidden_size)}
    arrays |= {"similarity": random.uniform(-1, 1, (num_layers + 1, num_tokens, num_tokens)).astype(np.float32)}
    layout, text = packed(arrays)
    assert not set(text) & set("&<>")
    around = len(look_page([model], "the cat")[0].encode()) - len(in_page(look_page([model], "the cat")[0])[1][0])
    guesses = 12 * 4 * (num_layers + 1) * num_tokens
    assert len(text) + len(json.dumps(layout)) + around + guesses < most
    assert np.square(arrays["query"]).mean() ** 0.5 / max(layout["arrays"]["query"]["steps"]) > 4


def test_any_text_and_any_token_are_harmless_and_right(model: LoadedModel) -> None:
    html = look_page([model], HARMFUL, "</title><script>alert(2)</script>")[0]
    assert len(re.findall("<script", html)) == len(re.findall("</script", html)) == 3
    assert "<img" not in html and unescape(re.search(r"<bdi>(.*?)</bdi>", html)[1]) == HARMFUL
    assert in_page(html)[0]["models"][0]["tokens"] == list(
        model.inside(HARMFUL, "</title><script>alert(2)</script>").tokens
    )
    assert not re.search(r"(src|href)=[\"']?(http|//)|@import|url\(", html.replace(json.dumps(HARMFUL), ""))


@pytest.mark.parametrize(
    ("text", "pair", "sentence"),
    [
        ("", None, "the text is empty; give a sentence."),
        ("the", " \n", "the second text is empty; give a sentence."),
        ("cat \udcff", None, "which is half of a character"),
        ("\u200b", None, "has no token for"),
        ("the " * 70, None, "the text has 72 tokens; the model reads at most 64. Shorten it."),
        ("the", "the " * 70, "text and pair together have 74 tokens; the model reads at most 64. Shorten them."),
    ],
)
def test_a_text_that_cannot_be_read_is_refused_in_a_sentence(model, text: str, pair: str | None, sentence: str) -> None:
    with pytest.raises(DataError) as refused:
        look_page([model], text, pair)
    assert sentence in str(refused.value) and "\n" not in str(refused.value)


def test_a_tokenizer_that_puts_nothing_between_two_texts_takes_no_pair(model, monkeypatch) -> None:
    monkeypatch.setattr(model.tokenizer, "pair", model.tokenizer.single)
    with pytest.raises(DataError, match="reads no two texts: .* Leave pair out"):
        look_page([model], "the cat", "the mat")


def test_a_wrapped_family_shows_its_attention_and_says_why_there_is_no_more(tmp_path: Path) -> None:
    size = tiny.write_vocabulary(tmp_path, WORDS)
    config = transformers.ElectraConfig(
        vocab_size=size, embedding_size=12, hidden_size=24, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=32, max_position_embeddings=40,
    )  # fmt: skip
    transformers.ElectraForPreTraining(config).save_pretrained(tmp_path)
    model = bertline.load(str(tmp_path), device="cpu")
    facts = facts_of(model, TEXT)
    np.testing.assert_allclose(
        softmax(facts["arrays"]["scores"]), model.attentions(TEXT.replace("___", "[MASK]"))[1], atol=1e-6
    )
    assert facts["lens"] is None and set(facts["missing"]) == {"vectors", "embeddings", "lens"}
    assert "ELECTRA computes attention in a class of transformers" in facts["missing"]["vectors"]


def test_two_models_stand_side_by_side_and_different_tokens_are_explained(model, tmp_path: Path) -> None:
    same, other = look_page([model, model], TEXT)[0], tiny.write_encoder(tmp_path, words=("the", "c", "##at"))
    assert len(in_page(same)[1]) == 2 and "different vocabularies" not in same
    html = look_page([model, bertline.load(str(other), device="cpu")], "the cat")[0]
    assert "different vocabularies (19 and 8 tokens)" in html
    assert [one["tokens"] for one in in_page(html)[0]["models"]] == [
        ["[CLS]", "the", "cat", "[SEP]"],
        ["[CLS]", "the", "c", "##at", "[SEP]"],
    ]


def test_models_of_the_same_name_are_told_apart_by_more_of_their_paths(model: LoadedModel) -> None:
    def names(*paths: str) -> list[str]:
        loaded = [LoadedModel(model.model, model.tokenizer, max_length=64, task=None, name=path) for path in paths]
        return [one["name"] for one in in_page(look_page(loaded, "the cat")[0])[0]["models"]]

    assert names("/x/a/b/c", "/y/a/b/c/") == ["x/a/b/c", "y/a/b/c"]
    assert names("/x/artifacts/pretrain", "/x/other/pretrain") == ["artifacts/pretrain", "other/pretrain"]
    assert names("/x/a/b", "/x/a/b/") == ["a/b", "a/b"]


def test_the_command_writes_a_page_of_the_default_model_and_says_its_size(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(project, "STARTED_IN", tmp_path)

    def command(**asked: str) -> None:
        inside.look.__wrapped__(yaml.safe_load((ROOT / "conf/look.yaml").read_text()) | asked)

    with pytest.raises(ArtifactError, match="no encoder yet in .* Name one by model_folder=FOLDER"):
        command(text="the cat")
    for arguments in ({"text": "  "}, {"text": "", "model_folder": "nowhere"}, {"text": "the", "pair": ""}):
        with pytest.raises(DataError, match="text is empty; give a sentence"):
            command(**arguments)
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts/pretrain").symlink_to(folder)
    command(text="the cat", pair="a mat")
    size = (tmp_path / "look.html").stat().st_size
    assert capsys.readouterr().out == f"{tmp_path / 'look.html'}: {size / 1e6:.2f} MB\n"
    assert "artifacts/pretrain" in (tmp_path / "look.html").read_text(encoding="utf-8")
