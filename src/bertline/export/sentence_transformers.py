"""Writer of the files that make a folder loadable by sentence-transformers. The package itself is not needed.

References:
    Reimers and Gurevych, Sentence-BERT (arXiv 1908.10084); the package's documentation, "Structure of Sentence
    Transformer Models".
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from bertline.foundation.files import write_json

POOLING_FOLDER = "1_Pooling"


def write_sentence_transformer(
    folder: Path,
    *,
    max_length: int,
    hidden_size: int,
    pooling: Literal["mean", "cls"],
    similarity: Literal["cosine", "dot"],
    prompts: dict[str, str],
) -> None:
    """Add the files that `SentenceTransformer(folder)` reads to a folder with a `BertModel` and its tokenizer.

    The vectors equal those of `bertline.load(folder).embed`: pooled, not normalized. Cosine similarity normalizes them
    itself.

    Args:
        folder: Folder with config.json, model.safetensors and the tokenizer.
        max_length: Maximum number of tokens of a text.
        hidden_size: Dimension of the vectors.
        pooling: How token vectors are pooled.
        similarity: Similarity function that the vectors were trained with.
        prompts: Prefix of a text by its role (`query`, `document`); empty strings for no prefix.
    """
    kinds = (("", "Transformer"), (POOLING_FOLDER, "Pooling"))
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(kinds)
    ]
    write_json(folder / "modules.json", modules)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
    settings = {
        "__version__": {},
        "prompts": prompts,
        "default_prompt_name": None,
        "similarity_fn_name": similarity,
    }
    write_json(folder / "config_sentence_transformers.json", settings)
    pooling_settings = {
        "word_embedding_dimension": hidden_size,
        "pooling_mode_cls_token": pooling == "cls",
        "pooling_mode_mean_tokens": pooling == "mean",
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
        "include_prompt": True,
    }
    (folder / POOLING_FOLDER).mkdir(exist_ok=True)
    write_json(folder / POOLING_FOLDER / "config.json", pooling_settings)
