"""Every family of encoders, adopted and wrapped: equal to transformers' own classes, into bertline and back."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from safetensors.torch import load_file

import bertline
import tiny
from bertline.encoders.loading import load_encoder, load_model, save_model, save_student
from bertline.encoding.sequences import encode_texts
from bertline.encoding.word_windows import encode_words
from bertline.export.onnx import FP32, open_session, write_onnx
from bertline.export.views import Architecture, load_view, verify_model, without_padding
from bertline.foundation.errors import ArtifactError, ConfigError, DataError
from bertline.inside.look import facts_of
from bertline.kinds.base import LossOptions
from bertline.kinds.retrieval import Found
from bertline.modeling.checkpoint import Checkpoint
from bertline.modeling.families import FAMILIES
from bertline.tasks.stored_rows import TaggedRows
from bertline.tokenization.tokenizer import Tokenizer
from finished_tasks import KINDS, MAX_LENGTH, TOKENS, finish

# Sizes that are all unequal; 64 position rows, of which RoBERTa's families use 62.
_BERT_LIKE = {
    "vocab_size": 97, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 37,
    "max_position_embeddings": 64, "type_vocab_size": 1, "pad_token_id": 1, "layer_norm_eps": 1e-5,
}  # fmt: skip
_TWO_TYPES = {**_BERT_LIKE, "max_position_embeddings": 62, "type_vocab_size": 2, "pad_token_id": 0}
CONFIGS: dict[str, Any] = {
    "bert": transformers.BertConfig(**_TWO_TYPES),
    "roberta": transformers.RobertaConfig(**_BERT_LIKE),
    "xlm-roberta": transformers.XLMRobertaConfig(**_BERT_LIKE),
    "camembert": transformers.CamembertConfig(**_BERT_LIKE, hidden_act="relu"),
    "distilbert": transformers.DistilBertConfig(
        vocab_size=97, dim=24, n_layers=3, n_heads=4, hidden_dim=37, max_position_embeddings=62, pad_token_id=0
    ),
    "electra": transformers.ElectraConfig(**_TWO_TYPES, embedding_size=12),
    "albert": transformers.AlbertConfig(**_TWO_TYPES, embedding_size=12),
    "mpnet": transformers.MPNetConfig(**_BERT_LIKE),
    "deberta-v2": transformers.DebertaV2Config(
        **{**_TWO_TYPES, "type_vocab_size": 0}, relative_attention=True, position_buckets=16, norm_rel_ebd="layer_norm",
        share_att_key=True, pos_att_type=["p2c", "c2p"], position_biased_input=False,
    ),
    "modernbert": transformers.ModernBertConfig(
        **{key: value for key, value in _TWO_TYPES.items() if key != "type_vocab_size"}, local_attention=16,
        global_attn_every_n_layers=2, bos_token_id=0, cls_token_id=0, eos_token_id=2, sep_token_id=2,
    ),
}  # fmt: skip
ROBERTA = ("roberta", "xlm-roberta", "camembert")
NUM_POSITIONS = 62
HEADS = {
    "mlm": transformers.AutoModelForMaskedLM,
    "sequence": transformers.AutoModelForSequenceClassification,
    "tokens": transformers.AutoModelForTokenClassification,
    "answers": transformers.AutoModelForQuestionAnswering,
    "encoder": transformers.AutoModel,
}


@pytest.fixture(params=CONFIGS)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


def reference_of(family: str, head: str) -> Any:
    torch.manual_seed(3)
    config = CONFIGS[family]
    settings = type(config).from_dict(
        {**config.to_dict(), "num_labels": 2 if head == "answers" else 3, "initializer_range": 0.4}
    )
    model = HEADS[head].from_config(settings)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1 or "position" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def batch(family: str) -> dict[str, torch.Tensor]:
    input_ids = torch.randint(4, 97, (3, NUM_POSITIONS), generator=torch.Generator().manual_seed(0))
    attention_mask = torch.ones_like(input_ids)
    for row, length in enumerate((NUM_POSITIONS, 9, 30)):
        attention_mask[row, length:] = 0
        input_ids[row, length:] = CONFIGS[family].pad_token_id
    types = {}
    if (getattr(CONFIGS[family], "type_vocab_size", 0) or 0) > 1:
        types = {"token_type_ids": (torch.arange(NUM_POSITIONS) > 5).long().expand(3, -1)}
    return {"input_ids": input_ids, "attention_mask": attention_mask, **types}


def read(folder: Path, head: str) -> Any:
    return load_encoder(folder) if head == "encoder" else load_model(folder, head)


def outputs(model: Any, family: str, head: str) -> dict[str, torch.Tensor]:
    """Outputs of a model of bertline, by transformers' names; a second text makes no difference without types."""
    inputs = batch(family)
    types = (torch.arange(NUM_POSITIONS) > 5).long().expand(3, -1)
    arguments = inputs["input_ids"], types, inputs["attention_mask"]
    match head:
        case "mlm":
            return {"logits": model.forward_everywhere(*arguments).mlm_logits}
        case "answers":
            answer = model(*arguments)
            return {"start_logits": answer.start, "end_logits": answer.end}
        case "encoder":
            return {"last_hidden_state": model(*arguments).hidden_states}
        case _:
            return {"logits": model(*arguments)}


