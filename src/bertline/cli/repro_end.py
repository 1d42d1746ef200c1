"""What stands at the end of `make repro`: the verdicts, and what to open."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from bertline.foundation.files import read_json
from bertline.foundation.formats import short_title
from bertline.tasks.metrics import metric_name

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
    # One line each, also where the terminal is narrow; a log has whole ones.
    for line in finished_pipeline(Path.cwd()):
        print(line[: shutil.get_terminal_size().columns] if sys.stdout.isatty() else line)
