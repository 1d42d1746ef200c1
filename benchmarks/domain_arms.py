"""The arms of domain.py: ways to adapt an encoder, each trained by the stages of the pipeline in a clone of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import repository_source  # noqa: F401

from bertline.encoders.loading import load_encoder, save_model
from bertline.foundation.manifests import read_manifest
from bertline.tasks.stored_rows import COLLECTION, Documents, read_rows
from bertline.tokenization.storage import copy_tokenizer

ROOT = Path(__file__).resolve().parent.parent
CORPUS, TASK_TEXT, TITLED = "corpus", "task_text", "titled"
_WORDS_TOGETHER = 60
"""With a title, about 96 tokens."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A way to adapt the encoder."""

    choices: tuple[str, ...] = ()
    """Choices of the configuration beside the experiment."""
    experiment: str = "domain"
    """Preset, by its name in conf/experiment."""
    text: str = CORPUS
    """Text that it learns from: the domain's corpus, the train rows of the tasks without their labels, or the title
    of each document with each part of it."""
    after: str | None = None
    """Arm whose result it starts from; None: the untouched encoder."""
    average_with: str | None = None
    """Arm whose weights are averaged with those of the untouched encoder (WiSE-FT, arXiv 2109.01903, equation 1)."""
    share: float = 0.5
    """Weight of that arm in the average."""


_STEPS = (
    "tokenizer=existing",
    "pretrain.phases=[{steps: 400, max_length: 64, global_batch_size: 32}]",
    "schedule.num_warmup_steps=40",
)
_MLM = ("objective=mlm", "examples=full_sentences", *_STEPS)
_CONTRASTIVE = ("objective=contrastive", "examples=segment_pairs", *_STEPS)
_SCATTERED = ("objective=contrastive", "examples=scattered_pairs", *_STEPS)
# A masked language model does not leave the frequencies of tokens in so few steps.
_TITLED = ("objective=contrastive", "objective.mlm_weight=0", "examples=segment_pairs", "tokenizer=existing")
ARMS: Mapping[str, Arm] = {
    "untouched": Arm(),
    "mlm": Arm(choices=_MLM),
    "task_mlm": Arm(choices=_MLM, text=TASK_TEXT),
    "contrastive": Arm(choices=_CONTRASTIVE),
    "scattered_contrastive": Arm(choices=_SCATTERED),
    "neighbours_contrastive": Arm(choices=(*_CONTRASTIVE, "objective.neighbours=4")),
    "mlm_contrastive": Arm(choices=_CONTRASTIVE, after="mlm"),
    "task_mlm_contrastive": Arm(choices=_CONTRASTIVE, after="task_mlm"),
    "extended_contrastive": Arm(
        choices=tuple("tokenizer=extended" if each == "tokenizer=existing" else each for each in _CONTRASTIVE)
    ),
    "averaged_contrastive": Arm(average_with="contrastive"),
    "averaged_scattered": Arm(average_with="scattered_contrastive"),
    "averaged_scattered_quarter": Arm(average_with="scattered_contrastive", share=0.25),
    "mlm_nsp": Arm(experiment="domain_mlm", choices=("tokenizer=existing",)),
    "mlm_nsp_scattered": Arm(choices=("tokenizer=existing",), after="mlm_nsp"),
    "averaged_mlm_nsp_scattered": Arm(average_with="mlm_nsp_scattered"),
    "mlm_nsp_twice": Arm(
        experiment="domain_mlm", choices=("tokenizer=existing", "schedule.num_warmup_steps=50"), after="mlm_nsp"
    ),
    "mlm_nsp_twice_scattered": Arm(choices=("tokenizer=existing",), after="mlm_nsp_twice"),
    "averaged_mlm_nsp_twice_scattered": Arm(average_with="mlm_nsp_twice_scattered"),
    "titled_contrastive": Arm(
        choices=(
            *_TITLED,
            "pretrain.phases=[{steps: 150, max_length: 96, global_batch_size: 32}]",
            "optimizer.lr=1e-4",
            "schedule.num_warmup_steps=15",
            "pretrain.validate_every_steps=75",
        ),
        text=TITLED,
    ),
    "averaged_titled": Arm(average_with="titled_contrastive"),
}


