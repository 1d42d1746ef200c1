"""What bertline relies on in tokenizers, and why it trains its vocabulary itself."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertTokenizerFast

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def test_transformers_lowercases_a_cased_tokenizer_unless_its_config_says_not_to(tmp_path: Path) -> None:
    vocabulary = {token: number for number, token in enumerate([*SPECIAL, "Café", "café", "cafe"])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    assert "Café" not in BertTokenizerFast.from_pretrained(tmp_path).tokenize("Café")
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false, "strip_accents": false}')
    assert BertTokenizerFast.from_pretrained(tmp_path).tokenize("Café") == ["Café"]
