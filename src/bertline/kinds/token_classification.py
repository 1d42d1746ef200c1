"""Token classification: entities as IOB2 tags of words, with softmax or a CRF (paper, section 5.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, assert_never

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bertline.demo.config import DocsParametersSourceConfig
from bertline.demo.docstrings import ModuleDocs
from bertline.demo.tasks import docs_parameters_sentences
from bertline.encoding.word_windows import EncodedWords
from bertline.kinds.base import Batch, Calibration, HeadSettings, LossOptions, Statistics, list_of
from bertline.kinds.tagging import OUTSIDE_MARGIN, Tagging, WordPlaces
from bertline.kinds.usage import Usage, code_span
from bertline.tasks.config import WordTaskConfig
from bertline.tasks.conll import read_conll, tagged_rows, tagged_splits
from bertline.tasks.entities import OUTSIDE, entities, types_of
from bertline.tasks.metrics import entities as metrics
from bertline.tasks.source_config import ConllSourceConfig, TableSourceConfig
from bertline.tasks.source_files import num_rows_made, with_row_limits
from bertline.tasks.span_files import read_annotated
from bertline.tasks.stored_rows import BuiltTask, TaggedRows
from bertline.tasks.tag_predictions import TagPredictions

if TYPE_CHECKING:
    from bertline.kinds.base import AttentionKind, Baseline, BaselineInputs, Machine, Tensor, nn
    from bertline.modeling.crf import LinearChainCrf

# Sorted by distance to 0, so that ties go to the margin nearest to it.
_MARGINS = tuple(sorted((step / 10 for step in range(-5, 21)), key=lambda margin: (abs(margin), margin)))
_ROWS_DECODED_TOGETHER = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenClassificationTaskConfig(WordTaskConfig):
    """Tagging of words, such as names of people, places or parameters, with IOB2 tags (`O`, `B-TYPE`, `I-TYPE`)."""

    kind: Literal["token_classification"]
    source: DocsParametersSourceConfig | ConllSourceConfig | TableSourceConfig
    head: Literal["softmax", "crf"]
    """`softmax` scores each word by itself, `crf` whole tag sequences (conditional random field)."""
    outside_margin: Literal["none", "dev"]
    """`dev` (softmax only) predicts O only if its logit exceeds that of the best tag by a margin, which is tuned for
    the metric on dev. Most words are O, so plain argmax misses entities."""
    metric: Literal["entity_f1"]
    """Metric on dev that selects trials; higher is better."""

    def check(self) -> None:
        if self.outside_margin == "dev" and self.head == "crf":
            raise ValueError("outside_margin=dev is for head=softmax; a CRF decides on whole label sequences")
        for key in ("text_pair_column", "label_columns", "label_pattern", "label_separator", "extra_tests"):
            if getattr(self.source, key, None):
                raise ValueError(f"source.{key} is for labels of texts, not for spans or tags; leave it out")


class Entity(NamedTuple):
    """Named entity in a text."""

    type: str
    text: str
    start: int
    """Start in the input text, in characters; for a list of words, in the words joined by spaces."""
    end: int
    """End in the input text, exclusive."""
    score: float
    """Lowest tag probability among its words."""


class TokenClassification(Tagging):
    """Predicts an IOB2 tag for each word of a row, with softmax or a CRF."""

    config_class = TokenClassificationTaskConfig
    answers = (Entity,)
    output_schema = pa.schema(
        {"entities": list_of(type=pa.string(), text=pa.string(), start=pa.int64(), end=pa.int64(), score=pa.float64())}
    )
    asks = "Token classification: mark the words that form entities."

    @staticmethod
    def build(name: str, config: Any, modules: Iterable[ModuleDocs] = ()) -> BuiltTask:
        """See `TaskKind.build`. Labels are O and, for each type in alphabetical order, B- and I-.

        The types are those listed by the source, or all types found. A type that occurs only in dev or test is also a
        label: it cannot be learned, and its entities count as missed, as in the official scores.
        """
        match config.source:
            case ConllSourceConfig() | TableSourceConfig():
                read: Any = read_conll if isinstance(config.source, ConllSourceConfig) else read_annotated
                splits, dropped = tagged_splits(config, read, lambda sentence: types_of(sentence.tags))
                types = getattr(config.source, "types", None)
            case DocsParametersSourceConfig():
                num_rows, seed = num_rows_made(config), config.split_seed
                splits, dropped = docs_parameters_sentences(modules, config.source, num_train_rows=num_rows, seed=seed)
                splits, types = with_row_limits(splits, config, dropped), None
            case _:
                assert_never(config.source)
        types_by_split = {
            split: set(types_of({tag for sentence in sentences for tag in sentence.tags}))
            for split, sentences in splits.items()
        }
        all_types = set(types or set().union(*types_by_split.values()))
        counts = {
            split: Counter(kind for sentence in sentences for kind, _, _ in entities(sentence.tags))
            for split, sentences in splits.items()
        }
        return BuiltTask(
            splits={split: tagged_rows(rows) for split, rows in splits.items()},
            labels=(OUTSIDE, *(f"{letter}-{each}" for each in sorted(all_types) for letter in "BI")),
            dropped=dropped,
            # Words outside of entities are a target, too.
            targets={
                split: {(), *((kind,) for kind in types_by_split[split])} for split, rows in splits.items() if rows
            },
            more={
                "entities_by_split": {split: dict(sorted(of_split.items())) for split, of_split in counts.items()},
                "words_by_split": {split: sum(len(s.words) for s in sentences) for split, sentences in splits.items()},
            },
        )

    @property
    def types(self) -> tuple[str, ...]:
        """Entity types, in the order of the columns of the statistics."""
        return types_of(self.labels)

    @property
    def unused_options(self) -> dict[str, str]:
        if self.config.head == "softmax":
            return super().unused_options
        reason = "a CRF scores whole label sequences (head=softmax heeds it)"
        return {**super().unused_options, **dict.fromkeys(("class_weights", "label_smoothing"), reason)}

    # ---- the model

    def new_model(self, folder: Path, head: HeadSettings) -> nn.Module:
        return self._with_head(super().new_model(folder, head))

    def load_model(self, folder: Path, *, attention: AttentionKind = "plain") -> nn.Module:
        model: Any = self._with_head(super().load_model(folder, attention=attention))
        if self._is_crf:
            from bertline.modeling.crf import read_crf

            read_crf(model.crf, folder)
        return model

    def save_model(self, model: Any, folder: Path) -> None:
        """See `TaskKind.save_model`. With a CRF, the Hugging Face model gives the emissions; the CRF is in
        `crf.safetensors`."""
        super().save_model(model.tagger if self._is_crf else model, folder)
        if self._is_crf:
            from bertline.modeling.crf import write_crf

            write_crf(model.crf, folder)

    @property
    def _is_crf(self) -> bool:
        return self.config.head == "crf"

    def _with_head(self, tagger: Any) -> nn.Module:
        from bertline.modeling.crf import BertForTokenClassificationWithCrf

        return BertForTokenClassificationWithCrf(tagger, self.labels) if self._is_crf else tagger

    def hard_loss(self, model: Any, outputs: Tensor, batch: Batch, options: LossOptions) -> Tensor:
        """Compute the mean cross-entropy over words (softmax) or negative log-likelihood over windows (CRF)."""
        if not self._is_crf:
            return super().hard_loss(model, outputs, batch, options)
        return -model.crf.log_likelihood(outputs, batch["word_labels"].clamp(min=0), batch["num_words"]).mean()

    def predict(self, model: Any, encoded: EncodedWords, machine: Machine) -> TagPredictions:
        if not self._is_crf:
            return super().predict(model, encoded, machine)
        return _crf_labels(model.crf, self.logits_of_words(model, encoded, machine), encoded.row_starts)

    def calibrate(self, rows: TaggedRows, predictions: TagPredictions) -> Calibration:
        """Choose the margin of O with the best score on these rows, if configured; 0 if no other is better."""
        if self.config.outside_margin == "none" or not predictions.word_log_probabilities:
            return {}

        def score(margin: float) -> float:
            return self.score(self.statistics(rows, predictions, {OUTSIDE_MARGIN: margin}))

        return {OUTSIDE_MARGIN: max(_MARGINS, key=score)}

    def statistics(self, rows: TaggedRows, predictions: TagPredictions, calibration: Calibration) -> Statistics:
        """Return words, correct words, and for each type hits, predicted and gold entities, [N, 2 + 3 types]."""
        tags = self.names(self.given(predictions, calibration))
        shares = [
            metrics.row_statistics(gold, predicted, self.types) for gold, predicted in zip(rows.tags, tags, strict=True)
        ]
        return np.array(shares).reshape(len(shares), 2 + 3 * len(self.types))

    def scores(self, statistics: Statistics) -> dict[str, float]:
        return metrics.entity_scores(statistics)

    def details(self, rows: TaggedRows, predictions: TagPredictions, calibration: Calibration) -> dict[str, Any]:
        return {"by_type": metrics.by_type(self.statistics(rows, predictions, calibration), self.types)}

    # ---- baselines, answers to users, report

    def baselines(self, inputs: BaselineInputs) -> list[Baseline]:
        """Return each word's most frequent tag and linear taggers; words that train does not have get O."""
        from bertline.baselines.vectors import tagging_baselines

        return tagging_baselines(inputs, lambda counts: 0)

    def served_words(self, text: str, places: WordPlaces, tags: list[str], scores: list[float]) -> list[Entity]:
        served = []
        for kind, first, last in sorted(entities(tags), key=lambda entity: entity[1]):
            start, end = places[first][0], places[last][1]
            served.append(Entity(kind, text[start:end], start, end, min(scores[first : last + 1])))
        return served

    def usage(self, calibration: Calibration, *, pair: bool) -> Usage:
        of_tagger = super().usage(calibration, pair=pair)
        limits = ["Words are cut at white space and punctuation, as in training; an entity never ends inside a word."]
        if self._is_crf:
            limits.append(
                "Tags are decoded by a conditional random field (`crf.safetensors`), which bertline alone reads: "
                "transformers and the ONNX files give the scores of each token that go into it, not its decision."
            )
        if calibration.get(OUTSIDE_MARGIN):
            limits.append(
                f"bertline takes a word for O only where its logit is more than {calibration[OUTSIDE_MARGIN]:.3g} "
                "above the best tag's, which dev chose (`task.json`); transformers and ONNX do not."
            )
        return replace(
            of_tagger,
            what=f"Marks in running text: {', '.join(map(code_span, self.types))}.",
            pipeline=of_tagger.pipeline and not self._is_crf,
            snippets=(
                'import bertline\n\nbertline.load("NAME").predict(["A text with names in it."])  '
                "# type, text, start, end, score",
            ),
            limits=(*limits, *of_tagger.limits[1:]),
        )


