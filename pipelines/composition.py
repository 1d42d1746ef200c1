"""Between Hydra and the library: composed configurations as plain data, errors as plain sentences."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf

from bertline.foundation.errors import BertlineError, ConfigError

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


def recipe(run: Callable[[dict[str, Any]], None], *, config: str = "config") -> Callable[[], None]:
    """Make a function of a composed configuration a Hydra program whose user errors are sentences, not tracebacks."""

    @functools.wraps(run)
    def with_plain_errors(composed: DictConfig) -> None:
        os.chdir(CONF.parent)  # artifacts/ and runs/ are the repository's, wherever this was started
        try:
            run(plain(composed))
        except BertlineError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(1)
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
            sys.exit(130)

    return hydra.main(version_base="1.3", config_path=str(CONF), config_name=config)(with_plain_errors)
