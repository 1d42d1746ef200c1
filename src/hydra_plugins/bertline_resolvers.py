"""What conf/ computes from other keys. Hydra imports the modules of this package, in bertline's commands and in DVC.

`${checkpoint:FOLDER,REVISION,KEY}` is a size of a checkpoint (`model=from_checkpoint`), and
`${detection_weight:HIDDEN_SIZE}` the weight of a detector's loss (`objective=replaced_token`).
"""

from typing import Any

from omegaconf import OmegaConf


def _size_of_checkpoint(*arguments: Any) -> Any:
    from bertline.cli.inputs import size_of_checkpoint

    return size_of_checkpoint(*arguments)


OmegaConf.register_new_resolver("checkpoint", _size_of_checkpoint, replace=True)
OmegaConf.register_new_resolver("detection_weight", lambda size: 1.0 if size <= 256 else 50.0, replace=True)
