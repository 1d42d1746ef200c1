"""Descriptions and code examples of each kind of model, for its card."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertline.export.card_tables import code_span
from bertline.finetuning.kinds.multi_label import THRESHOLD
from bertline.finetuning.kinds.token_classification import OUTSIDE_MARGIN
from bertline.finetuning.task_file import FinishedTask
from bertline.finetuning.temperature import TEMPERATURE
from bertline.foundation.errors import ArtifactError
from bertline.tasks.config import (
    ClassificationTaskConfig,
    FillMaskTaskConfig,
    QuestionAnsweringTaskConfig,
    RegressionTaskConfig,
    RerankingTaskConfig,
    RetrievalTaskConfig,
    SummarisationTaskConfig,
    TokenClassificationTaskConfig,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """The part of a card that depends on the kind of task."""

    what: str
    """One sentence on inputs and outputs."""
    tag: str
    """Task tag of the hub, also used as `pipeline_tag` of the card if `pipeline` is true."""
    pipeline: bool
    """Whether a library of the hub (transformers, sentence-transformers) runs this task with the unmodified folder."""
    snippets: tuple[str, ...]
    """Python examples, with `NAME` in place of the folder."""
    limits: tuple[str, ...]
    """Limits that users should know."""


_MARKED_BY_TRANSFORMERS = """\
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("NAME")  # the folder that this file lies in
model = AutoModelForSequenceClassification.from_pretrained("NAME")
inputs = tokenizer("One text.", "The text to compare.", return_tensors="pt")
tokens, segments = inputs.tokens(), inputs["token_type_ids"][0].tolist()
special = set(tokenizer.all_special_tokens)
sides = [[t for t, s in zip(tokens, segments) if s == side and t not in special] for side in (0, 1)]
words = ["".join(t[2:] if t.startswith("##") else " " + t for t in side) for side in sides]


def mark(token, segment):
    text, others = token.removeprefix("##"), words[1 - segment]
    if token in special:
        return 0
    if token in sides[1 - segment]:
        return 1
    stem = text[: max(4, len(text) - 3)]
    return 2 * (len(text) >= 3 and (text in others or (len(text) > 4 and stem in others)))