def _crf_labels(crf: LinearChainCrf, logits: Tensor, row_starts: NDArray[np.int64]) -> TagPredictions:
    """Decode the label sequence of each row as a whole, across its windows, from logits [T, L]."""
    import torch

    num_words = np.diff(row_starts)
    of_rows = logits.split(num_words.tolist())
    labels = [np.zeros(count, dtype=np.int64) for count in num_words]
    word_confidences = [np.ones(count) for count in num_words]
    confidences = np.ones(len(num_words))
    # Rows of similar length are decoded together; rows without words are left out.
    order = [row for row in np.argsort(num_words, kind="stable").tolist() if num_words[row]]
    for first in range(0, len(order), _ROWS_DECODED_TOGETHER):
        rows = order[first : first + _ROWS_DECODED_TOGETHER]
        emissions = torch.nn.utils.rnn.pad_sequence([of_rows[row] for row in rows], batch_first=True).to(
            crf.start.device
        )
        lengths = torch.from_numpy(num_words[rows]).to(emissions.device)
        paths, log_probabilities = crf.decode(emissions, lengths)
        confidences[rows] = log_probabilities.double().exp().cpu().numpy()
        marginals = crf.marginals(emissions, lengths).gather(2, paths[:, :, None])
        of_paths = marginals[:, :, 0].double().cpu().numpy()
        for row, path, of_path in zip(rows, paths.cpu().numpy(), of_paths, strict=True):
            labels[row], word_confidences[row] = path[: num_words[row]], of_path[: num_words[row]]
    return TagPredictions(labels, confidences, word_confidences)
