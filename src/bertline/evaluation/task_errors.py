"""Confident errors of a model, rendered by kind of task."""

from __future__ import annotations

from typing import Any

from bertline.evaluation.facts import TaskFacts
from bertline.evaluation.formatting import escape, shortened

_ERRORS = 8
_CHARACTERS = 420
_AROUND = 160
"""Number of context characters shown on each side of an answer."""
_BLANKS = 8
_NOT_INPUTS = ("id", "gold", "predicted", "score", "correct", "words")


def errors_section(task: TaskFacts) -> str:
    """Return the most confident errors of the best model on test."""
    errors = task.result.get("examples", {}).get("confident_errors", [])[:_ERRORS]
    if not errors:
        return ""
    show = {
        "regression": _number,
        "token_classification": _tagged,
        "question_answering": _answer,
        "retrieval": _found,
        "reranking": _found,
        "summarisation": _summary,
        "fill_mask": _blank,
    }.get(task.result["task_kind"], _label)
    return "<h3>Where it is sure and wrong</h3>" + "".join(show(error) for error in errors)


def _label(error: dict[str, Any]) -> str:
    said = f"is {_plain(error['gold'])}, taken for {_plain(error['predicted'])} {_sureness(error)}"
    return _quote(_inputs(error), said)


def _number(error: dict[str, Any]) -> str:
    return _quote(_inputs(error), f"is {_plain(error['gold'])}, taken for {_plain(error['predicted'])}")


def _answer(error: dict[str, Any]) -> str:
    gold, predicted = _texts(error["gold"]), _texts(error["predicted"])
    context = str(error.get("context", ""))
    blocks = [f"<p><b>{escape(error.get('question', ''))}</b></p>"]
    blocks.append(f"<p>{_marked(context, gold, predicted)}</p>" if context else "")
    right = " or ".join(dict.fromkeys(gold)) or "no answer"
    return _quote("".join(blocks), f"is {right}, answered {' '.join(predicted) or 'no answer'} {_sureness(error)}")


def _marked(context: str, gold: list[str], predicted: list[str]) -> str:
    """Return the context around the answers, with the gold and the predicted answer highlighted."""
    places: list[tuple[int, int, str]] = []
    for texts, css in ((gold[:1], "right"), (predicted[:1], "wrong")):
        for answer in texts:
            at = context.find(answer) if answer else -1
            if at >= 0 and not any(at < end and start < at + len(answer) for start, end, _ in places):
                places.append((at, at + len(answer), css))
    if not places:
        return escape(shortened(context, _CHARACTERS))
    places.sort()
    done = max(0, places[0][0] - _AROUND)
    if done:
        done += context[done:].find(" ") + 1  # begin with a whole word
    parts = ["… " if done else ""]
    for start, end, css in places:
        between = context[done:start]
        if len(between) > 3 * _AROUND:
            between = between[:_AROUND] + " … " + between[-_AROUND:]
        parts += [escape(between), f'<mark class="{css}">{escape(context[start:end])}</mark>']
        done = end
    rest = context[done:]
    return "".join(parts) + escape(shortened(rest, _AROUND))


def _tagged(error: dict[str, Any]) -> str:
    gold, predicted = _tags(error["gold"]), _tags(error["predicted"])
    words = str(error.get("text", "")).split(" ")
    if not len(words) == len(gold) == len(predicted):
        return _label(error)
    lines = []
    for name, tags in (("right", gold), ("given", predicted)):
        spans = " ".join(_word(word, tag, other) for word, tag, other in zip(words, tags, gold, strict=True))
        lines.append(f'<p class="tagged"><small>{name}</small> {spans}</p>')
    return _quote("".join(lines), _sureness(error).strip("()"))


def _word(word: str, tag: str, gold: str) -> str:
    if tag == "O":
        missed = ' class="missed"' if gold != "O" else ""
        return f"<span{missed}>{escape(word)}</span>"
    kind = tag.partition("-")[2]
    css = "right" if tag == gold else "wrong"
    label = f"<small>{escape(kind)}</small>" if tag.startswith("B") else ""
    return f'<mark class="{css}">{escape(word)}{label}</mark>'


def _found(error: dict[str, Any]) -> str:
    query = str(error.get("query", ""))
    first = shortened(str(error.get("first_document") or error["predicted"]), _CHARACTERS)
    right = shortened(str(error.get("right_document") or error["gold"]), _CHARACTERS)
    blocks = f"<p><b>{escape(shortened(query, _CHARACTERS))}</b></p>"
    blocks += f'<p><small>put first</small> <span class="wrong">{escape(first)}</span></p>'
    blocks += f'<p><small>right</small> <span class="right">{escape(right)}</span></p>'
    return _quote(blocks, _sureness(error))


def _summary(error: dict[str, Any]) -> str:
    blocks = f"<p><small>summary</small> {escape(shortened(_plain(error['gold']), _CHARACTERS))}</p>"
    blocks += f"<p><small>chosen</small> {escape(shortened(_plain(error['predicted']), _CHARACTERS))}</p>"
    return _quote(blocks, "")


def _blank(error: dict[str, Any]) -> str:
    pairs = zip(str(error["gold"]).split(), str(error["predicted"]).split(), strict=False)
    wrong = [f"{guess} for {token}" for token, guess in pairs if guess != token]
    more = f" and {len(wrong) - _BLANKS} more" if len(wrong) > _BLANKS else ""
    return _quote(_inputs(error), f"filled in {', '.join(wrong[:_BLANKS])}{more} {_sureness(error)}")


def _inputs(error: dict[str, Any]) -> str:
    """Return the input texts of a row, whatever its columns are called."""
    texts = [
        _plain(value)
        for name, value in error.items()
        if name not in _NOT_INPUTS and not name.startswith("probability_") and isinstance(value, str | list) and value
    ]
    return "".join(f"<p>{escape(shortened(text, _CHARACTERS))}</p>" for text in texts)


def _quote(content: str, said: str) -> str:
    footer = f"<footer>{escape(said)}</footer>" if said.strip() else ""
    return f"<blockquote>{content}{footer}</blockquote>"


def _sureness(error: dict[str, Any]) -> str:
    value = error.get("score")
    if not isinstance(value, int | float):
        return ""
    return f"({100 * value:.0f} % sure)" if 0 <= value <= 1 else f"(score {value:.3g})"


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, list):
        return ", ".join(_plain(inner) for inner in value) or "none"
    return str(value)


def _texts(value: Any) -> list[str]:
    if isinstance(value, list):
        return [str(inner) for inner in value]
    return [str(value)] if value else []


def _tags(value: Any) -> list[str]:
    return [str(tag) for tag in value] if isinstance(value, list) else str(value).split()
