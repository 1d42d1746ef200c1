"""configure: compose and check conf/ for all stages, before anything expensive starts (params.yaml,
artifacts/watched.json).

`dvc repro` runs it first. For people it is `bertline configure`.
"""

import sys

from bertline.cli.main import main

if __name__ == "__main__":
    sys.argv[1:1] = ["configure"]
    main()
