"""Between Hydra and the library: composed configurations as plain data, errors as plain sentences."""

from __future__ import annotations

import functools
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
        raise ConfigError("".join(f"{key} has no value; give one, for example {key}=VALUE.\n" for key in missing))
    return OmegaConf.to_container(composed, resolve=True)  # type: ignore[return-value]


def recipe(run: Callable[[dict[str, Any]], None], *, config: str = "config") -> Callable[[], None]:
    """Make a function of a composed configuration a Hydra program whose user errors are sentences, not tracebacks."""

    @functools.wraps(run)
    def with_plain_errors(composed: DictConfig) -> None:
        try:
            run(plain(composed))
        except BertlineError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(1)
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
            sys.exit(130)

    return hydra.main(version_base="1.3", config_path=str(CONF), config_name=config)(with_plain_errors)
