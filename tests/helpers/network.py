"""A network of hosts on this machine: namespaces with addresses of their own, at one switch.

Needs root. Nothing of it touches the machine's own network: the switch has a namespace, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterator, Sequence

from tests.helpers import run

_SUBNET = "10.77.0"
_AS_HOST = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'
_SLOW = "tbf rate 256kbit burst 4kb latency 400ms"


def unavailable() -> str:
    """Why there can be no such network here; "" if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "tc", "iptables", "mount"):
        if shutil.which(tool) is None:
            return f"{tool} is missing (apt-get install iproute2 iptables)"
    probe = f"seed{os.getpid()}-probe"
    made = run("ip", "netns", "add", probe)
    if made.returncode:
        return f"no network namespaces: {made.stderr.strip()}"
    pair = ["ip", "-n", probe, "link", "add", "one", "type", "veth", "peer", "name", "two"]
    made = run(*pair)
    _run("ip", "netns", "del", probe)
    return f"no virtual links: {made.stderr.strip()}" if made.returncode else ""


class Network:
    """Hosts by name. Each has an address, and the same /etc/hosts, which `name` changes."""

    def __init__(self, folder: pathlib.Path, hosts: Sequence[str]):
        self._hosts_file = folder / "hosts"
        self._numbers = {host: i + 1 for i, host in enumerate(hosts)}
        self._names: dict[str, str] = {}
        self._switch = self._namespace("switch")
        self.name("localhost", "127.0.0.1")

    def start(self) -> None:
        """Creates switch, hosts and links."""
        _run("ip", "netns", "add", self._switch)
        _run("ip", "-n", self._switch, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", self._switch, "link", "set", "bridge", "up")
        for host in self._numbers:
            self._add(host)

    def address(self, host: str) -> str:
        return f"{_SUBNET}.{self._numbers[host]}"

    def name(self, name: str, address: str) -> None:
        """Gives a name to an address, or a name that exists to another address."""
        self._names[name] = address
        # In place, as the file is mounted.
        self._hosts_file.write_text("".join(f"{a} {n}\n" for n, a in self._names.items()))

    def within(self, host: str) -> list[str]:
        """A command that replaces itself with the command after it, on this host."""
        command = ["ip", "netns", "exec", self._namespace(host)]
        return [*command, "sh", "-c", _AS_HOST, "sh", str(self._hosts_file)]

    def cut(self, host: str) -> None:
        """Pulls the host's cable: packets are lost silently."""
        _run("ip", "-n", self._switch, "link", "set", host, "down")

    def join(self, host: str) -> None:
        """Plugs it in again."""
        _run("ip", "-n", self._switch, "link", "set", host, "up")

    def slow_down(self, host: str) -> None:
        """Limits the host to 256 kbit/s in each direction, and loses one packet in fifty."""
        for namespace, device in ((self._namespace(host), "eth0"), (self._switch, host)):
            _run("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", *_SLOW.split())
        loss = "-A INPUT -i eth0 -m statistic --mode random --probability 0.02 -j DROP"
        _run("ip", "netns", "exec", self._namespace(host), "iptables", *loss.split())

    def held_back(self, host: str) -> int:
        """How often the limit has made a packet of the host wait."""
        namespace = self._namespace(host)
        show = ("tc", "-json", "-stats", "-n", namespace, "qdisc", "show", "dev", "eth0")
        return json.loads(_run(*show))[0]["overlimits"]

    def close(self) -> None:
        """Removes all; links go with their namespaces. The hosts' processes must have ended."""
        for host in (*self._numbers, "switch"):
            namespace = ["ip", "netns", "del", self._namespace(host)]
            subprocess.run(namespace, capture_output=True)  # It may not be there yet.

    def _add(self, host: str) -> None:
        namespace = self._namespace(host)
        _run("ip", "netns", "add", namespace)
        ends = f"link add name {host} type veth peer name eth0 netns {namespace}"
        _run("ip", "-n", self._switch, *ends.split())
        _run("ip", "-n", self._switch, "link", "set", host, "master", "bridge", "up")
        _run("ip", "-n", namespace, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _run("ip", "-n", namespace, "link", "set", device, "up")

    @staticmethod
    def _namespace(host: str) -> str:
        return f"seed{os.getpid()}-{host}"


@contextlib.contextmanager
def network(folder: pathlib.Path, *hosts: str) -> Iterator[Network]:
    """A network that leaves nothing behind."""
    there = Network(folder, hosts)
    try:
        there.start()
        yield there
    finally:
        there.close()


def _run(*command: str) -> str:
    return run(*command, code=0).stdout
