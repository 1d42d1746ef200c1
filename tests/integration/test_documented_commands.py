"""Every command of README, CONTRIBUTING and docs/ runs, in order, section by section, on the smoke preset."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smoke import Run

ROOT = Path(__file__).resolve().parents[2]
# Those of docs/reference are made from docstrings and configuration, which are tested where they are.
MADE = {ROOT / "docs/reference" / f"{name}.md" for name in ("commands", "configuration", "tasks")}
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted({*(ROOT / "docs").rglob("*.md")} - MADE)]

# Not run here: these install, serve for ever, or run the tests that this test is one of; `make lint` and `make smoke`
# are checks of their own, `make docs` is test_documentation.py's; test_serving.py starts the server and asks it.
NOT_RUN = (
    *(f"make {goal}" for goal in ("repro", "test", "ui", "install-dev", "lint", "smoke", "docs")),
    *("pip install", "mlflow models serve", "curl "),
)
# Run by other tests as the pages have them: test_pipeline.py an experiment, test_dvc_remote.py what shares results.
RUN_ELSEWHERE = ("dvc exp run ", "dvc remote add ", "dvc push ")
LEFT_OUT = (*NOT_RUN, *RUN_ELSEWHERE)
# Of other blocks: test_plan.py compares the output, tests/slurm/test_documented.py has a cluster, test_dvc_remote.py a
# second clone, tests/browser/test_transformers_js.py opens the page, test_search_sources.py gives a script its files;
# encoders of the hub are not to be had here.
ELSEWHERE = {"console", "text", "sh", "html", "py"}
# The line of a block before the content of a file.
FILE = re.compile(r"# ((?:conf|src)/\S+)$", flags=re.MULTILINE)
# A source file that a command edits.
CHANGED = re.compile(r"^sed -i .* (src/\S+)$", flags=re.MULTILINE)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block."""

    language: str
    text: str


def sections() -> Iterator[tuple[str, list[Block]]]:
    """Name of every section with something to run, and its blocks that no earlier section has run."""
    seen: set[Block] = set()
    for page in PAGES:
        for part in re.split(r"^#{1,2} (?=[A-Z])", without_comments(page), flags=re.MULTILINE)[1:]:
            heading = part.partition("\n")[0]
            found = [Block(*one) for one in FENCE.findall(part) if one[0] in ("bash", "python", "yaml")]
            blocks = [block for block in found if block not in seen and runs(block)]
            seen.update(blocks)
            if blocks:
                yield f"{page.relative_to(ROOT)}: {heading}", blocks


def runs(block: Block) -> bool:
    """Whether anything of a block is run here."""
    return block.language != "bash" or not all(is_left_out(line) for line in block.text.splitlines())


def is_left_out(line: str) -> bool:
    """Whether a line is not run here, with whatever variables of the environment before its command."""
    return re.sub(r"^(\w+=\S+ )+", "", line).startswith(LEFT_OUT)


def without_comments(page: Path) -> str:
    """The text of a page in which no line of a block looks like a heading."""
    return FENCE.sub(lambda found: re.sub(r"^# (?!conf/|src/)", "#", found[0], flags=re.MULTILINE), page.read_text())


SECTIONS = dict(sections())
# Whole pipelines, from text to export. They have one of the tasks: with all of them it is the pipeline that is copied.
WHOLE = (
    "README.md: Your own text",
    "README.md: Continue a checkpoint",
    "docs/howto/continue.md: A public checkpoint, on your own text",
    "docs/howto/continue.md: Adapt a sentence encoder, and see whether it pays",
)
ONE_TASK = "docs_library"
# What these print is looked at too, at the width that the page promises.
TERMINAL = SECTIONS.pop("docs/howto/settings.md: Figures in the terminal")
TERMINAL_WIDTH = 160


