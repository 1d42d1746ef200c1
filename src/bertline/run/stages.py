"""The stage map: configuration sections, code, inputs and output of each stage.

`dvc.yaml` declares the same to DVC; a test checks that the two agree.
"""

from dataclasses import dataclass
from pathlib import Path

from bertline.foundation.errors import ConfigError
from bertline.tracking.record import Attachment, Table

ARTIFACTS = Path("artifacts")
METRICS = ARTIFACTS / "metrics"
HEADLINE = ARTIFACTS / "headline"
CODE = ARTIFACTS / "code"
VERSIONS = ARTIFACTS / "versions"
SOURCES = ARTIFACTS / "sources"
"""Folder with a digest of each source of the corpus, by name: what DVC compares (see `pipelines/source.py`)."""
ENCODERS = ARTIFACTS / "encoders"
"""Folder with the encoder that each task starts from: the link of tasks to `artifacts/pretrain` (see
`unused`)."""

PACKAGES = "python_docs.packages"
"""Placeholder in a list of distributions for those whose documentation is the default data."""

# Places of the user's own data, or of links to it. DVC watches these places.
USER_TEXT = Path("data/text")
USER_SOURCES = Path("data/sources")
"""Sources of a corpus of several, by name."""
USER_TASKS = Path("data/tasks")
USER_VOCABULARY = Path("data/vocabulary")
USER_CHECKPOINT = Path("data/checkpoint")
USER_START = Path("data/start")
"""Encoders that single tasks start from, by task name."""
USER_PRETRAINING_TEACHER = Path("data/pretraining_teacher")
USER_TREEBANK = Path("data/treebank")
USER_TEACHER = Path("data/teacher")
USER_UNLABELLED = Path("data/unlabelled")
"""Teachers of single tasks, and their rows without labels, by task name."""

PRETRAINING_DATA = (USER_CHECKPOINT, USER_PRETRAINING_TEACHER, USER_TREEBANK)


@dataclass(frozen=True, slots=True)
class VersionsWhere:
    """Distributions whose version matters only under some configurations."""

    key: str
    """Key of the configuration; `{task}` stands for the task's name."""
    values: tuple[str | bool, ...] | None
    """Values of the key with which the distributions matter; None: every value but null."""
    versions: tuple[str, ...]


_TRAINING = ("torch", "pytorch-lightning", "numpy", "tokenizers", "transformers")
_SEARCHES = ("retrieval", "reranking")
_DOCS_SOURCES = ("docs_library", "docs_match", "docs_parameters", "docs_search")


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """One stage of the pipeline. In paths and sections, `{task}` stands for the task's name."""

    name: str
    summary: str
    """What the stage makes, as the note of its run in MLflow says it."""
    sections: tuple[str, ...]
    """Keys of the configuration that the stage's result depends on."""
    modules: tuple[str, ...]
    """Library modules that do the work; the code fingerprint covers them, the recipe and everything these import."""
    inputs: tuple[str, ...]
    output: str
    page: str | None = None
    """A page for people about the output, which DVC keeps and restores with it. No stage depends on it."""
    versions: tuple[str, ...] = ()
    """Distributions that the stage computes or writes with. Python's minor version is always added."""
    versions_where: tuple[VersionsWhere, ...] = ()
    is_long: bool = False
    """Whether `StageRun.work` does the work, which can be stopped, resumed, and run as a job of Slurm."""
    on_several_devices: bool = False
    """Whether the work may run on `runtime.num_devices` devices of each of `runtime.num_nodes` machines, as one
    process per device."""
    attachments: tuple[Attachment, ...] = ()
    """Files of its run folder that its run in MLflow shows."""
    tables: tuple[Table, ...] = ()

    @property
    def per_task(self) -> bool:
        """Whether the stage is run once for each task."""
        return "{task}" in self.output

    def full_name(self, task: str | None) -> str:
        """Return `sweep@docs_library` for a stage of one task, else the stage's name."""
        return f"{self.name}@{task}" if self.per_task else self.name


