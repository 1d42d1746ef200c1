"""The arms of domain.py: ways to adapt an encoder, each trained by the stages of the pipeline in a clone of its own."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from processes import Clone

from bertline.encoders.loading import load_encoder, save_model
from bertline.foundation.files import read_json, write_json
from bertline.foundation.manifests import read_manifest
from bertline.tasks.stored_rows import COLLECTION, Documents, read_rows
from bertline.tokenization.storage import copy_tokenizer

UNTOUCHED = "untouched"
_WORDS_TOGETHER = 60
"""With a title, about 96 tokens."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A way to adapt the encoder."""

    choices: tuple[str, ...] = ("tokenizer=existing",)
    """Choices of the configuration beside the experiment."""
    experiment: str = "domain"
    """Preset, by its name in conf/experiment."""
    after: str | None = None
    """Arm whose result it starts from; None: the untouched encoder."""
    average_with: str | None = None
    """Arm whose weights are averaged with those of the untouched encoder (WiSE-FT, arXiv 2109.01903, equation 1)."""


@dataclass(frozen=True, kw_only=True)
class Domain:
    """A domain: its tasks, its arms, and where its text comes from."""

    tasks: tuple[str, ...]
    """Names of files in conf/task."""
    arms: Mapping[str, Arm]
    """Those to compare, and those that they start from."""
    compared: tuple[str, ...]
    corpus: tuple[str, ...]
    """Choices of the configuration for its text; empty: the documents of its tasks, the title with each part of a
    text."""
    data: Mapping[str, str]
    """For each task that reads files, the folder below the shared data."""
    pooling: str = "cls"
    """Pooling that its tasks read the encoder with, and contrastive arms are trained with."""


DOMAINS: Mapping[str, Domain] = {
    "docs": Domain(
        tasks=("docs_library", "docs_match", "docs_parameters", "docs_search"),
        arms={
            "mlm_nsp": Arm(experiment="domain_mlm"),
            "mlm_nsp_twice": Arm(
                experiment="domain_mlm", choices=("tokenizer=existing", "schedule.num_warmup_steps=50"), after="mlm_nsp"
            ),
            "mlm_nsp_twice_scattered": Arm(after="mlm_nsp_twice"),
            "averaged_mlm_nsp_twice_scattered": Arm(average_with="mlm_nsp_twice_scattered"),
        },
        compared=("mlm_nsp_twice_scattered", "averaged_mlm_nsp_twice_scattered"),
        corpus=("corpus=python_docs",),
        data={},
    ),
    "abstracts": Domain(
        tasks=("cranfield", "cisi"),
        arms={
            "titled_contrastive": Arm(
                choices=(
                    # A masked language model does not leave the frequencies of tokens in so few steps.
                    "objective=contrastive",
                    "objective.mlm_weight=0",
                    "examples=segment_pairs",
                    "tokenizer=existing",
                    "pretrain.phases=[{steps: 150, max_length: 96, global_batch_size: 32}]",
                    "optimizer.lr=1e-4",
                    "schedule.num_warmup_steps=15",
                    "pretrain.validate_every_steps=75",
                )
            )
        },
        compared=("titled_contrastive",),
        corpus=(),
        data={"cranfield": "tasks/cranfield", "cisi": "tasks/cisi"},
        pooling="mean",
    ),
}


def write_mean(before: Path, after: Path, folder: Path) -> None:
    """Write a bare encoder with the mean of the weights of two, and the tokenizer of the second."""
    model, first = load_encoder(after), load_encoder(before).state_dict()
    # Rows behind the tokens, which pad the embeddings of a checkpoint, are left out.
    mean = {name: (weight + first[name][: len(weight)]) / 2 for name, weight in model.state_dict().items()}
    model.load_state_dict(mean)
    save_model(model, folder)
    copy_tokenizer(after, folder)


class Pipeline:
    """The stages in a clone of this repository.

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
        self.clone = Clone(folder / "pipeline")

    def tasks(self) -> dict[str, Path]:
        """Make the rows of the tasks; return their folders."""
        folders = {name: self.folder / "tasks" / name for name in self.domain.tasks}
        for name, folder in folders.items():
            if not folder.exists():
                source = self.domain.data.get(name)
                own = [f"tasks.{name}.source.path={self._shared_data / source}"] if source else []
                added = [f"+task@tasks.{name}={name}"] if source else []  # not one of those of the default
                self.clone.run("pipelines/task_data.py", f"task_name={name}", *added, *own)
                (result,) = (self.clone.folder / "runs" / f"task_data@{name}").glob("*/result")
                shutil.copytree(result, folder)
        return folders

    def encoder_of(self, name: str) -> tuple[Path, dict[str, float]]:
        """Train an arm, unless it is there; return its encoder, and the seconds of its trainings (see `_trained`)."""
        if name == UNTOUCHED:
            return self.encoder, {}
        folder, arm = self.folder / "arms" / name, self.domain.arms[name]
        if not (folder / "seconds.json").exists():
            shutil.rmtree(folder, ignore_errors=True)
            if arm.average_with is not None:
                other, seconds = self.encoder_of(arm.average_with)
                write_mean(self.encoder, other, folder / "encoder")
            else:
                seconds = self._trained(arm, folder)
            write_json(folder / "seconds.json", seconds)
        return folder / "encoder", read_json(folder / "seconds.json")

    def _trained(self, arm: Arm, folder: Path) -> dict[str, float]:
        """Train an arm by the stages of the pipeline, into `encoder`.

        Returns:
            Seconds of the stage `pretrain` (`stage`; of the last call alone where an earlier one was stopped), and of
            its steps alone (`steps`), with those of the arms before.
        """
        start, earlier = self.encoder_of(arm.after or UNTOUCHED)
        choices = [f"experiment={arm.experiment}", "model=from_checkpoint", f"pretrain.start_from={start}", "tasks=[]"]
        if arm.experiment == "domain":  # contrastive
            choices.append(f"objective.pooling={self.domain.pooling}")
        text = self.domain.corpus or self._titled_choices()
        self.clone.configure(*choices, *arm.choices, *text, *self._changes)
        self.clone.reproduce("examples")
        began = time.monotonic()
        self.clone.reproduce("pretrain")
        took = {"stage": time.monotonic() - began}
        shutil.copytree(self.clone.folder / "artifacts/pretrain", folder / "encoder")
        took["steps"] = read_manifest(folder / "encoder", kind="pretrain", format_version=1)["metrics"]["train_time_s"]
        return {name: round(value + earlier.get(name, 0.0), 1) for name, value in took.items()}

    def _titled_choices(self) -> list[str]:
        """Write the documents of the tasks by `titled`; return the choices that name them."""
        path = self.folder / "titled.jsonl"
        if not path.exists():
            searched = [folder for folder in self.tasks().values() if (folder / f"{COLLECTION}.parquet").exists()]
            texts = (text for folder in searched for text in titled(read_rows(folder, COLLECTION, Documents)))
            path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
        choices = ["corpus=jsonl", f"corpus.path={path}", "corpus.text_column=text", "corpus/sentences=lines"]
        return [*choices, "corpus.min_document_characters=20"]


def titled(documents: Documents) -> Iterator[str]:
    """Yield the title of each document in a line, with a part of its text in the next; for each part.

    A title is the nearest to a question that a collection has by itself.
    """
    for title, text in zip(documents.titles, documents.texts, strict=True):
        words = text.removeprefix(title).split()
        for start in range(0, len(words) if title else 0, _WORDS_TOGETHER):
            yield f"{' '.join(title.split())}\n{' '.join(words[start : start + _WORDS_TOGETHER])}"
