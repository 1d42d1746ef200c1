"""Whether memory stays bounded as the text grows: corpus, tokenizer, examples, then 300 steps with 256 open files.

python benchmarks/large_text.py --text ../shared/data/corpora --gigabytes 0.5 5 --keep

The text of a folder (`.txt` and `.gz`; WikiExtractor's or plain) is repeated with changes in JSONL files: in nine of
ten paragraphs a number is put between two words, the others are duplicates. Each stage is a process of its own with
two workers. Memory is what each process holds for itself (`RssAnon`), sampled five times a second: the system can take
back the pages of mapped files. The last line is JSON: for each size the bytes, wall and processor seconds and the
largest memory of a process by stage; `memory_ratio`, that of the largest size by that of the smallest;
`planning_share`, the part of the processor time of a stage that its first process takes.
"""

from __future__ import annotations

import gzip
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from measurements import keep, parser_of
from processes import Clone, held_bytes

from bertline.foundation.parallel import processor_name

_FILE_BYTES = 250_000_000
_EVERY_S = 0.2
_STAGES = ("corpus", "tokenizer", "examples")
_CHOICES = (
    "corpus=jsonl",
    "corpus.deduplicate=paragraph",
    "corpus.on_undecodable=skip",
    "model=tiny",
    "objective=mlm_nsp",
    "tokenizer.vocab_size=8192",
    "examples.lengths=[64]",
    "pretrain.phases=[{steps: 300, max_length: 64, global_batch_size: 32}]",
    "schedule.num_warmup_steps=30",
    "runtime.num_workers=2",
    "runtime.compile='off'",
    "tracking.enabled=false",
)


def documents(folder: Path) -> Iterator[list[str]]:
    """Yield the paragraphs of the documents of a folder; long ones, such as novels, in parts."""
    for path in sorted(folder.rglob("*")):
        if path.suffix not in (".txt", ".gz"):
            continue
        paragraphs: list[str] = []
        with (
            gzip.open(path, "rt", encoding="utf-8", errors="replace") if path.suffix == ".gz" else path.open() as lines
        ):
            for line in lines:
                if line.startswith(("<doc ", "</doc>")) or len(paragraphs) >= 200:
                    if paragraphs:
                        yield paragraphs
                    paragraphs = []
                elif len(line) > 40:
                    paragraphs.append(line.strip())
        if paragraphs:
            yield paragraphs


def write_text(source: Sequence[Sequence[str]], folder: Path, num_bytes: int) -> int:
    """Write JSONL files of about `num_bytes` into an empty folder; return how many bytes there are."""
    folder.mkdir(parents=True)
    written, number, copy = 0, 0, 0
    output = (folder / "0000.jsonl").open("w", encoding="utf-8")
    while written < num_bytes:
        for index, paragraphs in enumerate(source):
            changed = (
                text if (at + copy) % 10 == 0 else text.replace(" ", f" {copy * 7919 + index * 31 + at} ", 1)
                for at, text in enumerate(paragraphs)
            )
            line = json.dumps({"text": "\n\n".join(changed)}, ensure_ascii=False) + "\n"
            written += output.write(line)
            if written >= num_bytes:
                break
            if written >= (number + 1) * _FILE_BYTES:
                output.close()
                number += 1
                output = (folder / f"{number:04d}.jsonl").open("w", encoding="utf-8")
        copy += 1
    output.close()
    return sum(path.stat().st_size for path in folder.iterdir())


def measured(clone: Clone, stage: str, *, open_files: int | None = None) -> dict[str, float]:
    """Run a stage; return its wall and processor seconds, and the largest memory of one of its processes.

    Raises:
        SystemExit: The stage fails.
    """

    def limit() -> None:
        if open_files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))

    begun, most = time.monotonic(), 0
    seconds_of: dict[int, float] = {}
    log_path = clone.folder / "stage.log"
    environment = clone.environment | {"DVC_STAGE": stage}  # as DVC runs it: the result is put into artifacts/
    command = [sys.executable, f"pipelines/{stage}.py"]
    with log_path.open("a") as log:
        process = psutil.Popen(command, cwd=clone.folder, env=environment, stdout=log, stderr=log, preexec_fn=limit)
        while process.poll() is None:
            for pid, held in held_bytes(process).items():
                most = max(most, held)
                with suppress(psutil.Error):  # it has ended meanwhile
                    seconds = sum(psutil.Process(pid).cpu_times()[:2])
                    seconds_of[pid] = max(seconds_of.get(pid, 0.0), seconds)
            time.sleep(_EVERY_S)
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed: {log_path.read_text()[-3000:]}")
    first, total = seconds_of.get(process.pid, 0.0), sum(seconds_of.values())
    return {
        "wall_s": round(time.monotonic() - begun, 1),
        "processor_s": round(total, 1),
        "planning_share": round(first / max(total, 1e-9), 4),
        "memory_bytes": most,
    }


def of_size(source: Sequence[Sequence[str]], gigabytes: float, folder: Path) -> dict[str, Any]:
    """Run the stages on so much text in a clone; return their figures."""
    clone = Clone(folder)
    figures: dict[str, Any] = {"input_bytes": write_text(source, folder / "data/text", int(gigabytes * 1e9))}
    clone.configure(*_CHOICES)
    for stage in _STAGES:
        figures[stage] = measured(clone, stage)
        print(json.dumps({"gigabytes": gigabytes, "stage": stage, **figures[stage]}), flush=True)
    figures["pretrain"] = measured(clone, "pretrain", open_files=256)
    return figures


def main() -> None:
    """Measure each size, record and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--text", required=True, type=Path, metavar="FOLDER")
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[0.5, 5.0])
    arguments = parser.parse_args()
    source = list(documents(arguments.text))
    sizes = {}
    with tempfile.TemporaryDirectory(prefix="bertline-large-text-") as folder:
        for gigabytes in arguments.gigabytes:
            sizes[f"{gigabytes:g}"] = of_size(source, gigabytes, Path(folder) / f"text-{gigabytes:g}")
    small, large = (sizes[f"{gigabytes:g}"] for gigabytes in (min(arguments.gigabytes), max(arguments.gigabytes)))
    ratios = {stage: round(large[stage]["memory_bytes"] / small[stage]["memory_bytes"], 3) for stage in _STAGES}
    figures = {"device": processor_name(), "sizes": sizes, "memory_ratio": ratios}
    keep("large_text", figures, arguments)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
