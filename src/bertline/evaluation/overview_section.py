"""The top of the report: what was made of what, how good it is, and the line as a picture."""

from __future__ import annotations

from typing import Any

from bertline.evaluation.facts import Facts, TaskFacts, spread_of
from bertline.evaluation.parts import paragraph, section, tiles
from bertline.evaluation.wording import METRIC_NAMES, count, duration, escape, listing, number_of, percent, score

_ARROW = '<span class="arrow" aria-hidden="true">→</span>'


def summary(facts: Facts) -> str:
    """The whole line in plain sentences, and its largest figures."""
    sentences = [_what(facts), _how_good(facts), *(scores_sentence(task) for task in facts.tasks)]
    return "".join(paragraph(sentence, "lead") for sentence in sentences) + tiles(_tiles(facts))


def line_picture(facts: Facts) -> str:
    """The stages in order, each with its headline figures; the tasks stand one above the other."""
    cards = [_card(name, entries) for name, entries in _stages(facts)]
    tasks = [f"<div>{_ARROW.join(_card(*stage) for stage in _task_stages(task))}</div>" for task in facts.tasks]
    branch = [f'<div class="branch">{"".join(tasks)}</div>'] if tasks else []
    ends = [_card("evaluate", ["this report"]), _card("export", ["Hugging Face", "folders"])]
    return section("line", "The line", f'<div class="line">{_ARROW.join([*cards, *branch, *ends])}</div>')


def test_score(arm: dict[str, Any]) -> str:
    """An arm's mean on test with its spread; one seed has none."""
    return score(arm["test_mean"], spread_of(arm, "test"))


def scores_sentence(task: TaskFacts) -> str:
    """A task's score with every baseline and the spread over seeds."""
    result = task.result
    metric = METRIC_NAMES[result["metric"]]
    arms, baselines = result["arms"], result["baselines"]
    encoder = arms["encoder"]
    others = []
    if arms.get("random_weights"):
        other = arms["random_weights"]
        others.append(f"{test_score(other)} for the same encoder from random weights")
    others.append(f"{score(baselines['tfidf_logistic_regression']['test'])} for TF-IDF with logistic regression")
    others.append(f"{score(baselines['majority']['test'])} for always giving the most frequent label")
    seeds = len(encoder["seeds"])
    repeated = f"mean ± standard deviation over {seeds} seeds" if seeds > 1 else "one seed, so its spread is not known"
    return f"On {task.name} it reaches {metric} {test_score(encoder)} ({repeated}), against {listing(others)}."


def _what(facts: Facts) -> str:
    model, training, train = facts.params["model"], facts.training, facts.corpus["counts"]["train"]
    start = facts.params["pretrain"].get("start_from")
    origin = f"trained on from {start}" if start else "trained from random weights"
    size = f"{number_of(model['num_hidden_layers'], 'layer')}, hidden size {model['hidden_size']}"
    return (
        f"A BERT encoder with {count(training['num_parameters'])} parameters ({size}) was {origin} for "
        f"{count(training['steps'])} steps in {duration(training['train_time_s'])}, on {count(train['documents'])} "
        f"documents with {count(train['words'])} words of {_source(facts.corpus)}."
    )


def _source(corpus: dict[str, Any]) -> str:
    if corpus.get("source") == "python_docs":
        return "documentation of Python packages"
    return f"your own text ({corpus.get('source', 'corpus')})"


def _how_good(facts: Facts) -> str:
    training = facts.training
    below = training["unigram_entropy"] - training["val/mlm_loss"]
    side = "below" if below >= 0 else "above"
    return (
        f"On held-out text it fills {percent(training['val/mlm_accuracy'])} of the blanks with exactly the right "
        f"piece. Its loss of {training['val/mlm_loss']:.2f} nats is {abs(below):.2f} {side} the "
        f"{training['unigram_entropy']:.2f} of guessing by frequency alone, and it tells the next sentence from a "
        f"random one in {percent(training['val/nsp_accuracy'])} of cases (chance: 50 %)."
    )


def _tiles(facts: Facts) -> list[tuple[str, str, str]]:
    training = facts.training
    entries = [
        (f"{training['val/mlm_loss']:.2f}", "MLM loss, nats", f"by frequency alone {training['unigram_entropy']:.2f}"),
        (
            percent(training["val/mlm_accuracy"]),
            "blanks filled right",
            f"one of {count(facts.tokenizer['vocab_size'])}",
        ),
        (percent(training["val/nsp_accuracy"]), "next sentence right", "chance 50 %"),
    ]
    for task in facts.tasks:
        encoder, other = task.result["arms"]["encoder"], task.result["arms"].get("random_weights")
        tfidf = score(task.result["baselines"]["tfidf_logistic_regression"]["test"])
        note = f"random weights {test_score(other)}, TF-IDF {tfidf}" if other else f"TF-IDF {tfidf}"
        name = f"{task.name}, {METRIC_NAMES[task.result['metric']]}"
        entries.append((test_score(encoder), name, note))
    return entries


def _stages(facts: Facts) -> list[tuple[str, list[str]]]:
    training, quality = facts.training, facts.tokenizer["quality"]
    train, held_out = facts.corpus["counts"]["train"], facts.corpus["counts"].get("validation", {})
    lengths = facts.examples["lengths"]
    return [
        ("corpus", [f"{count(train['documents'])} documents", f"{count(held_out.get('documents', 0))} held out"]),
        (
            "tokenizer",
            [f"{count(facts.tokenizer['vocab_size'])} pieces", f"{quality['pieces_per_word']:.2f} pieces a word"],
        ),
        ("examples", [f"length {listing(list(lengths))}", f"{facts.examples['dupe_factor']} × each document"]),
        (
            "pretrain",
            [f"{count(training['steps'])} steps", f"{count(training['perf/tokens_per_s'])} tokens/s"],
        ),
    ]


def _task_stages(task: TaskFacts) -> list[tuple[str, list[str]]]:
    result = task.result
    data = [f"{count(result['rows']['train'])} rows", number_of(len(result["labels"]), "label")]
    sweep = [number_of(result["num_trials"], "trial"), number_of(result["num_seeds"], "seed")]
    return [(f"task_data@{task.name}", data), (f"sweep@{task.name}", sweep)]


def _card(name: str, entries: list[str]) -> str:
    lines = "".join(f"<span>{escape(entry)}</span>" for entry in entries)
    return f'<div class="card"><b>{escape(name)}</b>{lines}</div>'
