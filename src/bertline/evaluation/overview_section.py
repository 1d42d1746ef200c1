"""Overview at the top of the report: a summary of training and scores, and a diagram of the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bertline.evaluation.facts import Facts, TaskFacts
from bertline.evaluation.html import (
    Strong,
    escape,
    in_unit,
    listing,
    metric_name,
    number_of,
    paragraph,
    score,
    section,
    table,
    tiles,
)
from bertline.evaluation.overlap import Overlap, Overlaps
from bertline.evaluation.task_scores import conclusion, scores_sentence, test_score
from bertline.foundation.formats import count, duration, percent
from bertline.modeling.families import FAMILIES
from bertline.pretraining.objectives.base import Metric, shown_means

_FEW_TASKS = 3
"""Maximum number of tasks that get a sentence and a tile each; more tasks get a table."""
_MOST_CARDS = 5
_ARROW = '<span class="arrow" aria-hidden="true">→</span>'


def summary(facts: Facts, overlaps: Overlaps) -> str:
    """Return a summary of the pipeline in sentences, with tiles of its main figures."""
    few = len(facts.tasks) <= _FEW_TASKS
    sentences = [_taken(facts)] if facts.taken_from else [_what(facts), _how_good(facts)]
    sentences += [f"{conclusion(task)} {scores_sentence(task)}" if few else conclusion(task) for task in facts.tasks]
    lead = "".join(paragraph(sentence, "lead") for sentence in sentences)
    entries = [] if facts.taken_from else _pretraining_tiles(facts)
    entries += [_tile(task, _overlap_note(overlaps.get(task.name, {}))) for task in facts.tasks if few]
    return lead + tiles(entries) + ("" if few else _task_table(facts, overlaps))


def pipeline_picture(facts: Facts) -> str:
    """Return a diagram of the stages in order, each with its headline figures; tasks are stacked."""
    cards = [_card(name, entries) for name, entries in _stages(facts)]
    stages = [_task_stages(task) for task in facts.tasks]
    if len(stages) > _MOST_CARDS:
        stages = [_all_task_stages(facts)]
    tasks = [f"<div>{_ARROW.join(_card(*stage) for stage in of_task)}</div>" for of_task in stages]
    branch = [f'<div class="branch">{"".join(tasks)}</div>'] if tasks else []
    ends = [_card("evaluate", ["this report"]), _card("export", ["Hugging Face", "folders"])]
    return section("pipeline", "The pipeline", f'<div class="pipeline">{_ARROW.join([*cards, *branch, *ends])}</div>')


def _taken(facts: Facts) -> str:
    words, checkpoint = facts.taken_from or "", facts.training
    # The start of a sentence is capitalized; a single word, such as a hub name, is not changed.
    start = words[:1].upper() + words[1:] if " " in words else words
    return (
        f"{start}, an encoder with {count(checkpoint['num_parameters'])} parameters ({_size(checkpoint)}), was "
        "fine-tuned as it is; nothing was pretrained."
    )


def _size(model: Mapping[str, Any]) -> str:
    if not {"num_hidden_layers", "hidden_size"} <= model.keys():
        return "the sizes of its class"
    return f"{number_of(model['num_hidden_layers'], 'layer')}, hidden size {model['hidden_size']}"


def _what(facts: Facts) -> str:
    training, train = facts.training, facts.corpus["counts"]["train"]
    start = facts.params["pretrain"].get("start_from")
    origin = f"trained on from {start}" if start else "trained from random weights"
    if not start and facts.params["pretrain"].get("initial_embeddings") is not None:
        origin += " and word embeddings of co-occurrences in its text"
    model = facts.params["model"]
    family = FAMILIES[model.get("family", "bert")]
    kind = "A BERT encoder" if family.model_type == "bert" else f"An encoder of the family {family.title}"
    return (
        f"{kind} with {count(training['num_parameters'])} parameters ({_size(family.config_to_bert(model))}) was "
        f"{origin} for {count(training['steps'])} steps in {duration(training['train_time_s'])}, on "
        f"{count(train['documents'])} documents with {count(train['words'])} words of {_source(facts.corpus)}."
    )


def _source(corpus: dict[str, Any]) -> str:
    if corpus.get("source") == "python_docs":
        return "documentation of Python packages"
    return f"your own text ({corpus.get('source', 'corpus')})"


def _how_good(facts: Facts) -> str:
    """Return the objective's summary of the held-out scores, compared with its baselines."""
    baselines, values = facts.baselines, {}
    for shown in shown_means(facts.pretrained_by):
        value = facts.training[f"val/{shown.name}"]
        values[shown.name] = in_unit(value, shown.unit)
        if shown.name in baselines:
            below = baselines[shown.name] - value
            values[f"{shown.name}_baseline"] = in_unit(baselines[shown.name], shown.unit)
            values[f"{shown.name}_margin"] = f"{in_unit(abs(below), shown.unit)} {'below' if below >= 0 else 'above'}"
    return f"{facts.pretrained_by.summary.format(**values)}."