def test_all_blocks_are_marked_so_that_they_are_run() -> None:
    found = {(page.name, language) for page in PAGES for language, _ in FENCE.findall(page.read_text())}
    commands = [
        (page.name, text)
        for page in PAGES
        for language, text in FENCE.findall(page.read_text())
        if language in ("", "text")
        and re.search(r"^(\w+=\S+ )*(python|bertline|dvc|make|srun|sbatch|git) ", text, re.MULTILINE)
    ]
    assert {language for _, language in found} <= {"bash", "python", "yaml", "", *ELSEWHERE}
    assert commands == []


@pytest.mark.parametrize("section", SECTIONS)
def test_the_commands_of_a_section_run(section: str, pipeline: Path, run: Run, tmp_path: Path) -> None:
    prepare(pipeline, tmp_path)
    assert set(WHOLE) <= SECTIONS.keys()
    if section in WHOLE:
        leave_out_all_tasks_but_one(pipeline)
    for language, block in SECTIONS[section]:
        if FILE.match(block):
            for name, content in files_of(block).items():
                (pipeline / name).parent.mkdir(exist_ok=True)
                (pipeline / name).write_text(content)
        elif language == "python":
            block = block.replace("FOLDER_OR_NAME", f"{tmp_path}/checkpoint").replace("seeds=5", "seeds=1")
            done = run(pipeline, sys.executable, "-c", block)
            assert done.returncode == 0, done.stderr
        else:
            for command in block.replace("\\\n", " ").splitlines():
                if is_left_out(command) or not command.strip():
                    continue
                done = run(pipeline, "bash", "-c", for_smoke(command, pipeline, tmp_path))
                assert done.returncode == 0, f"$ {command}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"


