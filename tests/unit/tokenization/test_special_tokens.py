"""Special tokens in a text: ordinary text for every kind of tokenizer, unless a checkpoint declares them its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE, Unigram, WordLevel, WordPiece
from tokenizers.pre_tokenizers import BertPreTokenizer, ByteLevel, Metaspace, WhitespaceSplit
from tokenizers.processors import TemplateProcessing

import tiny
from bertline.encoders.loading import load_encoder
from bertline.foundation.errors import DataError
from bertline.tokenization.storage import copy_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import ROBERTA_TOKENS, SPECIAL_TOKENS, OtherTokenizer
from bertline.tokenization.words import word_starts

LETTERS = "acdeiklmnpsuACDEIKLMNPSU"
SIGNS = "<>/[]"


def made(model: Any, pre_tokenizer: Any, special: tuple[str, ...]) -> Tokenizer:
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizer
    if isinstance(model, BPE):
        backend.decoder = ByteLevelDecoder()
    backend.add_special_tokens([tokenizers.AddedToken(token, special=True) for token in special])
    cls, sep = special[2:4]
    ids = [(token, backend.token_to_id(token)) for token in (cls, sep)]
    backend.post_processor = TemplateProcessing(
        single=f"{cls} $A {sep}", pair=f"{cls} $A {sep} $B {sep}", special_tokens=ids
    )
    return Tokenizer(OtherTokenizer(content=backend.to_str(), special_tokens=special))


def of(kind: str, special: tuple[str, ...], characters: str) -> Tokenizer:
    match kind:
        case "unigram":
            pieces = [*((token, 0.0) for token in special), *((f"▁{c}", -5.0) for c in characters), ("▁", -5.0)]
            pieces += [(character, -6.0) for character in characters]
            return made(Unigram(pieces, unk_id=1), Metaspace(), special)
        case "wordpiece":
            tokens = [*special, *characters, *(f"##{character}" for character in characters)]
            ids = {token: index for index, token in enumerate(tokens)}
            return made(WordPiece(ids, unk_token=special[1]), BertPreTokenizer(), special)
        case "words":
            return made(WordLevel({token: n for n, token in enumerate((*special, *characters))}, unk_token=special[1]),
                        WhitespaceSplit(), special)  # fmt: skip
        case _:
            tokens = [*special, *sorted(ByteLevel.alphabet())]
            ids = {token: index for index, token in enumerate(tokens)}
            return made(BPE(ids, [], ignore_merges=True), ByteLevel(add_prefix_space=False), special)


TOKENIZERS = {
    f"{kind} {special[2]} {'with signs' if SIGNS in characters else 'without signs'}": of(kind, special, characters)
    for kind in ("unigram", "wordpiece", "words", "bytes")
    for special in (ROBERTA_TOKENS, SPECIAL_TOKENS)
    for characters in (LETTERS + SIGNS, LETTERS)
}
PARTS = st.sampled_from([*ROBERTA_TOKENS, *SPECIAL_TOKENS, "a", "mask", " ", "<", "é"])


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=30)
@given(parts=st.lists(PARTS, max_size=8))
def test_special_tokens_in_a_text_are_text(name: str, parts: list[str]) -> None:
    tokenizer, text = TOKENIZERS[name], "".join(parts)
    [(ids, places)] = tokenizer.encode_with_places([text])
    assert [ids] == tokenizer.encode_literally([text])
    assert set(ids) & tokenizer.special_ids <= {tokenizer.unk_id}
    assert places == sorted(places) and all(0 <= start <= end <= len(text) for start, end in places)
    if not name.startswith(("words", "wordpiece")) and "with signs" in name and "é" not in text:
        assert tokenizer.unk_id not in ids  # `<unk>` is five characters
    [masked] = tokenizer.encode_literally([text], with_mask=True)
    assert masked.count(tokenizer.mask_id) == text.count(tokenizer.mask_token)
    assert set(masked) & tokenizer.special_ids <= {tokenizer.unk_id, tokenizer.mask_id}


# ---- what a checkpoint declares as its own


MARKERS = ("[E1]", "[/E1]")


@pytest.mark.parametrize("key", ["additional_special_tokens", "extra_special_tokens"])
@pytest.mark.parametrize("place", ["vocabulary", "beside vocab.txt", "tokenizer.json", "neither"])
def test_declared_markers_are_tokens_of_a_text_with_the_ids_of_transformers(
    place: str, key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    in_vocabulary = MARKERS if place in ("vocabulary", "tokenizer.json") else ()
    tiny.write_vocabulary(tmp_path, (*tiny.WORDS, "[", "]", "e", "##1", *in_vocabulary))
    declared = [*MARKERS, "[MASK]"] if key == "additional_special_tokens" else dict(zip("ab", MARKERS, strict=True))
    config = {"do_lower_case": True, key: declared, "tokenizer_class": "BertTokenizer"}
    if place == "beside vocab.txt":
        size = len(Tokenizer.load(tmp_path).vocab)
        (tmp_path / "added_tokens.json").write_text(json.dumps({"[E1]": size, "[/E1]": size + 1}))
    if place == "tokenizer.json":
        Tokenizer.load(tmp_path).backend.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    capsys.readouterr()
    tokenizer, text = Tokenizer.load(tmp_path), "[E1] Word1 [/E1] [SEP] word2[E1]"
    [ids] = tokenizer.encode_literally([text])
    tokens = tokenizer.tokens(ids)
    if place == "neither":  # the model has no row for them
        assert tokenizer.is_wordpiece and "[E1]" not in tokens
        return
    assert [tokens.count(marker) for marker in MARKERS] == [2, 1] and "[SEP]" not in tokens
    assert set(tokenizer.special_ids) == {tokenizer.vocab.index(token) for token in (*tiny.SPECIAL, *MARKERS)}
    assert "its 2 additional special tokens ([E1], [/E1]) are tokens in texts" in capsys.readouterr().out
    copy_tokenizer(tmp_path, tmp_path / "copy")
    assert Tokenizer.load(tmp_path / "copy").encode_literally([text]) == [ids]
    if key == "additional_special_tokens" or place == "tokenizer.json":
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
        plain = text.replace(" [SEP]", "")
        assert tokenizer.encode_literally([plain])[0] == theirs.encode(plain, add_special_tokens=False)


def test_tokens_added_beside_a_vocabulary_are_read(tmp_path: Path) -> None:
    folder = tiny.write_encoder(tmp_path, words=(*tiny.WORDS, "covid", "-", "19"))
    size = len(Tokenizer.load(folder).vocab)
    (folder / "added_tokens.json").write_text(json.dumps({"covid-19": size, "SARS": size + 1}))
    ours, theirs = Tokenizer.load(folder), transformers.BertTokenizer.from_pretrained(folder)
    text = "Covid-19 word1 sars covid-19word2"
    assert ours.encode_literally([text])[0] == theirs.encode(text, add_special_tokens=False)
    assert size in ours.encode_literally([text])[0] and ours.vocab_size == size + 2
    (folder / "added_tokens.json").write_text(json.dumps({"covid-19": size + 3}))
    with pytest.raises(DataError, match=rf"'covid-19' has the id {size + 3}; .* its id is {size}"):
        Tokenizer.load(folder)
    load_encoder(folder)  # the encoder has nothing to do with it


# ---- vocabularies of bytes


def test_a_vocabulary_without_the_letter_a_is_read(tmp_path: Path) -> None:
    ids = {token: index for index, token in enumerate((*ROBERTA_TOKENS, "Ġ", "Ð", "´", "Ð´"))}
    tokenizer = made(BPE(ids, [("Ð", "´")]), ByteLevel(add_prefix_space=False), ROBERTA_TOKENS)
    assert tokenizer.encode("д") == [8] and tokenizer.single.sequence([8]) == [2, 8, 3]
    assert tokenizer.sees_spaces and tokenizer.single.second_type == 0


def test_a_rare_chinese_character_of_several_tokens_begins_a_word() -> None:
    tokenizer = TOKENIZERS["bytes <s> with signs"]
    begins = word_starts(tokenizer)
    starts = {text: [begins[index] for index in tokenizer.encode(text)] for text in ("鱻", "䲜", "é", "д", "ก")}
    assert starts == {"鱻": [True, False, False], "䲜": [True, False, False], "é": [False] * 2, "д": [False] * 2,
                      "ก": [False] * 3}  # fmt: skip
