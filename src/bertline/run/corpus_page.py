"""The corpus page of a finished stage: in its run folder, under DVC also in `artifacts/pages`, and in MLflow."""

from __future__ import annotations

import shutil
from pathlib import Path

from bertline.corpus.quality.drops import DROPS_NAME, DropSamples, drops_in_words
from bertline.corpus.sources import sources_in_words
from bertline.corpus.storage import FORMAT_VERSION, KIND
from bertline.evaluation.corpus_page import write_corpus_page
from bertline.foundation.files import write_json
from bertline.foundation.manifests import read_manifest
from bertline.foundation.progress import say
from bertline.run.provenance import running_under_dvc
from bertline.run.stage import StageRun


def show_corpus(stage: StageRun, samples: DropSamples) -> Path:
    """Write page and samples, attach the page to the run in MLflow, and print what was dropped and where it stands.

    The same corpus gives the same page. It is sent to a remote server only where `tracking.log_text` allows.
    """
    drops = samples.content()
    write_json(stage.folder / DROPS_NAME, drops)
    kept = stage.stage.page
    assert kept is not None
    page = stage.folder / Path(kept).name
    write_corpus_page(page, stage.output, drops)
    stage.record.log_artifact(page, contains_text=True)
    shown = page
    if running_under_dvc():
        Path(kept).parent.mkdir(parents=True, exist_ok=True)
        shown = Path(shutil.copyfile(page, kept))
    table = read_manifest(stage.output, kind=KIND, format_version=FORMAT_VERSION).get("sources")
    if table is not None:
        say(f"corpus: {sources_in_words(table)}")
    say(f"corpus: {drops_in_words(samples.counts, samples.names_of_files())}; samples to read: {shown}")
    return shown
