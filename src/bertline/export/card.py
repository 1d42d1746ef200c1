"""Model cards, from the template `card.md`: what a model is, its data, its scores against baselines, and its limits.

Facts come from manifests, scores, configuration and the kinds of tasks; unknown ones are omitted.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from bertline.export.config import ExportConfig
from bertline.finetuning.task_file import TASK_FILE, FinishedTask, read_task_file
from bertline.foundation.errors import ArtifactError
from bertline.foundation.files import read_json, read_object
from bertline.foundation.formats import escaped, markdown_table, printable, signed, with_spread, without_local_paths
from bertline.foundation.manifests import MANIFEST_NAME, versions_of
from bertline.foundation.mappings import value_at
from bertline.foundation.verdicts import outcome
from bertline.kinds.usage import Usage
from bertline.modeling.checkpoint import Checkpoint
from bertline.modeling.families import FAMILIES, GENERATOR
from bertline.modeling.text_vectors import CLASSIFIER
from bertline.pretraining.objectives import objective_from
from bertline.pretraining.objectives.base import LossTerm, shown_means
from bertline.pretraining.objectives.replaced_token import ReplacedToken

_ENCODER_CONFIG = ("corpus", "tokenizer", "examples", "model", "objective", "optimizer", "schedule", "pretrain")
_AGREEMENT = {
    "label": "the share of texts with the same label",
    "labels": "the share of decisions, a label and a text each, that are the same",
    "score": "Spearman's correlation of the scores",
    "token": "the share of tokens with the same likeliest label or token id",
    "token_score": "Spearman's correlation of the tokens' scores",
    "span": "the share of texts with the same start and end",
    "vector": "Spearman's correlation of the cosines of every two texts' mean vectors",
}


class CardFacts:
    """Facts of a pipeline, read from its artifacts.

    Mappings are empty if a fact is unknown, for example if stages were run by hand. `taken_from` is the checkpoint that
    was fine-tuned without further pretraining, None if an encoder was pretrained.

    Args:
        config: Settings of the exported models.
        pretrain_folder: Folder of the encoder.
        sweep_folders: Folder of the sweep artifact of each task.
        pipeline_facts: See `build_export`.
    """

    def __init__(
        self,
        config: ExportConfig,
        pretrain_folder: Path,
        sweep_folders: Mapping[str, Path],
        pipeline_facts: Mapping[str, Any],
    ) -> None:
        manifest_path = pretrain_folder / MANIFEST_NAME
        manifest = read_json(manifest_path) if manifest_path.exists() else {}
        training, manifests = manifest.get("training", {}), pipeline_facts.get("manifests") or {}
        self.export = config
        self.encoder = Checkpoint.open(pretrain_folder)
        self.params: Mapping[str, Any] = pipeline_facts.get("params") or {}
        self.start_from: str | None = self.params.get("pretrain", {}).get("start_from")
        # The name of a local folder does not help a reader.
        self.hub_start = self.start_from if _is_hub_name(self.start_from or "") else None
        self.commit: str | None = pipeline_facts.get("commit")
        self.corpus: Mapping[str, Any] = manifests.get("corpus", {})
        self.examples: Mapping[str, Any] = manifests.get("examples", {})
        self.objective = objective_from(training["objective"]) if training.get("objective") else None
        # The headline figures of pretraining, and the precision that it was resolved to.
        self.training = manifest.get("metrics") or pipeline_facts.get("metrics", {}).get("pretrain", {})
        self.precision: str | None = training.get("resolved", {}).get("precision")
        self.taken_from: str | None = manifest.get("taken_from")
        self.results = {task: read_json(folder / "result.json") for task, folder in sweep_folders.items()}
        self.tasks: dict[str, FinishedTask] = {}
        self.usages: dict[str, Usage] = {}
        self.families: dict[str, str] = {}
        for task, folder in sweep_folders.items():
            best = folder / "best"
            if (finished := read_task_file(best)) is None:
                raise ArtifactError(
                    f"{best / TASK_FILE} is missing; {best} was written by an older bertline. Sweep again."
                )
            pair = bool(finished.kind.config.reads_pairs)
            usage = finished.kind.usage(finished.calibration, pair=pair)
            is_on_vectors = (best / CLASSIFIER).is_dir()
            self.tasks[task] = finished
            self.usages[task] = usage_on_vectors(usage, best, pair=pair) if is_on_vectors else usage
            self.families[task] = Checkpoint.open(best).family.model_type

    def baseline(self, task: str) -> str | None:
        """Return the name of the baseline that is exported instead of the task's encoder; None: the encoder is."""
        name = self.results[task].get("winner", {}).get("name")
        return name if name in self.results[task]["baselines"] else None

    def start_of(self, task: str) -> str | None:
        """Describe what a task's model was fine-tuned from; None if it is the pipeline's own encoder."""
        start = self.tasks[task].kind.config.start_from or self.taken_from
        if start is None:
            return None
        if start == "random":
            return "random weights"
        if _is_hub_name(start):
            return f"`{start}`"
        return self.taken_from if start == self.taken_from else "another checkpoint"

    @property
    def encoder_max_length(self) -> int | None:
        """Longest sequence in pretraining, for which positions were learned; None if unknown.

        It is None if pretraining continued from a checkpoint, whose positions are all learned.
        """
        phases = self.params.get("pretrain", {}).get("phases", [])
        if not phases or self.start_from is not None:
            return None
        return min(self.encoder.config.max_position_embeddings, max(phase["max_length"] for phase in phases))


