"""What a run computes on: versions, system and processor, for reports."""

from __future__ import annotations

import platform
import re
from importlib import metadata
from pathlib import Path

import evergrad


def _version(package: str) -> str:
    """The version of a package that may be missing."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def environment() -> dict[str, str]:
    """This machine in a few lines."""
    return {
        "evergrad": evergrad.__version__,
        "Python": platform.python_version(),
        "NumPy": metadata.version("numpy"),
        "llvmlite": _version("llvmlite"),
        "system": platform.platform(),
        "processor": processor_model(),
        "threads": str(evergrad.get_num_threads()),
    }


def processor_model() -> str:
    """The processor's name, as its maker spells it where the system reports it."""
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        text = ""
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1] if match else platform.processor() or platform.machine()
