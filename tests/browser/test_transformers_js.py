"""Exported classifiers and taggers in transformers.js, with the page of docs/howto/browser.md, as `predict` has them.

transformers.js is installed beforehand, below this repository or the folder that BERTLINE_NODE_MODULES names:
npm install --prefix . --no-save --ignore-scripts @huggingface/transformers
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bertline
from export_inputs import EXPORT, export_finished
from finished_tasks import finish

ROOT = Path(__file__).resolve().parents[2]
NODE_MODULES = Path(os.environ.get("BERTLINE_NODE_MODULES", ROOT / "node_modules"))
TASKS = ("windows", "multi_label", "softmax", "cased", "tagging")
TEXTS = (
    "word1 word2, Word3 wOrd4-word5! WORD6",
    "😀 word7 \U0001d7d8 Ünknown (word8) 👩‍🚀 word9.",
    "cafe\u0301 word10\u00a0word11’s\nword12?",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, serve: Callable[[Path], str]) -> tuple[Path, str]:
    """A folder with the page, its package and small models, and its address."""
    if not (NODE_MODULES / "@huggingface/transformers").is_dir():
        pytest.skip(f"{NODE_MODULES} has no transformers.js; see CONTRIBUTING.md")
    folder = tmp_path_factory.mktemp("site")
    page = (ROOT / "docs/howto/browser.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```html\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    (folder / "index.html").write_text(block, encoding="utf-8")
    (folder / "node_modules").symlink_to(NODE_MODULES.resolve())
    made = tmp_path_factory.mktemp("made")
    export_finished(replace(EXPORT, onnx=True), {name: finish(name, made / name) for name in TASKS}, made)
    (folder / "models").symlink_to(made / "out")
    return folder, serve(folder)


@pytest.mark.parametrize("name", TASKS)
def test_the_page_gives_what_predict_gives(visit, site: tuple[Path, str], name: str) -> None:
    folder, address = site
    page = visit(f"{address}/index.html").page
    predictions = bertline.load(str(folder / "models" / name), device="cpu").predict(list(TEXTS))
    for text, prediction in zip(TEXTS, predictions, strict=True):
        page.fill("[name=folder]", name)
        page.fill("[name=text]", text)
        page.click("button")
        page.wait_for_function("document.querySelector('pre').textContent.length > 1")
        answer = json.loads(page.inner_text("pre"))
        if isinstance(prediction, list):
            assert [list(values_of(text, one)) for one in answer] == [list(expected(one)) for one in prediction]
        else:
            found = {one["label"]: one["score"] for one in answer}
            assert found == pytest.approx(prediction.probabilities, abs=1e-5)


def values_of(text: str, answer: dict[str, Any]) -> Iterator[Any]:
    """Type or tag, text, offsets in characters and score of an answer, whose offsets are in UTF-16 units."""
    units = text.encode("utf-16-le")
    start, end = (len(units[: 2 * answer[side]].decode("utf-16-le")) for side in ("start", "end"))
    assert text[start:end] == answer["text"]
    yield from (answer.get("type") or answer["tag"], start, end, pytest.approx(answer["score"], abs=1e-5))


def expected(prediction: Any) -> Iterator[Any]:
    """The same of a prediction."""
    name = prediction.type if hasattr(prediction, "type") else prediction.tag
    yield from (name, prediction.start, prediction.end, prediction.score)
