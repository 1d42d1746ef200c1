"""Between Hydra and the library: composed configurations as plain data, errors as plain messages."""

import functools
import logging
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from bertline.cli.overrides import (
    explain_failed_composition,
    quoted_where_needed,
    refuse_unread,
    refuse_unused,
    registered_tasks,
    sections_of,
    with_saved_choices,
)
from bertline.cli.project import conf_folder
from bertline.foundation.errors import BertlineError, ConfigError
from bertline.run.provenance import running_under_dvc
from bertline.run.stopping import errors_in_one_line, in_one_line
from bertline.stages.base import Stage
from bertline.training.environment import use_training_environment

# Hydra writes nothing of its own, except with -m.
_NO_FILES = ("hydra.run.dir=.", "hydra.output_subdir=null", "hydra/job_logging=stdout",
             "hydra.sweep.dir=runs/hydra", "hydra.sweep.subdir=.")  # fmt: skip
_Composed = dict[str, Any]


def plain_content(composed: DictConfig) -> dict[str, Any]:
    """Return the composed configuration as plain data, with interpolations resolved."""
    try:
        missing = sorted(OmegaConf.missing_keys(composed))
        if not missing:
            return _without_left_out_tasks(OmegaConf.to_container(composed, resolve=True))
    except OmegaConfBaseException as error:
        cause: BaseException | None = error
        while cause is not None:  # an error of a resolver of ours (src/hydra_plugins) names the key and what to do
            if isinstance(cause, BertlineError):
                raise ConfigError(str(cause)) from error
            cause = cause.__context__
        problem = f"{error.full_key}: {str(error).splitlines()[0]}"
        raise ConfigError(
            f"the configuration does not compose: {problem}. Correct the value or the file that it comes from."
        ) from error
    values = " ".join(f"{key}=VALUE" for key in missing)
    raise ConfigError(f"{', '.join(missing)} {'has' if len(missing) == 1 else 'have'} no value. Give {values}")


def _without_left_out_tasks(content: Any) -> dict[str, Any]:
    """Return the content without what an experiment sets of registered tasks that `tasks=[...]` leaves out."""
    tasks = content.get("tasks") or {}
    left_out = {name for name, task in tasks.items() if isinstance(task, dict) and "kind" not in task}
    if left_out:
        left_out &= registered_tasks().keys()
        content = {**content, "tasks": {name: task for name, task in tasks.items() if name not in left_out}}
    return content


def loaded(path: Path) -> Any:
    """Return the content of a YAML file that people edit, as read by OmegaConf."""
    try:
        return OmegaConf.load(path)
    except (yaml.YAMLError, OmegaConfBaseException, ValueError) as error:
        raise ConfigError(unreadable_yaml(error, str(path))) from error


def conf_task(name: str) -> dict[str, Any]:
    """Return a task of conf/task with its bases, inside a recipe; a value that only the user knows is `???`."""
    content: Any = OmegaConf.to_container(compose(f"task/{name}"))
    return content["task"]


