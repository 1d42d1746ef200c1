"""The page on translation: its program learns, on rows that are made here and on real ones."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import tiny
from bertline.encoders.loading import save_model
from bertline.modeling.initialization import initialize
from bertline.tokenization.counting import count_words
from bertline.tokenization.storage import save_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.training import train_wordpiece
from bertline.tokenization.vocabulary import Vocabulary

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/howto/translate.md").read_text()
NUM_EPOCHS = ", 20, 48"


def translate(folder: Path, pairs: Sequence[tuple[str, str]], *, num_epochs: int, **sizes: int) -> list[list[float]]:
    """Loss and chrF before and after the page's program, with an encoder of random weights."""
    (folder / "pairs.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    texts = [text for pair in pairs for text in pair]
    counts = count_words(texts, Vocabulary(tokens=(), lowercase=True))
    tokens = train_wordpiece(counts, vocab_size=2000, min_frequency=2, max_alphabet=300, or_fewer=True)
    config = tiny.model_config(max_position_embeddings=64, **sizes)
    model = tiny.BertForPreTraining(config, vocab_size=len(tokens), pad_token_id=0)
    initialize(model, config, seed=0)
    save_model(model, folder / "artifacts/export/encoder")
    save_tokenizer(Tokenizer(Vocabulary(tokens=tokens, lowercase=True)), folder / "artifacts/export/encoder")
    program = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1]
    assert program.count(NUM_EPOCHS) == 1
    program = program.replace(NUM_EPOCHS, f", {num_epochs}, 48")
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, check=True, capture_output=True, text=True)
    assert (folder / "translator/model.safetensors").exists()
    found = [re.search(rf"{when}: held-out loss (\S+) nats, chrF (\S+)", done.stdout) for when in ("before", "after")]
    return [[float(each[number]) for each in found] for number in (1, 2)]


def test_it_learns_to_translate_words_that_are_made_up(tmp_path: Path) -> None:
    colours = {"rot": "red", "blau": "blue", "weiss": "white", "braun": "brown", "gelb": "yellow"}
    things = {"haus": "house", "boot": "boat", "buch": "book", "brot": "bread", "hund": "dog", "baum": "tree"}
    verbs = {"steht": "stands", "kommt": "comes", "bleibt": "stays"}
    pairs = [
        (f"das {colour} {thing} {verb}", f"the {colours[colour]} {things[thing]} {verbs[verb]}")
        for colour, thing, verb in product(colours, things, verbs)
    ]
    loss, chrf = translate(tmp_path, pairs, num_epochs=30, hidden_size=64)
    assert loss[1] < 1 < loss[0] and chrf[1] > chrf[0] + 30
