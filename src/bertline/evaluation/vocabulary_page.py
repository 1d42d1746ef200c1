"""The vocabulary page: does this vocabulary suit the text, and would another one suit it better?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bertline.evaluation.charts import Series, line_chart
from bertline.evaluation.html import (
    Strong,
    figure,
    number_of,
    paragraph,
    section,
    side_by_side,
    table,
    tiles,
    verdict,
)
from bertline.evaluation.page import framed
from bertline.evaluation.vocabulary_survey import Fit, VocabularySurvey
from bertline.foundation.files import write_atomically
from bertline.foundation.formats import count, percent

_COLOURS = ("c0", "c1", "c2", "c4", "c5", "c6", "c7", "c8", "c9")
_LITTLE, _MUCH = 0.03, 0.10
"""Shares of tokens that another vocabulary saves: below the first it does not pay, from the second on it does."""
_LONG_SEQUENCE = 512
_ROWS = 10


def write_vocabulary_page(path: Path, survey: VocabularySurvey) -> None:
    """Write the page as one file without other files; the same survey gives the same bytes."""
    sections = [_others(survey), _coverage(survey), _parts(survey), _cut(survey), _entries(survey)]
    page = framed(
        sections,
        title="How the vocabulary fits the text",
        kicker="Vocabulary",
        summary=_summary(survey),
        footer="Made by bertline from the artifact of the stage tokenizer. It contains words of the text: share it as "
        "you would share that.",
    )
    write_atomically(path, page)


def _summary(survey: VocabularySurvey) -> str:
    own, held_out = survey.own, survey.split == "validation"
    text = "held-out text" if held_out else "the train text (nothing is held out)"
    said = f"Measured on {count(own.words)} words of {text}; marks count as words, as they do for BERT."
    return paragraph(said, "lead") + tiles(
        [
            (f"{own.tokens_per_word:.3f}", "tokens a word", "1 would be a token for every word; English has about 1.2"),
            (percent(own.continued_rate), "words cut into several tokens", "the model has to put them together"),
            (
                _small(own.unknown_rate),
                "unknown words",
                f"they become [UNK], and what they say is lost: {_small(own.unknown_character_rate)} of the characters",
            ),
            (count(own.size), "tokens", f"{count(survey.num_unused)} of them never occur in the train text"),
        ]
    )


def conclusion(survey: VocabularySurvey) -> str:
    """Answer whether the text needs a vocabulary of its own, from the tokens that it takes with one of the same size.

    References:
        Beltagy et al. 2019, arXiv 1903.10676 (SciBERT), section 4: 42 % of tokens in common with BERT's vocabulary, and
        0.6 points of F1 from a vocabulary of its own.
    """
    said = [_answer(given, survey.trained[given.name]) for given in survey.given if given.name in survey.trained]
    if "own" in survey.trained:
        said.insert(0, _answer(survey.own, survey.trained["own"]))
    nothing = "Nothing was named to compare with: tokenizer.compare=[/path/to/checkpoint] puts it next to this one."
    if survey.given and not said:
        names = ", ".join(one.name for one in survey.given)
        return (
            f"The text has too few words for a vocabulary as large as that of {names}: it cannot have one of its own."
        )
    return " ".join(said) or nothing


def _answer(given: Fit, here: Fit) -> str:
    saved = 1 - here.tokens_per_word / given.tokens_per_word
    amount = f"{percent(abs(saved))} {'fewer' if saved >= 0 else 'more'}"
    size = "as large" if here.size == given.size else f"of the {count(here.size)} tokens that it supports"
    said = f"With a vocabulary {size}, trained on this text, it takes {amount} tokens than with {given.name}"
    if saved >= _MUCH:
        return f"{said}: one of its own pays for an encoder that is trained from scratch."
    if saved >= _LITTLE:
        return f"{said}: one of its own helps a little; for a checkpoint, new words (tokenizer=extended) may do."
    return f"{said}: it needs none of its own."


def _others(survey: VocabularySurvey) -> str:
    rows = [_row(survey, one) for one in (survey.own, *survey.trained.values(), *survey.given)]
    head = ["vocabulary", "tokens", "tokens a word", "words cut", "unknown", "words in 512 tokens", "also in this one"]
    explained = (
        "All on the same text. A sequence of 512 tokens holds fewer words if words are cut. SciBERT has 42 % of its "
        "tokens in common with BERT, and gained 0.6 points of F1 on average from a vocabulary of its own."
    )
    return section(
        "others",
        "Does the text need a vocabulary of its own?",
        verdict(conclusion(survey), good=bool(survey.given)),
        table(head, rows),
        paragraph(explained, "soft"),
    )


def _unknown(one: Fit) -> str:
    of_characters = f" ({_small(one.unknown_character_rate)} of characters)" if one.unknown else ""
    return _small(one.unknown_rate) + of_characters


def _row(survey: VocabularySurvey, one: Fit) -> list[str]:
    name = Strong(one.name) if one is survey.own else one.name
    cells = [f"{one.tokens_per_word:.3f}", percent(one.continued_rate), _unknown(one)]
    words = _LONG_SEQUENCE / max(1e-9, one.tokens_per_word)
    return [name, count(one.size), *cells, count(round(words)), percent(survey.shared.get(one.name, 1.0))]


def _coverage(survey: VocabularySurvey) -> str:
    shown = [survey.own, *survey.given][: len(_COLOURS)]
    curves = [Series(one.name, one.coverage(), css) for one, css in zip(shown, _COLOURS, strict=False)]
    coverage = line_chart(curves, x_name="tokens, the most frequent first", y_name="share of the text", log_x=True)
    used = f"{count(survey.own.num_used)} of {count(survey.own.size)} tokens occur in this text."
    charts = [figure(coverage, f"Coverage: the share of the text that the most frequent tokens are. {used}")]
    trained = sorted({(float(one.size), one.tokens_per_word) for one in _trained_here(survey)})
    if len(trained) > 1:
        dots = [
            Series(one.name, [(float(one.size), one.tokens_per_word)], css, marked=True)
            for one, css in zip(survey.given, _COLOURS[1:], strict=False)
        ]
        sizes = [Series("trained on this text", trained, _COLOURS[0], marked=True), *dots]
        chart = line_chart(sizes, x_name="tokens in the vocabulary", y_name="tokens a word", log_x=True)
        charts.append(figure(chart, "What size buys: tokens a word, by the size of the vocabulary."))
    return section("coverage", "Coverage and size", side_by_side(*charts))


def _trained_here(survey: VocabularySurvey) -> list[Fit]:
    return [*survey.trained.values(), *([survey.own] if survey.was_trained else [])]


def _small(share: float) -> str:
    """Format a share that matters though it is small.

    Example:
        >>> _small(0.00023), _small(0.0)
        ('0.023 %', '0 %')
    """
    return f"{100 * share:.2g} %"


def _parts(survey: VocabularySurvey) -> str:
    several = len(survey.by_source) > 1
    scripts = {one.name: [one] for one in survey.by_script.values()}
    blocks = [
        _fits("source", {"all": [survey.own, *survey.given], **survey.by_source} if several else survey.by_source)
    ]
    if several:
        said = "All vocabularies on the same text of each source; one without text in this split has no row."
        blocks.insert(0, paragraph(said, "soft"))
    if survey.by_language:
        blocks.append(_fits("language", survey.by_language))
    languages = "languages in one script are not told apart." if not several else "whatever the language."
    blocks.append(paragraph(f"By the script of a word's first letter; {languages}", "soft"))
    blocks.append(_fits("script", scripts) if scripts else paragraph("No letters."))
    return section("sources", "By source, language and script" if several else "By source and script", *blocks)


def _fits(first: str, parts: Mapping[str, Sequence[Fit]]) -> str:
    """Return a table of how vocabularies cut parts of the text; they are named where there are several."""
    rows = [
        [
            name,
            one.name if len(fits) > 1 else "",
            count(one.words),
            f"{one.tokens_per_word:.3f}",
            percent(one.continued_rate),
            _unknown(one),
        ]
        for name, fits in parts.items()
        for one in fits
    ]
    return table([first, "vocabulary", "words", "tokens a word", "words cut", "unknown"], rows)


def _cut(survey: VocabularySurvey) -> str:
    said = (
        "Ordered by what they cost: their count times their tokens beyond the first. tokenizer.user_words keeps words "
        "whole."
    )
    rows = [[one.word, count(one.count), " ".join(one.tokens)] for one in survey.cut]
    shown = table(["word", "times", "tokens"], rows) if rows else paragraph("None.")
    return section("cut", "Words that are cut", paragraph(said, "soft"), shown)


def _entries(survey: VocabularySurvey) -> str:
    longest = table(["token", "times"], [[token, count(number)] for token, number in survey.longest[:_ROWS]])
    rarest = table(["token", "times"], [[token, count(number)] for token, number in survey.rarest[:_ROWS]])
    unused = (
        f"{number_of(survey.num_unused, 'token')} of {count(survey.own.size)} never occur in the train text. What "
        "seldom occurs has an embedding that is hardly trained."
    )
    more = ", ".join(token for token, _ in survey.rarest[_ROWS:])
    return section(
        "entries",
        "The longest and the rarest tokens",
        paragraph(unused, "soft"),
        side_by_side(f"<div><h3>Longest</h3>{longest}</div>", f"<div><h3>Rarest that occur</h3>{rarest}</div>"),
        paragraph(f"More rare ones: {more}." if more else "", "soft"),
    )
