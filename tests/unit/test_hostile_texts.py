"""Any text of the user is shown as that text: in figures, pages, cards, notes, tables and messages."""

from __future__ import annotations

import copy
import html.parser
import io
import json
import logging
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.image
import pytest
from markdown_it import MarkdownIt

from bertline.evaluation.build import report_page
from bertline.evaluation.charts import task_charts
from bertline.evaluation.facts import Facts, TaskFacts
from bertline.evaluation.figures import Chart, ScoreRow, Series, bar_chart, dot_chart, line_chart
from bertline.evaluation.task_section import TaskSection
from bertline.export.card import _comparisons, _score_rows
from bertline.foundation.formats import escaped, markdown_table, printable
from bertline.inside.heads import draw_heads
from bertline.kinds.classification import Classification
from bertline.kinds.usage import code_span
from bertline.run.presentation import stage_page
from bertline.stages.registry import stage_named
from bertline.tracking.tracked_runs import NOTE_TAG
from evaluation_inputs import make_result
from finetuning_inputs import task

# Texts that a user may have as a label, a name or a passage, and that something would obey instead of showing it.
HOSTILE_TEXTS = {
    "formula": "$a$b$ costs $_{5}$",
    "unfinished formula": r"$\frac{1$ and $\notacommand$",
    "script": '</script><script>alert("x")</script> & <b>bold',
    "attribute": '" onload="alert(1)" \'x',
    "table": "a|b\\|c\\",
    "code": "``` `a` ```",
    "lines": "one\r\ntwo\nthree\u2028four",
    "right to left": "\u202eabc\u202c \u200f\u05e9\u05dc\u05d5\u05dd\u200e",
    "control": "a\x00b\x07c\x7f\x9b\r",
    "terminal": "\x1b[31mred\x1b[0m \x1b]0;title\x07",
    "template": "{{ 7 * 7 }} {% raw %} ${jndi} %(x)s {0} $title",
    "markdown": "# - *bold* _em_ ~~no~~ [a](javascript:alert(1)) ![b](c)",
    "number sign": "# one",
    "dash": "- one",
    "underscore": "_hidden",
    "long": "w" * 400,
    "long words": "word " * 200,
    "emoji": "\U0001f600 \U0001f1ea\U0001f1fa e\u0301 \u6f22\u5b57",
    "half a pair": "\ud83d",
    "spaces": "  ",
}
every_text = pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS.keys())
POINTS = [(0.0, 0.1), (1.0, 0.4)]
MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def plain(text: str) -> str:
    """A text as people read it, on one line."""
    return " ".join(printable(text).replace("\u202f", " ").split())


