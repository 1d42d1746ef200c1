"""Model card of a task of the kind `tagging`."""

from __future__ import annotations

from bertline.export.card_tables import code_span
from bertline.export.usage import Usage
from bertline.finetuning.task_file import FinishedTask


def usage(finished: FinishedTask, *, pair: bool) -> Usage:
    """Return the usage of a model of this kind."""
    config = finished.kind.config
    limits = [
        "It was trained on the words of a treebank (`do n't` is two). A text is split at white space and punctuation; "
        "give lists of words for the split of the treebank.",
    ]
    if config.word_logits == "mean":
        limits.append("A word's logits are the mean of its tokens'; transformers' pipeline decides token by token.")
    if config.word_case == "marked":
        limits.append(
            "The model reads the case of words in the `token_type_ids` of their tokens, which transformers' pipeline "
            "does not set."
        )
    return Usage(
        what=f"Gives every word a tag: {', '.join(map(code_span, finished.kind.labels))}.",
        tag="token-classification",
        pipeline=config.word_case == "plain",
        snippets=(
            'import bertline\n\nbertline.load("NAME").predict(["A text to tag."])  # text, tag, start, end, score',
        ),
        limits=tuple(limits),
    )
