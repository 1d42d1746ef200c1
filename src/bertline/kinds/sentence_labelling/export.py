"""Model card of a task of the kind `sentence_labelling`."""

from __future__ import annotations

from bertline.export.markdown import code_span
from bertline.export.usage import Usage
from bertline.finetuning.task_file import FinishedTask


def usage(finished: FinishedTask, *, pair: bool) -> Usage:
    """Return the usage of a model of this kind."""
    return Usage(
        what=f"Gives each sentence of a document a label: {', '.join(map(code_span, finished.kind.labels))}.",
        tag="token-classification",
        pipeline=False,
        snippets=(
            'import bertline\n\nbertline.load("NAME").predict([["One sentence.", "The next one."]])  '
            "# text, label, probability",
        ),
        limits=(
            "Each sentence is labelled from its own [CLS], which only bertline puts there.",
            f"The sentences of a document are read together, up to {finished.kind.config.max_length} tokens; a longer "
            "document is read in groups of whole sentences.",
        ),
    )
