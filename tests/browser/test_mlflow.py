"""The pages of the MLflow UI that `make ui` prints: runs, notes, charts, files and models that bertline puts there, and
what people come for at most three clicks from them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from browsing import Visit, shows_something

WIDTHS = (400, 800, 1400)
TASKS = ("docs_library", "docs_match", "docs_parameters", "docs_search")
MODEL_TRAINING = "?workflowType=machine_learning"
VERDICT = re.compile("^On docs_library the encoder ")
NOTE = "[data-testid=note-editor-preview-content]"


def shown(visit: Visit, text: str | re.Pattern[str]) -> None:
    """Wait until a page shows a text."""
    visit.page.get_by_text(text).first.wait_for()


def run_of_report(views: dict[str, str]) -> str:
    """Address of the pipeline's run, without what chooses one of its pages."""
    return views["newest report"].partition("/artifacts/")[0]


def test_the_addresses_of_everything_that_the_store_holds_are_printed(views: dict[str, str]) -> None:
    of_tasks = {f"best model of {task}" for task in TASKS} | {f"trials of sweep@{task}" for task in TASKS}
    assert set(views) == {"all runs", "newest report", "models", *of_tasks}


def test_the_experiment_has_the_pipeline_with_its_scores(review, views: dict[str, str]) -> None:
    visit = review(views["all runs"])
    visit.page.get_by_role("link", name=re.compile(r"^smoke: MLM \d\.\d\d$")).wait_for()
    visit.page.get_by_role("columnheader", name=re.compile("^docs_library.accuracy")).first.wait_for()
    shown(visit, "A run for each pipeline, below it one for each stage, below a sweep one for each trial.")


def test_the_run_of_a_pipeline_has_its_verdicts_in_a_note_that_is_whole(review, views: dict[str, str]) -> None:
    visit = review(f"{run_of_report(views)}{MODEL_TRAINING}")
    shown(visit, VERDICT)
    assert visit.page.get_by_role("heading", name=re.compile("^smoke: MLM")).count() == 1
    visit.page.get_by_text("Show more").click()  # MLflow folds long notes, and has no room for any on a telephone
    for width in WIDTHS[1:]:
        visit.page.set_viewport_size({"width": width, "height": 900})
        visit.page.locator(NOTE).wait_for()
        assert visit.cut(NOTE) == [], width


@pytest.mark.parametrize("width", WIDTHS)
def test_the_report_is_whole_in_the_viewer_of_files(review, views: dict[str, str], width: int) -> None:
    visit = review(views["newest report"], width=width)
    visit.page.frame_locator("iframe").get_by_role("heading", name="bertline").wait_for()
    (frame,) = [frame for frame in visit.page.frames if frame.url.startswith("blob:")]
    assert visit.cut(frame=frame) == []
    assert visit.tiny(frame=frame) == []
    assert visit.blank(frame=frame) == []
    frame.get_by_role("link", name="What it read").click()  # within a blob, a browser follows no such link by itself
    frame.wait_for_function(
        "() => document.querySelector('main section:nth-last-of-type(2) h2').getBoundingClientRect().top < innerHeight"
    )


def test_plots_are_pictures_in_the_viewer_of_files(review, views: dict[str, str], finished: Path) -> None:
    plots = sorted((finished / "artifacts/evaluate/plots").glob("*.png"))
    address = f"{run_of_report(views)}/artifacts/plots"
    visit = review(f"{address}/{plots[0].name}{MODEL_TRAINING}")
    for plot in plots[:: len(plots) // 4]:
        visit.page.get_by_text(plot.name, exact=True).click()
        picture = visit.page.locator(f"img[alt='plots/{plot.name}']")
        picture.wait_for()
        assert picture.evaluate("async (image) => { await image.decode(); return image.naturalWidth; }") > 400
        assert shows_something(picture), plot.name


def test_trials_are_compared_by_parameters_and_score(review, views: dict[str, str]) -> None:
    visit = review(views["trials of sweep@docs_match"])
    shown(visit, re.compile(r"^Comparing \d Runs from 1 Experiment$"))
    chart = visit.page.locator(".js-plotly-plot").first
    chart.wait_for()
    for axis in ("^learning_rate$", "^dev/"):
        chart.get_by_text(re.compile(axis)).first.wait_for()
    assert shows_something(chart)


def test_the_models_page_lists_every_model(review, views: dict[str, str]) -> None:
    visit = review(views["models"])
    for task in TASKS:
        shown(visit, f"bertline-{task}")
    assert visit.page.get_by_text("Prompts", exact=True).count() == 0, "an entry of the mode for language models"


def test_the_page_of_the_best_model_has_its_card_its_signature_and_its_pipeline(review, views: dict[str, str]) -> None:
    visit = review(views["best model of docs_library"])
    visit.page.get_by_role("link", name="bertline-docs_library").first.wait_for()
    shown(visit, "champion")
    shown(visit, VERDICT)
    shown(visit, "from transformers import pipeline")
    shown(visit, "Inputs (1)")
    shown(visit, "Outputs (3)")
    for width in (800, 1400):
        visit.page.set_viewport_size({"width": width, "height": 900})
        assert visit.cut(NOTE) == [], width
    visit.page.get_by_role("link", name=re.compile(r"^smoke: MLM")).click()  # the pipeline that made it
    visit.page.get_by_role("heading", name=re.compile(r"^smoke: MLM")).first.wait_for()
