"""A finished tiny model of every kind of task, as a sweep leaves it, with rows it can predict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import finetuning_inputs
import search_inputs
import tiny
from bertline.demo.config import DocsLibrarySourceConfig, DocsMatchSourceConfig
from bertline.finetuning.task_file import write_task_file
from bertline.foundation.manifests import write_manifest
from bertline.kinds.base import HeadSettings, TaskKind
from bertline.kinds.question_answering import QuestionAnsweringTaskConfig
from bertline.kinds.registry import task_kind
from bertline.kinds.regression import RegressionTaskConfig
from bertline.kinds.sentence_labelling import LabelledSentencesSourceConfig, SentenceLabellingTaskConfig, SentenceRows
from bertline.kinds.summarisation import SummarisationTaskConfig
from bertline.kinds.tagging import ConlluSourceConfig, TaggingTaskConfig
from bertline.modeling.crf import BertForTokenClassificationWithCrf
from bertline.tasks.source_config import AnswersSourceConfig, SquadSourceConfig, SummariesSourceConfig
from bertline.tasks.stored_rows import (
    COLLECTION,
    TASK_FORMAT,
    TASK_KIND,
    CandidateRows,
    Documents,
    MultiLabelRows,
    NumberRows,
    QueryRows,
    QuestionRows,
    StoredRows,
    SummaryRows,
    TaggedRows,
    TextRows,
    write_rows,
)
from bertline.tokenization.storage import copy_tokenizer
from bertline.tokenization.tokenizer import Tokenizer

MAX_LENGTH = 24
TOKENS = (*tiny.WORDS, ".", ",", "?", "-")
_BASE = tiny.task_fields(max_length=MAX_LENGTH)
_SIZES: dict[str, Any] = {"min_words": 4, "num_dev_rows": 2, "num_test_rows": 2}
_TEXT_PAIRS = DocsMatchSourceConfig(kind="docs_match", **_SIZES)
_TEXTS = DocsLibrarySourceConfig(kind="docs_library", max_words=40, **_SIZES)
_FILES: dict[str, Any] = {"train_file": None, "dev_file": None, "test_file": None, "on_bad_row": "error"}


@dataclass(frozen=True)
class Finished:
    """A model in its folder, and the kind with the same model in memory."""

    name: str
    folder: Path
    kind: TaskKind[Any, Any, Any]
    calibration: dict[str, float]
    model: torch.nn.Module
    rows: StoredRows

    def predictions(self, rows: StoredRows | None = None) -> Any:
        """What evaluation computes."""
        encoded = self.kind.encode(rows or self.rows, Tokenizer.load(self.folder))
        return self.kind.predict(self.model, encoded, tiny.machine())

    def table(self) -> dict[str, list[Any]]:
        """The columns of predictions.parquet."""
        return self.kind.table(self.rows, self.predictions(), self.calibration).to_pydict()


def finish(name: str, folder: Path, encoder: Path | None = None) -> Finished:
    """Make the model of this name (a key of `KINDS`) under `folder`, on an encoder, by default BERT's with random
    weights."""
    config, labels, rows, calibration = KINDS[name]()
    # Far from equal outputs, but for a number that has to stay on its scale.
    spread = 0.12 if name == "linear" else 0.4
    seed = 12 if name == "windows" else 11
    encoder = encoder or tiny.write_encoder(
        folder / "encoder", heads=True, words=TOKENS, initializer_range=spread, max_position_embeddings=MAX_LENGTH,
        seed=seed,
    )  # fmt: skip
    kind = task_kind(config, labels)
    model = kind.new_model(encoder, HeadSettings(dropout_prob=0.1, seed=5, attention="plain"))
    if isinstance(model, BertForTokenClassificationWithCrf):
        with torch.no_grad():
            model.crf.transitions.copy_(torch.linspace(-0.02, 0.02, len(labels) ** 2))
    target = folder / "best"
    kind.save_model(model, target)
    copy_tokenizer(encoder, target)
    write_task_file(target, kind, calibration)
    if name == "retrieval":
        kind.use_collection(collection())  # type: ignore[attr-defined]
    return Finished(name, target, kind, calibration, model.eval(), rows)


def text(*numbers: int) -> str:
    """Words of the vocabulary."""
    return " ".join(tiny.WORDS[number % len(tiny.WORDS)] for number in numbers)


def texts(count: int, *, seed: int, most: int = 9) -> list[str]:
    """Texts of several lengths."""
    random = np.random.default_rng(seed)
    return [text(*random.integers(0, 40, random.integers(1, most + 1))) for _ in range(count)]


def collection() -> Documents:
    """What the retrieval task searches."""
    found = texts(12, seed=4)
    return Documents([f"d{number}" for number in range(12)], [""] * 12, found)


def _ids(count: int) -> list[str]:
    return [f"r{number}" for number in range(count)]


Example = tuple[Any, Sequence[str], StoredRows, dict[str, float]]


def config_of(name: str, source: Any = None, **changes: Any) -> Any:
    """The configuration of a finished task with changes, and with another source or changes of its own."""
    config = KINDS[name]()[0]
    made = replace(config.source, **(source or {})) if source is None or isinstance(source, dict) else source
    return replace(config, source=made, **changes)


def _classification(**changes: Any) -> Example:
    config = finetuning_inputs.task(**{"source": _TEXT_PAIRS, **_BASE, **changes})
    first = texts(8, seed=1, most=30)
    pairs = texts(8, seed=2, most=30) if config.reads_pairs else None
    return config, ["low", "mid", "high"], TextRows(_ids(8), first, pairs, np.arange(8) % 3), {}


def _multi_label() -> Example:
    config, labels, rows, _ = _classification(source=_TEXTS, multi_label=True, metric="micro_f1")
    gold = np.arange(24).reshape(8, 3) % 2
    assert isinstance(rows, TextRows)
    return config, labels, MultiLabelRows(rows.ids, rows.texts, None, gold), {"threshold": 0.4}


def _regression(head: Any) -> Example:
    source = finetuning_inputs.table_source(path="", text_column="a", text_pair_column="b", label_column="score")
    config = RegressionTaskConfig(
        kind="regression", source=source, low=0.0, high=5.0, head=head, pooling="mean", metric="spearman", **_BASE
    )
    return config, [], NumberRows(_ids(8), texts(8, seed=1), texts(8, seed=2), np.linspace(0, 5, 8)), {}


def _token_classification(head: str, **changes: Any) -> Example:
    source = tiny.conll_source(train_file="train.txt", tag_column=-1)
    config = tiny.tagging_task(source=source, head=head, window_overlap=6, **{**_BASE, **changes})
    words = [each.split() for each in texts(8, seed=1, most=40)]
    if config.word_case == "marked":  # words of several tokens, and of every case
        words = [[(f"{word}-{word}" if place % 3 else word.title()) for place, word in enumerate(row)] for row in words]
        words[0][:2] = ["WORD1", "wOrd2"]
    tags = [["O"] * len(each) for each in words]
    calibration = {"outside_margin": 2.0} if config.outside_margin == "dev" else {}
    labels = ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    return config, labels, TaggedRows(_ids(8), [""] * 8, words, tags), calibration


def _question_answering() -> Example:
    source = SquadSourceConfig(kind="squad", path="", **_FILES)
    config = QuestionAnsweringTaskConfig(
        kind="question_answering", source=source, window_overlap=4, max_question_length=8, max_answer_length=5,
        metric="f1", **_BASE,
    )  # fmt: skip
    contexts = texts(8, seed=2, most=40)
    answers = [[context.split()[0]] for context in contexts]
    rows = QuestionRows(_ids(8), [""] * 8, texts(8, seed=1), contexts, answers, [[0]] * 8)
    # Between the margins of these rows, so that some have an answer and some have none.
    return config, [], rows, {"no_answer_threshold": -1.5}


def _retrieval() -> Example:
    source = search_inputs.beir_source(Path(), path="")
    config = search_inputs.retrieval(
        source, query_max_length=12, query_prefix="word1 - ", document_prefix="word2 - ", **_BASE
    )
    return config, [], QueryRows(_ids(5), texts(5, seed=7), [["d1", "d2"]] * 5, [[1, 0]] * 5), {}


def _reranking() -> Example:
    source = AnswersSourceConfig(
        kind="answers", path="", query_column="q", text_column="t", label_column="l", quoting=True, encoding="utf-8",
        **_FILES,
    )  # fmt: skip
    config = search_inputs.reranking(source, num_candidates=10, **_BASE)
    candidates = [texts(count, seed=count) for count in (4, 1, 6)]
    names = [[f"c{n}" for n in range(len(each))] for each in candidates]
    relevances = [[1, *[0] * (len(each) - 1)] for each in candidates]
    scores = [[float(-n) for n in range(len(each))] for each in candidates]
    rows = CandidateRows(_ids(3), texts(3, seed=9), names, candidates, relevances, scores, relevances)
    return config, [], rows, {}


def _documents() -> list[list[str]]:
    return [[f"{sentence}." for sentence in texts(5, seed=number, most=12)] for number in range(4)]


def _summarisation() -> Example:
    source = SummariesSourceConfig(kind="summaries", path="", document_column="d", summary_column="s", **_FILES)
    config = SummarisationTaskConfig(kind="summarisation", source=source, num_sentences=2, metric="rouge1", **_BASE)
    return config, [], SummaryRows(_ids(4), _documents(), texts(4, seed=3), [[1, 0, 0, 1, 0]] * 4), {}


def _tagging() -> Example:
    source = ConlluSourceConfig(kind="conllu", path="", tags="upos", **_FILES)
    config = TaggingTaskConfig(
        kind="tagging", source=source, word_logits="first", word_case="plain", window_overlap=6, metric="accuracy",
        **_BASE,
    )  # fmt: skip
    labels = ["ADJ", "NOUN", "VERB"]
    words = [each.split() for each in texts(8, seed=1, most=40)]
    tags = [[labels[len(word) % 2 + place % 2] for place, word in enumerate(row)] for row in words]
    return config, labels, TaggedRows(_ids(8), [""] * 8, words, tags), {}


def _sentence_labelling() -> Example:
    source = LabelledSentencesSourceConfig(
        kind="labelled_sentences", path="", sentences_column="sentences", labels_column="labels", **_FILES
    )
    config = SentenceLabellingTaskConfig(
        kind="sentence_labelling", source=source, labels=None, metric="accuracy", **_BASE
    )
    return config, ["end", "middle", "start"], SentenceRows(_ids(4), _documents(), [[2, 1, 1, 1, 0]] * 4), {}


KINDS: dict[str, Callable[[], Example]] = {
    "classification": _classification,
    "windows": lambda: _classification(source=_TEXTS, long_texts="windows"),
    "marked": lambda: _classification(shared_tokens="marked"),
    "multi_label": _multi_label,
    "linear": lambda: _regression("linear"),
    "cosine": lambda: _regression("cosine"),
    "softmax": lambda: _token_classification("softmax"),
    "cased": lambda: _token_classification("softmax", word_logits="mean", word_case="marked", outside_margin="dev"),
    "crf": lambda: _token_classification("crf"),
    "question_answering": _question_answering,
    "retrieval": _retrieval,
    "reranking": _reranking,
    "summarisation": _summarisation,
    "tagging": _tagging,
    "sentence_labelling": _sentence_labelling,
}


def sweep_job(name: str, folder: Path, *, teacher: Path | None = None, **sweep: Any) -> Any:
    """A sweep of the task of this name with one trial and one seed; train, dev and test are the same rows."""
    config, labels, rows, _ = KINDS[name]()
    folder.mkdir(exist_ok=True)
    task_folder = folder / "task"
    task_folder.mkdir()
    for split in ("train", "dev", "test"):
        write_rows(task_folder, split, rows)
    if name == "retrieval":
        write_rows(task_folder, COLLECTION, collection())
    counts = dict.fromkeys(("train", "dev", "test"), len(rows))
    write_manifest(
        task_folder, kind=TASK_KIND, format_version=TASK_FORMAT, content={"labels": list(labels), "counts": counts}
    )
    sizes = {"initializer_range": 0.1, "max_position_embeddings": MAX_LENGTH}
    tiny.write_encoder(folder / "encoder", heads=True, words=TOKENS, **sizes)
    fields = {
        "num_trials": 1, "num_seeds": 1, "random_weights_baseline": "never", "space": {},
        "fine_tuning": finetuning_inputs.fine_tuning(num_epochs=1, batch_size=4, learning_rate=1e-3),
    }  # fmt: skip
    task, swept = replace(config, teacher=teacher and str(teacher)), finetuning_inputs.sweep(**{**fields, **sweep})
    return finetuning_inputs.sweep_job(folder, folder / "run", task_name=name, task=task, sweep=swept)
