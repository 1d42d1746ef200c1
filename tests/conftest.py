"""Settings of all tests."""

import getpass
import os
import tempfile
from pathlib import Path

# What programs keep for the user is kept apart from the user's own: measurements of a machine that runs tests are low.
os.environ["XDG_CACHE_HOME"] = str(Path(tempfile.gettempdir()) / f"bertline-tests-cache-{getpass.getuser()}")
