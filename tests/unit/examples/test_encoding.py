"""The corpus as flat arrays of ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bertline.corpus.storage import read_documents, shard_paths
from bertline.examples.config import ExamplesConfig
from bertline.examples.encoding import EncodedCorpus, encode_file
from bertline.tokenization.tokenizer import Tokenizer
from corpora import write_corpus


@pytest.fixture
def encoded(tokenizer_folder: Path, config: ExamplesConfig, tmp_path: Path):
    """`encoded(corpus)`: the train files of a corpus as shards, and their counts."""

    def encode(corpus: Path) -> tuple[EncodedCorpus, list[dict[str, int]]]:
        folders, counts = [], []
        for path in shard_paths(corpus, "train"):
            folders.append(tmp_path / path.name)
            folders[-1].mkdir()
            arguments = {"tokenizer_folder": tokenizer_folder, "config": config, "has_labels": False}
            counts.append(encode_file(path, folders[-1], **arguments))
        return EncodedCorpus(folders, counts), counts

    return encode


def test_every_sentence_is_found_again(encoded, corpus_folder: Path, tokenizer_folder: Path) -> None:
    documents, (corpus, counts) = list(read_documents(corpus_folder, "train")), encoded(corpus_folder)
    tokenizer = Tokenizer.load(tokenizer_folder)
    assert len(counts) > 1 and corpus.num_documents == len(documents) == sum(each["documents"] for each in counts)
    assert sum(each["tokens"] for each in counts) == corpus.token_bounds[-1]
    assert corpus.shard(0).tokens.dtype == np.uint16
    for index, document in enumerate(documents):
        bounds = np.array(corpus.sentence_bounds(index))
        tokens = np.empty(bounds[-1] - bounds[0], np.uint16)
        corpus.copy_spans(bounds[:-1], np.diff(bounds), bounds[:-1] - bounds[0], tokens)
        assert tokens.tolist() == [token for sentence in document.sentences for token in tokenizer.encode(sentence)]
        assert np.diff(bounds).tolist() == [len(tokenizer.encode(sentence)) for sentence in document.sentences]


def test_sentences_and_documents_without_tokens_are_left_out_and_counted(encoded, tmp_path: Path) -> None:
    texts = [["bal .", "\u200b", "bar"], ["\u200b"], ["bas"]]
    corpus, [counts] = encoded(write_corpus(tmp_path / "empty", texts, []))
    assert (counts["sentences/no_tokens"], counts["documents/no_tokens"]) == (2, 1)
    assert [corpus.sentence_bounds(document) for document in range(corpus.num_documents)] == [[0, 2, 3], [3, 4]]