@dataclass(frozen=True, kw_only=True)
class Domain:
    """A domain: its tasks, and where its text comes from."""

    tasks: tuple[str, ...]
    """Names of files in conf/task."""
    corpus: tuple[str, ...]
    """Choices of the configuration for its text; empty: the documents of its tasks, which are searched."""
    data: Mapping[str, str]
    """For each task that reads files, the folder below the shared data."""
    pooling: str = "cls"
    """Pooling that its tasks read the encoder with, and contrastive arms are trained with."""


DOMAINS: Mapping[str, Domain] = {
    "docs": Domain(
        tasks=("docs_library", "docs_match", "docs_parameters", "docs_search"), corpus=("corpus=python_docs",), data={}
    ),
    "abstracts": Domain(
        tasks=("cranfield", "cisi"),
        corpus=(),
        data={"cranfield": "tasks/cranfield", "cisi": "tasks/cisi"},
        pooling="mean",
    ),
}


def write_mean(before: Path, after: Path, folder: Path, *, share: float) -> None:
    """Write a bare encoder with the mean of the weights of two, of which `after` has this share, and its tokenizer."""
    model, first = load_encoder(after), load_encoder(before).state_dict()
    weights = model.state_dict()
    # Rows behind the tokens, which pad the embeddings of a checkpoint, are left out.
    mean = {name: share * weight + (1 - share) * first[name][: len(weight)] for name, weight in weights.items()}
    model.load_state_dict(mean)
    save_model(model, folder)
    copy_tokenizer(after, folder)


