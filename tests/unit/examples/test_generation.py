"""Blocks of examples."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from bertline.corpus.storage import read_documents
from bertline.examples.config import ExamplesConfig
from bertline.examples.encoding import EncodedCorpus, encode_corpus
from bertline.examples.generation import (
    BlockOfDocuments,
    Pair,
    Span,
    assemble,
    blocks_of_documents,
    generate_block,
)


def test_blocks_cover_every_document_once_a_copy_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertline.examples.generation._BLOCK_TOKENS", 10)
    corpus = EncodedCorpus.from_lists([[[1] * n] for n in (3, 3, 25, 1, 9, 4, 4)])
    blocks = blocks_of_documents(corpus, num_copies=2)
    assert [(block.copy, document) for block in blocks for document in block.documents] == [
        (copy, document) for copy in (0, 1) for document in range(7)
    ]
    assert len(blocks) > 4


def test_segments_stand_between_their_special_tokens() -> None:
    tokens = np.arange(100, 120, dtype=np.uint16)
    pairs = [Pair(Span(0, 3), Span(10, 12), 1, False, 0), Pair(Span(5, 6), Span(6, 9), 0, False, 0)]
    block = assemble(tokens, pairs, cls_id=2, sep_id=3)
    assert block.input_ids.tolist() == [2, 100, 101, 102, 3, 110, 111, 3, 2, 105, 3, 106, 107, 108, 3]
    assert block.input_ids.dtype == np.uint16
    assert block.lengths.tolist() == [8, 7]
    assert block.first_segment_lengths.tolist() == [5, 3]
    assert block.next_sentence_labels.tolist() == [1, 0]


def test_no_pairs_make_an_empty_block() -> None:
    assert assemble(np.arange(5), [], cls_id=2, sep_id=3).lengths.tolist() == []


def test_a_document_s_examples_do_not_depend_on_its_block_but_on_the_copy(
    corpus_folder: Path, tokenizer_folder: Path, tmp_path: Path, config: ExamplesConfig
) -> None:
    encode_corpus(read_documents(corpus_folder, "train"), tokenizer_folder, tmp_path / "out", num_workers=1)
    given = {"corpus_folder": tmp_path / "out", "split": "train", "length": 16, "config": config}
    generate = partial(generate_block, **given, cls_id=2, sep_id=3)
    together, _ = generate(BlockOfDocuments(range(10), 0))
    parts = [generate(BlockOfDocuments(range(i, i + 5), 0))[0] for i in (0, 5)]
    other_copy, _ = generate(BlockOfDocuments(range(10), 1))
    assert together.input_ids.tolist() == np.concatenate([part.input_ids for part in parts]).tolist()
    assert together.input_ids.tolist() != other_copy.input_ids.tolist()
