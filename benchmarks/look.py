"""How long `bertline look` takes, and how large its page is, for encoders of given folders and for BERT's shapes.

python benchmarks/look.py default=artifacts/pretrain --tokenizer FOLDER --keep

`--tokenizer` names a folder with BERT's vocabulary of 30,522 tokens; with it, encoders of the shapes of BERT-base and
BERT-large with random weights are measured too, on 32 and 64 tokens. Time is that of the whole command, the median of
`--times`. The last line is JSON.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measurements import keep, parser_of

from bertline.foundation.manifests import versions_of
from bertline.foundation.parallel import processor_name
from bertline.tokenization.storage import copy_tokenizer
from bertline.tokenization.tokenizer import Tokenizer

_WORDS = "The animal did not cross the street because it was too tired and the street was too wide to be crossed by it"
SHAPES = {"bert_base": (12, 12, 768, 32), "bert_large": (24, 16, 1024, 64)}
"""Layers, heads, hidden size, and tokens of the text."""


def main() -> None:
    """Measure, record and print."""
    parser = parser_of(__doc__)
    parser.add_argument("encoders", nargs="*", metavar="NAME=FOLDER")
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--times", type=int, default=5)
    arguments = parser.parse_args()
    figures: dict[str, Any] = {"device": processor_name()}
    with tempfile.TemporaryDirectory() as work:
        encoders = {name: (Path(folder), 32) for name, folder in (one.split("=", 1) for one in arguments.encoders)}
        for name, (*sizes, num_tokens) in SHAPES.items() if arguments.tokenizer else ():
            encoders[name] = write_shape(Path(work) / name, arguments.tokenizer, *sizes), num_tokens
        for name, (folder, num_tokens) in encoders.items():
            figures[name] = measured(folder, num_tokens, Path(work) / "look.html", times=arguments.times)
    keep("look", {**figures, "versions": versions_of("torch", "tokenizers")}, arguments)
    print(json.dumps(figures))


def write_shape(folder: Path, tokenizer: Path, num_layers: int, num_heads: int, hidden_size: int) -> Path:
    """Write a BERT of this shape with random weights and the tokenizer of another folder; return its folder."""
    import torch
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"num_hidden_layers": num_layers, "num_attention_heads": num_heads}
    config = BertConfig(hidden_size=hidden_size, intermediate_size=4 * hidden_size, **sizes)
    BertForMaskedLM(config).save_pretrained(folder)
    copy_tokenizer(tokenizer, folder)
    return folder


def measured(folder: Path, num_tokens: int, page: Path, *, times: int) -> dict[str, Any]:
    """Return the seconds of the command, and the bytes of its page."""
    ids = Tokenizer.load(folder).encode(" ".join([_WORDS] * 4))[: num_tokens - 2]
    text = Tokenizer.load(folder).decode(ids)
    command = [sys.executable, "-m", "bertline", "look", f"text={text}", f"model_folder={folder}", f"out={page}"]
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - started)
    rounded = [round(one, 2) for one in sorted(seconds)]
    return {
        "tokens": num_tokens,
        "median_s": statistics.median(rounded),
        "all_s": rounded,
        "bytes": page.stat().st_size,
    }


if __name__ == "__main__":
    main()
