"""Heads of a real encoder on a real treebank: equal to plain loops over the attentions of transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
import transformers

import bertline
from bertline.encoders.head_measures import Treebank, evenly_spread, head_hits
from bertline.tasks.treebank import read_treebank
from planted_heads import naive_hits

EWT = Path(__file__).resolve().parents[3] / "shared/data/tasks/ud_english_ewt/en_ewt-ud-dev.conllu"


@pytest.mark.shared_data
@pytest.mark.skipif(not EWT.exists(), reason="needs UD English EWT in ../shared")
def test_hits_equal_those_of_an_independent_computation(minilm: Path) -> None:
    model = bertline.load(str(minilm), device="cpu")
    peer = transformers.AutoModel.from_pretrained(minilm, attn_implementation="eager").eval()
    sentences = [one for one in evenly_spread(read_treebank(EWT), 60) if len(one.words) > 1]
    treebank = Treebank.of(sentences, model.tokenizer, max_length=model.max_length)
    expected = naive_hits(
        lambda ids: [head for layer in peer(ids, output_attentions=True).attentions for head in layer[0].tolist()],
        model.tokenizer,
        sentences,
    )
    found = head_hits(model.encoder, treebank, treebank.batches())
    assert found.shape == expected.shape == (sum(len(one.words) for one in sentences), 2 * 6 * 12)
    # Where two words get the same attention to the last bits, rounding decides.
    assert (found != expected).mean() < 1e-4
    assert 0.1 < found.mean() < 0.3