class Read(html.parser.HTMLParser):
    """What a browser makes of a page: its words, tags and attributes that act."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self.tags: list[str] = []
        self.feed(page)
        self.words = plain(" ".join(self.pieces))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on")], attrs

    def handle_data(self, data: str) -> None:
        self.pieces.append(data)


def drawn(chart: Chart) -> list[str]:
    """The words of a figure."""
    root = ElementTree.fromstring(str(chart.svg).replace("<svg", '<svg xmlns:xlink="xlink"', 1))
    return [plain(one.text or "") for one in root.iter() if one.tag == "text"]


@every_text
@pytest.mark.filterwarnings("error")
def test_a_figure_draws_names_as_they_are(text: str) -> None:
    charts = [
        line_chart([Series(text, POINTS, "c0", style="marked")], x_name="x", y_name="y", level=(text, 0.2)),
        dot_chart([ScoreRow(text, 0.5, "c0"), ScoreRow("b", 0.4, "c1")], x_name="x"),
        bar_chart([(text, 2.0), ("b", 1.0)], name="n"),
    ]
    for chart in charts:
        name, words = plain(text), drawn(chart)
        begins = [word for word in words if word.endswith(" …") and name.startswith(word.removesuffix(" …"))]
        assert name in words or begins or not name  # long ones are cut
        assert matplotlib.image.imread(io.BytesIO(chart.png)).shape[1] < 1200  # as wide as ever


@every_text
@pytest.mark.filterwarnings("error", "ignore:Glyph")
def test_a_map_of_heads_names_relations_as_the_treebank_does(text: str) -> None:
    row = {"grid": [[0.5]], "head": {"layer": 1, "head": 1, "accuracy": 0.5}, "offset": {"accuracy": 0.4}}
    figure = draw_heads({text[:40]: row})
    figure.savefig(io.BytesIO(), format="png")
    assert figure.axes[0].get_title().startswith(f"{printable(text[:40])}, head")


@every_text
def test_markdown_shows_it_and_a_table_keeps_its_rows(text: str) -> None:
    item = Read(MARKDOWN.render(f"- {escaped(text)}"))
    assert item.words == plain(text) and set(item.tags) <= {"ul", "li", "p"}
    page = Read(MARKDOWN.render(f"x {escaped(text)} y"))
    assert (page.words, page.tags) == (f"x {plain(text)} y".replace("  ", " "), ["p"])
    table = Read(MARKDOWN.render(markdown_table(["a", "b"], [[escaped(text), "1"], ["c", "2"]])))
    assert (table.tags.count("tr"), table.tags.count("td")) == (3, 4)
    assert table.words == f"a b {plain(text)} 1 c 2".replace("  ", " ")
    assert not {"script", "img", "a", "em", "strong", "code", "s"} & {*table.tags, *page.tags}
    code = Read(MARKDOWN.render(f"x {printable(code_span(text))} y"))
    assert code.tags == ["p", "code"] and code.words == f"x {plain(text)} y".replace("  ", " ")


@every_text
def test_the_terminal_gets_nothing_that_it_obeys(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    # Not by `say`: pytest would keep the message as it is, and xdist cannot send half a pair.
    table = markdown_table(["encoder", "dev"], [[text, "0.5"]])
    logging.getLogger("bertline").handlers[0].emit(logging.makeLogRecord({"msg": table, "levelno": logging.INFO}))
    written = capsys.readouterr().out
    assert len(written.splitlines()) == 3
    assert printable(written) == written


def hostile_result() -> dict[str, Any]:
    """The result of a sweep whose labels, encoders and errors are hostile texts."""
    texts = [text for text in HOSTILE_TEXTS.values() if text.strip()]
    result = make_result("library")
    arm = result["arms"].pop("encoder_2")
    for split in (result["comparisons"], *result["comparisons_by_split"].values()):
        split.pop("encoder_2", None)
    for number, text in enumerate(texts):
        result["arms"][f"encoder_{number}"] = {**copy.deepcopy(arm), "title": text}
        result["comparisons"][f"encoder_{number}"] = result["comparisons"]["random_weights"]
    result["labels"] = texts
    result["confusion_matrix"] = [[1] * len(texts)] * len(texts)
    sentence = " ".join(texts)
    result["conclusion"]["sentence"] = result["encoders"]["sentence"] = result["note"] = sentence
    result["encoders"]["tables"] = [[["encoder"], [[text] for text in texts]]]
    error = {"id": "1", "text_pair": None, "score": 0.9}
    result["examples"]["confident_errors"] = [
        {**error, "text": text, "gold": text, "predicted": text} for text in texts
    ]
    return result


def test_the_report_shows_every_text_and_runs_none() -> None:
    facts = TaskFacts(name="library", manifest={}, result=hostile_result(), calibration={}, folder=Path())
    whole = Facts(
        title="t", params={"x": {"y": list(HOSTILE_TEXTS.values())}}, taken_from="x", corpus={}, tokenizer={},
        examples={}, objective=None, training={"num_parameters": 7}, rows=[], mask_predictions=[], alarms=[],
        tasks=[facts], provenance=[],
    )  # fmt: skip
    page = report_page(whole, [TaskSection(facts, task_charts(facts), {})], [])
    page.encode()
    read = Read(page)
    assert read.tags.count("script") == 1 and "img" not in read.tags  # the template's own
    assert page.count("<summary>More of them</summary>") == 1 and page.count("<blockquote>") > 8
    for text in filter(str.strip, HOSTILE_TEXTS.values()):
        assert plain(text) in read.words, text
    assert printable(page) == page


@every_text
def test_cards_and_notes_show_names_of_encoders_and_labels(
    text: str, composed: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    result = make_result("library")
    result["arms"]["encoder_2"]["title"] = text
    result["conclusion"]["sentence"] = result["encoders"]["sentence"] = f"On library {text} wins."
    result["encoders"]["tables"] = [[["encoder", "dev"], [[text, "0.5"]]]]
    (tmp_path / "result.json").write_text(json.dumps(result))
    note = stage_page(None, stage_named("sweep"), "sweep@library", {}, tmp_path)[NOTE_TAG]  # type: ignore[arg-type]
    usage = Classification(task(), (text, "b")).usage({}, pair=False)
    lines = [f"- {line}" for line in _comparisons(result)]
    card = "\n\n".join([markdown_table(["", "d", "t", "i"], _score_rows(result, {})), *lines, usage.what])
    for source in (note, printable(card)):
        read = Read(MARKDOWN.render(source))
        assert plain(text) in read.words or text.startswith(("/", "~"))
        assert not {"script", "img", "a", "s", "h1", "b"} & set(read.tags)
    assert printable(note) == note
