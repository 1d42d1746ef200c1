"""Model cards: description, training data, scores compared with baselines, and limits of a model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from bertline.export import card_sections as sections
from bertline.export.card_tables import escaped
from bertline.export.facts import CardFacts

_ENCODER_CONFIG = ("corpus", "tokenizer", "examples", "model", "objective", "optimizer", "schedule", "pretrain")


def encoder_card(facts: CardFacts, onnx: Mapping[str, Any] | None, torch_bytes: int) -> str:
    """Return the README.md of the encoder.

    Args:
        facts: Facts of the pipeline.
        onnx: Results of `export_onnx`; None if there is no ONNX file.
        torch_bytes: Size of the PyTorch weights in bytes.
    """
    name = facts.export.model_name
    tasks = [
        f"{sections.conclusion(facts, task)}\n\n{sections.task_scores(facts, task)}"
        for task in facts.results
        if facts.start_of(task) is None
    ]
    use = f"""```python
from transformers import pipeline

# "{name}" is the folder that this file lies in.
fill = pipeline("fill-mask", model="{name}")
fill("The function returns a [MASK].")
```

```python
import bertline

model = bertline.load("{name}")
model.fill_mask("The function returns a [MASK].", top_k=5)
model.embed(["One text.", "Another text."])  # one vector each
```"""
    return _card(
        _front_matter(facts, task=None, tags=[facts.model.family, "fill-mask"], pipeline="fill-mask"),
        f"# {escaped(name)}\n\n{sections.what_it_is(facts)}",
        {
            "Use": [use],
            "Data": [sections.data(facts)],
            "Training": [sections.training_settings(facts)],
            "Scores": [sections.pretraining_scores(facts), *tasks],
            "Formats": [sections.formats(onnx, torch_bytes)],
            "Limits": [sections.limits(facts)],
            "Where it comes from": sections.origin(facts, _ENCODER_CONFIG),
        },
    )


def task_card(facts: CardFacts, task: str, onnx: Mapping[str, Any] | None, torch_bytes: int) -> str:
    """Return the README.md of a task's best model; arguments are those of `encoder_card`."""
    name = f"{facts.export.model_name}-{task}"
    usage, other_start = facts.usages[task], facts.start_of(task)
    tags = list(dict.fromkeys([facts.families[task], usage.tag, *(["sentence-transformers"] if usage.vectors else [])]))
    what = f"{usage.what} Fine-tuned from {other_start} by bertline."
    read_before: str = ""
    config: tuple[str, ...] = (f"tasks.{task}", "sweep")
    # The facts of the pipeline's own encoder do not apply to a model that started from another checkpoint.
    if other_start is None:
        what = f"{usage.what} Fine-tuned from {escaped(facts.export.model_name)}. {sections.what_it_is(facts)}"
        read_before, config = sections.data(facts), (*_ENCODER_CONFIG, *config)
    return _card(
        _front_matter(facts, task=task, tags=tags, pipeline=usage.tag if usage.pipeline else None),
        f"# {escaped(name)}\n\n{sections.conclusion(facts, task)}\n\n{what}",
        {
            "Use": [f"```python\n{snippet.replace('NAME', name)}\n```" for snippet in usage.snippets],
            "Data": [
                sections.task_data(facts, task),
                "The encoder was pretrained before on:" if read_before else "",
                read_before,
            ],
            "Training": [sections.fine_tuning_settings(facts, task)],
            "Scores": [sections.task_scores(facts, task), sections.more_scores(facts, task)],
            "Formats": [sections.formats(onnx, torch_bytes)],
            "Limits": [sections.task_limits(facts, task)],
            "Where it comes from": sections.origin(facts, config),
        },
    )


def _card(front_matter: str, beginning: str, contents: Mapping[str, Sequence[str]]) -> str:
    """Join the parts of a card. Empty paragraphs are left out, and sections that have no others."""
    parts = [front_matter, beginning]
    for title, paragraphs in contents.items():
        if known := [paragraph for paragraph in paragraphs if paragraph]:
            parts += [f"## {title}", *known]
    return "\n\n".join(parts) + "\n"


def _front_matter(facts: CardFacts, *, task: str | None, tags: list[str], pipeline: str | None) -> str:
    """Return the card's metadata for the Hugging Face hub. JSON values are valid YAML with correct quoting."""
    start, other = facts.hub_start, None if task is None else facts.start_of(task)
    if other is not None:
        start = other.strip("`").split("@")[0] if other.startswith("`") else None
    metadata: dict[str, Any] = {
        "language": facts.export.language,
        "license": facts.export.license,
        "library_name": "sentence-transformers" if "sentence-transformers" in tags else "transformers",
        "pipeline_tag": pipeline,
        "tags": [*tags, "bertline"],
        "base_model": start,
    }
    if task is not None:
        result = facts.results[task]
        score = round(result["arms"]["encoder"]["test_mean"], 4)
        entry = {
            "task": {"type": facts.usages[task].tag},
            "dataset": {"name": task, "type": task, "split": "test"},
            "metrics": [{"type": result["metric"], "value": score, "name": "test mean"}],
        }
        metadata["metrics"] = [result["metric"]]
        metadata["model-index"] = [{"name": f"{facts.export.model_name}-{task}", "results": [entry]}]
    known = {key: value for key, value in metadata.items() if value is not None}
    return "\n".join(["---", *(f"{key}: {json.dumps(known[key], ensure_ascii=False)}" for key in known), "---"])