def _is_hub_name(name: str) -> bool:
    return not Path(name).exists() and re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?(@[\w.-]+)?", name) is not None


def encoder_card(facts: CardFacts, onnx: Mapping[str, Any] | None, torch_bytes: int) -> str:
    """Return the README.md of the encoder, with what was measured of its ONNX files (None: there are none)."""
    # A detector fills no blanks; its generator does.
    is_detector, name = isinstance(facts.objective, ReplacedToken), facts.export.model_name
    purpose = "feature-extraction" if is_detector else "fill-mask"
    return _card(
        facts,
        None,
        onnx,
        torch_bytes,
        metadata=_metadata(facts, [facts.encoder.config.family, purpose], purpose, facts.hub_start),
        name=name,
        fills=f"{name}/{GENERATOR}" if is_detector else name,
        own=True,
        settings=list(_pretraining_settings(facts)),
        held_out=list(_held_out(facts)),
        max_length=facts.encoder_max_length,
        configuration=_configuration(facts, _ENCODER_CONFIG),
    )


def task_card(facts: CardFacts, task: str, onnx: Mapping[str, Any] | None, torch_bytes: int) -> str:
    """Return the README.md of a task's best model, likewise."""
    usage, result = facts.usages[task], facts.results[task]
    name = f"{facts.export.model_name}-{task}{'' if facts.baseline(task) is None else '-encoder'}"
    other_start, max_length = facts.start_of(task), facts.tasks[task].kind.config.max_length
    tags = list(dict.fromkeys([facts.families[task], usage.tag, *(["sentence-transformers"] if usage.vectors else [])]))
    other_on_hub = re.fullmatch("`([^@]*).*`", other_start or "")
    hub_start = facts.hub_start if other_start is None else other_on_hub and other_on_hub[1]
    settings = [
        (key.replace("_", " "), f"{value:.3g}" if isinstance(value, float) else str(value))
        for key, value in result["arms"]["encoder"]["best_params"].items()
    ]
    # The facts of the pipeline's own encoder do not apply to a model that started from another checkpoint.
    sections = (*(_ENCODER_CONFIG if other_start is None else ()), f"tasks.{task}", "sweep")
    return _card(
        facts,
        task,
        onnx,
        torch_bytes,
        metadata={
            **_metadata(facts, tags, usage.tag if usage.pipeline else None, hub_start),
            **_model_index(facts, task, name, result["arms"]["encoder"]["test_mean"]),
        },
        name=name,
        usage=usage,
        other_start=other_start,
        own=other_start is None,
        settings=[*settings, ("longest sequence", f"{max_length} tokens")],
        all_metrics=_all_metrics(result, result["arms"]["encoder"]["scores"]),
        max_length=max_length,
        configuration=_configuration(facts, sections),
    )


def linear_card(facts: CardFacts, task: str) -> str:
    """Return the README.md of the baseline that is exported as a task's model."""
    name, result, usage = f"{facts.export.model_name}-{task}", facts.results[task], facts.usages[task]
    baseline = result["baselines"][facts.baseline(task)]
    usage = replace(
        usage,
        snippets=tuple(snippet for snippet in usage.snippets if snippet.startswith("import bertline")),
        limits=(
            "It knows words and characters as its training rows have them, and nothing of what they mean; transformers "
            "does not read it.",
            f"The encoder that was fine-tuned on the same rows is in the folder `{task}-encoder` beside this one.",
        ),
    )
    scores = {
        split: {key: {"mean": value, "std": None} for key, value in one.items()}
        for split, one in baseline["scores"].items()
    }
    return _card(
        facts,
        task,
        None,
        0,
        metadata={
            **_metadata(facts, [usage.tag], None, None),
            "library_name": "bertline",
            **_model_index(facts, task, name, baseline["test"]),
        },
        name=name,
        usage=usage,
        baseline=baseline,
        other_start=None,
        own=False,
        settings=[(key.replace("_", " "), str(value)) for key, value in baseline["settings"].items()],
        all_metrics=_all_metrics(result, scores),
        max_length=None,
        configuration=_configuration(facts, (f"tasks.{task}",)),
    )