class Pipeline:
    """A clone of this repository in which the stages run.

    Args:
        folder: Where clone, texts and results lie; what is there is not made again.
        domain: The domain.
        encoder: Folder of the untouched encoder.
        shared_data: Folder of public data; read only for domains with files.
        changes: Choices of the configuration for all arms.
    """

    def __init__(
        self, folder: Path, domain: Domain, encoder: Path, shared_data: Path, *, changes: Sequence[str] = ()
    ) -> None:
        self.folder, self.domain, self.encoder = folder, domain, encoder
        self._shared_data, self._changes = shared_data, changes
        self.clone = folder / "pipeline"
        if not self.clone.exists():
            subprocess.run(["git", "clone", "-q", str(ROOT), str(self.clone)], check=True)
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(self.clone / "src"),
        }

    def tasks(self) -> dict[str, Path]:
        """Make the rows of the tasks; return their folders."""
        folders = {name: self.folder / "tasks" / name for name in self.domain.tasks}
        for name, folder in folders.items():
            if not folder.exists():
                source = self.domain.data.get(name)
                own = [f"tasks.{name}.source.path={self._shared_data / source}"] if source else []
                added = [f"+task@tasks.{name}={name}"] if source else []  # not one of those of the default
                self._run("pipelines/task_data.py", f"task_name={name}", *added, *own)
                (result,) = (self.clone / "runs" / f"task_data@{name}").glob("*/result")
                shutil.copytree(result, folder)
        return folders

    def encoder_of(self, name: str) -> tuple[Path, dict[str, float]]:
        """Train an arm, unless it is there; return its encoder, and the seconds of its trainings (see `_trained`)."""
        if name == "untouched":
            return self.encoder, {}
        folder, arm = self.folder / "arms" / name, ARMS[name]
        if not (folder / "seconds.json").exists():
            shutil.rmtree(folder, ignore_errors=True)
            if arm.average_with is not None:
                other, seconds = self.encoder_of(arm.average_with)
                write_mean(self.encoder, other, folder / "encoder", share=arm.share)
            else:
                seconds = self._trained(arm, folder)
            (folder / "seconds.json").write_text(json.dumps(seconds), encoding="utf-8")
        return folder / "encoder", json.loads((folder / "seconds.json").read_text(encoding="utf-8"))

    def _trained(self, arm: Arm, folder: Path) -> dict[str, float]:
        """Train an arm by the stages of the pipeline, into `encoder`.

        Returns:
            Seconds of the stage `pretrain` (`stage`; of the last call alone where an earlier one was stopped), and of
            its steps alone (`steps`), with those of the arms before.
        """
        start, earlier = self.encoder_of(arm.after) if arm.after is not None else (self.encoder, {})
        before = [
            f"experiment={arm.experiment}",
            "model=from_checkpoint",
            f"pretrain.start_from={start}",
            "tasks=[]",
            *arm.choices,
        ]
        if arm.experiment == "domain" and "objective=mlm" not in arm.choices:  # contrastive
            before.append(f"objective.pooling={self.domain.pooling}")
        if arm.text == TITLED:
            choices = self._titled_choices()
        else:
            choices = self._text_choices(arm.text)
        self._configured([*before, *choices])
        self._dvc("examples")
        began = time.monotonic()
        self._dvc("pretrain")
        took = {"stage": time.monotonic() - began}
        shutil.copytree(self.clone / "artifacts/pretrain", folder / "encoder")
        took["steps"] = read_manifest(folder / "encoder", kind="pretrain", format_version=1)["metrics"]["train_time_s"]
        return {name: round(value + earlier.get(name, 0.0), 1) for name, value in took.items()}

    def _configured(self, choices: Sequence[str]) -> None:
        (self.clone / "conf/local/default.yaml").unlink(missing_ok=True)  # those of another arm
        self._run("-m", "bertline", "configure", *choices, *self._changes, "--save")

    def _text_choices(self, kind: str) -> list[str]:
        """Return the choices that name the text; those of tasks are written as a JSONL file."""
        if kind == CORPUS and self.domain.corpus:
            return list(self.domain.corpus)
        path = self.folder / f"{kind}.jsonl"
        if not path.exists():
            texts = dict.fromkeys(text for folder in self.tasks().values() for text in texts_of(folder, kind))
            _write_texts(texts, path)
        return [*_jsonl_choices(path), "corpus.min_document_characters=20"]

    def _titled_choices(self) -> list[str]:
        """Write the documents of the tasks by `titled`; return the choices that name them."""
        path = self.folder / f"{TITLED}.jsonl"
        if not path.exists():
            searched = [folder for folder in self.tasks().values() if (folder / f"{COLLECTION}.parquet").exists()]
            collections = [read_rows(folder, COLLECTION, Documents) for folder in searched]
            _write_texts((text for each in collections for text in titled(each)), path)
        return [*_jsonl_choices(path), "corpus/sentences=lines", "corpus.min_document_characters=20"]

    def _run(self, *command: str) -> None:
        _checked([sys.executable, *command], self.clone, self._environment)

    def _dvc(self, stage: str) -> None:
        _checked([sys.executable, "-m", "dvc", "repro", stage], self.clone, self._environment)


def _jsonl_choices(path: Path) -> list[str]:
    return ["corpus=jsonl", f"corpus.path={path}", "corpus.text_column=text"]


def _write_texts(texts: Iterable[str], path: Path) -> None:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")


def titled(documents: Documents) -> Iterator[str]:
    """Yield the title of each document in a line, with a part of its text in the next; for each part.

    A title is the nearest to a question that a collection has by itself.
    """
    for title, text in zip(documents.titles, documents.texts, strict=True):
        words = text.removeprefix(title).split()
        for start in range(0, len(words) if title else 0, _WORDS_TOGETHER):
            yield f"{' '.join(title.split())}\n{' '.join(words[start : start + _WORDS_TOGETHER])}"


def texts_of(folder: Path, kind: str) -> Iterator[str]:
    """Yield the texts of a task's train rows without labels; for the corpus, those of the documents it searches."""
    if kind == CORPUS:
        yield from read_rows(folder, COLLECTION, Documents).texts_read()  # type: ignore[arg-type]
        return
    rows = pq.read_table(folder / "train.parquet")
    for name in ("texts", "text_pairs", "queries", "words"):
        if name in rows.column_names and rows[name].null_count == 0:
            yield from (each if isinstance(each, str) else " ".join(each) for each in rows[name].to_pylist())


def _checked(command: list[str], folder: Path, environment: Mapping[str, str]) -> None:
    done = subprocess.run(command, cwd=folder, env=dict(environment), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
