"""Between Hydra and the library: composed configurations as plain data, errors as plain sentences."""

from __future__ import annotations

import errno
import functools
import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import hydra
import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from bertline.foundation.errors import BertlineError, ConfigError

# The disk is full, the quota is used up, the file system is read-only.
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
CONF = Path(__file__).resolve().parent.parent / "conf"


def plain(composed: DictConfig) -> dict[str, Any]:
    """The composed configuration without interpolations.

    Raises:
        ConfigError: A mandatory value (`???`) was not given, or an interpolation leads nowhere.
    """
    missing = sorted(OmegaConf.missing_keys(composed))
    if missing:
        raise ConfigError(
            f"{', '.join(missing)} has no value. Give one, {missing[0]}=VALUE, or keep one for good: "
            f"python pipelines/configure.py {missing[0]}=VALUE --save"
        )
    return OmegaConf.to_container(composed, resolve=True)  # type: ignore[return-value]


def loaded(path: Path) -> Any:
    """The content of a YAML file that people edit, as OmegaConf reads it.

    Raises:
        ConfigError: Naming file, line and fault: a tag (`!!python/object`), a tab, a value of another kind.
    """
    try:
        return OmegaConf.load(path)
    except (yaml.YAMLError, OmegaConfBaseException, ValueError) as error:
        raise ConfigError(unreadable_yaml(error, str(path))) from error


def unreadable_yaml(error: Exception, where: str) -> str:
    """One sentence that says what is wrong in a YAML file, with file and line where they are known."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    place = f"{mark.name}, line {mark.line + 1}" if mark is not None else where
    return (
        f"{place}: {problem}. Only plain YAML is read: text, numbers, true, false, null, lists and mappings, without "
        "tags (!!...). Correct that line, or write the file again with: python pipelines/configure.py"
    )


def _check_chosen_file(arguments: list[str]) -> None:
    """Read the file that --config-dir and --config-name choose: Hydra would print a traceback where it is not YAML."""
    chosen = dict(itertools.pairwise(arguments))
    if "--config-dir" in chosen and "--config-name" in chosen:
        path = Path(chosen["--config-dir"]) / f"{chosen['--config-name'].removesuffix('.yaml')}.yaml"
        if path.exists():
            loaded(path)


def recipe(run: Callable[[dict[str, Any]], None], *, config: str = "config") -> Callable[[], None]:
    """Make a function of a composed configuration a Hydra program whose user errors are sentences, not tracebacks."""

    @functools.wraps(run)
    def with_plain_errors(composed: DictConfig) -> None:
        os.chdir(CONF.parent)  # artifacts/ and runs/ are the repository's, wherever this was started
        try:
            run(plain(composed))
        except BertlineError as error:
            fail(error)
        except OSError as error:
            if error.errno not in _NO_SPACE:
                raise
            fail(error)
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
            sys.exit(130)

    program = hydra.main(version_base="1.3", config_path=str(CONF), config_name=config)(with_plain_errors)

    @functools.wraps(run)
    def with_readable_file() -> None:
        try:
            _check_chosen_file(sys.argv[1:])
        except ConfigError as error:
            fail(error)
        program()

    return with_readable_file


def fail(error: Exception) -> NoReturn:
    """Print what went wrong, never an empty message, and exit with status 1."""
    print(f"error: {error}" if str(error).strip() else f"error: {type(error).__name__}", file=sys.stderr)
    sys.exit(1)
