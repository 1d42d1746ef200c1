"""On PYTHONPATH: a training writes every address that it connects to or looks up to the file CONNECTIONS.

Python imports this module when it starts. Connections of C++ code, such as those between ranks, are not Python's.
"""

import os
import sys
from pathlib import Path


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event in ("socket.connect", "socket.sendto", "socket.getaddrinfo"):
        address = arguments[:2] if event == "socket.getaddrinfo" else arguments[1]
        if isinstance(address, tuple):  # else a socket of the file system, between processes of this machine
            with Path(os.environ["CONNECTIONS"]).open("a") as handle:
                handle.write(f"{address[0]}:{address[1]}\n")


if "pipelines/pretrain.py" in sys.orig_argv:
    sys.addaudithook(_note)
