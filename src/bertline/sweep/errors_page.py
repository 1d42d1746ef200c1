"""errors.html: a standalone page with the wrong predictions that the best model was most confident of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from bertline.foundation.files import write_atomically

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #222;
       background: #fff }
article { border-top: 1px solid #ddd; padding: .8rem 0 }
p { margin: .2rem 0; overflow-wrap: anywhere; white-space: pre-wrap }
small, dt { color: #666 }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 .8rem; margin: .3rem 0 }
dd { margin: 0; overflow-wrap: anywhere }
.gold { color: #116611 } .predicted { color: #aa2211 }
@media (prefers-color-scheme: dark) {
  body { background: #161616; color: #ddd } article { border-color: #444 } small, dt { color: #999 }
  .gold { color: #7c7 } .predicted { color: #f97 }
}
"""


def write_errors_page(path: Path, *, task: str, errors: Sequence[Mapping[str, Any]], num_rows: int) -> None:
    """Write the page.

    Args:
        path: Path of the page.
        task: Name of the task.
        errors: Errors, as returned by `confident_errors`.
        num_rows: Total number of test rows.
    """
    title = f"{task}: most confident errors"
    if errors:
        intro = (
            f"{len(errors)} of the wrong answers on {num_rows:,} test rows, those first that the model was surest of."
        )
    else:
        intro = f"None of the {num_rows:,} test rows was answered wrong."
    body = "".join(_article(error) for error in errors)
    write_atomically(
        path,
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n<h1>{escape(title)}</h1>\n<p>{escape(intro)}</p>\n{body}</html>\n",
    )


def _article(error: Mapping[str, Any]) -> str:
    inputs = [name for name in error if name not in ("id", "gold", "predicted", "score")]
    shown = "".join(_term(name, error[name], "") for name in inputs if error[name] is not None)
    sure = f", {error['score']:.3f}" if isinstance(error["score"], float) else ""
    verdict = _term("right", error["gold"], "gold") + _term(f"predicted{sure}", error["predicted"], "predicted")
    return f"<article>\n<small>{escape(str(error['id']))}</small>\n<dl>{shown}{verdict}</dl>\n</article>\n"


def _term(name: str, value: Any, css: str) -> str:
    text = " · ".join(map(str, value)) if isinstance(value, list) else str(value)
    return f'<dt>{escape(name.replace("_", " "))}</dt><dd class="{css}">{escape(text)}</dd>\n'
