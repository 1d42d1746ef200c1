"""Model cards: description, training data, scores compared with baselines, and limits of a model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bertline.export.facts import CardFacts
from bertline.export.usage import escaped, interval, shown
from bertline.foundation.formats import markdown_table, signed, with_spread, without_local_paths
from bertline.foundation.manifests import versions_of
from bertline.foundation.mappings import value_at
from bertline.modeling.families import FAMILIES, GENERATOR
from bertline.pretraining.objectives.base import LossTerm, Metric, shown_means
from bertline.pretraining.objectives.replaced_token import ReplacedToken

# Sections of a model card; a section is empty if its facts are unknown.


def what_it_is(facts: CardFacts) -> str:
    """Return the description at the top of the card."""
    model, family = facts.model, FAMILIES[facts.model.family]
    begin = "trained from random weights"
    if facts.params.get("pretrain", {}).get("initial_embeddings") is not None:
        begin += " and word embeddings of co-occurrences in its text"
    if facts.start_from is not None:
        begin = "continued from " + (f"`{facts.hub_start}`" if facts.hub_start else "another checkpoint")
    learnt = "" if facts.objective is None else f" with {facts.objective.title}"
    article = "An" if family.title[0] in "AE" else "A"
    return (
        f"{article} {family.title} encoder ({model.num_hidden_layers} layers, hidden size {model.hidden_size}, "
        f"{facts.num_parameters:,} parameters, {facts.vocab_size:,} {facts.tokenizer} tokens), {begin}{learnt}, "
        f"made by bertline {versions_of('bertline')['bertline']}."
    )


def data(facts: CardFacts) -> str:
    """Return the content of the corpus and the dropped text by reason."""
    corpus = facts.corpus
    counts: Mapping[str, Mapping[str, int]] = corpus.get("counts", {})
    if not counts:
        return ""
    names = ("documents", "sentences", "words", "characters")
    rows = [[split, *(f"{amount.get(name, 0):,}" for name in names)] for split, amount in counts.items()]
    paragraphs = [f"Source: `{corpus.get('source', 'unknown')}`.", markdown_table(["split", *names], rows)]
    if packages := corpus.get("packages"):
        listed = ", ".join(f"{name} {version}" for name, version in packages.items())
        paragraphs.insert(1, f"Documentation strings of Python packages: {listed}.")
    if dropped := corpus.get("dropped"):
        paragraphs.append(f"Left out: {_reasons(dropped)}.")
    return "\n\n".join(paragraphs)


def _reasons(dropped: Mapping[str, int], most: int = 6) -> str:
    largest = sorted(dropped.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{number:,} {reason.replace('/', ': ').replace('_', ' ')}" for reason, number in largest[:most])
    return f"{shown} and {len(largest) - most} more reasons" if len(largest) > most else shown


def training_settings(facts: CardFacts) -> str:
    """Return the settings of pretraining."""
    pretrain, optimizer = facts.params.get("pretrain", {}), facts.params.get("optimizer", {})
    rows = []
    for number, phase in enumerate(pretrain.get("phases", ()), start=1):
        steps = f"{phase['steps']:,} steps of {phase['global_batch_size']} sequences of {phase['max_length']}"
        rows.append((f"phase {number}", steps))
    if pretrain.get("max_steps") is not None:
        rows.append(("stopped at step", f"{pretrain['max_steps']:,}"))
    if optimizer:
        rows.append(("optimizer", ", ".join(f"{key} {value}" for key, value in optimizer.items() if key != "kind")))
    if facts.precision:
        rows.append(("precision", facts.precision))
    if "train_time_s" in facts.training:
        rows.append(("time", f"{facts.training['train_time_s']:,.0f} s"))
    return markdown_table(["setting", "value"], rows) if rows else ""


def pretraining_scores(facts: CardFacts) -> str:
    """Return the scores of pretraining and their baselines."""
    if facts.objective is None:
        return ""
    training, rows = facts.training, []
    baselines = facts.objective.baselines({**facts.examples, **training})
    for score in shown_means(facts.objective):
        if f"val/{score.name}" not in training:
            continue
        rows.append((_measure(score), f"{training[f'val/{score.name}']:.3f}"))
        if score.name in baselines:
            rows.append((f"its baseline: {score.baseline}", f"{baselines[score.name]:.3f}"))
    if not rows:
        return ""
    return f"On held-out documents with fixed masks, one run:\n\n{markdown_table(['measure', 'value'], rows)}"


def _measure(score: LossTerm | Metric) -> str:
    if isinstance(score, LossTerm):
        return score.title
    return f"share of {score.share_of}" if score.share_of else f"{score.title} ({score.note})"


def conclusion(facts: CardFacts, task: str) -> str:
    """Return whether the encoder beats the strongest simple opponent, the first sentence of a task's card."""
    return escaped(str(facts.results[task]["conclusion"]["sentence"]))


