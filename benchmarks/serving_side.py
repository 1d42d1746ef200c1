"""One side of `serving.py`, in a process of its own: loads a model, and times what it is told on its standard input.

Arguments: side, folder of the model, JSON file of the texts by length, NPZ file for their vectors, threads. Each line
of the input names a length and a batch size (`short 1`); the answer is the seconds of all its texts, batch by batch.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import repository_source  # noqa: F401

LONGEST = 256
ONNX_FILES = {"onnx": "model.onnx", "onnx_int8": "model_int8.onnx", "onnx_int8_vnni": "model_int8_vnni.onnx"}
Encode = Callable[[list[str], int], Any]
"""Vectors of texts, computed in batches of a size."""


def main() -> None:
    """Load, compute the vectors once, which warms up, and answer."""
    side, folder, texts_file, vectors_file, threads = sys.argv[1:]
    texts: dict[str, list[str]] = json.loads(Path(texts_file).read_text(encoding="utf-8"))
    encode = SIDES[side](Path(folder), side, int(threads))
    np.savez(vectors_file, **{length: encode(batch, 16) for length, batch in texts.items()})
    clock = time.process_time if int(threads) == 1 else time.perf_counter
    print("ready", flush=True)
    for line in sys.stdin:
        length, size = line.split()
        started = clock()
        if size == "1":  # requests that come one after the other
            for text in texts[length]:
                encode([text], 1)
        else:
            encode(texts[length], int(size))
        print(clock() - started, flush=True)


def ours(folder: Path, side: str, threads: int) -> Encode:
    """Return `bertline.load(folder).embed`."""
    import bertline

    set_threads(threads)
    model = bertline.load(str(folder), device="cpu")
    return lambda texts, size: model.embed(texts, batch_size=size)


def file_of_ours(folder: Path, side: str, threads: int) -> Encode:
    """Return a loop over batches, short texts first: tokenizer.json, ONNX Runtime, the output of vectors."""
    import onnxruntime
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(LONGEST)
    tokenizer.enable_padding()
    file = folder / "onnx" / ONNX_FILES[side]
    session = onnxruntime.InferenceSession(file, session_options(threads), providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]

    def encode(texts: list[str], size: int) -> Any:
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        vectors: list[Any] = [None] * len(texts)
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            encodings = tokenizer.encode_batch([texts[number] for number in chosen])
            read = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
            inputs = {name: np.array([getattr(each, read[name]) for each in encodings]) for name in names}
            for number, vector in zip(chosen, session.run(["sentence_embedding"], inputs)[0], strict=True):
                vectors[number] = vector
        return np.stack(vectors)

    return encode


def sentence_transformers(folder: Path, side: str, threads: int) -> Encode:
    """Return `SentenceTransformer.encode` on a backend, its files made as its documentation says."""
    from sentence_transformers import SentenceTransformer, export_dynamic_quantized_onnx_model

    set_threads(threads)
    more: dict[str, Any] = {"provider": "CPUExecutionProvider", "session_options": session_options(threads)}
    backend: Any = "openvino" if side == "st_openvino" else "onnx"
    if backend == "openvino":
        more = {"ov_config": {"INFERENCE_NUM_THREADS": threads}}
    model = SentenceTransformer(str(folder), backend=backend, device="cpu", model_kwargs={**more, "export": True})
    if side == "st_onnx_int8":
        kind = "avx512_vnni" if has_vnni() else "avx2"
        export_dynamic_quantized_onnx_model(model, kind, str(folder))
        more["file_name"] = f"onnx/model_qint8_{kind}.onnx"
        model = SentenceTransformer(str(folder), backend=backend, device="cpu", model_kwargs=more)
    model.max_seq_length = LONGEST
    return lambda texts, size: model.encode(texts, batch_size=size, show_progress_bar=False)


def has_vnni() -> bool:
    """Whether this processor multiplies 8-bit weights without loss."""
    return "vnni" in Path("/proc/cpuinfo").read_text(encoding="utf-8")


def session_options(threads: int) -> Any:
    """Return the options of ONNX Runtime, the same for all sides."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return options


def set_threads(threads: int) -> None:
    """Set the threads of PyTorch, which pools the vectors of sentence-transformers."""
    import torch

    torch.set_num_threads(threads)


SIDES: dict[str, Callable[[Path, str, int], Encode]] = {
    "embed": ours,
    **dict.fromkeys(ONNX_FILES, file_of_ours),
    **dict.fromkeys(("st_onnx", "st_onnx_int8", "st_openvino"), sentence_transformers),
}

if __name__ == "__main__":
    main()
