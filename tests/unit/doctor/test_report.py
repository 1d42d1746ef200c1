"""The table of all ranks: joined, worst first, never wider than the terminal."""

from __future__ import annotations

import json

import pytest

from bertline.doctor.finding import green, note, red, unused
from bertline.doctor.report import Reporter, as_data, exit_status, rows_of, table

LONG = "runs/mlflow.db " + "is written by another process " * 6
ONE = Reporter(rank=0, host="node1")


def reports(*per_rank, hosts=2):
    """A report for each list of findings, on as many hosts."""
    size = -(-len(per_rank) // hosts)
    return [(Reporter(rank=rank, host=f"node{rank // size + 1}"), found) for rank, found in enumerate(per_rank)]


def text(rows, width=80, colour=False):
    return table(rows, title="doctor", took_s=1.0, width=width, colour=colour)


def test_what_all_ranks_share_is_one_line():
    (row,) = rows_of(reports(*[[green("device", f"GPU {rank}")] for rank in range(4)]))
    assert (row.everywhere, row.where, len(row.reporters)) == (True, "", 4)


def test_a_red_rank_is_named_and_stands_before_the_others():
    bad = red("device", "cannot compute", "Use another.")
    fine = green("device", "GPU")
    first, second = rows_of(reports([fine], [fine], [fine], [bad]))
    assert (first.finding.status, first.where) == ("red", "rank 3 (node2)")
    assert (second.finding.status, second.where) == ("green", "node1, rank 2 (node2)")
    whole = rows_of(reports([fine], [fine], [bad], [bad]))[0]
    assert whole.where == "node2"
    assert "node2: cannot compute" in text([whole])


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width):
    rows = rows_of(
        [(ONE, [note("runs: lock of other nodes", LONG, LONG), red("MLflow", LONG, LONG), green("a", LONG)])]
    )
    lines = text(rows, width).splitlines()
    assert max(len(line) for line in lines) <= width
    assert sum("-> runs" in line for line in lines) == 2


def test_every_status_has_its_mark_and_only_lines_with_a_remedy_show_it():
    rows = rows_of(
        [(ONE, [green("a", "fine"), red("b", "bad", "Mend it."), note("c", "so", "Think."), unused("d", "no")])]
    )
    shown = text(rows).splitlines()[2:]
    assert [line.split()[0] for line in shown if line[:6].strip()][:4] == ["ok", "RED", "note", "-"]
    assert sum("->" in line for line in shown) == 2
    assert "1 red, 1 to note, 1 ok, 1 not used" in " ".join(shown[-2:])


def test_colours_are_only_written_if_asked_for():
    rows = rows_of([(ONE, [red("b", "bad", "Mend it.")])])
    assert "\033" not in text(rows)
    assert "\033[1;31mRED\033[0m b" in text(rows, colour=True)


def test_a_number_stays_with_its_unit():
    rows = rows_of([(ONE, [green("a", "x" * 60 + " 144 MB/s")])])
    assert any("144 MB/s" in line for line in text(rows, 80).splitlines())


def test_many_different_reds_of_one_check_are_cut_in_the_table_and_whole_in_the_data():
    found = reports(*[[red("device", f"error {rank}", "Look.")] for rank in range(40)])
    rows = rows_of(found)
    assert "35 more lines" in text(rows)
    assert len(as_data(rows, reporters=[one for one, _ in found], took_s=1.0)["findings"]) == 40


def test_the_exit_status_and_the_data_say_whether_something_is_red():
    fine, bad = [(ONE, [green("a", "b", free_bytes=7.0)])], [(ONE, [red("a", "b", "c")])]
    assert (exit_status(rows_of(fine)), exit_status(rows_of(bad))) == (0, 1)
    data = as_data(rows_of(fine), reporters=[ONE], took_s=1.23456)
    assert json.loads(json.dumps(data)) == {
        "ok": True,
        "num_ranks": 1,
        "hosts": ["node1"],
        "took_s": 1.235,
        "findings": [
            {"check": "a", "status": "green", "found": "b", "fix": "", "measured": {"free_bytes": 7.0}, "ranks": [0]}
        ],
    }
    assert not as_data(rows_of(bad), reporters=[ONE], took_s=1.0)["ok"]