def task_scores(facts: CardFacts, task: str) -> str:
    """Return the scores of a task and its baselines."""
    result = facts.results[task]
    rows_of, encoder = result["rows"], result["arms"]["encoder"]
    diverged = f" ({encoder['num_diverged']} more diverged)" if encoder.get("num_diverged") else ""
    finished = [trial for trial in encoder["trials"] if trial["state"] != "FAIL"]
    choice = f"was chosen on {rows_of['dev']:,} dev rows among {len(finished)} trials" if finished else "was given"
    seeds = len(encoder["seeds"])
    repeated = f"mean ± standard deviation over {seeds} seeds" if seeds > 1 else "one run"
    intro = (
        f"`{task}`, {result['metric']}: {repeated}{diverged}, {rows_of['train']:,} training rows. The configuration "
        f"{choice}; the {rows_of['test']:,} test rows were read once."
    )
    return "\n\n".join(part for part in (intro, _scores(result), _degenerate(result), _comparisons(result)) if part)


def _scores(result: Mapping[str, Any]) -> str:
    """Return the table of scores: this model's configuration first, then the other arms and the baselines."""
    arms = {name: arm for name, arm in result["arms"].items() if arm is not None}
    titled = [("**this model's configuration**", arms.pop("encoder"))]
    titled += [(shown(arm["title"]), arm) for arm in arms.values()]
    rows = []
    for title, arm in titled:
        scores = (with_spread(arm[f"{split}_mean"], arm[f"{split}_std"]) for split in ("dev", "test"))
        rows.append([title, *scores, interval(arm.get("test_interval"))])
    for baseline in result["baselines"].values():
        scores = (f"{baseline[split]:.3f}" for split in ("dev", "test"))
        rows.append([shown(baseline["title"]), *scores, interval(baseline.get("test_interval"))])
    return markdown_table(["", "dev", "test", "95 % interval of test"], rows)


def more_scores(facts: CardFacts, task: str) -> str:
    """Return all metrics of the task's model on all test splits."""
    result = facts.results[task]
    scores: Mapping[str, Mapping[str, Mapping[str, float | None]]] = result["arms"]["encoder"].get("scores", {})
    splits = [split for split in result.get("test_splits", ["test"]) if split in scores]
    metrics = dict.fromkeys(metric for split in splits for metric in scores[split])
    if not metrics or len(metrics) == len(splits) == 1:
        return ""
    rows = [[escaped(metric), *(_spread(scores[split].get(metric)) for split in splits)] for metric in metrics]
    names = ["metric", *(escaped(split) for split in splits)]
    return f"All metrics of this model's configuration:\n\n{markdown_table(names, rows)}"


def _spread(score: Mapping[str, Any] | None) -> str:
    return with_spread(score["mean"], score["std"]) if score else ""


def _degenerate(result: Mapping[str, Any]) -> str:
    arms = [arm for arm in result["arms"].values() if arm is not None and arm.get("num_degenerate")]
    told = [
        f"{arm['num_degenerate']} of {len(arm['seeds']) + arm.get('num_diverged', 0)} runs of {shown(arm['title'])}"
        for arm in arms
    ]
    return f"Failed (the same output for every row, or diverged and not scored): {', '.join(told)}." if told else ""


def _comparisons(result: Mapping[str, Any]) -> str:
    """Return the comparisons of the encoder with each other system, paired over the test rows."""
    titles = {
        **{name: shown(arm["title"]) for name, arm in result["arms"].items() if arm is not None},
        **{name: shown(baseline["title"]) for name, baseline in result["baselines"].items()},
    }
    lines = [_comparison(titles.get(name, name), found) for name, found in (result.get("comparisons") or {}).items()]
    if not lines:
        return ""
    noise = "The noise of seeds, of rows and of rows from one source is counted together."
    return f"On the same test rows, against:\n\n{_bullets(lines)}\n\n{noise}"


