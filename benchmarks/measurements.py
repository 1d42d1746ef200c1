"""What a run of a benchmark keeps: the figures, with device, versions, arguments and commit."""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import repository_source  # noqa: F401
import torch

from bertline.foundation.manifests import versions_of
from bertline.foundation.parallel import processor_name
from bertline.training.devices import Machine

HERE = Path(__file__).parent
_NOT_RECORDED = ("keep", "commit", "verbose")


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One run of a benchmark."""

    benchmark: str
    model: str
    seq_len: int
    variant: str
    """Part of the file name; see `variant_of`."""
    figures: Mapping[str, Any]
    """Figures, including `device`."""
    versions: Mapping[str, Any]
    arguments: argparse.Namespace
    not_recorded: Sequence[str] = ()
    """Names of arguments that are paths on this machine."""
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def file_name(self) -> str:
        """File name, one for each benchmark, device, model, length and variant."""
        parts = (self.benchmark, _as_name(self.figures["device"].lower()), self.model, str(self.seq_len), self.variant)
        return "_".join(filter(None, parts)) + ".json"

    def write(self, folder: Path, *, commit: str | None) -> Path:
        """Write the record, replacing an older one of the same name, and return its path."""
        left_out = {*_NOT_RECORDED, *self.not_recorded}
        content = {
            **self.figures,
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "commit": commit or current_commit(),
            "versions": self.versions,
            "arguments": {name: value for name, value in vars(self.arguments).items() if name not in left_out},
            **self.more,
        }
        return _written(folder / self.file_name, content)


def keep(name: str, figures: Mapping[str, Any], arguments: argparse.Namespace) -> None:
    """Write figures with date and commit to NAME.json in the folder of `--keep`, if it is given."""
    if arguments.keep:
        now = datetime.now(UTC).strftime("%Y-%m-%d")
        facts = {"date": now, "commit": arguments.commit or current_commit()}
        _written(Path(arguments.keep) / f"{name}.json", {**figures, **facts})


def _written(path: Path, content: Mapping[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options `--keep` and `--commit`, whose help shows the script's docstring as it is."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    results = str(HERE / "results")
    parser.add_argument("--keep", nargs="?", const=results, metavar="FOLDER", help="write the record there")
    parser.add_argument("--commit", help="of the code, where there is no repository to ask")
    return parser


def variant_of(parser: argparse.ArgumentParser, arguments: argparse.Namespace, names: Sequence[str]) -> str:
    """Return the named arguments that are not the defaults, as part of a file name; empty if all are.

    >>> parser = argparse.ArgumentParser()
    >>> for name in ("--precision", "--threads", "--set"):
    ...     _ = parser.add_argument(name, nargs="*" if name == "--set" else None)
    >>> given = parser.parse_args(["--precision", "fp32", "--set", "optimizer.kind=muon"])
    >>> variant_of(parser, given, ["precision", "threads", "set"])
    'precision-fp32_set-optimizer.kind-muon'
    """
    changed = {name: getattr(arguments, name) for name in names}
    changed = {name: value for name, value in changed.items() if value != parser.get_default(name)}
    return "_".join(name.replace("_", "-") + _of_value(value) for name, value in changed.items())


def current_commit() -> str | None:
    """Return the commit of the working tree, with `+` if tracked files but records have changed; None outside a
    repository."""
    changed = ["git", "status", "--porcelain", "--untracked-files=no", "--", ":/", ":(exclude)results"]
    commands = (["git", "rev-parse", "HEAD"], changed)
    try:
        commit, changes = (
            subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=True).stdout.strip()
            for command in commands
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{commit}+" if changes else commit


def facts_of(machine: Machine) -> dict[str, Any]:
    """Return the device, precision, number of threads and versions of a side."""
    libraries = versions_of("torch", "pytorch-lightning", "transformers")
    return {
        "device": device_name(machine.device),
        "device_type": machine.device.type,
        "precision": machine.precision,
        "compiled": machine.compile,
        "threads": torch.get_num_threads(),
        "versions": {"python": platform.python_version(), "cuda": torch.version.cuda, **libraries},
    }


def device_name(device: torch.device) -> str:
    """Return the model name of the GPU or the processor."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return processor_name()


def _of_value(value: Any) -> str:
    if value is True:
        return ""
    texts = map(str, value) if isinstance(value, (list, tuple)) else [f"{value:g}" if value == 0 else str(value)]
    return "-" + "-".join(_as_name(text, also=".") for text in texts)


def _as_name(text: str, *, also: str = "") -> str:
    """Keep letters and digits, and replace everything else by dashes."""
    kept = "".join(letter if letter.isalnum() or letter in also else "-" for letter in text)
    return "-".join(part for part in kept.split("-") if part)
