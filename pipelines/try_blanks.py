"""try: fill the blanks of sentences with the encoder's predictions; also works during a pretraining.

make try
python pipelines/try_blanks.py "The function returns a ___ of integers."
python pipelines/try_blanks.py --model artifacts/export/encoder
"""

import on_ctrl_c  # noqa: F401

# isort: split
import argparse
import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import bertline
from bertline.foundation.errors import ArtifactError, BertlineError
from bertline.foundation.progress import say
from bertline.inference.model import filled
from bertline.orchestration.run_folder import is_locked
from bertline.orchestration.stopping import in_one_line


def main() -> None:
    """Fill the blanks of the sentences given as arguments, or typed."""
    parser = argparse.ArgumentParser(description="Fill blanks (___ or [MASK]) with the encoder's guesses.")
    parser.add_argument("sentences", nargs="*", help="sentences with blanks; none: type them")
    parser.add_argument("--model", type=Path, help="a model folder; default: the newest of artifacts/ and runs/")
    parser.add_argument("--guesses", type=int, default=5)
    arguments = parser.parse_args()
    folder = arguments.model or newest_model()
    model = bertline.load(str(folder))
    say(f"model: {folder}")
    with suppress(EOFError):  # Ctrl-D
        for sentence in arguments.sentences or typed():
            try:
                say(filled(model, sentence, num_guesses=arguments.guesses))
            except BertlineError as error:
                say(str(error))


def newest_model() -> Path:
    """Return the newest weights of a running pretraining, else the finished encoder, else the newest of any run."""
    finished = Path("artifacts/pretrain")
    newest_first = sorted(Path().glob("runs/pretrain/*/latest"), key=written_s, reverse=True)
    running = [path for path in newest_first if is_locked(path.parent)]
    found = [*running, *([finished] if (finished / "model.safetensors").exists() else []), *newest_first]
    if not found:
        raise ArtifactError("there is no encoder yet in artifacts/pretrain or runs/pretrain. Run `make repro` first.")
    return found[0]


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


if __name__ == "__main__":
    in_one_line(main)
