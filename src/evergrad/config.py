"""Process-wide settings, and the only place that reads the environment.

What a thread sets for itself (grad mode, trace, generator) is in :mod:`evergrad.core.state`.
"""

from __future__ import annotations

import os


def _count_from_environment(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    if text and not text.isdecimal():
        raise ValueError(f"{name}={text!r} is not a count, as in {name}=1000")
    return int(text) if text else default


def _bytes_from_environment(name: str, default: int) -> int:
    text = os.environ.get(name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        raise ValueError(
            f"{name}={text!r} is not a number of bytes, as in {name}=1073741824"
        ) from None
    if value < 0:
        raise ValueError(f"{name}={text!r} is negative; 0 turns the pool off")
    return value


# Released large buffers kept for reuse, at most this many bytes in all.
POOL_CAP_BYTES = _bytes_from_environment("EVERGRAD_POOL_BYTES", 1 << 30)

# Smaller buffers are allocated by NumPy, which recycles them.
POOL_MIN_BYTES = 128 * 1024

# Fill released buffers with 0xA5, so that a read of released memory shows.
POISON = os.environ.get("EVERGRAD_POISON", "") not in ("", "0")

# Compiled kernels are kept here between processes.
KERNEL_CACHE = os.environ.get("EVERGRAD_KERNEL_CACHE") or os.path.join(
    os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "evergrad", "kernels"
)

# Kernels are compiled in worker processes, which end soon after: LLVM takes much memory.
# EVERGRAD_COMPILE_IN_PROCESS=1 compiles in this process. See docs/design/running.md.
COMPILE_IN_PROCESS = os.environ.get("EVERGRAD_COMPILE_IN_PROCESS", "") not in ("", "0")

# Eager composites (norms, attention, losses, ...) of large tensors run generated kernels;
# EVERGRAD_EAGER_KERNELS=0 turns that off. See docs/design/eager-kernels.md.
EAGER_KERNELS = os.environ.get("EVERGRAD_EAGER_KERNELS", "1") != "0"

# The threshold in elements; None for that of each function. For tests.
EAGER_KERNEL_ELEMENTS: int | None = None


# The compiler verifies graphs of at most so many equations, and memory plans of at most so many
# instructions; 0 verifies none. See docs/design/compiler.md.
VERIFY_EQUATIONS = _count_from_environment("EVERGRAD_VERIFY_EQUATIONS", 64)

# Whether graphs are verified after each pass, not only after the last one; tests turn it on.
VERIFY_EACH_PASS = False

# EVERGRAD_SHOW_PASSES=1 prints the graph after each compiler pass to stderr; programs are then not
# read from the disk.
SHOW_PASSES = os.environ.get("EVERGRAD_SHOW_PASSES", "") not in ("", "0")


def launcher_variable(name: str) -> str | None:
    """An environment variable of a launcher of several processes: RANK, WORLD_SIZE and so on."""
    return os.environ.get(name)