def _comparison(title: str, found: Mapping[str, Any]) -> str:
    if "p_value" not in found:
        return f"{title}: {signed(found['difference'])}; its noise was not measured"
    words = {"better": "beaten", "worse": "better than this model", "not shown": "no clear difference"}
    return (
        f"{title}: {signed(found['difference'])} ({interval(found['interval'])}, p = {found['p_value']:.3g}): "
        f"{words[found['verdict']]}. The smallest difference that could have been seen is "
        f"{found['smallest_visible']:.3f}."
    )


_AGREEMENT = {
    "label": "the share of texts with the same label",
    "labels": "the share of decisions, a label and a text each, that are the same",
    "score": "Spearman's correlation of the scores",
    "token": "the share of tokens with the same likeliest label or token id",
    "token_score": "Spearman's correlation of the tokens' scores",
    "span": "the share of texts with the same start and end",
    "vector": "Spearman's correlation of the cosines of every two texts' mean vectors",
}


def formats(onnx: Mapping[str, Any] | None, torch_bytes: int) -> str:
    """Return the sizes, latencies and differences of the ONNX files, compared with the PyTorch model."""
    if onnx is None:
        return ""
    latency: Mapping[str, Mapping[str, float]] = onnx.get("latency_ms", {})
    batches = (f"ms, batch of {size}" for size in latency.get("torch", {}))
    names = ["file", "MB", *batches, "largest difference", "agreement"]

    def row(name: str, title: str, size: int, *measured: str) -> list[str]:
        return [title, f"{size / 1e6:.3g}", *(f"{ms:.3g}" for ms in latency.get(name, {}).values()), *measured]

    rows = [row("torch", "`model.safetensors` (PyTorch)", torch_bytes, "", "")]
    for name, file in onnx["files"].items():
        measured = f"{file['max_difference']:.1e}", f"{file['agreement']:.4f}"
        rows.append(row(name, f"`{file['file']}`", file["bytes"], *measured))
    sentences = [
        f"Agreement with the PyTorch model, measured on {onnx['num_texts']} texts, is {_AGREEMENT[onnx['decision']]}."
    ]
    if "latency_ms" in onnx:
        sentences.append(
            f"Latency: the median of up to seven runs, every sequence {onnx['max_length']} tokens long, on "
            f"{onnx['machine']}."
        )
    if "onnx_int8" in onnx["files"]:
        sentences.append(
            "The int8 file quantises activations with one scale for a whole batch, so its numbers depend a little on "
            "which texts are together in it."
        )
    if refused := onnx.get("refused_int8"):
        sentences.append(f"An int8 file was made and left out: it agreed to {refused['agreement']:.3f} only.")
    return f"{markdown_table(names, rows)}\n\n{' '.join(sentences)}"


def task_data(facts: CardFacts, task: str) -> str:
    """Return the source and the number of labelled rows."""
    rows = facts.results[task]["rows"]
    source = facts.params.get("tasks", {}).get(task, {}).get("source", {}).get("kind")
    named = f" from `{source}`" if source else ""
    return f"Labelled rows{named}: {rows['train']:,} to train on, {rows['dev']:,} dev, {rows['test']:,} test."


def fine_tuning_settings(facts: CardFacts, task: str) -> str:
    """Return the best configuration."""
    best: Mapping[str, Any] = facts.results[task]["arms"]["encoder"]["best_params"]
    texts = {name: f"{value:.3g}" if isinstance(value, float) else str(value) for name, value in best.items()}
    rows = [(name.replace("_", " "), text) for name, text in texts.items()]
    rows.append(("longest sequence", f"{facts.tasks[task].kind.config.max_length} tokens"))
    settings = markdown_table(["setting", "value"], rows)
    return f"The best configuration on dev; these are the weights of its best seed.\n\n{settings}"


def limits(facts: CardFacts) -> str:
    """Return the limits of the encoder."""
    return _bullets(_limit_sentences(facts, facts.encoder_max_length))


def task_limits(facts: CardFacts, task: str) -> str:
    """Return the limits of a task's model."""
    sentences = [
        *facts.usages[task].limits,
        f"The scores hold for texts like the test rows of `{task}`; measure on your own before relying on them.",
    ]
    match (facts.results[task].get("comparison") or {}).get("verdict"):
        case "worse":
            sentences.insert(0, "The pretrained encoder is worse than random weights on this task.")
        case "not shown":
            sentences.insert(0, "The pretrained encoder was not shown to beat random weights on this task.")
    own, max_length = facts.start_of(task) is None, facts.tasks[task].kind.config.max_length
    return _bullets([*sentences, *_limit_sentences(facts, max_length, own_encoder=own)])