def _model_index(facts: CardFacts, task: str, name: str, test: float) -> dict[str, Any]:
    metric = facts.results[task]["metric"]
    score = {"type": metric, "value": round(test, 4), "name": "test mean"}
    entry = {
        "task": {"type": facts.usages[task].tag},
        "dataset": {"name": task, "type": task, "split": "test"},
        "metrics": [score],
    }
    return {"metrics": [metric], "model-index": [{"name": name, "results": [entry]}]}


def _card(facts: CardFacts, task: str | None, onnx: Mapping[str, Any] | None, torch_bytes: int, **content: Any) -> str:
    environment = Environment(
        loader=PackageLoader("bertline.export"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        autoescape=False,  # Markdown; `escaped` and `shown` are for text of the user
    )  # fmt: skip
    environment.filters |= {
        "escaped": escaped,
        "shown": _shown,
        "whole": "{:,}".format,
        "words": lambda name: name.replace("_", " "),
        "json": lambda value: json.dumps(value, ensure_ascii=False),
    }
    card = environment.get_template("card.md").render(
        facts=facts,
        task=task,
        onnx=onnx,
        formats=None if onnx is None else _formats(onnx, torch_bytes),
        agreement=None if onnx is None else _AGREEMENT[onnx["decision"]],
        family=FAMILIES[facts.encoder.config.family],
        version=versions_of("bertline")["bertline"],
        markdown_table=markdown_table,
        score_rows=_score_rows,
        comparisons=_comparisons,
        **{"baseline": None, **content},
    )
    # One empty line between paragraphs, whichever of them there are; code stays as it is.
    blocks = card.split("```")
    blocks[::2] = [re.sub(r"\n{3,}", "\n\n", text) for text in blocks[::2]]
    return printable("```".join(blocks).strip() + "\n")


def _metadata(facts: CardFacts, tags: list[str], pipeline: str | None, start: str | None) -> dict[str, Any]:
    """Return the card's metadata for the Hugging Face hub; JSON values are valid YAML with correct quoting."""
    return {
        "language": facts.export.language,
        "license": facts.export.license,
        "library_name": "sentence-transformers" if "sentence-transformers" in tags else "transformers",
        "pipeline_tag": pipeline,
        "tags": [*tags, "bertline"],
        "base_model": start,
    }


def _pretraining_settings(facts: CardFacts) -> Iterator[tuple[str, str]]:
    pretrain, optimizer = facts.params.get("pretrain", {}), facts.params.get("optimizer", {})
    for number, phase in enumerate(pretrain.get("phases", ()), start=1):
        yield (
            f"phase {number}",
            f"{phase['steps']:,} steps of {phase['global_batch_size']} sequences of {phase['max_length']}",
        )
    if pretrain.get("max_steps") is not None:
        yield "stopped at step", f"{pretrain['max_steps']:,}"
    if optimizer:
        yield "optimizer", ", ".join(f"{key} {value}" for key, value in optimizer.items() if key != "kind")
    if facts.precision:
        yield "precision", facts.precision
    if "train_time_s" in facts.training:
        yield "time", f"{facts.training['train_time_s']:,.0f} s"


def _held_out(facts: CardFacts) -> Iterator[tuple[str, str]]:
    if facts.objective is None:
        return
    baselines = facts.objective.baselines({**facts.examples, **facts.training})
    for score in shown_means(facts.objective):
        if f"val/{score.name}" not in facts.training:
            continue
        share_of = "" if isinstance(score, LossTerm) else score.share_of
        yield f"share of {share_of}" if share_of else score.title, f"{facts.training[f'val/{score.name}']:.3f}"
        if score.name in baselines:
            yield f"its baseline: {score.baseline}", f"{baselines[score.name]:.3f}"


def _score_rows(result: Mapping[str, Any], this: Mapping[str, Any]) -> list[list[str]]:
    """Return rows of scores of the arms, the encoder first, and of the baselines; `this` is the model of the card."""
    rows = []
    for one in (*result["arms"].values(), *result["baselines"].values()):
        is_arm, title = "seeds" in one, _shown(one["title"])
        if one is this:
            title = "**this model's configuration**" if is_arm else f"**this model: {title}**"
        means = [one[f"{split}_mean" if is_arm else split] for split in ("dev", "test")]
        spreads = [one.get(f"{split}_std") for split in ("dev", "test")]
        rows.append([title, *map(with_spread, means, spreads), _interval(one["test_interval"])])
    return rows


def _all_metrics(
    result: Mapping[str, Any], scores: Mapping[str, Mapping[str, Any]]
) -> tuple[list[str], list[list[str]]] | None:
    """Return a table of all metrics on all test splits; None if there is only the one shown elsewhere."""
    splits = result["test_splits"]
    metrics = list(dict.fromkeys(metric for split in splits for metric in scores[split]))
    if len(metrics) == len(splits) == 1:
        return None
    found = {metric: [scores[split].get(metric) for split in splits] for metric in metrics}
    rows = [[escaped(name), *(with_spread(**one) if one else "" for one in of)] for name, of in found.items()]
    return ["metric", *map(escaped, splits)], rows


def _comparisons(result: Mapping[str, Any]) -> Iterator[str]:
    systems = {**result["arms"], **result["baselines"]}
    words = {"better": "beaten", "worse": "better than this model", "not shown": "no clear difference"}
    for name, found in result["comparisons"].items():
        title = _shown(systems[name]["title"])
        if "p_value" not in found:
            yield f"{title}: {signed(found['difference'])}; its noise was not measured"
            continue
        yield (
            f"{title}: {signed(found['difference'])} ({_interval(found['interval'])}, p = {found['p_value']:.3g}): "
            f"{outcome(found, words)}. The smallest difference that could have been seen is "
            f"{found['smallest_visible']:.3f}."
        )


def _formats(onnx: Mapping[str, Any], torch_bytes: int) -> tuple[list[str], list[list[str]]]:
    latency: Mapping[str, Mapping[str, float]] = onnx.get("latency_ms", {})
    files = [("torch", "`model.safetensors` (PyTorch)", torch_bytes, "", "")]
    for name, file in onnx["files"].items():
        measured = f"{file['max_difference']:.1e}", f"{file['agreement']:.4f}"
        files.append((name, f"`{file['file']}`", file["bytes"], *measured))
    rows = [
        [title, f"{size / 1e6:.3g}", *(f"{ms:.3g}" for ms in latency.get(name, {}).values()), *measured]
        for name, title, size, *measured in files
    ]
    batches = [f"ms, batch of {size}" for size in latency.get("torch", {})]
    return ["file", "MB", *batches, "largest difference", "agreement"], rows


def _configuration(facts: CardFacts, sections: tuple[str, ...]) -> str:
    """Return the sections that are known, as JSON; empty if none is."""
    chosen = {name: value for name in sections if (value := value_at(facts.params, name)) is not None}
    for name, value in chosen.items():
        if isinstance(value, Mapping):  # the sentences of mask predictions and bounds of alarms do not describe a model
            chosen[name] = {key: item for key, item in value.items() if key not in ("mask_predictions", "health")}
    return json.dumps(without_local_paths(chosen), indent=2, ensure_ascii=False) if chosen else ""


def usage_on_vectors(usage: Usage, folder: Path, *, pair: bool) -> Usage:
    """Return the usage of a linear layer on the vectors of a sentence encoder; transformers loads the encoder alone."""
    are_two = "separators" in read_object(folder / CLASSIFIER / "config.json")
    encoded = 'SentenceTransformer("NAME").encode(["One text.", "Another text."])'
    vectors = ["u, v = " + encoded, "vectors = np.concatenate([abs(u - v), u * v])[None]"]
    lines = [
        *(["import numpy as np"] if are_two else []),
        "from safetensors.numpy import load_file",
        "from sentence_transformers import SentenceTransformer",
        "",
        'head = load_file("NAME/classifier/model.safetensors")',
        *(vectors if are_two else ["vectors = " + encoded]),
        'outputs = vectors @ head["linear.weight"].T + head["linear.bias"]',
    ]
    is_told = are_two or not pair  # contrast reads a pair as one text, which sentence-transformers does not
    return replace(usage, pipeline=False, snippets=(*(["\n".join(lines)] if is_told else []), *usage.snippets[-1:]))


def _shown(title: str) -> str:
    """Escape the title of an arm or a baseline, and shorten it if it is a local path.

    >>> _shown("/home/ada/models/minilm")
    './minilm'
    """
    return escaped(without_local_paths(title))


def _interval(bounds: Sequence[float] | None) -> str:
    """Format the bounds of an interval; empty without bounds.

    >>> _interval([0.8123, 0.9])
    '0.812 to 0.900'
    >>> _interval([-0.2, 0.1])
    '−0.200 to 0.100'
    """
    return f"{bounds[0]:.3f} to {bounds[1]:.3f}".replace("-", "\u2212") if bounds else ""
