"""What a visit notices: pages that are wrong on purpose, each beside one that is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from browsing import Visit, opened, shows_something

SVG = '<svg id="p" width="200" height="60" viewBox="0 0 200 60" style="font: 12px sans-serif">'
PICTURE = f'{SVG}<path d="M0 0 L200 60" stroke="teal" stroke-width="9"/><text x="9" y="50">a curve</text></svg>'


@pytest.fixture
def page(browser, tmp_path: Path):
    """`page(html)`: a visit of a page with this body, in a window of 400 pixels."""
    visits: list[Visit] = []

    def of(body: str, **settings: object) -> Visit:
        file = tmp_path / f"{len(visits)}.html"
        file.write_text(f'<!doctype html><meta charset="utf-8"><body style="margin: 8px">{body}', encoding="utf-8")
        visits.append(opened(browser, file.as_uri(), width=400, **settings))
        return visits[-1]

    yield of
    for visit in visits:
        visit.page.context.close()


LONG = "a_name_that_is_far_too_long_for_a_telephone_" * 3


@pytest.mark.parametrize(
    "body",
    [
        f"<p>{LONG}",
        f'<p style="overflow: hidden; text-overflow: ellipsis">{LONG}',
        '<p style="overflow: hidden; height: 40px">one<br>two<br>three',
        f'{SVG}<text x="150" y="30">beyond the edge of the picture</text></svg>',
        '<div style="overflow-x: clip"><p style="margin-left: -40px">begins outside',
    ],
    ids=["window", "ellipsis", "too-high", "picture", "left"],
)
def test_cut_text_is_found(page, body: str) -> None:
    assert page(body).cut() != []


@pytest.mark.parametrize(
    "body",
    [
        f'<p style="overflow-wrap: anywhere">{LONG}',
        f'<div style="overflow-x: auto"><p>{LONG}</div>',
        f'<details><summary>more</summary><p style="width: 9000px">{LONG}</details>',
        f'<p style="visibility: hidden">{LONG}',
        PICTURE,
    ],
    ids=["wraps", "scrolls", "folded", "hidden", "picture"],
)
def test_text_that_can_be_read_is_not_cut(page, body: str) -> None:
    assert page(body).cut() == []


def test_cut_text_is_looked_for_inside_an_element(page) -> None:
    visit = page(f'<p id="a">{LONG}</p><p id="b">short')
    assert (len(visit.cut("#a")), visit.cut("#b")) == (1, [])
    with pytest.raises(Exception, match="nothing at #c"):
        visit.cut("#c")


def test_tiny_text_is_found_also_in_a_scaled_picture(page) -> None:
    assert page('<p style="font-size: 6px">tiny').tiny() == ["tiny (6.0 px)"]
    assert page(PICTURE.replace('width="200"', 'width="100"')).tiny() == ["a curve (6.0 px)"]
    assert page(PICTURE + "<p>large").tiny() == []


def test_labels_of_a_picture_on_each_other_are_found(page) -> None:
    labels = SVG + '<text x="9" y="20">one</text><text x="{x}" y="{y}">two</text></svg>'
    assert page(labels.format(x=20, y=24)).overlapping() == ["one | two"]
    assert page(labels.format(x=60, y=20) + labels.format(x=9, y=36)).overlapping() == []


def test_an_image_that_does_not_load_is_blank(page) -> None:
    right = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
    assert page(f'<img src="{right}" width="20">').blank() == []
    visit = page('<img src="missing.png" width="20">')
    assert [Path(address).name for address in visit.blank()] == ["missing.png"]
    assert len(visit.failed) == 1


def test_a_picture_shows_something_unless_it_is_empty_or_a_frame(page) -> None:
    frame = f'{SVG}<rect width="200" height="60" fill="white" stroke="black"/></svg>'
    drawn = {body: shows_something(page(body).page.locator("#p")) for body in (PICTURE, f"{SVG}</svg>", frame)}
    assert list(drawn.values()) == [True, False, False]


def test_requests_beyond_loopback_are_noted(page) -> None:
    # `.invalid` is a name that no machine has (RFC 6761): nothing is sent.
    visit = page('<img src="http://pictures.invalid/a.png" alt=""><script>fetch("http://127.0.0.1:9/")</script>')
    visit.page.wait_for_load_state("networkidle")
    assert visit.beyond_loopback == ["http://pictures.invalid/a.png"]
    assert sorted(entry.split()[-1] for entry in visit.failed) == [
        "http://127.0.0.1:9/",
        "http://pictures.invalid/a.png",
    ]


def test_console_errors_and_exceptions_are_noted_unless_they_are_not_ours(page) -> None:
    errors = 'console.error("ours"); console.error("theirs 7"); console.log("no error"); throw Error("thrown")'
    body = f"<script>{errors}</script>"
    assert page(body).errors == ["ours", "theirs 7", "thrown"]
    assert page(body, not_ours=[r"^theirs \d$"]).errors == ["ours", "thrown"]
    assert page('<img src="missing.png">', not_ours=["/missing.png$"]).failed == []
