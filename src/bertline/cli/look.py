"""look: one HTML page that shows what an encoder computes for a text."""

from __future__ import annotations

import argparse
from pathlib import Path

import bertline
from bertline.cli.project import folder_or_name, of_caller
from bertline.foundation.errors import ArtifactError
from bertline.foundation.files import write_atomically
from bertline.foundation.progress import say

_DEFAULTS = (Path("artifacts/export/encoder"), Path("artifacts/pretrain"))


def look(arguments: list[str]) -> None:
    """Write one HTML page that shows what an encoder computes for a text: attention, neurons, vectors, guesses.

        bertline look "The animal did not cross the street because it was tired."
        bertline look "Is it open?" --pair "It closes at nine." --model FOLDER_OR_NAME
        bertline look "The function returns a ___ of integers." --against artifacts/export/docs_library

    Without --model it takes artifacts/export/encoder, else artifacts/pretrain. --against FOLDER_OR_NAME shows a second
    model side by side, and --out FILE names the page (look.html). The page needs no network.
    """
    parser = argparse.ArgumentParser(prog="bertline look", add_help=False)
    parser.add_argument("text")
    parser.add_argument("--pair")
    parser.add_argument("--model")
    parser.add_argument("--against")
    parser.add_argument("--out", default="look.html")
    parsed = parser.parse_args(arguments)
    names = [_default() if parsed.model is None else folder_or_name(parsed.model)]
    names += [] if parsed.against is None else [folder_or_name(parsed.against)]
    from bertline.inside.look import look as page_of  # loads torch

    page, left_out = page_of([bertline.load(str(name)) for name in names], parsed.text, parsed.pair)
    path = of_caller(parsed.out)
    write_atomically(path, page)
    for sentence in left_out:
        say(sentence)
    say(f"{path}: {len(page.encode()) / 1e6:.2f} MB")


def _default() -> Path:
    for folder in _DEFAULTS:
        if (folder / "model.safetensors").is_file():
            return folder
    raise ArtifactError(
        f"there is no encoder yet in {' or '.join(map(str, _DEFAULTS))}. Run `make repro` first, or name a model: "
        "bertline look TEXT --model FOLDER_OR_NAME"
    )
