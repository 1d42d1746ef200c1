"""What the ranks check together: whether all are there, sums, clocks, cores of each host, shared folders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from bertline.doctor import communication, processes
from bertline.doctor.examination import Examination, Report
from bertline.doctor.finding import Finding, green, note, red, unused
from bertline.doctor.limits import Check, run_checks
from bertline.doctor.meeting import Meeting
from bertline.doctor.memory import gradient_bytes
from bertline.doctor.report import Reporter
from bertline.doctor.shared_folders import look_for_file, show_file
from bertline.foundation.errors import MachineError

_MEET_S, _MEASURE_S, _SHARED_S = 40.0, 15.0, 14.0
_RESERVE_S = 5.0
"""Kept for the table."""
_NETWORK = (
    "Check that the ranks reach each other on every port (firewall), and name the network interface: "
    "GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME; NCCL_DEBUG=INFO says what NCCL tries."
)


def examine(examination: Examination) -> list[tuple[Reporter, list[Finding]]] | None:
    """Examine this rank, then all ranks together.

    Returns:
        On rank 0, the findings of all ranks, those about all of them last; on other ranks None.

    Raises:
        MachineError: This rank, which is not rank 0, cannot reach rank 0.
    """
    place = examination.place
    own = examination.report()
    if examination.is_elsewhere:
        return _gathered([own], [_submitting(examination)])
    if place.ranks.world_size == 1:
        alone = _ranks_findings(examination, [own])
        alone += [unused("all-reduce", "not used: one rank"), unused("clocks", "not used: one rank")]
        return _gathered([own], [*_of_hosts(examination, [own]), *alone])
    try:
        meeting = Meeting(place, limit_s=min(_MEET_S, examination.deadline.left_s))
    except MachineError as error:
        if not place.ranks.is_first:
            raise
        found, _, fix = str(error).partition("). ")
        return _gathered([own], [*_of_hosts(examination, [own]), red("ranks", f"{found})", fix)])
    if not place.ranks.is_first:
        _follow(examination, meeting, own)
        return None
    reports, missing = _heard_from(examination, meeting, own)
    findings = [*_of_hosts(examination, reports), *_ranks_findings(examination, reports, missing=missing)]
    firsts = {report.rank: report.host for report in _first_of_hosts(reports)[1:]}
    titles = _shared_titles(examination, own) if firsts and not missing else []
    meeting.tell("go", {"measure": not missing, "folders": titles, "lookers": list(firsts)})
    if not missing:
        findings += _measured_together(examination, meeting, reports)
        findings += _shared_folders(examination, meeting, titles, firsts)
    return _gathered(reports, findings)


def _shared_titles(examination: Examination, own: Report) -> list[str]:
    """Return the folders that ranks write: all but the inputs in which the check of this host wrote nothing.

    Asking the file system again could hang, outside of the limits of a check.
    """
    written = {one.check for one in own.findings}
    return [one.title for one in examination.folders() if not one.is_input or f"{one.title}: rename" in written]


def _submitting(examination: Examination) -> Finding:
    runtime = examination.config.runtime
    return note(
        "ranks",
        "this machine only submits jobs: devices, cores, memory and network were not looked at",
        f"On the nodes: srun --nodes={runtime.num_nodes} --ntasks-per-node={runtime.num_devices} make doctor, with the "
        "same ARGS and the flags of your cluster (--partition, --account, --gpus-per-node).",
    )


def _follow(examination: Examination, meeting: Meeting, own: Report) -> None:
    """Report to rank 0, and do as it says."""
    rank = own.rank
    meeting.tell(f"report/{rank}", own.as_data())
    go = meeting.hear("go", limit_s=examination.deadline.left_s)
    if go["measure"]:
        measured, findings = _measure(examination, meeting)
        meeting.tell(f"measured/{rank}", measured or {"problem": findings[0].found})
    if rank in go["lookers"]:
        for title in go["folders"]:
            look_for_file(meeting, title, rank, limit_s=_SHARED_S)


def _heard_from(examination: Examination, meeting: Meeting, own: Report) -> tuple[list[Report], list[int]]:
    """Return the reports in the order of the ranks, and the ranks that did not report in time."""
    reports, missing = [own], []
    for rank in range(1, examination.place.ranks.world_size):
        left_s = examination.deadline.left_s - _RESERVE_S
        try:
            reports.append(Report.from_data(meeting.hear(f"report/{rank}", limit_s=min(_MEET_S, left_s))))
        except TimeoutError:
            missing.append(rank)
    return reports, missing


def _ranks_findings(examination: Examination, reports: Sequence[Report], missing: Sequence[int] = ()) -> list[Finding]:
    runtime, world_size = examination.config.runtime, examination.place.ranks.world_size
    if missing:
        names = ", ".join(map(str, missing[:8])) + (" and more" if len(missing) > 8 else "")
        return [
            red(
                "ranks",
                f"{len(reports)} of {world_size} reported; missing: {names}",
                "Look at the output of these ranks; start all of them at once, with nodes that reach "
                f"{examination.place.address}:{examination.place.port}.",
            )
        ]
    hosts: dict[str, list[int]] = {}
    for report in reports:
        hosts.setdefault(report.host, []).append(report.rank)
    names = ", ".join(f"{host} ({len(ranks)})" for host, ranks in list(hosts.items())[:8])
    found = f"{world_size} on {len(hosts)} host(s): {names}{' and more' if len(hosts) > 8 else ''}"
    expected = runtime.num_devices * runtime.num_nodes
    if world_size != expected:
        start = f"srun --nodes={runtime.num_nodes} --ntasks-per-node={runtime.num_devices} make doctor"
        return [
            note(
                "ranks",
                f"{found}; the configuration says {runtime.num_devices} x {runtime.num_nodes}",
                f"To check the run as it will be, start it with as many ({start}), or give the doctor the run's "
                "runtime.num_devices and runtime.num_nodes.",
            )
        ]
    return [green("ranks", found)]


def _of_hosts(examination: Examination, reports: Sequence[Report]) -> list[Finding]:
    """Judge what the ranks of a host share: memory (of the rank with the least) and cores."""
    findings = examination.memory_findings(min(report.memory_bytes for report in reports))
    hosts: dict[str, list[Report]] = {}
    for report in reports:
        hosts.setdefault(report.host, []).append(report)
    runtime = examination.config.runtime
    by_host = {
        host: processes.cores_finding([one.cores for one in ranks], runtime, ranks[0].device_type)
        for host, ranks in hosts.items()
    }
    worst = [one for one in by_host.items() if one[1].status == "red"] or [
        one for one in by_host.items() if one[1].status == "note"
    ]
    for host, finding in worst or list(by_host.items())[:1]:
        named = f"{host}: {finding.found}" if len(hosts) > 1 else finding.found
        findings.append(
            Finding(check=finding.check, status=finding.status, found=named, fix=finding.fix, measured=finding.measured)
        )
    return findings


def _first_of_hosts(reports: Sequence[Report]) -> list[Report]:
    firsts: dict[str, Report] = {}
    for report in reports:
        firsts.setdefault(report.host, report)
    return list(firsts.values())


def _measure(examination: Examination, meeting: Meeting) -> tuple[dict[str, Any] | None, list[Finding]]:
    """Measure with the other ranks; return this rank's measurement, or what is wrong."""
    measured: list[dict[str, Any]] = []

    def measure() -> Iterable[Finding]:
        found = communication.measure(
            meeting.store, examination.place.ranks, examination.device, limit_s=_MEASURE_S - 2
        )
        measured.append(communication.as_data(found))
        return ()

    check = Check(name="all-reduce", run=measure, limit_s=_MEASURE_S, advice=_NETWORK)
    findings = run_checks([check], examination.deadline)
    return (measured[0], []) if measured else (None, findings)


