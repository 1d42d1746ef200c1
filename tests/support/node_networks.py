"""Networks for nodes on one machine: a network namespace for each, on a bridge whose links can be cut and slowed.

    with NodeNetworks(("node1", "node2")) as networks:
        subprocess.run([*networks.enter("node1"), "ping", "-c1", networks.address("node2")])

Needs root and the command `ip`; to slow a link down, `tc`.
"""

from __future__ import annotations

import os
import shutil
import subprocess

_LIMIT_OF_NAMES = 15  # characters of a network device's name, by Linux


def why_not() -> str | None:
    """Return why no networks can be made here, as a sentence with the remedy; None if they can."""
    missing = [name for name in ("ip", "tc") if shutil.which(name, path=_PATH) is None]
    if os.getuid() != 0:
        return "network namespaces need root"
    if missing:
        return f"not installed: {', '.join(missing)}. apt-get install iproute2"
    refused = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True)
    if refused.returncode:
        return f"this container may not make network namespaces ({refused.stderr.strip()}): run it with --privileged"
    return None


class NodeNetworks:
    """A namespace for each node and a bridge in this one; a context manager that leaves none of them.

    `host` is this machine's address on the bridge: a server that nodes shall reach listens there.
    """

    _made = 0

    def __init__(self, nodes: tuple[str, ...]) -> None:
        """Choose names and addresses; nothing is made before `open`."""
        self.nodes = nodes
        NodeNetworks._made += 1
        # Unlike those of other processes, and of this one's other networks, at the same time.
        self._name = f"b{os.getpid() % 100_000:x}{NodeNetworks._made % 256:x}"
        self._subnet = f"10.{os.getpid() % 255}.{(os.getpid() // 255 + NodeNetworks._made) % 255}"
        self.host = f"{self._subnet}.254"

    @property
    def closing(self) -> list[list[str]]:
        """The commands that remove the networks; one for something that is not there fails."""
        links = [["ip", "link", "delete", name] for name in (*map(self._port, self.nodes), self._name)]
        return [*links, *(["ip", "netns", "delete", self._namespace(node)] for node in self.nodes)]

    def address(self, node: str) -> str:
        """Return a node's address."""
        return f"{self._subnet}.{1 + self.nodes.index(node)}"

    def enter(self, node: str) -> list[str]:
        """Return the words that, before a command, run it in the network of a node."""
        # Not `ip netns exec`, which mounts another /sys: Slurm would miss its control groups.
        return ["nsenter", f"--net=/run/netns/{self._namespace(node)}"]

    def cut(self, node: str) -> None:
        """Cut a node off, as a pulled cable does."""
        _run("ip", "link", "set", self._port(node), "down")

    def join(self, node: str) -> None:
        """End the cut."""
        _run("ip", "link", "set", self._port(node), "up")

    def slow(self, node: str, bits_per_s: float | None) -> None:
        """Limit what a node may send, in bits per second; None removes the limit.

        The bucket is small against what an all-reduce sends, so that no transfer passes in a burst.
        """
        inside = [*self.enter(node), "tc", "qdisc"]
        subprocess.run([*inside, "del", "dev", "eth0", "root"], capture_output=True)
        if bits_per_s is not None:
            burst = max(16_000, int(bits_per_s / 8 / 250))  # the kernel's clock may tick 250 times a second
            rate = ["rate", f"{bits_per_s:.0f}bit", "burst", str(burst), "limit", str(64 * 1024 * 1024)]
            _run(*inside, "add", "dev", "eth0", "root", "tbf", *rate)

    def open(self) -> None:
        """Make the networks."""
        try:
            _run("ip", "link", "add", self._name, "type", "bridge")
            _run("ip", "address", "add", f"{self.host}/24", "dev", self._name)
            _run("ip", "link", "set", self._name, "up")
            for node in self.nodes:
                self._open(node)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove the networks, as far as they are there."""
        for command in self.closing:
            subprocess.run(command, capture_output=True)

    def __enter__(self) -> NodeNetworks:
        """Make the networks."""
        self.open()
        return self

    def __exit__(self, *error: object) -> None:
        """Remove them."""
        self.close()

    def _open(self, node: str) -> None:
        namespace, port = self._namespace(node), self._port(node)
        _run("ip", "netns", "add", namespace)
        _run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _run("ip", "link", "set", port, "master", self._name, "up")
        inside = ["ip", "-n", namespace]
        _run(*inside, "address", "add", f"{self.address(node)}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _run(*inside, "link", "set", device, "up")

    def _namespace(self, node: str) -> str:
        return f"{self._name}-{node}"

    def _port(self, node: str) -> str:
        return f"{self._name}p{self.nodes.index(node)}"[:_LIMIT_OF_NAMES]


_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
