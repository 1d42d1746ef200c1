"""look: one HTML page that shows what an encoder computes for a text."""

from __future__ import annotations

import argparse

import bertline
from bertline.cli.commands import newest_model
from bertline.cli.project import folder_or_name, of_caller
from bertline.foundation.files import write_atomically
from bertline.foundation.progress import say


def look(arguments: list[str]) -> None:
    """Write one HTML page that shows what an encoder computes for a text: attention, neurons, vectors, guesses.

        bertline look "The animal did not cross the street because it was tired."
        bertline look "Is it open?" --pair "It closes at nine." --model FOLDER_OR_NAME
        bertline look "The function returns a ___ of integers." --against artifacts/export/docs_library

    Without --model it takes the newest of artifacts/ and runs/. --against FOLDER_OR_NAME shows a second model side by
    side, and --out FILE names the page (look.html). The page needs no network.
    """
    usage = '%(prog)s "TEXT IN QUOTES" [--pair "TEXT"] [--model ...] [--against ...] [--out FILE], see %(prog)s --help'
    parser = argparse.ArgumentParser(prog="bertline look", usage=usage, add_help=False)
    parser.add_argument("text")
    for option in ("--pair", "--model", "--against"):
        parser.add_argument(option)
    parser.add_argument("--out", default="look.html")
    parsed = parser.parse_args(arguments)
    from bertline.inside import look as inside  # loads torch

    inside.require_texts(parsed.text, parsed.pair)  # before a model is looked for and loaded
    names = [newest_model() if parsed.model is None else folder_or_name(parsed.model)]
    names += [] if parsed.against is None else [folder_or_name(parsed.against)]
    page, left_out = inside.look([bertline.load(str(name)) for name in names], parsed.text, parsed.pair)
    path = of_caller(parsed.out)
    write_atomically(path, page)
    for sentence in left_out:
        say(sentence)
    say(f"{path}: {len(page.encode()) / 1e6:.2f} MB")
