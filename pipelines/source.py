"""source: what a source of the corpus is, for DVC to compare (artifacts/sources/NAME).

A stage of DVC has a fixed list of dependencies. So each source has a stage of its own, which depends on the data and
writes its digest, and the corpus depends on the digests.

python pipelines/source.py source_name=NAME
"""

import on_ctrl_c  # noqa: F401

# isort: split
import os
import sys
from pathlib import Path

from bertline.foundation.errors import ConfigError
from bertline.foundation.files import sha256_of_path, size_of_path, write_json
from bertline.orchestration.stages import SOURCES, USER_SOURCES
from bertline.orchestration.stopping import in_one_line


def main(arguments: list[str]) -> None:
    """Write size and digest of one source."""
    os.chdir(Path(__file__).resolve().parent.parent)
    key, _, name = (arguments or [""])[0].partition("=")
    place = USER_SOURCES / name
    if key != "source_name" or not name or not place.exists():
        raise ConfigError(f"source_name={name}: {place} is no source. Run python pipelines/configure.py first.")
    write_json(SOURCES / name, {"bytes": size_of_path(place), "sha256": sha256_of_path(place)})


if __name__ == "__main__":
    in_one_line(lambda: main(sys.argv[1:]))
