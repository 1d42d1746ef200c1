"""Every command of the README runs, in order, section by section, on the smoke preset."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()

# Not run here: these install, serve for ever, or run the tests that this test is one of.
NOT_RUN = ("make repro", "make test", "make ui", "pip install")


def sections() -> dict[str, list[tuple[str, str]]]:
    """Heading to its fenced blocks: (language, text)."""
    found = {}
    for part in re.split(r"^## ", README, flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        blocks = re.findall(r"^```(bash|python)\n(.*?)^```", body, flags=re.MULTILINE | re.DOTALL)
        if blocks:
            found[heading] = blocks
    return found


def test_all_shell_blocks_are_marked_so_that_they_are_run() -> None:
    languages = set(re.findall(r"^```(\w+)", README, flags=re.MULTILINE))
    assert languages <= {"bash", "python"}


@pytest.mark.parametrize("heading", sections())
def test_the_commands_of_a_section_run(heading: str, line: Path, run: Run, tmp_path: Path) -> None:
    prepare(line, tmp_path)
    for language, block in sections()[heading]:
        if language == "python":
            done = run(line, sys.executable, "-c", block)
            assert done.returncode == 0, done.stderr
            continue
        for command in block.replace("\\\n", " ").splitlines():
            if command.startswith(NOT_RUN) or not command.strip():
                continue
            done = run(line, "bash", "-c", for_smoke(command, line, tmp_path))
            assert done.returncode == 0, f"$ {command}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"


def prepare(line: Path, tmp_path: Path) -> None:
    """What the reader is told to have: texts, a checkpoint, and (made by `make`) an environment."""
    (line / ".venv").symlink_to(sys.prefix)
    texts = tmp_path / "texts"
    texts.mkdir()
    for number in range(40):
        sentences = [f"Sentence {i} of document {number} tells of {word}s." for i, word in enumerate(WORDS)]
        (texts / f"{number}.txt").write_text(" ".join(sentences))
    shutil.copytree(line / "artifacts/pretrain", tmp_path / "checkpoint")


def for_smoke(command: str, line: Path, tmp_path: Path) -> str:
    """The command with the reader's own paths filled in, and sizes that suit the smoke preset."""
    if command.startswith("make "):
        # The environment is the one that runs the tests: `make` must not install it again.
        command = command.replace("make ", "make -o .venv/.installed -o .venv/.installed-dev ")
        return f"echo 'The function returns a ___ of integers.' | {command}"
    runs = [path for path in (line / "runs/pretrain").iterdir() if (path / "result").exists()]
    finished = max(runs, key=lambda path: path.stat().st_mtime)
    for readers, smoke in {
        "/path/to/texts": f"{tmp_path}/texts corpus.validation_fraction=0.2 tokenizer.vocab_size=120",
        # The preset's own sizes are for a GPU; that it is valid is tested with the other presets.
        "experiment=continued": "tokenizer=existing tokenizer.path=/path/to/checkpoint",
        "/path/to/checkpoint": f"{tmp_path}/checkpoint",
        "model=base": "model=tiny",
        "FINGERPRINT": finished.name,
        README_PHASES: LONGER_PHASES,
        "--model mini": f"--model tiny --vocab-size 64 --seq-len 16 --rounds 1 {SMALL} --steps 1",
        "--length 64 --steps 2000": f"--length 64 --seeds 1 {SMALL} {ONE_CELL} --work {tmp_path}/learning --steps 2",
    }.items():
        command = command.replace(readers, smoke)
    return command


README_PHASES = "[{steps: 9000, max_length: 64, global_batch_size: 64}]"
# The smoke preset's phases with four more steps at the end.
LONGER_PHASES = (
    "[{steps: 30, max_length: 32, global_batch_size: 16}, {steps: 14, max_length: 64, global_batch_size: 8}]"
)
# Benchmarks in their smallest form.
ONE_CELL = "--peer-optimizers muon_short --rates 1 --beta2 0.98"
SMALL = "--batch-size 4 --threads 1 --workers 0 --device cpu --set runtime.compile=off"
WORDS = ("river", "mountain", "harbour", "garden", "kitchen", "market", "station", "library", "bridge", "forest")