def _limit_sentences(facts: CardFacts, max_length: int | None, *, own_encoder: bool = True) -> list[str]:
    sentences = []
    if max_length is not None:
        sentences.append(
            f"Reads at most {max_length} tokens, the longest it was trained on: the tokenizer is set to cut there."
        )
    if own_encoder and facts.corpus.get("source") == "python_docs":
        sentences.append(
            "Has read the documentation of a few Python packages and nothing else; it is no model of a language."
        )
    words = facts.corpus.get("counts", {}).get("train", {}).get("words")
    if own_encoder and words is not None and facts.start_from is None:
        sentences.append(f"Its corpus has {words:,} running words; that of the original BERT has 3,300,000,000.")
    sentences.append(
        "Repeats the biases and mistakes of the text it was trained on. It gives vectors and guesses, not facts."
    )
    return sentences


def origin(facts: CardFacts, sections: Iterable[str]) -> list[str]:
    """Return the commit and the configuration, as paragraphs."""
    paragraphs = []
    if facts.commit and facts.commit != "none":
        paragraphs.append(f"Code: commit `{facts.commit}`.")
    if chosen := {name: value for name in sections if (value := _setting(facts.params, name)) is not None}:
        content = json.dumps(without_local_paths(chosen), indent=2, ensure_ascii=False)
        paragraphs.append(f"<details><summary>The configuration</summary>\n\n```json\n{content}\n```\n\n</details>")
    return paragraphs


def _setting(params: Mapping[str, Any], name: str) -> Any:
    value = value_at(params, name)
    if not isinstance(value, Mapping):
        return value
    # The sentences of the mask predictions and the bounds of alarms do not describe the model.
    return {key: item for key, item in value.items() if key not in ("mask_predictions", "health")}


def _bullets(sentences: Iterable[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)


_ENCODER_CONFIG = ("corpus", "tokenizer", "examples", "model", "objective", "optimizer", "schedule", "pretrain")


def encoder_card(facts: CardFacts, onnx: Mapping[str, Any] | None, torch_bytes: int) -> str:
    """Return the README.md of the encoder."""
    name = facts.export.model_name
    tasks = [
        f"{conclusion(facts, task)}\n\n{task_scores(facts, task)}"
        for task in facts.results
        if facts.start_of(task) is None
    ]
    # A detector fills no blanks; its generator does.
    is_detector = isinstance(facts.objective, ReplacedToken)
    fills = f"{name}/{GENERATOR}" if is_detector else name
    use = f"""```python
from transformers import pipeline

# "{name}" is the folder that this file lies in.
fill = pipeline("fill-mask", model="{fills}")
fill("The function returns a [MASK].")
```

```python
import bertline

bertline.load("{fills}").fill_mask("The function returns a [MASK].", top_k=5)
bertline.load("{name}").embed(["One text.", "Another text."])  # one vector each
```"""
    purpose = "feature-extraction" if is_detector else "fill-mask"
    return _card(
        _front_matter(facts, task=None, tags=[facts.model.family, purpose], pipeline=purpose),
        f"# {escaped(name)}\n\n{what_it_is(facts)}",
        {
            "Use": [use],
            "Data": [data(facts)],
            "Training": [training_settings(facts)],
            "Scores": [pretraining_scores(facts), *tasks],
            "Formats": [formats(onnx, torch_bytes)],
            "Limits": [limits(facts)],
            "Where it comes from": origin(facts, _ENCODER_CONFIG),
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
        what = f"{usage.what} Fine-tuned from {escaped(facts.export.model_name)}. {what_it_is(facts)}"
        read_before, config = data(facts), (*_ENCODER_CONFIG, *config)
    return _card(
        _front_matter(facts, task=task, tags=tags, pipeline=usage.tag if usage.pipeline else None),
        f"# {escaped(name)}\n\n{conclusion(facts, task)}\n\n{what}",
        {
            "Use": [f"```python\n{snippet.replace('NAME', name)}\n```" for snippet in usage.snippets],
            "Data": [
                task_data(facts, task),
                "The encoder was pretrained before on:" if read_before else "",
                read_before,
            ],
            "Training": [fine_tuning_settings(facts, task)],
            "Scores": [task_scores(facts, task), more_scores(facts, task)],
            "Formats": [formats(onnx, torch_bytes)],
            "Limits": [task_limits(facts, task)],
            "Where it comes from": origin(facts, config),
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
