"""Model cards: description, training data, scores compared with baselines, and limits of a model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bertline.export.card_sections import (
    conclusion,
    data,
    fine_tuning_settings,
    formats,
    limits,
    more_scores,
    origin,
    pretraining_scores,
    task_data,
    task_limits,
    task_scores,
    training_settings,
    what_it_is,
)
from bertline.export.card_tables import escaped
from bertline.export.facts import CardFacts
from bertline.export.usage import Usage

_ENCODER_SECTIONS = ("corpus", "tokenizer", "examples", "model", "objective", "optimizer", "schedule", "pretrain")


def encoder_card(facts: CardFacts, onnx: Mapping[str, Any] | None, torch_bytes: int) -> str:
    """Return the README.md of the encoder.

    Args:
        facts: Facts of the pipeline.
        onnx: Results of `export_onnx`; None if there is no ONNX file.
        torch_bytes: Size of the PyTorch weights in bytes.
    """
    name = facts.export.model_name
    own_tasks = [task for task in facts.results if facts.start_of(task) is None]
    tasks = [f"{conclusion(facts, task)}\n\n{task_scores(facts, task)}" for task in own_tasks]
    use = f"""```python
from transformers import pipeline

fill = pipeline("fill-mask", model="{name}")  # the folder that this file lies in
fill("The function returns a [MASK].")
```

```python
import bertline

model = bertline.load("{name}")
model.fill_mask("The function returns a [MASK].", top_k=5)
model.embed(["One text.", "Another text."])  # one vector each
```"""
    return _card(
        _front_matter(facts, task=None, tags=["bert", "fill-mask"], pipeline="fill-mask"),
        f"# {escaped(name)}\n\n{what_it_is(facts)}",
        _section("Use", use),
        _section("Data", data(facts)),
        _section("Training", training_settings(facts)),
        _section("Scores", pretraining_scores(facts), *tasks),
        _section("Formats", formats(onnx, torch_bytes)),
        _section("Limits", limits(facts)),
        _section("Where it comes from", origin(facts, _ENCODER_SECTIONS)),
    )


def task_card(facts: CardFacts, task: str, onnx: Mapping[str, Any] | None, torch_bytes: int) -> str:
    """Return the README.md of a task's best model; arguments are those of `encoder_card`."""
    name = f"{facts.export.model_name}-{task}"
    usage, other_start = facts.usages[task], facts.start_of(task)
    use = "\n\n".join(f"```python\n{snippet.replace('NAME', name)}\n```" for snippet in usage.snippets)
    tags = list(dict.fromkeys(["bert", usage.tag, *(["sentence-transformers"] if _has_vectors(usage) else [])]))
    # The facts of the pipeline's own encoder do not apply to a model that started from another checkpoint.
    if other_start is None:
        what = f"{usage.what} Fine-tuned from {escaped(facts.export.model_name)}. {what_it_is(facts)}"
        read_before = ("The encoder was pretrained before on:", data(facts))
        sections: tuple[str, ...] = _ENCODER_SECTIONS
    else:
        what = f"{usage.what} Fine-tuned from {other_start} by bertline."
        read_before, sections = ("", ""), ()
    return _card(
        _front_matter(facts, task=task, tags=tags, pipeline=usage.tag if usage.pipeline else None),
        f"# {escaped(name)}\n\n{conclusion(facts, task)}\n\n{what}",
        _section("Use", use),
        _section("Data", task_data(facts, task), *(read_before if read_before[1] else ())),
        _section("Training", fine_tuning_settings(facts, task)),
        _section("Scores", task_scores(facts, task), more_scores(facts, task)),
        _section("Formats", formats(onnx, torch_bytes)),
        _section("Limits", task_limits(facts, task)),
        _section("Where it comes from", origin(facts, (*sections, f"tasks.{task}", "sweep"))),
    )


def _has_vectors(usage: Usage) -> bool:
    return usage.tag == "sentence-similarity"


def _card(front_matter: str, *parts: str) -> str:
    return "\n\n".join((front_matter, *(part for part in parts if part))) + "\n"


def _section(title: str, *paragraphs: str) -> str:
    """Return a section; empty if all paragraphs are empty."""
    known = [paragraph for paragraph in paragraphs if paragraph]
    return "\n\n".join((f"## {title}", *known)) if known else ""


def _front_matter(facts: CardFacts, *, task: str | None, tags: list[str], pipeline: str | None) -> str:
    """Return the card's metadata for the Hugging Face hub. JSON values are valid YAML with correct quoting."""
    name = facts.export.model_name
    metadata: dict[str, Any] = {
        "language": facts.export.language,
        "license": facts.export.license,
        "library_name": "sentence-transformers" if "sentence-transformers" in tags else "transformers",
        "pipeline_tag": pipeline,
        "tags": [*tags, "bertline"],
    }
    if pipeline is None:
        del metadata["pipeline_tag"]
    start = facts.hub_start
    if task is not None and (other := facts.start_of(task)) is not None:
        start = other.strip("`").split("@")[0] if other.startswith("`") else None
    if start is not None:
        metadata["base_model"] = start
    if task is not None:
        result = facts.results[task]
        score = {
            "type": result["metric"],
            "value": round(result["arms"]["encoder"]["test_mean"], 4),
            "name": "test mean",
        }
        entry = {
            "task": {"type": facts.usages[task].tag},
            "dataset": {"name": task, "type": task, "split": "test"},
            "metrics": [score],
        }
        metadata["metrics"] = [result["metric"]]
        metadata["model-index"] = [{"name": f"{name}-{task}", "results": [entry]}]
    lines = (f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in metadata.items())
    return "---\n" + "\n".join(lines) + "\n---"
