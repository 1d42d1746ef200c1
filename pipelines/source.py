"""source: size and digest of a source of the corpus, for DVC to compare (artifacts/sources/NAME).

A stage of DVC has a fixed list of dependencies. So each source has a stage of its own, which depends on the data and
writes its digest, and the corpus depends on the digests.
"""

import sys

from bertline.foundation.errors import ConfigError
from bertline.foundation.files import sha256_of_path, size_of_path, write_json
from bertline.orchestration.stages import SOURCES, USER_SOURCES
from bertline.orchestration.stopping import in_one_line


def main() -> None:
    """Write size and digest of the source that `source_name=NAME` names."""
    key, _, name = " ".join(sys.argv[1:]).partition("=")
    place = USER_SOURCES / name
    if key != "source_name" or not name or not place.exists():
        raise ConfigError(f"source_name={name}: {place} is no source. Run `bertline configure` first.")
    write_json(SOURCES / name, {"bytes": size_of_path(place), "sha256": sha256_of_path(place)})


if __name__ == "__main__":
    in_one_line(main)
