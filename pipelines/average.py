"""average: write the mean of the weights of a checkpoint and of what was trained from it (WiSE-FT).

python pipelines/average.py /path/to/checkpoint artifacts/pretrain data/averaged
python pipelines/average.py /path/to/checkpoint artifacts/pretrain data/averaged --share 0.25
"""

import on_ctrl_c  # noqa: F401

# isort: split
import argparse
from pathlib import Path

from bertline.foundation.errors import ConfigError
from bertline.foundation.progress import say
from bertline.modeling.averaging import average_encoders
from bertline.orchestration.stopping import in_one_line


def main() -> None:
    """Write the average of the two encoders."""
    parser = argparse.ArgumentParser(description="Average an encoder's weights before and after a training.")
    parser.add_argument("before", type=Path, help="model folder that the training started from")
    parser.add_argument("after", type=Path, help="model folder of its result, such as artifacts/pretrain")
    parser.add_argument("folder", type=Path, help="folder to write")
    parser.add_argument("--share", type=float, default=0.5, help="weight of AFTER in the mean, 0 to 1; default 0.5")
    arguments = parser.parse_args()
    folder = arguments.folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is there already. Name a new folder; nothing was written.")
    average_encoders(arguments.before, arguments.after, folder, share=arguments.share)
    say(f"averaged: {folder} (name it in pretrain.start_from, or in start_from= of finetune.py)")


if __name__ == "__main__":
    in_one_line(main)
