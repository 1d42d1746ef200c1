"""`${checkpoint:FOLDER,REVISION,KEY}` in conf/: a size of a checkpoint (`model=from_checkpoint`).

Hydra imports what is in a package of this name, in bertline's commands and in DVC.
"""

from typing import Any

from omegaconf import OmegaConf


def _size_of_checkpoint(*arguments: Any) -> Any:
    from bertline.cli.inputs import size_of_checkpoint

    return size_of_checkpoint(*arguments)


OmegaConf.register_new_resolver("checkpoint", _size_of_checkpoint, replace=True)
