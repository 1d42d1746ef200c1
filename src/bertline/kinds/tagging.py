"""Tagging of words: a label for each word, predicted from its tokens (paper, section 5.3), as from CoNLL-U files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bertline.demo.docstrings import ModuleDocs
from bertline.encoding.token_marks import NUM_CASES, case_of
from bertline.encoding.word_windows import EncodedWords, encode_words, outputs_of_words, token_ids_in_rows, word_means
from bertline.foundation.labels import IGNORED_LABEL, ordered_labels
from bertline.kinds.base import Batch, Calibration, LossOptions, list_of
from bertline.kinds.inputs import require_several, require_text, require_texts
from bertline.kinds.units import UnitLabelling
from bertline.kinds.usage import Usage, code_span
from bertline.tasks.config import WordTaskConfig
from bertline.tasks.conll import read_conllu, tagged_rows, tagged_splits
from bertline.tasks.entities import WORD
from bertline.tasks.source_config import ConlluSourceConfig
from bertline.tasks.stored_rows import BuiltTask, TaggedRows
from bertline.tasks.tag_predictions import TagPredictions

if TYPE_CHECKING:
    from bertline.kinds.base import Baseline, BaselineInputs, Machine, TaskPredictor, Tensor, Tokenizer, nn

OUTSIDE_MARGIN = "outside_margin"
"""Calibration key: margin by which the logit of O has to exceed that of the best other tag."""
WordPlaces = list[tuple[int, int]]
"""Start and end of each word in its text, in characters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaggingTaskConfig(WordTaskConfig):
    """Tagging of words, where every word has a tag of its own, such as its part of speech."""

    kind: Literal["tagging"]
    source: ConlluSourceConfig
    metric: Literal["accuracy", "macro_f1"]
    """Metric on dev that selects trials; higher is better."""


class TaggedWord(NamedTuple):
    """Word of a text with its tag."""

    text: str
    tag: str
    start: int
    """Start in the input text, in characters; for a list of words, in the words joined by spaces."""
    end: int
    """End in the input text, exclusive."""
    score: float
    """Probability of the tag."""


