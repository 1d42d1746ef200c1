"""A page in a browser: what it asked for, what went wrong, which text is cut, tiny or on top of other text, and which
picture shows nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from PIL import Image

LOOPBACK = {"127.0.0.1", "localhost"}
NETWORK = ("http", "https", "ws", "wss")
HEIGHT = 900
TIMEOUT_MS = 60_000
_FEWEST_COLOURS = 4
_FRAME = 3
"""Pixels at the edge of a picture that do not count."""

# Each text node that is seen, with its box. What has less than two pixels is for screen readers.
_TEXTS = """
  const seen = (element) => element.checkVisibility({visibilityProperty: true, opacityProperty: true});
  function* texts(selector) {
    const start = selector ? document.querySelector(selector) : document.body;
    if (start === null) throw new Error(`nothing at ${selector}`);
    const nodes = document.createTreeWalker(start, NodeFilter.SHOW_TEXT);
    while (nodes.nextNode()) {
      const words = nodes.currentNode.textContent.trim(), owner = nodes.currentNode.parentElement;
      if (!words || ["SCRIPT", "STYLE", "TITLE", "DESC", "NOSCRIPT"].includes(owner.tagName.toUpperCase())) continue;
      if (!seen(owner)) continue;
      const range = document.createRange();
      range.selectNodeContents(nodes.currentNode);
      const box = range.getBoundingClientRect();
      if (box.width >= 2 && box.height >= 2) yield [words.slice(0, 60), owner, box];
    }
  }
"""

# Text beyond the edge of what clips it: the window's sides, an element that hides or shortens what is too long, or an
# SVG picture. What scrolls shows all of its text, so nothing above it cuts.
_CUT = (
    "(selector) => {"
    + _TEXTS
    + """
  const cut = [];
  for (const [words, owner, box] of texts(selector)) {
    for (let above = owner; ; above = above.parentElement) {
      const style = above === null ? null : getComputedStyle(above);
      const edge = above === null ? {left: 0, right: innerWidth} : above.getBoundingClientRect();
      const across = style?.overflowX ?? "hidden", down = style?.overflowY ?? "visible";
      if (["auto", "scroll"].includes(across) || style?.position === "fixed") break;
      const boxed = style?.display !== "inline" || above.tagName === "svg";  // overflow is for boxes only
      const clips = (overflow) => ["hidden", "clip"].includes(overflow) && boxed;
      const wide = clips(across) && (box.right > edge.right + 1.5 || box.left < edge.left - 1.5);
      const high = clips(down) && (box.bottom > edge.bottom + 4 || box.top < edge.top - 4);
      if (edge.right - edge.left > 1 && (wide || high)) {
        cut.push(`${words} (${Math.round(box.left)} to ${Math.round(box.right)} in ${above?.tagName ?? "the window"})`);
        break;
      }
      if (above === null) break;
    }
  }
  return cut;
}"""
)

_TINY = (
    "([selector, fewest]) => {"
    + _TEXTS
    + """
  const tiny = [];
  for (const [words, owner] of texts(selector)) {
    const drawn = owner.ownerSVGElement ? owner.getScreenCTM() : {a: 1, b: 0};
    const size = parseFloat(getComputedStyle(owner).fontSize) * Math.hypot(drawn.a, drawn.b);
    if (size < fewest) tiny.push(`${words} (${size.toFixed(1)} px)`);
  }
  return tiny;
}"""
)

# A box of text has empty rows above and below its letters.
_OVERLAPPING = (
    "(selector) => {"
    + _TEXTS
    + """
  const found = [], drawn = [...texts(selector)].filter(([, owner]) => owner.ownerSVGElement);
  drawn.forEach(([words, owner, box], place) => {
    for (const [others, other, at] of drawn.slice(place + 1)) {
      if (owner === other || owner.ownerSVGElement !== other.ownerSVGElement) continue;
      const across = Math.min(box.right, at.right) - Math.max(box.left, at.left);
      const down = Math.min(box.bottom, at.bottom) - Math.max(box.top, at.top);
      if (across > 2 && down > 0.35 * Math.min(box.height, at.height)) found.push(`${words} | ${others}`);
    }
  });
  return found;
}"""
)

_BLANK = """async (selector) => {
  const blank = [];
  for (const image of (selector ? document.querySelector(selector) : document.body).querySelectorAll("img")) {
    if (!image.checkVisibility()) continue;
    image.loading = "eager";
    await image.decode().catch(() => null);
    if (!image.naturalWidth || !image.getBoundingClientRect().width) blank.push(image.src.slice(0, 200));
  }
  return blank;
}"""


@dataclass
class Visit:
    """A page that was opened, with what has happened since. Each check takes the frame to look into, by default the
    page itself."""

    page: Any
    not_ours: Sequence[str] = ()
    """Patterns of what is no fault of ours, in errors and in failed requests."""
    errors: list[str] = field(default_factory=list)
    """Errors on the console, other than those of requests."""
    failed: list[str] = field(default_factory=list)
    """Requests that nobody answered, or that were answered with an error."""
    beyond_loopback: list[str] = field(default_factory=list)
    """Requests for another machine."""

    def cut(self, selector: str | None = None, *, frame: Any = None) -> list[str]:
        """Return the texts that are not seen whole, inside the element of a selector."""
        return (frame or self.page).evaluate(_CUT, selector)

    def tiny(self, selector: str | None = None, *, frame: Any = None, fewest: float = 8.0) -> list[str]:
        """Return the texts whose letters are smaller than a number of pixels, pictures' included."""
        return (frame or self.page).evaluate(_TINY, [selector, fewest])

    def overlapping(self, selector: str | None = None, *, frame: Any = None) -> list[str]:
        """Return pairs of texts of one SVG picture that lie on each other."""
        return (frame or self.page).evaluate(_OVERLAPPING, selector)

    def blank(self, selector: str | None = None, *, frame: Any = None) -> list[str]:
        """Return the addresses of images that did not load."""
        return (frame or self.page).evaluate(_BLANK, selector)

    def note(self, what: str, noted: list[str]) -> None:
        """Add what went wrong to a list, unless it is not ours."""
        if not any(re.search(pattern, what) for pattern in self.not_ours):
            noted.append(what)

    def asked(self, address: str) -> None:
        """Note a request."""
        parts = urlsplit(address)
        if parts.scheme in NETWORK and parts.hostname not in LOOPBACK:
            self.beyond_loopback.append(address)


