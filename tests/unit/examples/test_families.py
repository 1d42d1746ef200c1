"""Examples with the tokenizers of other families: their layout, their special tokens, and the same text."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import transformers

from bertline.corpus.storage import read_documents, shard_paths
from bertline.examples.config import ExamplesConfig
from bertline.examples.encoding import EncodedShard, encode_file
from bertline.examples.masking import masked_batch, masking_policy
from bertline.foundation.labels import IGNORED_LABEL
from bertline.tokenization.build import build_tokenizer
from bertline.tokenization.config import ExistingTokenizerConfig
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.words import word_starts
from corpora import local

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def save_tokenizer_of(family: str, corpus: Path, folder: Path) -> None:
    """A tokenizer of a family, trained on the corpus and saved by transformers."""
    texts = [" ".join(document.sentences) for document in read_documents(corpus, "train")]
    if family == "byte_bpe":
        byte_level = tokenizers.ByteLevelBPETokenizer()
        byte_level.train_from_iterator(texts, vocab_size=320, special_tokens=SPECIAL)
        folder.mkdir()
        byte_level.save_model(str(folder))
        transformers.RobertaTokenizer.from_pretrained(folder).save_pretrained(folder)
        return
    unigram = tokenizers.SentencePieceUnigramTokenizer()
    special, unk = (
        (SPECIAL, "<unk>") if family == "xlm-r" else (["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"], "[UNK]")
    )
    unigram.train_from_iterator(texts, vocab_size=90, special_tokens=special, unk_token=unk)
    vocab = [tuple(each) for each in json.loads(unigram.to_str())["model"]["vocab"]]
    made = transformers.XLMRobertaTokenizer if family == "xlm-r" else transformers.DebertaV2Tokenizer
    tokenizer = made(vocab=vocab)
    tokenizer.add_tokens(["<extra>"], special_tokens=True)
    tokenizer.save_pretrained(folder)


@pytest.fixture(params=["byte_bpe", "xlm-r", "deberta-v3"])
def folder(request: pytest.FixtureRequest, corpus_folder: Path, tmp_path: Path) -> Path:
    """The tokenizer artifact made of such a folder."""
    save_tokenizer_of(request.param, corpus_folder, tmp_path / request.param)
    config = ExistingTokenizerConfig(
        kind="existing", path=str(tmp_path / request.param), revision=None, lowercase=None, user_words=(), compare=()
    )
    build_tokenizer(config, corpus_folder, tmp_path / "taken", **local(tmp_path / "taken"))
    return tmp_path / "taken"


@pytest.mark.parametrize("random_next_prob", [None, 0.5])
def test_sequences_have_the_tokenizer_s_layout_and_special_tokens_are_neither_targets_nor_random_tokens(
    folder: Path, build, config: ExamplesConfig, random_next_prob: float | None
) -> None:
    masking = replace(config.masking, mask_prob=0.9, replace_with_mask_prob=0.0, replace_with_random_prob=1.0)
    built = build(replace(config, random_next_prob=random_next_prob, masking=masking), tokenizer=folder)
    tokenizer, store = Tokenizer.load(folder), built.store(32)
    layout = tokenizer.single if random_next_prob is None else tokenizer.pair
    assert store.layout == layout and store.pad_id == tokenizer.pad_id
    special, policy = np.array(sorted(tokenizer.special_ids)), masking_policy(store.manifest)
    assert policy.special_ids == tuple(special)
    for example in built.examples(32):
        ids, first = example.input_ids.tolist(), example.first_segment_length
        stop = len(ids) - len(layout.after)
        a = ids[len(layout.before) : first - len(layout.between) if layout.between else stop]
        b = ids[first:stop]
        assert ids == layout.sequence(a, b) and a and (b or random_next_prob is None) and len(ids) <= 32
        assert not set(a + b) & set(special)
        assert (example.token_type_ids == layout.second_type * (np.arange(len(ids)) >= first)).all()
    batch = masked_batch(store, np.arange(len(store)), epoch=0, seed=0, policy=policy)
    used = batch["masked_labels"] != IGNORED_LABEL
    shown = np.take_along_axis(batch["input_ids"], batch["masked_positions"], axis=1)[used]
    assert used.sum() > 100
    assert not np.isin(batch["masked_labels"][used], special).any() and not np.isin(shown, special).any()
    assert (batch["token_type_ids"].max() == 1) == bool(layout.second_type)


def test_a_text_is_encoded_as_its_sentences_stand_in_it(folder: Path, corpus_folder, tmp_path, config) -> None:
    document = next(iter(read_documents(corpus_folder, "train")))
    path = shard_paths(corpus_folder, "train")[0]
    encode_file(path, tmp_path, tokenizer_folder=folder, config=config, has_labels=False)
    shard = EncodedShard.open(tmp_path)
    ids = shard.tokens[: shard.sentence_starts[shard.document_starts[1]]]
    assert ids.tolist() == Tokenizer.load(folder).encode_literally([" ".join(document.sentences)])[0]


def test_words_begin_behind_a_space_and_punctuation_is_one(folder: Path) -> None:
    tokenizer = Tokenizer.load(folder)
    begins, words = word_starts(tokenizer), []
    ids = tokenizer.encode("bal delt kurs. misl.")
    assert len(ids) > 6  # so that some words have several tokens
    for index in ids:
        words += [[]] if begins[index] or not words else []
        words[-1].append(index)
    assert [tokenizer.decode(word).strip() for word in words] == ["bal", "delt", "kurs", ".", "misl", "."]
