"""The command `bertline`: finds the subcommand, and shows help.

    bertline finetune data=reviews.csv start_from=google-bert/bert-base-uncased

Nothing heavy is imported before a subcommand is known, so that help answers at once.
"""

import gc
import importlib
import inspect
import os
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import bertline
from bertline.cli.project import conf_folder, enter_project, require_project
from bertline.foundation.validation import closest


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand."""

    function: str
    """Function of the arguments in this package, `module:function`; its docstring is the help."""
    summary: str
    config: str | None = None
    """File of conf/ with its own arguments, if it takes overrides."""
    in_project: bool = False
    """Whether it works in a project only."""


COMMANDS = {
    "finetune": Command("finetune:finetune", "train a checkpoint on labelled rows: no YAML, one command", "finetune"),
    "predict": Command("predict:predict", "apply a model to a file of any size", "predict"),
    "try": Command("inside:try_blanks", "type a sentence with blanks, see the guesses", "try"),
    "look": Command("inside:look", "one page of what an encoder computes for a text", "look"),
    "context": Command("inside:context", "what context does to a word, measured on your files", "context"),
    "heads": Command("inside:heads", "which attention head finds which relation of a treebank", "heads"),
    "configure": Command("configure:configure", "check, keep and take back settings", "config", in_project=True),
    "plan": Command("plan:plan", "what a pretraining will take: memory, hours, money", "plan"),
    "doctor": Command("commands:doctor", "check this machine before the first run", "config"),
    "glue": Command("glue:glue", "fine-tune an encoder on the sets of GLUE", "glue"),
    "ui": Command("commands:ui", "open MLflow on prepared views of your runs", "ui"),
    "send": Command("commands:send", "send records that the tracking server did not take", "config"),
}
HELP = """usage: bertline COMMAND [KEY=VALUE ...]

{commands}

bertline COMMAND --help shows examples and all keys of a command. Settings are overrides, KEY=VALUE, as in
conf/: bertline plan model=base plan.device=h100. The stages of the pipeline run with `dvc repro`, and one by
hand with `python pipelines/STAGE.py`.
"""


def main() -> NoReturn:
    """Run the subcommand that the command line names, and exit with its status."""
    for number in (signal.SIGINT, signal.SIGTERM):  # until `in_one_line` has been imported
        signal.signal(number, _end)
    name, *arguments = sys.argv[1:] or ["--help"]
    from bertline.run.stopping import in_one_line

    if name in ("--help", "-h", "help", "--version"):
        in_one_line(lambda: print(f"bertline {bertline.__version__}" if name == "--version" else _help()))
    if name not in COMMANDS:
        meant = closest(name, COMMANDS) or " `bertline --help` lists the commands."
        print(f"error: there is no command {name!r}.{meant}", file=sys.stderr)
        sys.exit(2)
    wants_help = {"--help", "-h"} & {*arguments}
    if name in ("finetune", "glue") and not wants_help:
        from bertline.training.environment import use_training_environment

        use_training_environment()
    gc.disable()  # a third of the time of the imports of a command that loads Lightning
    function = function_of(COMMANDS[name])
    gc.freeze()  # what they made remains until the process ends
    gc.enable()
    sys.argv[0] = f"bertline {name}"
    in_one_line((lambda: _show_help(name, function)) if wants_help else (lambda: _run(name, function, arguments)))


def function_of(command: Command) -> Callable[[list[str]], int | None]:
    """Import and return the function of a subcommand."""
    module, _, function = command.function.partition(":")
    imported: Callable[[list[str]], int | None] = getattr(importlib.import_module(f"bertline.cli.{module}"), function)
    return imported


def _run(name: str, function: Callable[[list[str]], int | None], arguments: list[str]) -> int | None:
    if COMMANDS[name].in_project:
        require_project(name)
    else:
        enter_project()
    return function(arguments)


def _show_help(name: str, function: Callable[[list[str]], int | None]) -> None:
    print(inspect.getdoc(function))
    config = COMMANDS[name].config
    if config == "config":
        print("\nIt takes overrides of the pipeline's configuration, KEY=VALUE: the groups and files of conf/.")
    elif config is not None:
        enter_project()
        print(f"\nKeys and their defaults (conf/{config}.yaml):\n\n{_arguments(conf_folder() / f'{config}.yaml')}")


def _help() -> str:
    width = max(map(len, COMMANDS))
    return HELP.format(
        commands="\n".join(f"  {name:{width}}  {command.summary}" for name, command in COMMANDS.items())
    ).rstrip()


def _arguments(file: Path) -> str:
    """Return the text of a file in conf/ without what is for Hydra alone."""
    blocks = re.split(r"^(?=[\w#])", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return "".join(block for block in blocks if not block.startswith(("defaults:", "hydra:", "# Arguments"))).strip()


def _end(number: int, frame: object) -> None:
    os.write(2, f"stopped by {signal.Signals(number).name}{' (Ctrl-C)' * (number == signal.SIGINT)}\n".encode())
    os._exit(128 + number)
