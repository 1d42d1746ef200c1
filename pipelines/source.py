"""source: size and digest of a source of the corpus, for DVC to compare (artifacts/sources/NAME).

A stage of DVC has a fixed list of dependencies, so each source has a stage, and the corpus depends on the digests.
"""

import sys

from bertline.foundation.files import sha256_of_path, size_of_path, write_json
from bertline.run.stopping import in_one_line
from bertline.stages.base import SOURCES, USER_SOURCES


def main() -> None:
    """Write size and digest of the source that `source_name=NAME` names."""
    name = sys.argv[1].removeprefix("source_name=")
    content = USER_SOURCES / name
    write_json(SOURCES / name, {"bytes": size_of_path(content), "sha256": sha256_of_path(content)})


if __name__ == "__main__":
    in_one_line(main)