def unreadable_yaml(error: Exception, where: str) -> str:
    """Return a message that describes the problem in a YAML file, with file and line if they are known."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    place = f"{mark.name}, line {mark.line + 1}" if mark is not None else where
    return (
        f"{place}: {problem}. Only plain YAML is read: text, numbers, true, false, null, lists and mappings, without "
        "tags (!!...). Correct that line, or write the file again with: bertline configure"
    )


def given_overrides() -> list[str]:
    """Return the overrides on the command line; none outside of a program."""
    if not HydraConfig.initialized():
        return []
    overrides: Any = OmegaConf.to_container(HydraConfig.get().overrides)  # unresolved: they may hold interpolations
    return list(overrides["task"])


def require_counts(asked: Mapping[str, Any], *names: str) -> None:
    """Check that arguments are whole numbers of at least 1, or null where that is the default."""
    for name in names:
        if asked[name] is not None and (type(asked[name]) is not int or asked[name] < 1):
            raise ConfigError(f"{name} is {asked[name]!r}; give a whole number of at least 1.")


def run_recipe(stage: Stage, file: str, words: str | None) -> None:
    """Be the program of a stage, `python pipelines/STAGE.py`; its docstring `words` are its help.

    A stage that DVC runs reads params.yaml, which `configure` composed; one that a person starts composes conf/.
    """
    arguments = sys.argv[1:]
    if stage.is_long:
        use_training_environment()
    os.chdir(Path(file).resolve().parents[1])  # artifacts/ and runs/ are in the project, not in the caller's folder
    if {"-h", "--help"} & {*arguments}:
        in_one_line(lambda: print(words))
    if running_under_dvc():
        arguments = [f"--config-dir={Path.cwd()}", "--config-name=params", *arguments]

    def run(composed: _Composed) -> None:
        from bertline.run.stage import run_stage  # loads what no other command needs

        run_stage(stage.name, composed)

    in_one_line(lambda: run_composed(run, arguments))


def composing(config: str = "config", ignored: Collection[str] = ()) -> Callable[..., Callable[[list[str]], None]]:
    """Turn a function of a composed configuration into a subcommand, a function of Hydra's overrides; of the sections
    that are `ignored` it reads `pretrain.start_from` alone."""
    return lambda run: functools.wraps(run)(functools.partial(run_composed, run, config=config, ignored=ignored))


def run_composed(
    run: Callable[[_Composed], None], arguments: list[str], *, config: str = "config", ignored: Collection[str] = ()
) -> None:
    """Compose a file of conf/ with overrides, and call a function with it; `-m` does so for each combination."""

    @functools.wraps(run)
    def job(composed: DictConfig) -> None:
        # Hydra would print a line of its own about an error that leaves this function.
        with errors_in_one_line(), explaining(arguments, config, ignored):
            refuse_unread(given_overrides(), config, ignored)
            content = plain_content(composed)
            if config == "config":  # commands with tasks of their own call it themselves
                refuse_unused(content, given_overrides())
            run(content)

    logging.getLogger("faiss").setLevel(logging.WARNING)  # Hydra's logging would show how it is loaded
    arguments = quoted_where_needed(arguments)
    # Hydra reads its arguments there, and takes overrides that are not interrupted by options.
    first = next((i for i, one in enumerate(arguments) if "=" in one and not one.startswith("-")), len(arguments))
    sys.argv[1:] = [*arguments[:first], *_NO_FILES, *arguments[first:]]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises its errors instead of printing them with its own advice
    with explaining(arguments, config, ignored):
        if running_under_dvc():  # Hydra would print a traceback
            loaded(Path("params.yaml"))
        hydra.main(version_base="1.3", config_path=str(conf_folder()), config_name=config)(job)()


@contextmanager
def composed_in_python(config: str, overrides: Sequence[str], ignored: Collection[str]) -> Iterator[_Composed]:
    """Compose a file of conf/ as `run_composed` does, in a program of the user's own, whose state of Hydra stays."""
    state = Singleton.get_state()
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(conf_folder()), version_base="1.3"), explaining(overrides, config, ignored):
            content = compose(config, list(overrides), return_hydra_config=True)
            HydraConfig.instance().set_config(content)
            refuse_unread(overrides, config, ignored)
            yield plain_content(OmegaConf.masked_copy(content, [key for key in content if key != "hydra"]))
    finally:
        Singleton.set_state(state)


@contextmanager
def explaining(overrides: Sequence[str], config: str = "config", ignored: Collection[str] = ()) -> Iterator[None]:
    """Say in errors of the configuration, and of Hydra, what was meant and which saved choices they are about."""
    try:
        yield
    except yaml.YAMLError as error:
        raise ConfigError(unreadable_yaml(error, str(conf_folder()))) from error
    except (ConfigError, HydraException, OmegaConfBaseException, ValueError) as error:
        message = str(error)
        if not isinstance(error, ConfigError):
            explanation = explain_failed_composition(error, overrides, config, ignored)
            if explanation is None and not isinstance(error, HydraException | OmegaConfBaseException):
                raise  # an error of ours
            message = explanation or message
        # Saved choices are of the sections.
        raise ConfigError(with_saved_choices(message) if sections_of(config) else message) from error
