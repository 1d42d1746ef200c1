"""Links of the documentation lead somewhere, and its tables are complete and those of the code."""

from __future__ import annotations

import fnmatch
import re
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS))

import reference_tables  # noqa: E402

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


def test_the_tables_of_the_pages_are_those_of_the_code() -> None:
    texts = {page.name: page.read_text() for page in reference_tables.PAGES}
    stale = [name for name, text in texts.items() if reference_tables.rewritten(text) != text]
    assert stale == [], "a command, a key, a comment of conf/ or the Makefile has changed: run make reference, commit"
    placed = re.findall(r"^<!-- generated: (\w+) -->$", "\n".join(texts.values()), re.MULTILINE)
    assert sorted(placed) == sorted(reference_tables.TABLES)


def test_every_key_has_a_meaning() -> None:
    assert reference_tables.missing_meanings() == []


def test_every_key_of_the_yaml_files_is_in_a_table() -> None:
    tables = reference_tables.configuration()
    for group in (path for path in (ROOT / "conf").iterdir() if path.is_dir()):
        if group.name in ("experiment", "local"):
            continue
        table = reference_tables.tasks() if group.name == "task" else section(tables, group.name)
        documented = set(re.findall(r"^\| `([^`]+)` ", table, flags=re.MULTILINE))
        for path in group.glob("*.yaml"):
            content = yaml.safe_load(path.read_text())
            if "family" in content and "own" not in content:
                continue  # its keys are those of the family's config class
            keys = {key for key in leaves(content) if key not in ("kind", "defaults")}
            assert {key for key in keys if not any(covers(known, key) for known in documented)} == set(), path


def test_defaults_and_types_are_those_of_the_files() -> None:
    text = section(reference_tables.configuration(), "optimizer")
    lines = dict(re.findall(r"^\| `(\w+)` \| (.*?) \| [^|]* \|$", text, flags=re.MULTILINE))
    adamw = yaml.safe_load((ROOT / "conf/optimizer/adamw.yaml").read_text())
    assert lines["max_grad_norm"] == f"number or null | `{float(adamw['max_grad_norm'])}`"
    assert "default run: `0.006`" in text


def test_every_test_that_ci_names_exists() -> None:
    script = (ROOT / ".ci/run").read_text()
    named = re.findall(r"(tests/\S+\.py)::(test_\w+)", script)
    assert [one for one in named if f"def {one[1]}(" not in (ROOT / one[0]).read_text()] == []
    headings = re.findall(r"\[(\S+\.md): ([^]]+)\]", script)
    assert len(named) >= 4 and len(headings) >= 3
    assert [one for one in headings if f"# {one[1]}\n" not in (ROOT / one[0]).read_text()] == []


def test_commands_that_no_test_of_documented_commands_runs_are_on_these_pages() -> None:
    pages = {page.stem for page in PAGES if re.search(r"^```sh\n", page.read_text(), re.MULTILINE)}
    for_clusters = {"cluster", "doctor", "several-machines"}  # tests/slurm/test_documented.py
    # test_dvc_remote.py, test_ray.py, MLflowServer of servers.py, test_transformers_js.py, test_labelled_rows.py; the
    # notebook runs the same in Python.
    have_tests = {"share", "ray", "mlflow", "browser", "labelled-rows", "05-your-own-rows"}
    name_the_hub_or_take_long = {"use", "sweeps", "own-task"}
    assert pages == for_clusters | have_tests | name_the_hub_or_take_long


def test_links_of_pages_that_github_shows_lead_somewhere() -> None:
    for page in PAGES[:2]:
        for link in re.findall(r"\]\(([^)#]*)(#[^)]*)?\)", page.read_text()):
            if not link[0].startswith("http"):
                target = page.parent / link[0]
                assert target.is_file(), link
                if link[1]:
                    anchors = {anchor(title) for title in re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)}
                    assert link[1][1:] in anchors, link


def test_files_that_pages_name_exist() -> None:
    ours = re.compile(r"`((?:src|conf|pipelines|benchmarks|notebooks|tests|docs)/[\w./-]+)`")
    for page in PAGES:
        for name in ours.findall(page.read_text()):
            made = ("STAGE", "NAME", "TASK", "conf/local", "docs/_build", "last_full_run")
            assert any(word in name for word in made) or (ROOT / name).exists(), f"{page.name}: {name}"


def test_each_file_on_the_way_to_a_step_is_named_in_one_before_it() -> None:
    page = (DOCS / "architecture.md").read_text()
    walks = [re.findall(r"^\| `([\w/.]+)` \|", table, re.MULTILINE) for table in page.split("\nFrom `pipelines/")[1:]]
    assert [len(walk) for walk in walks] == [9, 7]
    for walk in walks:
        before = ""
        for name in walk:
            path = Path(name).with_suffix("")
            assert not before or ".".join(path.parts[1:]) in before or f"`{path.name}`" in before, name
            before += (ROOT / name).read_text()


def test_the_readme_is_short_and_its_picture_small() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 160
    assert (DOCS / "images/report.webp").stat().st_size < 200_000


def section(text: str, name: str) -> str:
    """The part of the configuration's tables with this heading."""
    return text.partition(f"## {name}\n")[2].partition("\n## ")[0]


def leaves(mapping: dict[str, Any], prefix: str = "") -> set[str]:
    """The keys of a mapping with dots."""
    found: set[str] = set()
    for key, value in mapping.items():
        found |= leaves(value, f"{prefix}{key}.") if isinstance(value, dict) and value else {f"{prefix}{key}"}
    return found


def covers(known: str, key: str) -> bool:
    """Whether a documented key is this key, or the mapping that names it."""
    return known == key or fnmatch.fnmatch(key, known.replace("NAME", "*")) or key.startswith(f"{known}.")


def anchor(title: str) -> str:
    """A heading's anchor, as GitHub and MyST make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def test_what_a_notebook_says_is_below_it_is_below_it() -> None:
    for page in sorted((DOCS / "notebooks").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        for sentence in re.finditer(r"\bBelow, `([^`]+)`", text):
            printed = "\n".join(re.findall(r"~~~text\n(.*?)~~~", text[sentence.end() :], flags=re.DOTALL))
            assert sentence[1] in printed.split(), f"{page.name}: {sentence[1]}"