class Tagging(UnitLabelling[TaggedRows, EncodedWords, TagPredictions]):
    """Predicts a tag for each word, decided word by word from a softmax."""

    config_class: ClassVar[type[WordTaskConfig]] = TaggingTaskConfig
    rows_class = TaggedRows
    file_columns = (("text", "text or texts"),)
    answers: ClassVar[tuple[type, ...]] = (TaggedWord,)
    output_schema = pa.schema(
        {"words": list_of(text=pa.string(), tag=pa.string(), start=pa.int64(), end=pa.int64(), score=pa.float64())}
    )
    asks = "Tagging: which tag does each word have?"

    @staticmethod
    def build(name: str, config: Any, modules: Iterable[ModuleDocs] = ()) -> BuiltTask:
        """See `TaskKind.build` and `tagged_splits`. Labels are all tags, also one that occurs only in dev or test: it
        cannot be learned."""
        splits, dropped = tagged_splits(config, read_conllu, lambda sentence: sentence.tags)
        counts = {split: Counter(tag for row in rows for tag in row.tags) for split, rows in splits.items()}
        return BuiltTask(
            splits={split: tagged_rows(rows) for split, rows in splits.items()},
            labels=ordered_labels(tag for of_split in counts.values() for tag in of_split),
            dropped=dropped,
            targets={split: {(tag,) for tag in of_split} for split, of_split in counts.items()},
            more={"words_by_split": {split: of_split.total() for split, of_split in counts.items()}},
        )

    # ---- the model

    @property
    def num_marks(self) -> int:
        return NUM_CASES if self.config.word_case == "marked" else 0

    def encode(self, rows: TaggedRows, tokenizer: Tokenizer) -> EncodedWords:
        mark, overlap = case_of if self.config.word_case == "marked" else None, self.config.window_overlap
        return encode_words(rows, self.labels, tokenizer, max_length=self.config.max_length, overlap=overlap, mark=mark)

    def trained_on(self, encoded: EncodedWords) -> NDArray[np.int64]:
        # A window in which no word starts has no labels.
        return np.flatnonzero(encoded.num_words > 0)

    def training_outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        return self.word_logits(super().training_outputs(model, batch), batch)

    def hard_loss(self, model: nn.Module, outputs: Tensor, batch: Batch, options: LossOptions) -> Tensor:
        return options.cross_entropy(outputs, batch["word_labels"])

    def compared(self, outputs: Tensor, teacher: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the logits of words; a CRF's emissions are logits, too."""
        theirs = self.word_logits(teacher[:, : batch["input_ids"].shape[1]], batch)
        is_word = batch["word_labels"] != IGNORED_LABEL
        return outputs[is_word], theirs[is_word]

    def predict(self, model: nn.Module, encoded: EncodedWords, machine: Machine) -> TagPredictions:
        import torch

        log_probabilities = torch.log_softmax(self.logits_of_words(model, encoded, machine), dim=-1).double().numpy()
        return most_likely_tags(np.split(log_probabilities, encoded.row_starts[1:-1]), 0.0)

    def decided(self, predictions: TagPredictions, calibration: Calibration) -> TagPredictions:
        """Return predictions in which O, the first label, must be exp(margin) times as likely as the best other tag.

        Without a margin in the calibration, and where labels are not decided word by word, nothing changes.
        """
        margin = calibration.get(OUTSIDE_MARGIN, 0.0)
        if margin == 0 or not predictions.word_log_probabilities:
            return predictions
        return most_likely_tags(predictions.word_log_probabilities, margin)

    def gold(self, rows: TaggedRows) -> list[NDArray[np.int64]]:
        numbers = {label: number for number, label in enumerate(self.labels)}
        return [np.array([numbers[tag] for tag in tags], dtype=np.int64) for tags in rows.tags]

    def given(self, predictions: TagPredictions, calibration: Calibration) -> list[NDArray[np.int64]]:
        return self.decided(predictions, calibration).labels

    def logits_of_words(self, model: nn.Module, encoded: EncodedWords, machine: Machine) -> Tensor:
        """Return the logits of all words [T, L]; each word's come from the window with the most context around it."""
        import torch

        return torch.from_numpy(outputs_of_words(model, encoded, machine, len(self.labels), self.word_logits))

    def word_logits(self, logits: Tensor, batch: Batch) -> Tensor:
        """Reduce the logits of tokens [B, S, L] to those of words [B, W, L], in fp32."""
        if self.config.word_logits == "first":
            places = batch["word_places"][:, :, None].expand(-1, -1, logits.shape[2])
            return logits.gather(1, places).float()
        return word_means(logits, batch)

    def table(self, rows: TaggedRows, predictions: TagPredictions, calibration: Calibration) -> pa.Table:
        """See `TaskKind.table`: `gold` and `predicted` are space-separated tags, `correct` the share that is right."""
        decided = self.decided(predictions, calibration)
        return pa.table(
            {
                "id": rows.ids,
                "text": [" ".join(words) for words in rows.words],
                "words": pa.array(rows.words, pa.list_(pa.string())),
                "gold": [" ".join(tags) for tags in rows.tags],
                "predicted": [" ".join(tags) for tags in self.names(decided.labels)],
                "score": decided.confidences,
                "correct": self.shares_right(rows, decided.labels),
            }
        )

    # ---- baselines, answers to users, report

    def baselines(self, inputs: BaselineInputs) -> list[Baseline]:
        """Return each word's most frequent tag and linear taggers.

        Words that train does not have get the most frequent tag of those that it has once, which they are like. Only
        the margin of O is moved by a threshold; here no tag stands for "none".
        """
        from bertline.baselines.vectors import most_frequent, tagging_baselines

        def tag_of_rare_words(counts: Sequence[Counter[int]]) -> int:
            rare = Counter(tag for of_word in counts if of_word.total() == 1 for tag in of_word)
            return most_frequent(rare or sum(counts, Counter()))

        return tagging_baselines(inputs, tag_of_rare_words, thresholds=(0.0,))

    def serve(self, predictor: TaskPredictor, texts: Sequence[str] | Sequence[Sequence[str]]) -> list[Any]:
        """Return the prediction of each text, which is split into words at white space and punctuation, or list of
        words, which are used unchanged, as in evaluation.

        Raises:
            DataError: See `split_words`; or a word of a list has no token.
        """
        read = split_words(texts, predictor.tokenizer)
        words = [[text[start:end] for start, end in places] for text, places in read]
        if not any(words):
            return [[] for _ in read]
        unknown = [[self.labels[0]] * len(of_text) for of_text in words]
        names = [f"texts[{index}]" for index in range(len(read))]
        rows = TaggedRows(names, names, words, unknown)
        tags = self.decided(predictor.predictions(rows), predictor.calibration)
        return [
            self.served_words(text, places, [self.labels[number] for number in numbers], scores.tolist())
            for (text, places), numbers, scores in zip(read, tags.labels, tags.word_confidences, strict=True)
        ]

    def served_words(self, text: str, places: WordPlaces, tags: list[str], scores: list[float]) -> list[Any]:
        """Return the prediction of a text from the tag of each word and its probability."""
        return [
            TaggedWord(text[start:end], tag, start, end, score)
            for (start, end), tag, score in zip(places, tags, scores, strict=True)
        ]

    def usage(self, calibration: Calibration, *, pair: bool) -> Usage:
        limits = [
            "It was trained on the words of a treebank (`do n't` is two). A text is split at white space and "
            "punctuation; give lists of words for the split of the treebank."
        ]
        if self.config.word_logits == "mean":
            limits.append(
                "A word's logits are the mean of its tokens'. transformers' pipeline decides token by token; with "
                "`aggregation_strategy` `average` it takes the mean of their probabilities, which can differ."
            )
        if self.config.word_case == "marked":
            limits.append(
                "The model reads the case of words in the `token_type_ids` of all their tokens: 0 for a word without "
                "capitals, 2 where its first character is a capital and no other is, 4 where all its letters are, two "
                "at least, 6 for any other. transformers' pipeline does not set them."
            )
        return Usage(
            what=f"Gives every word a tag: {', '.join(map(code_span, self.labels))}.",
            tag="token-classification",
            pipeline=self.config.word_case == "plain",
            snippets=(
                'import bertline\n\nbertline.load("NAME").predict(["A text to tag."])  # text, tag, start, end, score',
            ),
            limits=tuple(limits),
        )


def most_likely_tags(word_log_probabilities: list[NDArray[np.float64]], margin: float) -> TagPredictions:
    """Choose the most likely label of each word after lowering the log probability of O by `margin`.

    The confidences use the original probabilities.
    """
    together = np.concatenate(word_log_probabilities)
    shifted = together.copy()
    shifted[:, 0] -= margin
    labels = shifted.argmax(axis=1)
    of_words = np.take_along_axis(together, labels[:, None], axis=1)[:, 0]
    ends = np.cumsum([len(row) for row in word_log_probabilities])[:-1]
    return TagPredictions(
        np.split(labels, ends),
        np.array([np.exp(row.sum()) for row in np.split(of_words, ends)]),
        np.split(np.exp(of_words), ends),
        word_log_probabilities,
    )


def split_words(
    texts: Sequence[str] | Sequence[Sequence[str]], tokenizer: Tokenizer | None
) -> list[tuple[str, WordPlaces]]:
    """Return each text with the places of its words; for a list of words, the words joined by spaces.

    What the tokenizer's cleaning, if there is one, removes from a text (control characters, for example) is no word.

    Raises:
        DataError: `texts` is a single string, or a list holds something other than strings.
    """
    texts_and_places: list[tuple[str, WordPlaces]] = []
    for index, value in enumerate(require_several(texts, "texts")):
        if isinstance(value, str):
            places = [match.span() for match in WORD.finditer(require_text(value, f"texts[{index}]"))]
            if tokenizer is not None:
                (token_ids,) = token_ids_in_rows([[value[start:end] for start, end in places]], tokenizer)
                places = [place for place, ids in zip(places, token_ids, strict=True) if ids]
            texts_and_places.append((value, places))
        else:
            words = require_texts(value, f"texts[{index}]")
            ends = accumulate(len(word) + 1 for word in words)
            places = [(end - len(word) - 1, end - 1) for word, end in zip(words, ends, strict=True)]
            texts_and_places.append((" ".join(words), places))
    return texts_and_places
