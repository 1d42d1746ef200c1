"""Collections of a few documents in every format, and configurations that read them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import tiny
from bertline.kinds.reranking import RerankingTaskConfig
from bertline.kinds.retrieval import RetrievalTaskConfig
from bertline.tasks.source_config import BeirSourceConfig, SentencePairsSourceConfig

DOCUMENTS = {"1": ("Lift", "Wings give lift."), "2": ("", "Heat in slabs."), "3": ("Drag", "Drag of a plate.")}
QUERIES = {f"q{number}": f"question {number} on wings" for number in range(1, 21)}


def base(**changes: Any) -> dict[str, Any]:
    return tiny.task_fields(**{"max_length": 16, "dev_fraction": 0.3, "test_fraction": 0.4, "split_seed": 0, **changes})


def retrieval(source: Any, **changes: Any) -> RetrievalTaskConfig:
    fields = tiny.defaults("task/base/retrieval", source=source, query_max_length=16)
    return RetrievalTaskConfig(**base(**{**fields, **changes}))


def reranking(source: Any, **changes: Any) -> RerankingTaskConfig:
    fields: dict[str, Any] = {
        "kind": "reranking", "source": source, "num_candidates": 2, "num_negatives": 0, "metric": "map",
    }  # fmt: skip
    return RerankingTaskConfig(**base(**{**fields, **changes}))


def beir_source(folder: Path, **changes: Any) -> BeirSourceConfig:
    fields: dict[str, Any] = {
        "kind": "beir", "path": str(folder), "train_qrels": None, "dev_qrels": None, "test_qrels": "qrels/test.tsv",
        "on_bad_row": "error",
    }  # fmt: skip
    return BeirSourceConfig(**{**fields, **changes})


def sentence_pairs_source(folder: Path, **changes: Any) -> SentencePairsSourceConfig:
    fields: dict[str, Any] = {
        "kind": "sentence_pairs", "path": str(folder), "languages": ("deu", "fra"), "queries_file": "pairs.{language}",
        "documents_file": "eng.{language}", "on_bad_row": "error",
    }  # fmt: skip
    return SentencePairsSourceConfig(**{**fields, **changes})


def write_beir(folder: Path, *, judged: dict[str, dict[str, int]] | None = None, packed: bool = False) -> Path:
    """Every query has one relevant document, which goes round, unless `judged` says otherwise."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    corpus = [{"_id": each, "title": title, "text": text} for each, (title, text) in DOCUMENTS.items()]
    queries = [{"_id": each, "text": text, "metadata": {}} for each, text in QUERIES.items()]
    for name, records in (("corpus.jsonl", corpus), ("queries.jsonl", queries)):
        content = "".join(json.dumps(record) + "\n" for record in records).encode()
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
    if judged is None:
        judged = {query: {list(DOCUMENTS)[place % 3]: 1} for place, query in enumerate(QUERIES)}
    write_qrels(folder / "qrels" / "test.tsv", judged)
    return folder


def write_qrels(path: Path, judged: dict[str, dict[str, int]]) -> None:
    lines = [f"{query}\t{document}\t{value}\n" for query, found in judged.items() for document, value in found.items()]
    path.write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
