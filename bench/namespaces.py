"""Two machines on one: network namespaces joined by a virtual cable, with ranks in each.

Needs root and ``ip`` (Debian's iproute2). Each namespace has its own interfaces, addresses and host
name, so ranks in different ones communicate over TCP through the cable, whose rate may be limited.
No traffic leaves the machine: the addresses are of a range for documentation, and the namespaces
have no other interface than the cable and their loopback.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ADDRESSES = ("192.0.2.1", "192.0.2.2")
CABLE = "cable"
# Calls the command that mpiexec starts on another machine, as `ssh [-x] HOST COMMAND` would.
_REMOTE_SHELL = """#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
case "$1" in {cases} *) echo "no such machine: $1" >&2; exit 1;; esac
shift
exec ip netns exec "$name" unshare --uts sh -c "hostname $name; exec $*"
"""


class Pair:
    """Two namespaces, and how to start a job on both."""

    def __init__(self, names: Sequence[str], remote_shell: Path) -> None:
        self.names = names
        self.remote_shell = remote_shell

    @property
    def hosts(self) -> str:
        """The machines, as ``mpiexec -hosts`` takes them."""
        return ",".join(ADDRESSES)

    def command(self, *words: str) -> list[str]:
        """A command that runs in the first namespace, under its host name."""
        inside = ["unshare", "--uts", "sh", "-c", f'hostname {self.names[0]}; exec "$@"', "sh"]
        return ["ip", "netns", "exec", self.names[0], *inside, *words]

    def mpiexec(self, mpiexec: str, ranks: int, *words: str) -> list[str]:
        """A command that starts ranks in turn in both."""
        shell = ["-launcher", "ssh", "-launcher-exec", str(self.remote_shell)]
        return self.command(mpiexec, "-n", str(ranks), *shell, "-hosts", self.hosts, *words)

    def environment(self) -> dict[str, str]:
        """Settings of UCX: TCP, since it recognises that both are one machine."""
        return {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": CABLE}


# Duplicate address detection of IPv6 takes a second or two; until then UCX may choose an address
# that is not reachable yet.
_SETTLING_SECONDS = 3.0


def missing() -> str:
    """Why namespaces cannot be made here; empty if they can."""
    for tool in ("ip", "unshare"):
        if shutil.which(tool) is None:
            return f"no `{tool}`: apt-get install iproute2 util-linux"
    name = f"evergrad-{os.getpid()}-try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"network namespaces cannot be made: {made.stderr.strip()}"
    _run("ip", "netns", "delete", name)
    return ""


@contextmanager
def pair(rate: str = "") -> Iterator[Pair]:
    """Two namespaces, which end with the block. ``rate`` (``"800mbit"``) limits the cable in both
    directions by a token bucket."""
    names = [f"evergrad-{os.getpid()}-{letter}" for letter in "ab"]
    with tempfile.TemporaryDirectory() as folder:
        shell = Path(folder) / "remote-shell"
        cases = " ".join(f"{a}) name={n};;" for a, n in zip(ADDRESSES, names, strict=True))
        shell.write_text(_REMOTE_SHELL.format(cases=cases))
        shell.chmod(stat.S_IRWXU)
        try:
            for name in names:
                _run("ip", "netns", "add", name)
            _run("ip", "link", "add", CABLE, "netns", names[0], "type", "veth",
                 "peer", "name", CABLE, "netns", names[1])  # fmt: skip
            for name, address in zip(names, ADDRESSES, strict=True):
                _run("ip", "-n", name, "address", "add", f"{address}/24", "dev", CABLE)
                for link in ("lo", CABLE):
                    _run("ip", "-n", name, "link", "set", link, "up")
                if rate:
                    _run("tc", "-n", name, "qdisc", "add", "dev", CABLE, "root", "tbf", "rate",
                         rate, "burst", "256kb", "latency", "200ms")  # fmt: skip
            time.sleep(_SETTLING_SECONDS)
            yield Pair(names, shell)
        finally:
            for name in names:
                subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def bytes_sent() -> int:
    """What has left this namespace through the cable, headers included."""
    return int(Path(f"/sys/class/net/{CABLE}/statistics/tx_bytes").read_text())


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