def shows_something(picture: Any) -> bool:
    """Whether a picture, as it is seen, has more than its background and a frame."""
    seen = np.asarray(Image.open(BytesIO(picture.screenshot())).convert("RGB"))
    seen = seen[_FRAME:-_FRAME, _FRAME:-_FRAME].reshape(-1, 3)
    colours, counts = np.unique(seen // 16, axis=0, return_counts=True)
    return len(colours) >= _FEWEST_COLOURS and bool(counts.max() < 0.995 * len(seen))


def opened(browser: Any, address: str, *, width: int, scheme: str = "light", not_ours: Sequence[str] = ()) -> Visit:
    """Open a page in a profile of its own, in a window of some pixels' width, with `light` or `dark` as its scheme."""
    context = browser.new_context(viewport={"width": width, "height": HEIGHT}, color_scheme=scheme)
    context.set_default_timeout(TIMEOUT_MS)
    visit = Visit(context.new_page(), not_ours)
    page = visit.page
    page.on("request", lambda request: visit.asked(request.url))
    page.on("websocket", lambda socket: visit.asked(socket.url))
    page.on("pageerror", lambda error: visit.note(str(error), visit.errors))

    @partial(page.on, "console")
    def _(message: Any) -> None:
        # A request that failed is noted with its address below.
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            visit.note(message.text, visit.errors)

    @partial(page.on, "requestfailed")
    def _(request: Any) -> None:
        # The browser itself gives up what a page that is left had asked for.
        if "ERR_ABORTED" not in (request.failure or ""):
            visit.note(f"{request.failure} {request.url}", visit.failed)

    @partial(page.on, "response")
    def _(answer: Any) -> None:
        if answer.status >= 400:
            visit.note(f"{answer.status} {answer.url}", visit.failed)

    page.goto(address)
    return visit
