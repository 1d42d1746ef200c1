"""Python, PyTorch and the compiler: what is supported, and what each lack is called."""

from __future__ import annotations

import re
import stat
import sysconfig
import tomllib
from pathlib import Path

import pytest
import torch

from bertline.doctor import software
from bertline.doctor.software import PYTHONS, TORCHES, compiler_findings, python_finding, torch_finding

ROOT = Path(__file__).resolve().parents[3]
CPU = torch.device("cpu")


def compiler(runtime, device=CPU):
    (found,) = compiler_findings(runtime, device)
    return found


@pytest.mark.parametrize(
    ("version", "status"), [((3, 10), "red"), ((3, 11), "green"), ((3, 13), "green"), ((3, 14), "red")]
)
def test_only_supported_pythons_are_green(version, status):
    found = python_finding(version)
    assert found.status == status
    assert status == "green" or "make install PYTHON=python3.13" in found.fix


@pytest.mark.parametrize(
    ("version", "status"),
    [("2.10.1", "red"), ("1.13.0", "red"), ("2.11.0a0+nv25.12", "green"), ("2.13.0+cpu", "green"), ("2.14.0", "note")],
)
def test_only_supported_torches_are_green_and_a_newer_one_is_noted(version, status):
    found = torch_finding(version)
    assert (found.status, version in found.found) == (status, True)


def test_the_supported_versions_are_those_that_the_project_declares_and_locks():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    first, after = re.findall(r"3\.(\d+)", project["requires-python"])
    assert ((3, int(first)), (3, int(after) - 1)) == PYTHONS
    (oldest,) = [re.search(r">=2\.(\d+)", one)[1] for one in project["dependencies"] if one.startswith("torch>")]
    (locked,) = re.findall(r"^torch==2\.(\d+)", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE)
    assert ((2, int(oldest)), (2, int(locked))) == TORCHES


def test_this_machines_compiler_is_tried_with_a_program(runtime):
    found = compiler(runtime())
    if found.status != "green":
        pytest.skip(f"no compiler here: {found.found}")
    assert "compiles, with Python.h" in found.found


@pytest.mark.parametrize(("choice", "status"), [("on", "red"), ("auto", "note")])
def test_no_compiler_is_red_where_compilation_is_asked_for_and_a_note_elsewhere(runtime, monkeypatch, choice, status):
    monkeypatch.setenv("PATH", "/nowhere")
    found = compiler(runtime(compile=choice))
    assert (found.status, found.found) == (status, "there is no C++ compiler (g++)")
    assert "apt install g++" in found.fix


def test_the_gpu_needs_the_c_compiler_and_may_be_told_which(runtime, monkeypatch):
    monkeypatch.setenv("CC", "icx-of-another-machine")
    found = compiler(runtime(compile="on"), torch.device("cuda"))
    assert found.found == "there is no C compiler (icx-of-another-machine)"


def test_missing_headers_of_python_are_named(runtime, monkeypatch, tmp_path):
    fake_compiler(tmp_path, monkeypatch, "exit 0")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    found = compiler(runtime(compile="on"))
    assert found.status == "red"
    assert f"{tmp_path}/Python.h" in found.found
    assert "python3-dev" in found.fix


def test_a_compiler_that_fails_is_quoted(runtime, monkeypatch, tmp_path):
    fake_compiler(tmp_path, monkeypatch, "echo 'In file x:' >&2; echo 'fatal error: cmath: No such file' >&2; exit 1")
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    found = compiler(runtime(compile="on"))
    assert found.status == "red"
    assert "fatal error: cmath: No such file" in found.found


def test_without_compilation_no_compiler_is_needed(runtime, monkeypatch):
    monkeypatch.setattr(software.shutil, "which", lambda name: None)
    assert compiler(runtime(compile="off")).status == "unused"


def fake_compiler(folder, monkeypatch, script):
    path = folder / "my-g++"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CXX", str(path))
