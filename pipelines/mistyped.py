"""Overrides that name no key: what was probably meant, instead of how to add a key that nothing reads."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

CONF = Path(__file__).resolve().parent.parent / "conf"
_MOST = 3
# Keys of one section have much in common, so whole keys must be closer than difflib's 0.6.
_CLOSE = 0.8


def mistyped(error: Exception, overrides: Sequence[str], config: str) -> str | None:
    """Return what a composition that failed says about a key that does not exist; None if it failed for another reason.

    Args:
        error: What Hydra raised.
        overrides: The overrides that were given.
        config: Name of the composed file in conf/.
    """
    found = re.match(r"Could not override '([^']+)'", str(error))
    if found is None:
        return None
    # Without the groups that were given, keys of the chosen members would be missing.
    groups = [one for one in overrides if _chooses_member(one)]
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        composed: Any = OmegaConf.to_container(compose(config, overrides=groups))
    return f"{found[1]} is no key of the configuration.{suggestion(found[1], list(keys_of(composed)))}"


def suggestion(key: str, known: Sequence[str]) -> str:
    """Return a sentence that names the keys that were probably meant, or those of the section.

    Example:
        >>> suggestion("optimizer.lrr", ["optimizer", "optimizer.lr", "pretrain", "pretrain.seed", "sweep.seed"])
        ' Did you mean optimizer.lr?'
        >>> suggestion("seed", ["optimizer", "optimizer.lr", "pretrain", "pretrain.seed", "sweep.seed"])
        ' Did you mean pretrain.seed or sweep.seed?'
    """
    section, _, name = key.rpartition(".")
    siblings = {one.rpartition(".")[2]: one for one in known if section and one.rpartition(".")[0] == section}
    meant = (
        [siblings[one] for one in difflib.get_close_matches(name, siblings)]
        or [one for one in known if one.rpartition(".")[2] == name]
        or difflib.get_close_matches(key, known, cutoff=_CLOSE)
    )
    if meant:
        shown = meant[:_MOST]
        return f" Did you mean {' or '.join([', '.join(shown[:-1]), shown[-1]] if shown[1:] else shown)}?"
    if siblings:
        return f" Keys of {section}: {', '.join(siblings)}."
    return f" Its sections: {', '.join(one for one in known if '.' not in one)}."


def keys_of(section: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield the keys of a configuration, those of sections included, with dots."""
    for key, value in section.items():
        yield f"{above}{key}"
        if isinstance(value, Mapping):
            yield from keys_of(value, f"{above}{key}.")


def _chooses_member(override: str) -> bool:
    key, _, value = override.partition("=")
    return "," not in value and ("@" in key or (CONF / key).is_dir())
