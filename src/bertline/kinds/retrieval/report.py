"""Report and model card of a task of the kind `retrieval`."""

from __future__ import annotations

from collections.abc import Sequence

from bertline.evaluation.html import metric_name, ranking_block
from bertline.export.usage import Usage, VectorSettings
from bertline.finetuning.task_file import FinishedTask

error_block = ranking_block


def about(labels: Sequence[str]) -> str:
    """Return a sentence on what the task asks for."""
    return "Retrieval: find the documents of a collection that belong to a query."


row_measure = metric_name


def usage(finished: FinishedTask, *, pair: bool) -> Usage:
    """Return the usage of a model of this kind."""
    config = finished.kind.config
    prompts = bool(config.query_prefix or config.document_prefix)
    query, document = (', prompt_name="query"', ', prompt_name="document"') if prompts else ("", "")
    return Usage(
        what="Turns queries and documents into vectors, so that the documents for a query lie near it.",
        tag="sentence-similarity",
        pipeline=True,
        snippets=(
            'import bertline\n\nmodel = bertline.load("NAME")\n'
            'model.search(["a question"], ["A document.", "Another one."], top_k=1)\n'
            'model.embed(["A document."], role="document")  # one vector each',
            "from sentence_transformers import SentenceTransformer\n\n"
            '# "NAME" is the folder that this file lies in.\nmodel = SentenceTransformer("NAME")\n'
            f'model.similarity(model.encode(["a question"]{query}), model.encode(["A document."]{document}))',
        ),
        vectors=VectorSettings(
            pooling=config.pooling,
            similarity=config.similarity,
            prompts={"query": config.query_prefix, "document": config.document_prefix},
        ),
        limits=(
            "It finds what is nearest, also where no document has the answer.",
            f"bertline cuts queries at {config.query_max_length} tokens, as in training; sentence-transformers at "
            f"{config.max_length}, as documents.",
        ),
    )
