"""On PYTHONPATH: in a training, a connection to anything but the tracking server is written to a file and refused.

Python imports this module when it starts. Connections of C++ code, such as those between ranks, are not Python's.
"""

import os
import sys
from pathlib import Path

_OF_SOCKETS = ("socket.connect", "socket.sendto")
_OF_NAMES = ("socket.getaddrinfo", "socket.gethostbyname")


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event in _OF_SOCKETS + _OF_NAMES:
        address = arguments[1 if event in _OF_SOCKETS else 0]
        if event in _OF_SOCKETS and isinstance(address, str | bytes):
            return  # a socket of the file system, between processes of this machine
        host, port = os.environ["SOCKET_GUARD_ADMITS"].split(":")
        if address in (host, (host, int(port))):
            return
        with Path(os.environ["SOCKET_GUARD"]).open("a") as handle:
            handle.write(f"{event} {address}\n")
        raise ConnectionRefusedError(f"the training process tried to reach {address}")


if "pipelines/pretrain.py" in sys.orig_argv:
    Path(os.environ["SOCKET_GUARD"]).touch()
    sys.addaudithook(_refuse)
