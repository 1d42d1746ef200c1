"""What stands at the end of `make repro`: the verdicts and what to open, or who holds DVC's locks, and what to do.

`python -m bertline.cli.repro_end STATUS` prints it after a DVC command with this exit status. DVC's own words there are
advice on git, and to delete a lock that protects a running stage.
"""

import json
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import yaml

from bertline.foundation.files import lock_file, read_json
from bertline.foundation.formats import duration, short_title
from bertline.tasks.metrics import metric_name

_COMMANDS, _STAGES = Path(".dvc/tmp/lock"), Path(".dvc/tmp/rwlock")
"""Held while a DVC command reads or writes its own files; what running stages read and write, with their processes."""


def dvc_lock_hint(root: Path) -> str | None:
    """Explain in sentences why DVC is busy, and what to do; None if it is not."""
    holders: dict[tuple[int, str], list[str]] = {}
    with suppress(OSError, json.JSONDecodeError):  # no stage has run yet, or DVC is writing the file
        content = json.loads((root / _STAGES).read_text(encoding="utf-8") or "{}")
        for path, holder in content.get("write", {}).items():
            stages = holders.setdefault((holder["pid"], holder["cmd"]), [])
            if Path(path).parent.match("artifacts/metrics"):  # the figures of a stage are named like it
                stages.append(Path(path).stem)
    if not holders and (root / _COMMANDS).exists():
        with (root / _COMMANDS).open("a") as handle:
            if lock_file(handle) is False:
                busy = "another DVC command is reading or writing its records; it takes seconds"
                return f"{busy}. Run the same command again."
    return "\n".join(_of_holder(*holder, stages) for holder, stages in holders.items()) or None


def _of_holder(pid: int, command: str, stages: list[str]) -> str:
    process = None
    with suppress(psutil.Error):
        found = psutil.Process(pid)
        # Another program may have its number by now. A word of the command, not a part of one, names DVC: any program
        # can work in a folder whose path holds "dvc".
        process = found if any(Path(word).name == "dvc" for word in found.cmdline()) else None
    if process is None:
        # DVC drops the entry of a process that has ended, but not one whose number another program has.
        return (
            f"process {pid} ({command}) was killed and left its lock behind; no DVC runs. Run the same "
            f"command again. Should DVC still say that it is busy, delete {_STAGES}."
        )
    since = duration(time.time() - process.create_time())
    at = f" and is at stage {', '.join(stages)}" if stages else ""
    return (
        f"process {pid} (dvc, for {since}) is running{at}. Wait for it, or press Ctrl-C in its terminal."
        f"\nDo not delete {_STAGES}: two runs would write the same files."
    )


_VERDICTS = {"better": "wins", "worse": "loses", "not shown": "not clear", None: "no verdict"}


def finished_pipeline(root: Path) -> Iterator[str]:
    """Yield the verdict on each task, one line each, where the report is, and the commands that come next."""
    names = yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8"))["tasks"]
    files = [root / "artifacts/sweep" / name / "result.json" for name in names]
    rows = [_row(read_json(file)) for file in files if file.exists()]
    if rows:
        yield "The encoder against the strongest simple opponent of each task, on test:"
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    yield "The report: artifacts/evaluate/report.html"
    yield "`make try` fills blanks of your sentences. `make ui` shows all runs in MLflow."


def _row(result: dict[str, Any]) -> tuple[str, ...]:
    conclusion, encoder = result["conclusion"], result["arms"]["encoder"]
    verdict = _VERDICTS[conclusion.get("encoder", {}).get("verdict")]
    if "combined" in conclusion:
        verdict += f", with BM25 {_VERDICTS[conclusion['combined'].get('verdict')]}"
    causes = [cause for arm in ("encoder", "combined") if (cause := conclusion.get(arm, {}).get("cause"))]
    opponent = result["baselines"].get(conclusion["opponent"])
    score = f"{metric_name(result['metric'])} {encoder['test_mean']:.3f}"
    if opponent is None:
        return result["task"], verdict, score, "no simple method was tried"
    named = ": ".join([short_title(opponent["title"]), *causes[:1]])
    return result["task"], verdict, f"{score} against {opponent['test']:.3f}", named


if __name__ == "__main__":
    if sys.argv[1:] == ["0"]:
        # One line each, also where the terminal is narrow; a log has whole ones.
        for line in finished_pipeline(Path.cwd()):
            print(line[: shutil.get_terminal_size().columns] if sys.stdout.isatty() else line)
    elif (hint := dvc_lock_hint(Path.cwd())) is not None:
        print(hint, file=sys.stderr)
