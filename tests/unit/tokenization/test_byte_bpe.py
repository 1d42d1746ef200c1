"""Byte-level BPE: its ids are transformers', it is trained to the same bytes, and its encoder is the library's."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys

import pytest
import transformers

from bertline.foundation.errors import ConfigError
from bertline.foundation.files import sha256_of_path
from bertline.tokenization.config import ByteBpeTokenizerConfig, ExistingTokenizerConfig, ExtendedTokenizerConfig
from bertline.tokenization.training import train_byte_bpe

CONFIG = ByteBpeTokenizerConfig(
    kind="byte_bpe", vocab_size=370, min_frequency=2, sample_characters=1_000_000, user_words=(), compare=()
)
HOSTILE = (
    "",
    " ",
    "The matrix returns the array.",
    " a leading and a trailing space ",
    "several   spaces    alone",
    "several   spaces,\ttabs\nand\u00a0others",
    "emoji 😀 and 👩‍👩‍👧, joined by zero-width joiners",
    "ภาษาไทยไม่มีช่องว่าง",
    "Straßenbahnen in Zürich — „schön“, oder?",
    "control\x01s \x00characters\x7f\x1f here\u2028there",
    "they've it's 'twas rock'n'roll don't('s)'s (x)'y ... a_b1-2c",
    "<s> in a text, </s> <pad> <unk> and <mask>, or a <mask>",
    "\ufeff\u200b\u0301 combining",
)  # fmt: skip


def test_ids_of_texts_and_pairs_are_those_of_transformers_and_special_tokens_are_literal_text_on_request(build) -> None:
    built = build(CONFIG)
    ours, theirs = built.tokenizer, transformers.AutoTokenizer.from_pretrained(built.folder)
    assert isinstance(theirs, transformers.RobertaTokenizer)
    assert (len(theirs), ours.vocab_size) == (370, 370)
    assert ours.special_tokens == ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
    assert (ours.cls_id, ours.pad_id, ours.sep_id, ours.unk_id, ours.mask_id) == (0, 1, 2, 3, 4)
    assert theirs.mask_token_id == 4 and theirs.pad_token_id == 1 and theirs.unk_token_id == 3
    for text in HOSTILE:
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False), text
        for second in HOSTILE[1:]:  # an empty second text is none to transformers
            assert ours.pair.sequence(ours.encode(text), ours.encode(second)) == theirs.encode(text, second)
        literal = ours.encode_literally([text])[0]
        assert not set(literal) & ours.special_ids
        assert ours.decode(literal) == text
    assert ours.pair.sequence([9], [8]) == [0, 9, 2, 2, 8, 2] and ours.pair.first_length(1, 1) == 6
    masked = ours.encode("the <mask> array")
    assert masked == [*ours.encode("the"), 4, *ours.encode(" array")]  # the mask takes the space before it


def test_every_process_hash_seed_number_of_threads_and_order_of_texts_gives_the_same_bytes(texts) -> None:
    script = (
        "import sys, json\nfrom bertline.tokenization.training import train_byte_bpe\n"
        "print(train_byte_bpe(json.load(sys.stdin), vocab_size=370, min_frequency=2).backend.to_str())"
    )
    joined = [" ".join(document) for document in texts] * 3
    written = set()
    for number, threads in enumerate(("1", "2", "5")):
        environment = {**os.environ, "RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": str(number)}
        shuffled = random.Random(number).sample(joined, len(joined))
        ran = subprocess.run(
            [sys.executable, "-c", script], input=json.dumps(shuffled), env=environment, capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stderr
        written.add(ran.stdout)
    assert len(written) == 1


def test_the_artifact_reports_its_fit_and_is_the_same_with_one_worker_and_two(build) -> None:
    built = build(CONFIG)
    assert sha256_of_path(built.folder) == sha256_of_path(build(CONFIG, "again", workers=2).folder)
    names = {path.name for path in built.folder.iterdir()}
    assert names == {"tokenizer.json", "tokenizer_config.json", "manifest.json"}
    manifest, quality = built.manifest, built.manifest["quality"]
    assert (manifest["source"], manifest["lowercase"], manifest["vocab_size"]) == ("byte_bpe", False, 370)
    assert manifest["special_ids"] == {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": 4}
    assert quality["unknown_rate"] == 0 and quality["words"] == 11 and 1 < quality["tokens_per_word"] < 4


def test_an_existing_byte_level_folder_is_taken_as_it_is_and_not_extended(build) -> None:
    built = build(CONFIG)
    given = {"path": str(built.folder), "revision": None, "user_words": (), "compare": ()}
    taken = build(ExistingTokenizerConfig(kind="existing", lowercase=None, **given), "taken")
    assert (taken.folder / "tokenizer.json").read_bytes() == (built.folder / "tokenizer.json").read_bytes()
    assert taken.manifest["quality"]["unknown_rate"] == 0
    with pytest.raises(ConfigError, match=r"tokenizer\.lowercase is True"):
        build(ExistingTokenizerConfig(kind="existing", lowercase=True, **given), "told")
    sizes = {"num_new": 5, "min_frequency": 1, "sample_characters": 100_000}
    with pytest.raises(ConfigError, match=r"tokenizer\.kind is extended, .*WordPiece .*tokenizer\.path="):
        build(ExtendedTokenizerConfig(kind="extended", lowercase=None, **given, **sizes), "extended")


BYTES = train_byte_bpe(["The quick brown fox doesn't jump over the lazy dog."] * 9, vocab_size=280, min_frequency=2)


@pytest.mark.parametrize(("taken", "overlap", "least"), [({}, 0, 5), ({"question": 6}, 0, 11), ({}, 3, 8)])
def test_a_sequence_without_room_beside_the_special_tokens_is_refused(taken, overlap: int, least: int) -> None:
    assert BYTES.pair.room(least, **taken, overlap=overlap) == overlap + 1
    with pytest.raises(ConfigError, match=rf"at least {least}\b"):
        BYTES.pair.room(least - 1, **taken, overlap=overlap)