@pytest.mark.parametrize("head", HEADS)
def test_outputs_and_gradients_are_those_of_transformers_and_the_folder_comes_back_whole(family, head, tmp_path):
    reference = reference_of(family, head)
    reference.save_pretrained(tmp_path / "theirs")
    model = read(tmp_path / "theirs", head).eval()
    real = batch(family)["attention_mask"].bool()
    expected, found = reference(**batch(family)), outputs(model, family, head)
    for name, values in found.items():
        both = (values, expected[name])
        if values.shape[:2] == real.shape:
            both = tuple(each[real] for each in both)
        torch.testing.assert_close(*both, atol=2e-5, rtol=0)
    for values in (found, {name: expected[name] for name in found}):
        of_real = [each[real] if each.shape[:2] == real.shape else each for each in values.values()]
        sum(each.square().mean() for each in of_real).backward()
    encoder, theirs = model if head == "encoder" else model.bert, reference.base_model.get_input_embeddings().weight
    torch.testing.assert_close(encoder.word_embeddings.grad, theirs.grad, atol=1e-5, rtol=1e-4)

    if family in ROBERTA:  # transformers computes no positions without the id; what such a file means is 1
        config = tmp_path / "theirs" / "config.json"
        mapping = json.loads(config.read_text())
        config.write_text(json.dumps({**mapping, "pad_token_id": None}))
        assert read(tmp_path / "theirs", head).state_dict().keys() == model.state_dict().keys()
        assert Checkpoint.open(tmp_path / "theirs").pad_token_id == 1
        config.write_text(json.dumps(mapping))

    names = {0: "a", 1: "b", 2: "c"} if head in ("sequence", "tokens") else None
    save_model(model, tmp_path / "ours", id2label=names)
    again, info = HEADS[head].from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert type(again) is type(reference)
    assert names is None or again.config.id2label == names
    assert not any(info.values()), info
    for name, tensor in load_file(tmp_path / "theirs" / "model.safetensors").items():
        assert torch.equal(again.state_dict()[name], tensor), name
    ours, theirs = (Checkpoint.open(tmp_path / name) for name in ("ours", "theirs"))
    assert (ours.config, ours.vocab_size) == (theirs.config, theirs.vocab_size)
    assert ours.config.max_position_embeddings == NUM_POSITIONS


def trained(kind: str, folder: Path) -> Tokenizer:
    """A tokenizer of a family, trained on the texts below and written as transformers writes it."""
    folder.mkdir()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    if kind == "bpe":
        byte_level = tokenizers.ByteLevelBPETokenizer()
        byte_level.train_from_iterator(TEXTS, vocab_size=400, special_tokens=special)
        byte_level.save_model(str(folder))
        transformers.RobertaTokenizer.from_pretrained(folder).save_pretrained(folder)
    elif kind == "mpnet":
        vocab = ("<s>", "<pad>", "</s>", "[UNK]", *TOKENS, "<mask>")
        ids = {token: number for number, token in enumerate(vocab)}
        transformers.MPNetTokenizer(vocab=ids).save_pretrained(folder)
    else:
        unigram = tokenizers.SentencePieceUnigramTokenizer()
        unigram.train_from_iterator(TEXTS, vocab_size=120, special_tokens=special, unk_token="<unk>")
        vocab = json.loads(unigram.to_str())["model"]["vocab"]
        transformers.XLMRobertaTokenizer(vocab=[tuple(each) for each in vocab]).save_pretrained(folder)
    return Tokenizer.load(folder)


