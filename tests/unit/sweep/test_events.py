"""events.jsonl has every event once."""

from __future__ import annotations

import json

from bertline.sweep.studies import add_missing_events


def event(number, **more):
    return {"arm": "encoder", "kind": "trial", "number": number, **more}


def test_an_event_is_written_once_however_often_it_is_given(tmp_path):
    add_missing_events(tmp_path, [event(0), event(1)])
    add_missing_events(tmp_path, [event(0), event(1), event(2), {**event(0), "kind": "seed"}])
    numbers = [(e["kind"], e["number"]) for e in map(json.loads, (tmp_path / "events.jsonl").read_text().splitlines())]
    assert numbers == [("trial", 0), ("trial", 1), ("trial", 2), ("seed", 0)]


def test_a_torn_line_is_written_again(tmp_path):
    path = tmp_path / "events.jsonl"
    add_missing_events(tmp_path, [event(0), event(1)])
    content = path.read_text()
    path.write_text(content[:-7])
    add_missing_events(tmp_path, [event(0), event(1)])
    assert path.read_text() == content
