"""events.jsonl has every event once."""

from __future__ import annotations

import json

from bertline.sweep.events import EventsLog


def event(number, **more):
    return {"arm": "encoder", "kind": "trial", "number": number, **more}


def test_an_event_is_written_once_however_often_it_is_given(tmp_path):
    log = EventsLog(tmp_path / "events.jsonl")
    log.add_missing([event(0), event(1)])
    EventsLog(tmp_path / "events.jsonl").add_missing([event(0), event(1), event(2), {**event(0), "kind": "seed"}])
    numbers = [(e["kind"], e["number"]) for e in map(json.loads, log.path.read_text().splitlines())]
    assert numbers == [("trial", 0), ("trial", 1), ("trial", 2), ("seed", 0)]


def test_a_torn_line_is_written_again(tmp_path):
    log = EventsLog(tmp_path / "events.jsonl")
    log.add_missing([event(0), event(1)])
    content = log.path.read_text()
    log.path.write_text(content[:-7])
    log.add_missing([event(0), event(1)])
    assert log.path.read_text() == content
