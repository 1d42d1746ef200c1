"""The corpus as flat arrays of ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bertline.corpus.document import Document
from bertline.corpus.storage import read_documents
from bertline.examples.encoding import EncodedCorpus, encode_corpus
from bertline.tokenization.tokenizer import Tokenizer


def test_every_sentence_is_found_again(corpus_folder: Path, tokenizer_folder: Path, tmp_path: Path) -> None:
    documents = list(read_documents(corpus_folder, "train"))
    counts = encode_corpus(documents, tokenizer_folder, tmp_path / "out", num_workers=1)
    corpus = EncodedCorpus.open(tmp_path / "out")
    tokenizer = Tokenizer.load(tokenizer_folder)
    assert counts["documents"] == corpus.num_documents == len(documents)
    assert counts["tokens"] == len(corpus.tokens)
    assert corpus.tokens.dtype == np.uint16
    for index, document in enumerate(documents):
        first = int(corpus.document_starts[index])
        for offset, sentence in enumerate(document.sentences):
            start, stop = corpus.sentence_starts[first + offset : first + offset + 2]
            assert corpus.tokens[start:stop].tolist() == tokenizer.encode(sentence)


def test_sentences_and_documents_without_tokens_are_left_out_and_counted(
    tokenizer_folder: Path, tmp_path: Path
) -> None:
    documents = [
        Document("a", "a", ("bal .", "\u200b", "bar")),
        Document("b", "b", ("\u200b",)),
        Document("c", "c", ("bas",)),
    ]
    counts = encode_corpus(documents, tokenizer_folder, tmp_path / "out", num_workers=1)
    corpus = EncodedCorpus.open(tmp_path / "out")
    assert (counts["sentences/no_tokens"], counts["documents/no_tokens"]) == (2, 1)
    assert corpus.document_starts.tolist() == [0, 2, 3]
    assert corpus.sentence_starts.tolist() == [0, 2, 3, 4]


def test_a_separator_written_in_the_text_does_not_become_a_separator(tokenizer_folder: Path, tmp_path: Path) -> None:
    encode_corpus([Document("a", "a", ("bal [SEP] bar",))], tokenizer_folder, tmp_path / "out", num_workers=1)
    tokenizer = Tokenizer.load(tokenizer_folder)
    assert tokenizer.sep_id not in EncodedCorpus.open(tmp_path / "out").tokens