STAGES = (
    Stage(
        name="corpus",
        summary="Clean text, split into documents of sentences, for training and validation.",
        sections=("corpus", "python_docs"),
        modules=("bertline.corpus.build",),
        inputs=(str(USER_TEXT), str(SOURCES)),
        output="artifacts/corpus",
        versions=("pyarrow",),
        versions_where=(
            VersionsWhere("corpus.kind", ("python_docs",), (PACKAGES,)),
            VersionsWhere("corpus.kind", ("hub",), ("datasets",)),
            VersionsWhere("corpus.kind", ("sources",), ("datasets", "chardet")),
            VersionsWhere("corpus.near_duplicates.threshold", None, ("rensa", "numpy")),
            VersionsWhere("corpus.encoding", ("auto",), ("chardet",)),
            VersionsWhere("corpus.cleaning.fix_mojibake", (True,), ("ftfy",)),
        ),
    ),
    Stage(
        name="tokenizer",
        summary="A WordPiece vocabulary, trained on the corpus or given.",
        sections=("tokenizer",),
        modules=("bertline.tokenization.build",),
        inputs=("artifacts/corpus", str(USER_VOCABULARY)),
        output="artifacts/tokenizer",
        page="artifacts/pages/data.html",
        versions=("tokenizers",),
    ),
    Stage(
        name="examples",
        summary="Examples of each length, encoded and paired, for pretraining.",
        sections=("examples",),
        modules=("bertline.examples.build",),
        inputs=("artifacts/corpus", "artifacts/tokenizer"),
        output="artifacts/examples",
        versions=("numpy", "tokenizers", "nanotoken"),
    ),
    Stage(
        name="pretrain",
        summary="The pretrained encoder with the heads of its objective.",
        sections=("model", "objective", "optimizer", "schedule", "pretrain"),
        modules=("bertline.pretraining.run",),
        inputs=("artifacts/examples", "artifacts/tokenizer", *map(str, PRETRAINING_DATA)),
        output="artifacts/pretrain",
        versions=_TRAINING,
        versions_where=(
            VersionsWhere("pretrain.linear_probe", None, ("scikit-learn",)),
            VersionsWhere("pretrain.initial_embeddings", None, ("scikit-learn", "scipy")),
        ),
        is_long=True,
        on_several_devices=True,
        attachments=(
            # Mask predictions contain sentences of the configuration: the user's own text (see tracking.log_text).
            Attachment(path="mask_predictions.txt", contains_text=True, while_working=True),
            Attachment(path="mask_predictions.jsonl", contains_text=True),
            Attachment(path="health.jsonl", contains_text=False, while_working=True),
            Attachment(path="profile/top_operations.txt", contains_text=False, while_working=True),
        ),
    ),
    Stage(
        name="task_data",
        summary="Labelled rows of one task: train, dev and test.",
        sections=("tasks.{task}", "python_docs"),
        modules=("bertline.tasks.build",),
        inputs=(f"{USER_TASKS}/{{task}}", f"{USER_UNLABELLED}/{{task}}"),
        output="artifacts/tasks/{task}",
        versions=("numpy", "pyarrow"),
        versions_where=(
            VersionsWhere("tasks.{task}.source.kind", _DOCS_SOURCES, (PACKAGES,)),
            VersionsWhere("tasks.{task}.source.kind", ("hub",), ("datasets",)),
            VersionsWhere("tasks.{task}.kind", ("reranking",), ("bm25s", "scikit-learn")),
        ),
    ),
    Stage(
        name="encoders",
        summary="The encoder that each task starts from.",
        sections=("tasks",),
        modules=("bertline.run.unused",),
        inputs=("artifacts/pretrain",),
        output=str(ENCODERS),
    ),
    Stage(
        name="sweep",
        summary="The search for one task: its best configuration over seeds, compared with baselines.",
        sections=("tasks.{task}", "sweep"),
        modules=("bertline.sweep.run",),
        inputs=(
            *(f"{ENCODERS}/{{task}}", "artifacts/tasks/{task}"),
            *(f"{USER_START}/{{task}}", f"{USER_TEACHER}/{{task}}"),
        ),
        output="artifacts/sweep/{task}",
        versions=(*_TRAINING, "scipy", "scikit-learn", "optuna"),
        versions_where=(VersionsWhere("tasks.{task}.kind", _SEARCHES, ("bm25s", "faiss-cpu")),),
        is_long=True,
        attachments=(
            Attachment(path="result/trials.csv", contains_text=False),
            Attachment(path="result/result.json", contains_text=True),
            Attachment(path="result/predictions.parquet", contains_text=True),
        ),
        tables=(
            Table(path="result/predictions.parquet", name="predictions"),
            Table(path="result/predictions.parquet", name="errors", wrong_only=True),
        ),
    ),
    Stage(
        name="evaluate",
        summary="The figures of all stages, the curves and the report.",
        sections=("evaluate", "tasks"),
        modules=("bertline.evaluation.build",),
        inputs=tuple(f"artifacts/{name}" for name in ("corpus", "tokenizer", "examples", "pretrain", "tasks", "sweep")),
        output="artifacts/evaluate",
        versions=("torch", "numpy", "pandas", "scipy", "scikit-learn", "matplotlib", "tokenizers", "transformers"),
    ),
    Stage(
        name="export",
        summary="Hugging Face folders with ONNX files and model cards, checked and registered.",
        sections=("export", "tasks"),
        modules=("bertline.export.build",),
        inputs=("artifacts/pretrain", "artifacts/sweep", "artifacts/evaluate"),
        output="artifacts/export",
        versions=("torch", "numpy", "pandas", "scipy", "tokenizers", "transformers", "onnx", "onnxruntime"),
    ),
)


def stage_named(name: str) -> Stage:
    """Return the stage with a name; ConfigError if there is none."""
    known = {stage.name: stage for stage in STAGES}
    if name not in known:
        raise ConfigError(f"there is no stage {name!r}; known: {', '.join(known)}")
    return known[name]
