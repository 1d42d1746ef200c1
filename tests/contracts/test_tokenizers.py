"""What bertline relies on in tokenizers, and why it trains its vocabulary itself."""

from __future__ import annotations

import random

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

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
