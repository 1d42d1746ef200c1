"""A plain transformers loop over a file of texts: the peer of `prediction.py`, in a separate process.

`AutoModelForSequenceClassification` in fp32 under `torch.inference_mode`, the fast tokenizer, texts sorted by length,
each batch padded to its longest text; predictions and probabilities are written as JSONL in the order of the input.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import repository_source  # noqa: F401
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer


def main() -> None:
    """Arguments: model folder, input, output, threads, batch sizes. Prints the times of each batch size as JSON."""
    folder, source, target, threads, *sizes = sys.argv[1:]
    torch.set_num_threads(int(threads))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    seconds = {}
    for size in map(int, sizes):
        started = time.perf_counter()
        predict(model, tokenizer, Path(source), Path(target), size)
        seconds[size] = time.perf_counter() - started
    print(json.dumps(seconds))


def predict(model: torch.nn.Module, tokenizer, source: Path, target: Path, batch_size: int) -> None:  # type: ignore[no-untyped-def]
    """Read a file with one text per line, and write the predictions as JSONL."""
    texts = source.read_text(encoding="utf-8").splitlines()
    order = sorted(range(len(texts)), key=lambda number: -len(texts[number]))
    probabilities = torch.zeros(len(texts), model.config.num_labels)
    with torch.inference_mode():
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            batch = tokenizer([texts[i] for i in chosen], padding=True, truncation=True, return_tensors="pt")
            probabilities[chosen] = model(**batch).logits.softmax(-1)
    names = model.config.id2label
    with target.open("w", encoding="utf-8") as handle:
        for text, row in zip(texts, probabilities.tolist(), strict=True):
            best = max(range(len(row)), key=row.__getitem__)
            listed = [
                {"label": names[i], "probability": row[i]} for i in sorted(range(len(row)), key=lambda i: -row[i])
            ]
            line = {"text": text, "predicted": names[best], "probability": row[best], "probabilities": listed}
            handle.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