inputs["token_type_ids"] += 2 * torch.tensor([[mark(t, s) for t, s in zip(tokens, segments)]])
probabilities = model(**inputs).logits.softmax(-1)"""


def usage_of(finished: FinishedTask, *, pair: bool) -> Usage:
    """Return the usage of a task's model.

    Args:
        finished: Kind, labels and calibration of the task.
        pair: Whether an input is a pair of texts.
    """
    config, labels = finished.kind.config, finished.kind.labels
    match config:
        case ClassificationTaskConfig():
            return _classification(config, finished, pair)
        case RegressionTaskConfig():
            return _regression(config)
        case TokenClassificationTaskConfig():
            return _token_classification(config, labels, finished.calibration)
        case QuestionAnsweringTaskConfig():
            return _question_answering(finished.calibration)
        case RetrievalTaskConfig():
            return _retrieval(config)
        case RerankingTaskConfig():
            return _reranking()
        case SummarisationTaskConfig():
            return _summarisation(config)
        case FillMaskTaskConfig():
            return _fill_mask()
        case _:
            raise ArtifactError(f"the card knows no words for a task of the kind {config.kind!r}.")


def _classification(config: ClassificationTaskConfig, finished: FinishedTask, pair: bool) -> Usage:
    labels = finished.kind.labels
    inputs = '["One text."], ["The text to compare."]' if pair else '["One text.", "Another text."]'
    theirs = '{"text": "One text.", "text_pair": "The text to compare."}' if pair else '"One text."'
    several = ', top_k=None, function_to_apply="sigmoid"' if config.multi_label else ""
    named = ", ".join(code_span(label) for label in labels)
    temperature = finished.calibration.get(TEMPERATURE)
    calibrated = "they have not been calibrated"
    if temperature is not None:
        calibrated = (
            f"bertline divides the logits by {temperature:.3g} first, which dev chose (`task.json`), transformers and "
            "ONNX do not"
        )
    what = f"Sorts {'pairs of texts' if pair else 'texts'} into {len(labels)} classes: {named}."
    limits = [
        "Every input gets one of the labels above, also one that fits none of them.",
        f"The probabilities are those of the softmax; {calibrated}.",
    ]
    if config.multi_label:
        what = f"Gives {'pairs of texts' if pair else 'texts'} any number of {len(labels)} labels: {named}."
        threshold = finished.calibration.get(THRESHOLD, 0.5)
        limits = [
            f"A label is given from a probability of {threshold:g} on (`task.json`); "
            + (
                "the probabilities have not been calibrated."
                if temperature is None
                else f"of the probabilities, {calibrated}."
            )
        ]
    if config.long_texts == "windows":
        limits.append(
            "bertline reads a long text in overlapping windows and pools their scores; transformers cuts it instead."
        )
    by_bertline = f'import bertline\n\nbertline.load("NAME").predict({inputs})'
    by_transformers = (
        'from transformers import pipeline\n\nclassify = pipeline("text-classification", model="NAME")  '
        f"# the folder that this file lies in\nclassify({theirs}{several})"
    )
    marked = config.shared_tokens == "marked"
    if marked:
        limits.append(
            "The model reads which tokens match the other text, in their `token_type_ids`: a token that the other text "
            "has too is of type 2 in the first text and 3 in the second, one that is part of a word there of type 4 "
            "and 5. transformers' pipeline does not set them; without them the scores mean little."
        )
    return Usage(
        what=what,
        tag="text-classification",
        pipeline=not marked,
        snippets=(by_bertline, _MARKED_BY_TRANSFORMERS) if marked else (by_transformers, by_bertline),
        limits=tuple(limits),
    )


def _regression(config: RegressionTaskConfig) -> Usage:
    scale = f"from {config.low:g} to {config.high:g}"
    ours = 'import bertline\n\nbertline.load("NAME").predict(["One text."], ["Another text."])'
    if config.head == "cosine":
        return Usage(
            what=f"Says how alike two texts are, {scale}, by the cosine of their vectors.",
            tag="sentence-similarity",
            pipeline=True,
            snippets=(
                f'{ours}\nbertline.load("NAME").embed(["One text.", "Another text."])  # one vector each',
                "from sentence_transformers import SentenceTransformer\n\n"
                'model = SentenceTransformer("NAME")  # the folder that this file lies in\n'
                'model.similarity(*model.encode(["One text.", "Another text."]))  # the cosine itself',
            ),
            limits=("What counts as alike is what the annotators of its training pairs took it for.",),
        )
    return Usage(
        what=f"Gives a text, or a pair of texts, a number {scale}.",
        tag="text-classification",
        pipeline=True,
        snippets=(ours,),
        limits=(
            "The class of transformers gives a number between about 0 and 1, which bertline puts on the scale.",
            "Numbers can lie a little outside the scale.",
        ),
    )


def _token_classification(
    config: TokenClassificationTaskConfig, labels: tuple[str, ...], calibration: dict[str, float]
) -> Usage:
    types = sorted({label.split("-", 1)[1] for label in labels if "-" in label})
    limits = ["Words are cut at white space and punctuation, as in training; an entity never ends inside a word."]
    if config.head == "crf":
        limits.append(
            "Tags are decoded by a conditional random field (`crf.safetensors`), which bertline alone reads: "
            "transformers and the ONNX files give the scores of each token that go into it, not its decision."
        )
    if config.word_logits == "mean":
        limits.append(
            "A word's logits are the mean of its tokens'. transformers' pipeline decides token by token; with "
            "`aggregation_strategy` `average` it takes the mean of their probabilities, which can differ."
        )
    marked = config.word_case == "marked"
    if marked:
        limits.append(
            "The model reads the case of words in the `token_type_ids` of all their tokens: 0 for a word without "
            "capitals, 2 where its first character is a capital and no other is, 4 where all its letters are, two at "
            "least, 6 for any other. transformers' pipeline does not set them."
        )
    if calibration.get(OUTSIDE_MARGIN):
        limits.append(
            f"bertline takes a word for O only where its logit is more than {calibration[OUTSIDE_MARGIN]:.3g} above "
            "the best tag's, which dev chose (`task.json`); transformers and ONNX do not."
        )
    return Usage(
        what=f"Marks in running text: {', '.join(code_span(name) for name in types)}.",
        tag="token-classification",
        pipeline=config.head != "crf" and not marked,
        snippets=(
            'import bertline\n\nbertline.load("NAME").predict(["A text with names in it."])  '
            "# type, text, start, end, score",
        ),
        limits=tuple(limits),
    )


def _question_answering(calibration: dict[str, float]) -> Usage:
    limits = ["The answer is always words of the context."]
    if calibration:
        limits.append(
            "It gives no answer where the best one falls behind by more than a threshold that was chosen on dev "
            "(`task.json`)."
        )
    else:
        limits.append("It gives an answer to every question, also where the context has none.")
    return Usage(
        what="Finds the answer to a question in a context.",
        tag="question-answering",
        pipeline=False,
        snippets=(
            'import bertline\n\nbertline.load("NAME").predict(["Who wrote it?"], ["It was written by her."])  '
            "# text, start, score",
        ),
        limits=tuple(limits),
    )


def _retrieval(config: RetrievalTaskConfig) -> Usage:
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
            'model = SentenceTransformer("NAME")  # the folder that this file lies in\n'
            f'model.similarity(model.encode(["a question"]{query}), model.encode(["A document."]{document}))',
        ),
        limits=(
            "It finds what is nearest, also where no document has the answer.",
            f"bertline cuts queries at {config.query_max_length} tokens, as in training; sentence-transformers at "
            f"{config.max_length}, as documents.",
        ),
    )


def _reranking() -> Usage:
    return Usage(
        what="Puts candidates for a query into a better order; reads query and candidate together.",
        tag="text-ranking",
        pipeline=True,
        snippets=(
            'import bertline\n\nbertline.load("NAME").predict(["a question"], [["A candidate.", "Another one."]])',
            "from sentence_transformers import CrossEncoder\n\n"
            'CrossEncoder("NAME").rank("a question", ["A candidate.", "Another one."])',
        ),
        limits=("Scores order the candidates of one query; between queries they mean nothing.",),
    )


def _summarisation(config: SummarisationTaskConfig) -> Usage:
    return Usage(
        what=f"Sums a document up by {config.num_sentences} of its own sentences.",
        tag="summarization",
        pipeline=False,
        snippets=('import bertline\n\nbertline.load("NAME").predict(["A long document. With many sentences."])',),
        limits=(
            "A summary has whole sentences of the document, nothing else: what they refer to may be left out.",
            "Each sentence is scored from its own [CLS] (arXiv 1903.10318), which only bertline puts there.",
        ),
    )


def _fill_mask() -> Usage:
    return Usage(
        what="Fills blanks in texts of its domain.",
        tag="fill-mask",
        pipeline=True,
        snippets=(
            'from transformers import pipeline\n\npipeline("fill-mask", model="NAME")("The word [MASK] is missing.")',
            'import bertline\n\nbertline.load("NAME").fill_mask("The word [MASK] is missing.", top_k=5)',
        ),
        limits=(),
    )


def is_pair(config: Any, predictions: Path) -> bool:
    """Return whether an input of a task is a pair of texts, from its rows or, if these are missing, its source."""
    import pyarrow.parquet as pq

    if predictions.exists() and "text_pair" in pq.read_schema(predictions).names:
        pairs = pq.read_table(predictions, columns=["text_pair"])["text_pair"]
        return bool(pairs.null_count < len(pairs))
    return getattr(config.source, "text_pair_column", None) is not None or config.source.kind == "docs_match"
