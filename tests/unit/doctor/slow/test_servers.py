"""The stores of a run: a wrong address, no rights, a damaged file, each with its own sentence."""

from __future__ import annotations

import pytest

from bertline.doctor.servers import remote_findings


def only(findings):
    (found,) = findings
    return found


@pytest.fixture
def repository(tmp_path):
    """A repository of DVC, and `use(url, remote=...)`, which writes what `dvc remote add --default` does."""
    folder = tmp_path / "repository"
    (folder / ".dvc/tmp").mkdir(parents=True)
    (folder / ".dvc/config").write_text("[core]\nno_scm = True\n")

    def use(url, remote="shared"):
        core = f"[core]\nno_scm = True\nremote = {remote}\n"
        (folder / ".dvc/config").write_text(f"{core}['remote \"shared\"']\nurl = {url}\n")

    return folder, use


def test_a_remote_is_written_and_left_as_it_was(repository, tmp_path):
    folder, use = repository
    assert only(remote_findings(folder)).status == "unused"
    use(tmp_path / "remote")
    assert only(remote_findings(folder)).status == "green"
    (tmp_path / "remote").mkdir(exist_ok=True)
    (tmp_path / "remote/kept").touch()
    assert only(remote_findings(folder)).status == "green"
    assert [path.name for path in (tmp_path / "remote").iterdir()] == ["kept"]


def test_a_remote_that_is_not_configured_cannot_be_written_or_lacks_its_package_is_red(repository, tmp_path):
    folder, use = repository
    (tmp_path / "file").touch()
    use(tmp_path / "file/below")
    found = only(remote_findings(folder))
    assert (found.status, "cannot be written" in found.found) == ("red", True)
    use("oss://bucket/of/nobody")
    assert only(remote_findings(folder)).status == "red"
    use(tmp_path, remote="gone")
    found = only(remote_findings(folder))
    assert (found.status, "core.remote is gone" in found.found) == ("red", True)
