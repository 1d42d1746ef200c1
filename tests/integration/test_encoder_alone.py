"""Own text without tasks, for the encoder alone: a pipeline that prints no warning."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from pathlib import Path

import smoke
from smoke import Run, succeeded

TINY = (
    "examples.lengths=[128,512]", "tokenizer.vocab_size=200", "model.hidden_size=32", "model.num_attention_heads=2",
    "model.intermediate_size=64", "schedule.num_warmup_steps=10", "runtime.compile=off",
    "pretrain.phases=[{steps: 60, max_length: 128, global_batch_size: 16},"
    "{steps: 20, max_length: 512, global_batch_size: 8}]",
    "pretrain.validate_every_steps=40", "pretrain.checkpoint_every_steps=40",
    "pretrain.mask_predictions.every_steps=40",
)  # fmt: skip
PEOPLE = "The old gardener|My younger sister|A tired postman|The new teacher|Nobody in town|Our neighbour|The captain"
DEEDS = "watered|remembered|painted|sold|looked for|had never seen|was afraid of|carried home|wrote about|laughed at"
THINGS = "the apple trees|a broken clock|the blue gate|two letters from abroad|an empty house|the last train|his boat"
ENDS = "before the rain came|and said nothing|as if it were summer|because it was late|until the lamps were lit|again"


def novel(number: int) -> str:
    """Return paragraphs of prose, the same for a number each time."""
    generator = random.Random(number)

    def sentence() -> str:
        return " ".join(generator.choice(words.split("|")) for words in (PEOPLE, DEEDS, THINGS, ENDS)) + "."

    return "\n\n".join(" ".join(sentence() for _ in range(6)) for _ in range(20))


def test_own_text_becomes_an_exported_without_tasks_and_without_a_warning(tmp_path: Path, run: Run) -> None:
    folder, texts = tmp_path / "clone", tmp_path / "my texts (2)"
    smoke.clone(folder, experiment="docs_tiny")
    texts.mkdir()
    for number in range(30):
        (texts / f"{number}.txt").write_text(novel(number))
    chosen = ("corpus=text", f"corpus.path={texts}", "corpus.validation_fraction=0.2", "tasks=[]", *TINY)
    succeeded(run(folder, sys.executable, "-m", "bertline", "configure", *chosen, "--save"))
    assert warnings_of(run(folder, "dvc", "repro")) == []
    artifacts = folder / "artifacts"
    assert sorted(path.name for path in (artifacts / "export").iterdir() if path.is_dir()) == ["encoder"]
    assert (artifacts / "export/encoder/model.safetensors").exists()
    report = (artifacts / "evaluate/report.html").read_text()
    assert "docs_library" not in report
    assert json.loads((artifacts / "corpus/manifest.json").read_text())["counts"]["train"]["documents"] > 20
    assert "Running stage 'pretrain'" not in run(folder, "dvc", "repro").stdout


def warnings_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Our warnings of a command that must not fail; DVC's own begin with a capital."""
    succeeded(done)
    return re.findall(r"^warning: .*", done.stdout + done.stderr, flags=re.MULTILINE)
