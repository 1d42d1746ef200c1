"""try: fill the blanks of sentences with the encoder's predictions; also works during a pretraining."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import bertline
from bertline.cli.project import of_caller
from bertline.foundation.errors import ArtifactError, BertlineError
from bertline.foundation.progress import say
from bertline.run.folder import is_locked


def try_blanks(arguments: list[str]) -> None:
    """Fill the blanks (___ or [MASK]) of sentences with an encoder's guesses; also works during a pretraining.

        bertline try                                                 type sentences
        bertline try "The function returns a ___ of integers."
        bertline try --model FOLDER_OR_NAME --guesses 10 "..."       a model folder, or a name on the hub

    Without --model it takes the newest of a running pretraining, artifacts/ and runs/.
    """
    parser = argparse.ArgumentParser(prog="bertline try", add_help=False)
    parser.add_argument("sentences", nargs="*")
    parser.add_argument("--model")
    parser.add_argument("--guesses", type=int, default=5)
    parsed = parser.parse_args(arguments)
    if parsed.model is None:
        name = str(newest_model())
    else:
        name = str(of_caller(parsed.model)) if of_caller(parsed.model).exists() else parsed.model
    from bertline.inference.model import filled  # loads torch

    model = bertline.load(name)
    say(f"model: {name}")
    with suppress(EOFError):  # Ctrl-D
        for sentence in parsed.sentences or typed():
            try:
                say(filled(model, sentence, num_guesses=parsed.guesses))
            except BertlineError as error:
                say(str(error))


def newest_model() -> Path:
    """Return the newest weights of a running pretraining, else the finished encoder, else the newest of any run."""
    finished = Path("artifacts/pretrain")
    newest_first = sorted(Path().glob("runs/pretrain/*/latest"), key=written_s, reverse=True)
    running = [path for path in newest_first if is_locked(path.parent)]
    candidates = [*running, *([finished] if (finished / "model.safetensors").exists() else []), *newest_first]
    if not candidates:
        raise ArtifactError(
            "there is no encoder yet in artifacts/pretrain or runs/pretrain. Run `make repro` first, or name a model: "
            "bertline try --model FOLDER_OR_NAME"
        )
    return candidates[0]


def written_s(latest: Path) -> float:
    """Return when the weights of a run were written, in seconds of the epoch; infinity while they are replaced."""
    try:
        return latest.stat().st_mtime
    except FileNotFoundError:  # between the two renames of a swap
        return math.inf


def typed() -> Iterator[str]:
    """Yield sentences from the keyboard until an empty line."""
    say("Type a sentence with blanks, such as: The function returns a ___ of integers.   (an empty line ends)")
    while sentence := input("> ").strip():
        yield sentence