def on_terminal(width: int, command: Sequence[str], *, environment: Mapping[str, str], folder: Path) -> tuple[int, str]:
    """Run a command in a terminal of this width; return its exit status and what it wrote there, without colours."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    inherited = {key: value for key, value in environment.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(command, cwd=folder, stdout=its, stderr=its, env={**inherited, "TERM": "xterm"})
    os.close(its)
    written = b""
    while True:
        try:
            read = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not read:
            break
        written += read
    os.close(ours)
    return process.wait(), re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written.decode())


def test_the_figures_in_the_terminal_fit_its_width(pipeline: Path) -> None:
    ((_, block),) = TERMINAL
    for command in block.splitlines():
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        status, printed = on_terminal(TERMINAL_WIDTH, ["bash", "-c", command], environment=environment, folder=pipeline)
        lines = printed.splitlines()
        assert status == 0, f"$ {command}\n{printed}"
        assert len(lines) > 2, f"$ {command}\n{printed}"
        assert max(map(len, lines)) <= TERMINAL_WIDTH and "…" not in printed, f"$ {command}\n{printed}"
        if command.startswith("dvc metrics show"):
            assert lines[0].split() == ["Path", "baseline", "loss", "rows", "score", "seconds"]
            assert {"pretrain.json", "sweep@docs_search.json", "export.json"} <= {
                line.split()[0].rpartition("/")[2] for line in lines[1:] if line.strip()
            }


def files_of(block: str) -> dict[str, str]:
    """The files that a block holds, each below a comment with its path."""
    _, *found = FILE.split(block)
    return dict(zip(found[::2], found[1::2], strict=True))


@pytest.mark.parametrize("section", [section for section in SECTIONS if section.startswith("docs/extending.md")])
def test_an_example_of_extending_is_short_and_adds_a_line_to_one_file(section: str) -> None:
    blocks = SECTIONS[section]
    added = [item for language, text in blocks if language == "python" for item in files_of(text).items()]
    assert sum(len(content.strip().splitlines()) for _, content in added) < 60
    assert not any((ROOT / name).exists() for name, _ in added)
    changed = [path for language, text in blocks if language == "bash" for path in CHANGED.findall(text)]
    assert len(set(changed)) <= 1


def prepare(pipeline: Path, tmp_path: Path) -> None:
    """What the reader is told to have: texts, labelled rows, a checkpoint, and (made by `make`) an environment."""
    (pipeline / ".venv").symlink_to(sys.prefix)
    texts = tmp_path / "texts"
    texts.mkdir()
    for number in range(40):
        words = [WORDS[(i + number) % len(WORDS)] for i in range(len(WORDS))]
        sentences = [f"Sentence {i} of document {number} tells of {word}s." for i, word in enumerate(words)]
        for ending in ("txt", "md"):
            (texts / f"{number}.{ending}").write_text(" ".join(sentences))
    shutil.copytree(texts, pipeline / "data/text")
    (pipeline / "data/tasks/mine").mkdir(parents=True)
    (pipeline / "data/tasks/mine/test.tsv").write_text("text\tlabel\n" + "A sentence of a test set.\tyes\n" * 2)
    (tmp_path / "wiki").mkdir()
    article = '<doc id="{0}" url="" title="T{0}">\nT{0}\n\nArticle {0}. ' + " ".join(WORDS) + ".\n</doc>\n"
    (tmp_path / "wiki/wiki_00").write_text("".join(article.format(i) for i in range(40)))
    (tmp_path / "xml").mkdir()
    articles = [f"<article><body><p>Article {i}. {' '.join(WORDS * 3)}.</p></body></article>" for i in range(40)]
    (tmp_path / "xml/all.xml").write_text(f"<articles>{''.join(articles)}</articles>")
    texts_of_table = [f"Text {i} of many languages. {' '.join(WORDS)}." for i in range(40)]
    pq.write_table(pa.table({"text": texts_of_table, "language": ["de", "lt"] * 20}), tmp_path / "rows.parquet")
    (tmp_path / "tatoeba").mkdir()
    for language in ("deu", "fra"):
        for side in (language, "eng"):
            lines = "".join(f"{side} sentence {i} of {language}.\n" for i in range(40))
            (tmp_path / "tatoeba" / f"tatoeba.{language}-eng.{side}").write_text(lines)
    rows = [
        f"The {WORDS[i % 10]} and the {WORDS[i % 7]} number {i},{i % 2},{('no', 'yes')[i % 2]},{i // 4}"
        for i in range(160)
    ]
    (pipeline / "reviews.csv").write_text("review,stars,spam,customer\n" + "\n".join(rows) + "\n")
    (pipeline / "pairs.tsv").write_text(
        "".join(f"{WORDS[i % 10]} {WORDS[i % 7]}\t{WORDS[i % 7]}.\n" for i in range(40))
    )
    cola = tmp_path / "GLUE" / "CoLA"
    cola.mkdir(parents=True)
    for split, number in (("train", 60), ("dev", 20)):
        lines = [f"x\t{i % 2}\t\tThe {WORDS[i % 10]} number {split} {i} is near." for i in range(number)]
        (cola / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    shutil.copytree(pipeline / "artifacts/pretrain", tmp_path / "checkpoint")


def leave_out_all_tasks_but_one(pipeline: Path) -> None:
    """Of configuration and artifacts, as a person would who does not want the others."""
    config, preset = pipeline / "conf/config.yaml", pipeline / "conf/experiment/smoke.yaml"
    others = rf"(?!{ONE_TASK}\b)docs_\w+:"
    config.write_text(re.sub(rf"^  - task@tasks\.{others}.*\n", "", config.read_text(), flags=re.MULTILINE))
    preset.write_text(re.sub(rf"^  {others}\n(    .*\n)+", "", preset.read_text(), flags=re.MULTILINE))
    assert re.findall(r"\bdocs_\w+(?=:)", config.read_text() + preset.read_text()) == [ONE_TASK] * 2
    for made in (*pipeline.glob("artifacts/*/docs_*"), *pipeline.glob("artifacts/*/*@docs_*")):
        if ONE_TASK not in made.name:
            shutil.rmtree(made) if made.is_dir() else made.unlink()


def for_smoke(command: str, pipeline: Path, tmp_path: Path) -> str:
    """The command with the reader's own paths filled in, and sizes that suit the smoke preset."""
    if command.startswith("make "):
        # The environment is the one that runs the tests: `make` must not install it again.
        command = command.replace("make ", "make -o .venv/.installed -o .venv/.installed-dev ")
        return f"echo 'The function returns a ___ of integers.' | {command}"
    runs = [path for path in (pipeline / "runs/pretrain").iterdir() if (path / "result").exists()]
    finished = max(runs, key=lambda path: path.stat().st_mtime)
    for readers, smoke in {
        "/path/to/store": f"{tmp_path}/store",
        "git commit": "git -c user.name=ada -c user.email=ada@example.org commit",
        # The preset's own sizes are for hours; that it is valid is tested with the other presets.
        "experiment=wiki_mini corpus.path=/path/to/wikipedia": "corpus=text corpus.path=/path/to/texts",
        "/path/to/wiki": f"{tmp_path}/wiki",
        "/path/to/xml": f"{tmp_path}/xml",
        "/path/to/parquet": f"{tmp_path}/rows.parquet",
        "/path/to/tatoeba": f"{tmp_path}/tatoeba",
        "/path/to/texts": f"{tmp_path}/texts corpus.validation_fraction=0.2 tokenizer.vocab_size=120",
        # The sizes of this one are for a GPU.
        "experiment=continued": "tokenizer=existing tokenizer.path=/path/to/checkpoint",
        "tokenizer=extended": "tokenizer=extended tokenizer.min_frequency=1 tokenizer.num_new=20",
        # Warm-up has to be shorter than the smoke preset's steps.
        "schedule.num_warmup_steps=50": "schedule.num_warmup_steps=5",
        "schedule.num_warmup_steps=30": "schedule.num_warmup_steps=5",
        "experiment=domain_mlm": "tokenizer=existing tokenizer.path=/path/to/checkpoint",
        "experiment=domain": "tokenizer=existing tokenizer.path=/path/to/checkpoint",
        "/path/to/checkpoint": f"{tmp_path}/checkpoint",
        "examples=segment_pairs": "examples=segment_pairs objective.group_size=8",
        "teacher=TEACHER student_layers=3": f"teacher={ENCODER} student_layers=1",
        "finetune data=reviews.csv": f"finetune data=reviews.csv {ONE_RUN} {ONE_METHOD}",
        "FOLDER_OR_NAME": f"{tmp_path}/checkpoint",
        "/path/to/GLUE": f"{tmp_path}/GLUE {ONE_RUN}",
        "model=base": "model=tiny",
        "FINGERPRINT": finished.name,
        DOCUMENTED_PHASES: LONGER_PHASES,
        "--model mini": f"--model tiny --arms bertline plain --vocab-size 64 --seq-len 16 --rounds 1 {SMALL} --steps 1",
        "--length 64 --steps 2000": f"--length 64 --seeds 1 {SMALL} {ONE_CELL} --work {tmp_path}/learning --steps 2",
    }.items():
        command = command.replace(readers, smoke)
    return command


DOCUMENTED_PHASES = "[{steps: 9000, max_length: 64, global_batch_size: 64}]"
# The smoke preset's phases with four more steps at the end.
LONGER_PHASES = (
    "[{steps: 30, max_length: 32, global_batch_size: 16}, {steps: 14, max_length: 64, global_batch_size: 8}]"
)
ONE_RUN = "sweep.num_seeds=1 sweep.fine_tuning.num_epochs=1"
ONE_METHOD = "sweep.fine_tuning.fewest_steps=0 sweep.methods=[full]"
# What the last line calls `encoder`: it lies beside a linear model, if that is what was exported.
ENCODER = "$(ls -d runs/export/*/result/reviews-encoder || ls -d runs/export/*/result/reviews)"
# Benchmarks in their smallest form.
ONE_CELL = "--peer-optimizers muon_short --rates 1 --beta2 0.98"
SMALL = "--batch-size 4 --threads 1 --workers 0 --device cpu --set runtime.compile=off"
WORDS = ("river", "mountain", "harbour", "garden", "kitchen", "market", "station", "library", "bridge", "forest")
