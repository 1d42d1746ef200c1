"""Model cards: what a model is, what it learned from, how well it does beside what, and what not to use it for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from bertline.export.card_sections import (
    data,
    fine_tuning_settings,
    limits,
    origin,
    pretraining_scores,
    task_data,
    task_limits,
    task_scores,
    training_settings,
    what_it_is,
)
from bertline.export.facts import CardFacts

_ENCODER_SECTIONS = ("corpus", "tokenizer", "examples", "model", "objective", "optimizer", "schedule", "pretrain")


def encoder_card(facts: CardFacts) -> str:
    """README.md of the encoder."""
    name = facts.export.model_name
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
        f"# {name}\n\n{what_it_is(facts)}",
        _section("Use", use),
        _section("Data", data(facts)),
        _section("Training", training_settings(facts)),
        _section("Scores", pretraining_scores(facts), *(task_scores(facts, task) for task in facts.results)),
        _section("Limits", limits(facts)),
        _section("Where it comes from", origin(facts, _ENCODER_SECTIONS)),
    )


def classifier_card(facts: CardFacts, task: str, labels: Sequence[str]) -> str:
    """README.md of a task's winner."""
    name = f"{facts.export.model_name}-{task}"
    pair = task in facts.pair_tasks
    texts = '["One text."], ["The text to compare."]' if pair else '["One text.", "Another text."]'
    inputs = '{"text": "One text.", "text_pair": "The text to compare."}' if pair else '"One text."'
    use = f"""```python
from transformers import pipeline

classify = pipeline("text-classification", model="{name}")  # the folder that this file lies in
classify({inputs})
```

```python
import bertline

bertline.load("{name}").predict({texts})
```"""
    kind = "pairs of texts" if pair else "texts"
    what = (
        f"Sorts {kind} into {len(labels)} classes: {', '.join(f'`{label}`' for label in labels)}. "
        f"Fine-tuned from {facts.export.model_name}. {what_it_is(facts)}"
    )
    return _card(
        _front_matter(facts, task=task, tags=["bert", "text-classification"], pipeline="text-classification"),
        f"# {name}\n\n{what}",
        _section("Use", use),
        _section("Data", task_data(facts, task), "The encoder was pretrained before on:", data(facts)),
        _section("Training", fine_tuning_settings(facts, task)),
        _section("Scores", task_scores(facts, task)),
        _section("Limits", task_limits(facts, task)),
        _section("Where it comes from", origin(facts, (*_ENCODER_SECTIONS, f"tasks.{task}", "sweep"))),
    )


def _card(front_matter: str, *parts: str) -> str:
    return "\n\n".join((front_matter, *(part for part in parts if part))) + "\n"


def _section(title: str, *paragraphs: str) -> str:
    """A section, or nothing where there is nothing to say."""
    known = [paragraph for paragraph in paragraphs if paragraph]
    return "\n\n".join((f"## {title}", *known)) if known else ""


def _front_matter(facts: CardFacts, *, task: str | None, tags: list[str], pipeline: str) -> str:
    """The card's metadata for the Hugging Face hub. JSON is YAML, and quotes what needs it."""
    name = facts.export.model_name
    metadata: dict[str, Any] = {
        "language": facts.export.language,
        "license": facts.export.license,
        "library_name": "transformers",
        "pipeline_tag": pipeline,
        "tags": [*tags, "bertline"],
    }
    if facts.hub_start is not None:
        metadata["base_model"] = facts.hub_start
    if task is not None:
        result = facts.results[task]
        score = {
            "type": result["metric"],
            "value": round(result["arms"]["encoder"]["test_mean"], 4),
            "name": "test mean",
        }
        entry = {
            "task": {"type": pipeline},
            "dataset": {"name": task, "type": task, "split": "test"},
            "metrics": [score],
        }
        metadata["metrics"] = [result["metric"]]
        metadata["model-index"] = [{"name": f"{name}-{task}", "results": [entry]}]
    lines = (f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in metadata.items())
    return "---\n" + "\n".join(lines) + "\n---"
