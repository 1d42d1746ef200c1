"""`${checkpoint:FOLDER,REVISION,KEY}` in conf/: a size of a checkpoint (`model=from_checkpoint`).

Hydra imports what is in a folder of this name: that of the recipes, and DVC, which `.dvc/config` tells where it is.
"""

from omegaconf import OmegaConf

from bertline.orchestration.start_checkpoint import size_of_checkpoint

OmegaConf.register_new_resolver("checkpoint", size_of_checkpoint, replace=True)