def _task_table(facts: Facts, overlaps: Overlaps) -> str:
    """Return a table with one row per task: its score compared with the other arms and the strongest opponent."""
    others = ("combined", "random_weights")
    rows = []
    for task in facts.tasks:
        arms, baselines, titles = task.arms(), task.baselines(), task.titles()
        cells = {name: test_score(arms[name]) if name in arms else "–" for name in ("encoder", *others)}
        rivals = sorted((arm["dev_mean"], name) for name, arm in arms.items() if name.startswith("encoder_"))
        cells["rival"] = f"{test_score(arms[rivals[-1][1]])} ({titles[rivals[-1][1]]})" if rivals else "–"
        best = task.strongest
        cells["opponent"] = "–" if best is None else f"{score(baselines[best]['test'])} ({titles[best]})"
        verdict, winners = _verdict(task.result["conclusion"])
        cells |= {winner: Strong(cells[winner]) for winner in winners}
        rows.append([task.name, metric_name(task.metric), *cells.values(), verdict])
        rows[-1].append(_overlap_note(overlaps.get(task.name, {})) or "–")
    head = ["task", "test", "this encoder", "combined", "random weights", "best other encoder"]
    head += ["strongest simple opponent", "winner", "read in pretraining?"]
    seeds = sorted({len(task.arms()["encoder"]["seeds"]) for task in facts.tasks})
    spread = f"Mean ± standard deviation over {listing([str(number) for number in seeds])} seeds. "
    seeds_sentence = spread if seeds != [1] else "One seed each, so no spread is known. "
    seeds_sentence += (
        "The opponent is the baseline that is best on dev. The winner is bold where the difference is larger than "
    )
    return table(head, rows) + paragraph(seeds_sentence + "the noise of seeds and rows together.", "soft")


def _verdict(conclusion: dict[str, Any]) -> tuple[str, list[str]]:
    """Return who wins in words, of the encoder alone and combined if they differ, and the columns of the winners."""
    verdicts_by_arm = {arm: conclusion[arm].get("verdict") for arm in ("encoder", "combined") if arm in conclusion}
    words = {"better": "this encoder", "worse": "the opponent", "not shown": "not clear", None: "not known"}
    winners: list[str] = [arm for arm, verdict in verdicts_by_arm.items() if verdict == "better"]
    if len(set(verdicts_by_arm.values())) > 1:
        return f"alone: {words[verdicts_by_arm['encoder']]}; combined: {words[verdicts_by_arm['combined']]}", winners
    verdict = next(iter(verdicts_by_arm.values()), None)
    return words[verdict], ["opponent"] if verdict == "worse" else winners


def _overlap_note(overlaps: dict[str, Overlap]) -> str:
    """Return a note if a test set of the task is flagged; else an empty string."""
    flagged = [found.share_of_rows for found in overlaps.values() if found.flagged]
    return f"{percent(max(flagged))} of test rows in part" if flagged else ""


def _pretraining_tiles(facts: Facts) -> list[tuple[str, str, str]]:
    vocab_size, tiles = count(facts.tokenizer["vocab_size"]), []
    for shown in shown_means(facts.pretrained_by):
        known = facts.baselines.get(shown.name)
        if known is not None:
            note = f"{shown.baseline} {in_unit(known, shown.unit)}"
        else:
            note = shown.note.format(vocab_size=vocab_size) if isinstance(shown, Metric) else ""
        tiles.append((in_unit(facts.training[f"val/{shown.name}"], shown.unit), shown.title, note))
    return tiles


def _tile(task: TaskFacts, overlap_note: str) -> tuple[str, str, str]:
    """Return the tile of a task: its score, the other arms and the strongest baseline."""
    arms, baselines, titles = task.arms(), task.baselines(), task.titles()
    notes = [f"{titles[name]} {test_score(arm)}" for name, arm in arms.items() if name != "encoder"]
    if (strongest := task.strongest) is not None:
        notes.append(f"strongest opponent: {titles[strongest]} {score(baselines[strongest]['test'])}")
    if overlap_note:
        notes.append(f"read in pretraining: {overlap_note}")
    return test_score(arms["encoder"]), f"{task.name}, {metric_name(task.metric)}", "; ".join(notes)


def _stages(facts: Facts) -> list[tuple[str, list[str]]]:
    if facts.taken_from:
        return [("checkpoint", [facts.taken_from, f"{count(facts.training['num_parameters'])} parameters"])]
    training, quality = facts.training, facts.tokenizer["quality"]
    train, held_out = facts.corpus["counts"]["train"], facts.corpus["counts"].get("validation", {})
    lengths = facts.examples["lengths"]
    return [
        ("corpus", [f"{count(train['documents'])} documents", f"{count(held_out.get('documents', 0))} held out"]),
        (
            "tokenizer",
            [f"{count(facts.tokenizer['vocab_size'])} tokens", f"{quality['tokens_per_word']:.2f} tokens per word"],
        ),
        ("examples", [f"length {listing(list(lengths))}", f"{facts.examples['dupe_factor']} × each document"]),
        ("pretrain", [f"{count(training['steps'])} steps", f"{count(training['perf/tokens_per_s'])} tokens/s"]),
    ]


def _task_stages(task: TaskFacts) -> list[tuple[str, list[str]]]:
    encoder, labels = task.arms()["encoder"], task.result["labels"]
    data = [f"{count(task.result['rows']['train'])} rows"]
    data.append(number_of(len(labels), "label") if labels else task.result["task_kind"].replace("_", " "))
    sweep = [number_of(len(encoder[f"{thing}s"]), thing) for thing in ("trial", "seed")]
    return [(f"task_data@{task.name}", data), (f"sweep@{task.name}", sweep)]


def _all_task_stages(facts: Facts) -> list[tuple[str, list[str]]]:
    """Return two cards that summarize all tasks, for pipelines with many tasks."""
    encoders = [task.arms()["encoder"] for task in facts.tasks]
    rows = sum(task.result["rows"]["train"] for task in facts.tasks)
    number = number_of(len(facts.tasks), "task")
    sweep = [number_of(sum(len(one[f"{thing}s"]) for one in encoders), thing) for thing in ("trial", "seed")]
    return [("task_data", [number, f"{count(rows)} rows"]), ("sweep", [number, *sweep])]


def _card(name: str, entries: list[str]) -> str:
    lines = "".join(f"<span>{escape(entry)}</span>" for entry in entries)
    return f'<div class="card"><b>{escape(name)}</b>{lines}</div>'