TEXTS = (
    "The café in Zürich, near the lake: open 9-17, isn't it?",
    "Donaudampfschifffahrt ist ein langes Wort, und Straßenbahnen fahren.",
    "ภาษาไทย ไม่ มี ช่องว่าง ระหว่าง คำ",
    "emoji 😀 and 👩‍👩‍👧 and  several   spaces\tand tabs",
    "",
)


@pytest.fixture(params=["bpe", "unigram"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Tokenizer, Any]:
    """A tokenizer, and transformers' of the same folder."""
    ours = trained(request.param, tmp_path / request.param)
    return ours, transformers.AutoTokenizer.from_pretrained(tmp_path / request.param)


def test_ids_types_and_special_tokens_of_texts_and_pairs_are_those_of_transformers(both: tuple[Tokenizer, Any]) -> None:
    ours, theirs = both
    others = [*TEXTS[1:], TEXTS[0]]
    assert ours.special_tokens == ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
    assert ours.pad_id == theirs.pad_token_id and ours.mask_id == theirs.mask_token_id
    for length in (512, 16):
        for second, expected in (
            (None, theirs(list(TEXTS), truncation=True, max_length=length)["input_ids"]),
            (others, theirs(list(TEXTS), others, truncation=True, max_length=length)["input_ids"]),
        ):
            found = encode_texts(list(TEXTS), second, ours, max_length=length)
            rows = [row[:size].tolist() for row, size in zip(found.input_ids, found.lengths, strict=True)]
            if second is None or length == 512:
                assert rows == expected
            assert max(map(len, rows)) <= length and not found.token_type_ids.any()
            assert [row[0] for row in rows] == [ours.cls_id] * len(rows)


def test_each_word_is_tagged_at_the_tokens_of_its_own_characters(both: tuple[Tokenizer, Any]) -> None:
    ours, theirs = both
    rows = [text.split() for text in TEXTS if text]
    names = [str(number) for number in range(len(rows))]
    tagged = TaggedRows(names, names, rows, [["O"] * len(words) for words in rows])
    encoded = encode_words(tagged, ["O"], ours, max_length=512, overlap=0)
    for row, words in enumerate(rows):
        encoding = theirs(" ".join(words), return_offsets_mapping=True)
        length = int(encoded.sequences.lengths[row])
        assert encoded.sequences.input_ids[row, :length].tolist() == encoding["input_ids"]
        starts = [sum(len(word) + 1 for word in words[:number]) for number in range(len(words))]
        for position in range(1, length - 1):
            begin, end = encoding["offset_mapping"][position]
            word = encoded.words_of_tokens[row, position]
            assert starts[word] - 1 <= begin and end <= starts[word] + len(words[word]), (row, position)
        assert sorted(set(encoded.words_of_tokens[row, 1 : length - 1].tolist())) == list(range(len(words)))


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of each family with a tokenizer of its kind, as transformers writes it."""
    folder = tmp_path_factory.mktemp("encoders")
    tokenizers_of = dict.fromkeys(("roberta", "modernbert"), "bpe")
    tokenizers_of["mpnet"] = "mpnet"
    tokenizers_of |= dict.fromkeys(("xlm-roberta", "camembert", "albert", "deberta-v2"), "unigram")
    for family, config in CONFIGS.items():
        if kind := tokenizers_of.get(family):
            trained(kind, folder / family)
        else:
            tiny.write_vocabulary(folder / family, TOKENS)
        tokenizer = Tokenizer.load(folder / family)
        num_positions = MAX_LENGTH + FAMILIES[family].num_unused_positions(tokenizer.pad_id)
        changes = {"vocab_size": tokenizer.vocab_size, "pad_token_id": tokenizer.pad_id}
        changes["max_position_embeddings"] = num_positions
        torch.manual_seed(5)
        settings = type(config).from_dict({**config.to_dict(), **changes, "initializer_range": 0.2})
        transformers.AutoModelForMaskedLM.from_config(settings).save_pretrained(folder / family)
    return {family: folder / family for family in CONFIGS}


@pytest.mark.parametrize("is_pair", [False, True])
def test_attentions_are_those_of_transformers(encoders, family, is_pair) -> None:
    folder = encoders[family]
    loaded = bertline.load(str(folder), device="cpu")
    # A text of few tokens that are not unknown.
    text, second = ("word1, word7?", "word3 - word9") if "word1" in loaded.tokenizer.vocab else ("The café", "is open")
    pair = second if is_pair else None
    read = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = read(text, pair, return_tensors="pt", return_token_type_ids=True)
    reference = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    if getattr(reference.config, "type_vocab_size", 0) != 2:
        del inputs["token_type_ids"]
    with torch.no_grad():
        expected = torch.cat(reference(**inputs, output_attentions=True).attentions)
    tokens, probabilities = loaded.attentions(text, pair)
    assert list(tokens) == loaded.tokenizer.tokens(inputs["input_ids"][0].tolist())
    assert probabilities.std(-1).max() > 0.02  # not all the same
    np.testing.assert_allclose(probabilities, expected, atol=1e-5)
    facts = facts_of(loaded, text, pair)
    assert facts["num_shown"] == len(tokens)
    assert set(facts["missing"]) == ({"vectors", "embeddings"} if FAMILIES[family].wrapping else set())


def test_special_tokens_in_a_text_are_text_but_for_the_mask_of_fill_mask(encoders, family) -> None:
    model = bertline.load(str(encoders[family]), device="cpu")
    tokenizer = model.tokenizer
    text = f"a {' b '.join(tokenizer.special_tokens)} c{''.join(tokenizer.special_tokens)}"
    [(ids, _)] = tokenizer.encode_with_places([text])
    assert [ids] == tokenizer.encode_literally([text]) and set(ids) & tokenizer.special_ids <= {tokenizer.unk_id}
    start, end, mask = (tokenizer.special_tokens[place] for place in (2, 3, 4))
    tokens = model.inside(f"a {start} {end} [MASK] b {mask}").ids[1:-1]
    assert tokens.count(tokenizer.mask_id) == 2 and not {tokenizer.cls_id, tokenizer.sep_id} & set(tokens)
    masked = tokenizer.encode_literally([f"a [SEP]</s> {mask}"], with_mask=True)[0]
    assert masked.count(tokenizer.mask_id) == 1 and tokenizer.sep_id not in masked


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_task_is_trained_saved_and_opened_by_transformers(encoders, family, name, tmp_path) -> None:
    has_types = family in ("bert", *ROBERTA, "electra", "albert")
    if (name == "marked" and family not in ("bert", "electra")) or (name == "cased" and not has_types):
        with pytest.raises(ConfigError, match="Set shared_tokens=plain"):
            made = finish(name, tmp_path, encoders[family])
            made.kind.encode(made.rows, Tokenizer.load(made.folder))
        return
    made = finish(name, tmp_path, encoders[family])
    tokenizer = Tokenizer.load(made.folder)
    encoded = made.kind.encode(made.rows, tokenizer)
    batch = next(iter(made.kind.training_batches(encoded, batch_size=4, seed=0)))
    made.kind.loss(made.model.train(), batch, LossOptions()).backward()
    made.model.eval()
    loaded = bertline.load(str(made.folder), device="cpu")
    assert FAMILIES[family].title in repr(loaded)
    assert loaded.task is not None
    found = loaded.task.kind.predict(loaded.model, encoded, loaded.task.machine)
    expected = made.kind.predict(made.model, encoded, tiny.machine())
    statistics = [made.kind.statistics(made.rows, each, made.calibration) for each in (found, expected)]
    if isinstance(found, Found):  # rounding ranks documents that a random encoder finds equally near
        statistics = [found.scores, expected.scores]
    np.testing.assert_allclose(*statistics, atol=1e-5)
    verify_model(made.folder, labels=None, tolerance=2e-5)


@pytest.mark.parametrize("family", ["roberta", "deberta-v2"])
def test_a_folder_with_a_slow_tokenizer_and_pickled_weights_is_refused_with_the_command_that_converts_it(
    encoders: dict[str, Path], family: str, tmp_path: Path
) -> None:
    folder = shutil.copytree(encoders[family], tmp_path / "a slow one")
    expected = Tokenizer.load(folder).encode(TEXTS[0])
    weights = load_file(folder / "model.safetensors")
    torch.save(weights, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ArtifactError, match="a pickle, which can run any code") as refused:
        load_encoder(folder)
    if family == "roberta":  # without a SentencePiece file there is no slow tokenizer of the other
        (folder / "tokenizer.json").unlink()
        with pytest.raises(DataError, match=r"neither tokenizer\.json nor vocab\.txt") as refused:
            Tokenizer.load(folder)
    command = "python -c" + str(refused.value).partition("python -c")[2]
    subprocess.run(shlex.split(command.replace("python", sys.executable, 1)), check=True, capture_output=True)
    converted = tmp_path / "a slow one-converted"
    assert Tokenizer.load(converted).encode(TEXTS[0]) == expected
    found = load_file(converted / "model.safetensors")
    assert found.keys() == weights.keys() and all(torch.equal(found[name], weights[name]) for name in found)
    load_model(converted, "mlm")


def test_processes_that_handle_bert_alone_do_not_import_transformers(encoders: dict[str, Path], tmp_path: Path) -> None:
    code = """
import sys, bertline
from bertline.encoders.loading import load_model
load_model(sys.argv[1], "sequence", num_outputs=2, is_new=True)
bertline.load(str(sys.argv[1]), device="cpu").embed(["the"])
sys.exit("transformers" in sys.modules)
""".replace("sys.argv[1]", "__import__('pathlib').Path(sys.argv[1])")
    for family, is_imported in (("distilbert", False), ("electra", True)):
        run = subprocess.run([sys.executable, "-c", code, str(encoders[family])], check=False, capture_output=True)
        assert run.returncode == is_imported, run.stderr


GRAPHS: dict[str, Architecture] = {
    "mlm": "BertForMaskedLM",
    "sequence": "BertForSequenceClassification",
    "tokens": "BertForTokenClassification",
    "answers": "BertForQuestionAnswering",
    "encoder": "BertModel",
}


@pytest.mark.parametrize("head", HEADS)
def test_onnx_gives_the_outputs_of_the_model_at_any_length(family: str, head: str, tmp_path: Path) -> None:
    reference_of(family, head).save_pretrained(tmp_path)
    view = load_view(tmp_path, GRAPHS[head])
    write_onnx(view, tmp_path / FP32)
    session = open_session(tmp_path / FP32)
    whole = {"token_type_ids": torch.zeros(3, NUM_POSITIONS, dtype=torch.long), **batch(family)}
    for rows, length in ((3, NUM_POSITIONS), (2, 9), (1, 30)):
        inputs = {name: whole[name][:rows, :length] for name in view.input_names}
        found = session.run(None, {name: values.numpy() for name, values in inputs.items()})
        real = inputs["attention_mask"].bool()
        with torch.no_grad():
            expected = view(*inputs.values())
        for ours, theirs in zip(found, expected, strict=True):
            both = (torch.from_numpy(ours), theirs)
            torch.testing.assert_close(*(without_padding(each, real) for each in both), atol=2e-5, rtol=0)


def test_a_student_has_layers_of_its_teacher_and_transformers_reads_it(family, encoders, tmp_path) -> None:
    save_student(encoders[family], 2, tmp_path)
    teacher, student = load_encoder(encoders[family]).eval(), load_encoder(tmp_path).eval()
    assert student.config.num_hidden_layers == 2
    kept = [(0, 0)] if family == "albert" else [(0, 0), (1, teacher.config.num_hidden_layers - 1)]
    assert len(student.layers) == len(kept)
    for own, theirs in kept:
        ours, others = student.layers[own].state_dict(), teacher.layers[theirs].state_dict()
        assert ours and all(torch.equal(value, others[name]) for name, value in ours.items())
    assert torch.equal(student.word_embeddings, teacher.word_embeddings)
    assert Tokenizer.load(tmp_path).vocab == Tokenizer.load(encoders[family]).vocab
    reference = transformers.AutoModel.from_pretrained(tmp_path).eval()
    ids = torch.tensor([[5, 6, 7, 8]])
    found = student(ids, torch.zeros_like(ids), torch.ones_like(ids)).hidden_states
    expected = reference(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=0)


def test_layers_that_a_student_cannot_have_are_named(encoders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"student_layers is 9, and the teacher has \d layers; give 1 to \d"):
        save_student(encoders["electra"], 9, tmp_path)
    grouped = transformers.AlbertConfig(
        **{**_TWO_TYPES, "num_hidden_layers": 4}, embedding_size=12, num_hidden_groups=2
    )
    transformers.AlbertModel(grouped).save_pretrained(tmp_path / "grouped")
    with pytest.raises(ConfigError, match="student_layers is 3, no multiple of the 2 groups"):
        save_student(tmp_path / "grouped", 3, tmp_path)
