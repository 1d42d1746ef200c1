"""The corpus as flat arrays of ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bertline.corpus.storage import read_documents, shard_paths
from bertline.examples.config import ExamplesConfig
from bertline.examples.encoding import EncodedCorpus, encode_file
from bertline.tokenization.tokenizer import Tokenizer


def encoded(
    paths: list[Path], tokenizer_folder: Path, out: Path, config: ExamplesConfig
) -> tuple[EncodedCorpus, list[dict[str, int]]]:
    """The files of a corpus as shards."""
    folders = [out / path.name for path in paths]
    counts = []
    for path, folder in zip(paths, folders, strict=True):
        folder.mkdir(parents=True)
        counts.append(encode_file(path, folder, tokenizer_folder=tokenizer_folder, config=config, has_labels=False))
    return EncodedCorpus(folders, counts), counts


def test_every_sentence_is_found_again(
    corpus_folder: Path, tokenizer_folder: Path, tmp_path: Path, config: ExamplesConfig
) -> None:
    documents, paths = list(read_documents(corpus_folder, "train")), shard_paths(corpus_folder, "train")
    corpus, counts = encoded(paths, tokenizer_folder, tmp_path / "out", config)
    tokenizer = Tokenizer.load(tokenizer_folder)
    assert len(paths) > 1 and corpus.num_documents == len(documents) == sum(each["documents"] for each in counts)
    assert sum(each["tokens"] for each in counts) == corpus.token_bounds[-1]
    assert corpus.shard(0).tokens.dtype == np.uint16
    for index, document in enumerate(documents):
        bounds = np.array(corpus.sentence_bounds(index))
        tokens = np.empty(bounds[-1] - bounds[0], np.uint16)
        corpus.copy_spans(bounds[:-1], np.diff(bounds), bounds[:-1] - bounds[0], tokens)
        assert tokens.tolist() == [token for sentence in document.sentences for token in tokenizer.encode(sentence)]
        assert np.diff(bounds).tolist() == [len(tokenizer.encode(sentence)) for sentence in document.sentences]


def test_sentences_and_documents_without_tokens_are_left_out_and_counted(
    corpus_of, tokenizer_folder: Path, tmp_path: Path, config: ExamplesConfig
) -> None:
    folder = corpus_of([["bal .", "\u200b", "bar"], ["\u200b"], ["bas"]], [])
    corpus, [counts] = encoded(shard_paths(folder, "train"), tokenizer_folder, tmp_path / "out", config)
    assert (counts["sentences/no_tokens"], counts["documents/no_tokens"]) == (2, 1)
    assert [corpus.sentence_bounds(document) for document in range(corpus.num_documents)] == [[0, 2, 3], [3, 4]]


def test_a_separator_written_in_the_text_does_not_become_a_separator(
    corpus_of, tokenizer_folder: Path, tmp_path: Path, config: ExamplesConfig
) -> None:
    folder = corpus_of([["bal [SEP] bar"]], [])
    corpus, _ = encoded(shard_paths(folder, "train"), tokenizer_folder, tmp_path / "out", config)
    assert Tokenizer.load(tokenizer_folder).sep_id not in corpus.shard(0).tokens
