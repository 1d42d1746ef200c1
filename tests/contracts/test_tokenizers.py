"""What bertline relies on in tokenizers, and why it trains its vocabulary itself."""

from __future__ import annotations

import random
from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertTokenizerFast

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def test_the_librarys_trainer_is_not_deterministic_so_bertline_has_its_own() -> None:
    chooser = random.Random(1)
    words = ["".join(chooser.choices("abcdefgh", k=chooser.randint(3, 8))) for _ in range(600)]
    texts = [" ".join(chooser.choices(words, k=30)) for _ in range(200)]
    found = set()
    for _ in range(8):
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.train_from_iterator(
            texts, trainers.WordPieceTrainer(vocab_size=400, special_tokens=SPECIAL, show_progress=False)
        )
        found.add(tuple(sorted(tokenizer.get_vocab().items())))
    assert len(found) > 1  # if this ever fails, the library's trainer can be used and `Merger` can go


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