def _measured_together(examination: Examination, meeting: Meeting, reports: Sequence[Report]) -> list[Finding]:
    own, findings = _measure(examination, meeting)
    names = [f"rank {report.rank} ({report.host})" for report in reports]
    measured: list[Mapping[str, Any]] = [own] if own else []
    problems = {names[0]: findings[0].found} if findings else {}
    for report in reports[1:]:
        try:
            heard = meeting.hear(f"measured/{report.rank}", limit_s=2.0)
        except TimeoutError:
            heard = {"problem": "no answer"}
        if "problem" in heard:
            problems[names[report.rank]] = heard["problem"]
        else:
            measured.append(heard)
    if problems:
        said = "; ".join(f"{name}: {problem}" for name, problem in list(problems.items())[:4])
        return [red("all-reduce", f"the ranks cannot sum: {said}", _NETWORK)]
    size = gradient_bytes(examination.training) if examination.training else 0
    return list(communication.communication_findings(measured, names, gradient_bytes=size))


def _shared_folders(
    examination: Examination, meeting: Meeting, titles: Sequence[str], firsts: Mapping[int, str]
) -> list[Finding]:
    paths = {folder.title: folder.path for folder in examination.folders()}
    checks = [
        Check(
            name=f"{title}: other nodes",
            run=partial(show_file, meeting, title, paths[title], firsts, limit_s=_SHARED_S),
            limit_s=_SHARED_S + 2,
            advice="The file system hangs: look at its mount and its server.",
        )
        for title in titles
    ]
    return run_checks(checks, examination.deadline)


def _gathered(reports: Sequence[Report], findings: Sequence[Finding]) -> list[tuple[Reporter, list[Finding]]]:
    """Return the findings of each rank, with those about all of them as rank 0's last."""
    gathered = [(Reporter(rank=report.rank, host=report.host), report.findings) for report in reports]
    gathered[0] = (gathered[0][0], [*gathered[0][1], *findings])
    return gathered
