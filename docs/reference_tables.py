"""Reference tables, generated from the configuration dataclasses, their YAML files, the stage map and the Makefile.

    make reference

writes the text of `TABLES[NAME]()` between `<!-- generated: NAME -->` and `<!-- end -->` of each page; a test compares
them. The tables have what bertline brings along: nothing of other packages' plug-ins, nor of choices in `conf/local`.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attribute_docstrings import attribute_docstrings
from configuration_files import ABSENT, CONF, ROOT, at, comments, default_run, flat, header, loaded
from configuration_types import is_own, kinds_of, members_of, names_of, step_of, type_in_words
from import_layers import forbidden_imports, layers

from bertline.cli.main import COMMANDS, function_of
from bertline.config import PipelineConfig
from bertline.corpus.registry import SourceConfig
from bertline.kinds.registry import KINDS
from bertline.planning import PlanConfig
from bertline.stages.registry import STAGES

PAGES = sorted((ROOT / "docs").rglob("*.md"))
_BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_LONG = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    """One row of a table."""

    name: str
    type: str
    default: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Values:
    """The YAML file whose values are shown as defaults, and the values of the default run, where there are any."""

    file: Path | None
    run: Mapping[str, Any] | None


def rewritten(text: str) -> str:
    """Return a page with every table generated again."""
    return _BLOCK.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}\n{found[4]}", text)


def configuration() -> str:
    """Return the tables of all sections but `tasks`."""
    parts = []
    for section, hint in typing.get_type_hints(PipelineConfig).items():
        if section != "tasks":
            parts += [f"## {section}", *_section(section, members_of(hint)), _read_by(section)]
        if section == "corpus":
            parts += ["## source", "One of `corpus.sources`.", *_section("source", members_of(SourceConfig))]
    return "\n\n".join(part for part in parts if part)


def tasks() -> str:
    """Return the tables of the kinds of tasks and of their sources."""
    kinds = members_of(typing.get_type_hints(PipelineConfig)["tasks"])
    base = [field.name for field in dataclasses.fields(kinds[0]) if all(field.name in names_of(kind) for kind in kinds)]
    table_file = CONF / "task" / "table.yaml"
    shared = [name for name in base if name not in ("kind", "source", "metric")]
    parts = ["## Every kind of task", _table(_keys(kinds[0], Values(table_file, None), only=shared))]
    sources: dict[type, list[str]] = {}
    for cls in kinds:
        (kind,) = kinds_of(cls)
        files = _task_files(kind)
        own = [name for name in names_of(cls) if name not in ("kind", "source", *shared)]
        first = table_file if table_file in files else files[0]
        parts += [f"## kind: {kind}", _prose(cls), _files_of(files), _defaults_of(first)]
        parts.append(_table(_keys(cls, Values(first, None), only=own)))
        for source in members_of(typing.get_type_hints(cls)["source"]):
            sources.setdefault(source, []).append(kind)
    for cls, readers in sources.items():
        (kind,) = kinds_of(cls)
        files = [file for file in sorted((CONF / "task").glob("*.yaml")) if at(loaded(file), "source.kind") == kind]
        first = next(iter(sorted(files, key=lambda file: file != table_file)), None)
        used = ", ".join(f"`{reader}`" for reader in readers)
        parts += [
            f"## source.kind: {kind}",
            f"{_prose(cls)} Read by {used}.",
            *([_defaults_of(first)] if first else []),
        ]
        parts.append(_table(_keys(cls, Values(first, None), prefix="source.")))
    return "\n\n".join(parts)


def commands() -> str:
    """Return the subcommands of `bertline`: what their `--help` says, with their keys as a table."""
    parts = []
    for name, command in COMMANDS.items():
        parts += [f"### bertline {name}", *_with_code(inspect.getdoc(function_of(command)) or "")]
        if command.config == "plan":
            parts.append(_table(_keys(PlanConfig, Values(CONF / "plan.yaml", None), prefix="plan.")))
        elif command.config not in (None, "config"):
            file = CONF / f"{command.config}.yaml"
            said = comments(file)
            keys = [
                Key(name=path, type="", default=_shown(value), meaning=said.get(path, ""))
                for path, value in flat(loaded(file)).items()
                if path.split(".")[0] not in ("defaults", "hydra")
            ]
            parts.append(_table(keys, types=False))
    return "\n\n".join(parts)


def _with_code(text: str) -> Iterator[str]:
    """Yield the paragraphs of a docstring; lines of commands become blocks."""
    for paragraph in text.split("\n\n"):
        is_code = paragraph.lstrip().startswith(("bertline ", "HF_TOKEN", "srun "))
        yield f"```text\n{inspect.cleandoc(paragraph)}\n```" if is_code else paragraph


def stages() -> str:
    """Return the stages of `dvc.yaml` with what each depends on."""
    described = loaded(ROOT / "dvc.yaml")["stages"]
    rows = ["| stage | what it does | sections | inputs | output |", "|---|---|---|---|---|"]
    for stage in STAGES:
        entry = described[stage.name]
        what = entry.get("do", entry)["desc"].replace("${key}", "TASK")
        cells = [_code(name.replace("{task}", "TASK") for name in names) for names in (stage.sections, stage.inputs)]
        output = stage.output.replace("{task}", "TASK")
        name = f"{stage.name}@TASK" if stage.per_task else stage.name
        rows.append(f"| `{name}` | {what} | {cells[0]} | {cells[1]} | `{output}` |")
    return "\n".join(rows)


def make_targets() -> str:
    """Return the targets of the Makefile that say what they do."""
    found = re.findall(r"^([a-z-]+):.*?## (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return "\n".join(
        ["| command | what it does |", "|---|---|", *(f"| `make {name}` | {text} |" for name, text in found)]
    )


def predictions() -> str:
    """Return the directives that document what the predictors of the kinds of tasks return."""
    parts = ["```{eval-rst}"]
    for kind in filter(is_own, KINDS.values()):
        for cls in kind.answers:
            parts += [f".. autoclass:: {cls.__module__}.{cls.__name__}", "   :members:"]
            parts += ["   :exclude-members: __new__, __init__", ""]
    return "\n".join([*parts, "```"])


def missing_meanings() -> list[str]:
    """Return the keys of all tables that have no meaning, as `TABLE: KEY`."""
    lines = [(name, line) for name in ("configuration", "tasks", "commands") for line in TABLES[name]().splitlines()]
    return [f"{name}: {line.split('|')[1].strip()}" for name, line in lines if line.endswith("|  |")]


def _section(section: str, members: Sequence[Any]) -> Iterator[str]:
    run = default_run().get(section, {})  # a source is part of a corpus
    common = [name for name in names_of(members[0]) if all(name in names_of(cls) for cls in _with_keys(members))]
    if len(members) == 1:
        files = _group_files(section, members[0])
        yield _prose(members[0])
        yield _defaults_of(files[0])
        yield _table(_keys(members[0], Values(files[0], run)))
        yield _variants(files)
        return
    shared = [name for name in common if name != "kind"]
    first = _group_files(section, members[0])[0]
    if shared:
        yield "Keys of every kind:"
        yield _table(_keys(members[0], Values(first, run), only=shared))
    for cls in members:
        files = _group_files(section, cls)
        yield f"### {section}.kind: {' | '.join(kinds_of(cls))}"
        yield _prose(cls)
        own = [name for name in names_of(cls) if name not in ("kind", *shared)]
        if own:
            yield _defaults_of(files[0])
            yield _table(_keys(cls, Values(files[0], run if run.get("kind") in kinds_of(cls) else None), only=own))
        yield _variants(files)


def _with_keys(members: Sequence[Any]) -> list[Any]:
    """Return the members that have more keys than `kind`."""
    return [cls for cls in members if names_of(cls) != ["kind"]]


def _keys(cls: Any, values: Values, *, prefix: str = "", only: Sequence[str] | None = None) -> Iterator[Key]:
    """Yield the keys of a dataclass, those of nested sections with dots."""
    documented, hints = attribute_docstrings(cls), typing.get_type_hints(cls, include_extras=True)
    for name in names_of(cls) if only is None else only:
        hint, path = hints[name], prefix + name
        members, step = members_of(hint), step_of(hint)
        comment = comments(values.file).get(path, "") if values.file else ""
        of_section = _prose(members[0]).splitlines()[0] if len(members) == 1 else "See `kind` below." if members else ""
        meaning = "Name of the kind." if name == "kind" else documented.get(name) or comment or of_section
        default = "" if members and not step else _default(path, values)
        yield Key(name=path, type=type_in_words(hint), default=default, meaning=meaning)
        common = (
            [key for key in names_of(members[0]) if all(key in names_of(one) for one in members)] if members else []
        )
        if len(members) > 1:
            kinds = " or ".join(f"`{kind}`" for one in members for kind in kinds_of(one))
            yield Key(
                name=f"{path}{step}.kind", type=kinds, default=_default(f"{path}.kind", values), meaning=_each(members)
            )
            common.remove("kind")
        for index, one in enumerate(members):
            names = [key for key in names_of(one) if key != "kind" and (key not in common or index == 0)]
            for key in _keys(one, values, prefix=f"{path}{step}.", only=names):
                of_kind = (
                    f"For `{' | '.join(kinds_of(one))}`: "
                    if len(members) > 1 and key.name.split(".")[-1] not in common
                    else ""
                )
                yield dataclasses.replace(key, meaning=of_kind + key.meaning if key.meaning else "")


def _each(members: Sequence[Any]) -> str:
    return " ".join(f"`{' | '.join(kinds_of(one))}`: {_prose(one).splitlines()[0]}" for one in members)


def _default(path: str, values: Values) -> str:
    """Return the value in the file; where that of the default run differs, both."""
    in_file = at(loaded(values.file), path) if values.file else ABSENT
    in_run = ABSENT if values.run is None else at(values.run, path)
    shown = "" if in_file is ABSENT else _shown(in_file)
    if in_run is not ABSENT and in_run != in_file and _shown(in_run) != shown:
        shown = f"{shown}{'; ' if shown else ''}default run: {_shown(in_run)}"
    return shown


def _shown(value: Any) -> str:
    if value == "???":
        return "must be given"
    text = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value or '""'
    if len(text) > _LONG:
        return f"{len(value)} entries" if isinstance(value, list | dict) else f"`{text[:_LONG]}...`"
    return f"`{text}`"


def _read_by(section: str) -> str:
    names = [f"{stage.name}@TASK" if stage.per_task else stage.name for stage in STAGES if section in stage.sections]
    if not names:
        return "No stage depends on this section: a change re-runs nothing."
    return f"A change re-runs {_code(names)}, and what depends on the result."


def _group_files(section: str, cls: Any) -> list[Path]:
    """Return the files of a group that have this class; first the one that defaults are shown of."""
    files = sorted((CONF / section).glob("*.yaml"))
    matching = [file for file in files if not kinds_of(cls) or loaded(file).get("kind") in kinds_of(cls)]
    chosen = {
        key: name
        for entry in loaded(CONF / "config.yaml")["defaults"]
        if isinstance(entry, dict)
        for key, name in entry.items()
    }
    preferred = (chosen.get(section), *kinds_of(cls))
    return sorted(matching, key=lambda file: (file.stem not in preferred, file.stem))


def _task_files(kind: str) -> list[Path]:
    return [file for file in sorted((CONF / "task").glob("*.yaml")) if loaded(file).get("kind") == kind]


def _defaults_of(file: Path) -> str:
    return f"Defaults are those of `{file.relative_to(ROOT)}`."


def _files_of(files: Sequence[Path]) -> str:
    return "\n".join(f"- `conf/task/{file.name}`: {header(file)}" for file in files)


def _variants(files: Sequence[Path]) -> str:
    """Return what the other files of a group set otherwise."""
    first = flat(loaded(files[0]))
    lines = []
    for file in files[1:]:
        changed = {key: value for key, value in flat(loaded(file)).items() if first.get(key, ABSENT) != value}
        lines.append(
            f"- `{file.stem}`: {header(file)} Sets "
            + ", ".join(f"`{key}: {json.dumps(value)}`" for key, value in changed.items())
            + "."
        )
    return "\n".join([f"Other files in `conf/{files[0].parent.name}`:", "", *lines]) if lines else ""


def _table(keys: Iterator[Key] | Sequence[Key], *, types: bool = True) -> str:
    head = ("key", "type", "default", "meaning") if types else ("key", "default", "meaning")
    rows = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for key in keys:
        cells = [f"`{key.name}`", *([key.type] if types else []), key.default, _inline(key.meaning)]
        rows.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return "\n".join(rows)


def _inline(text: str) -> str:
    """Return a docstring as one line of Markdown, with Python's None as YAML's null."""
    return re.sub(r"\bNone\b", "`null`", " ".join(text.split()))


def _prose(cls: Any) -> str:
    return "\n\n".join(_inline(part) for part in inspect.cleandoc(str(cls.__doc__)).split("\n\n"))


def _code(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)


TABLES: Mapping[str, Callable[[], str]] = {
    "configuration": configuration,
    "tasks": tasks,
    "commands": commands,
    "predictions": predictions,
    "stages": stages,
    "make_targets": make_targets,
    "layers": layers,
    "forbidden_imports": forbidden_imports,
}

if __name__ == "__main__":
    for page in PAGES:
        page.write_text(rewritten(page.read_text(encoding="utf-8")), encoding="utf-8")
