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
        raise ValueError(f"{name}={text!r} is negative; 0 keeps nothing")
    return value


def _cache_folder() -> str | None:
    """``EVERGRAD_KERNEL_CACHE``, or a folder in the user's cache; ``None`` if neither is an
    absolute path."""
    chosen = os.environ.get("EVERGRAD_KERNEL_CACHE")
    if not chosen:
        base = os.environ.get("XDG_CACHE_HOME") or ""
        if not os.path.isabs(base):  # to be ignored, by the specification
            base = os.path.join(os.environ.get("HOME") or "", ".cache")
        chosen = os.path.join(base, "evergrad", "kernels")
    return chosen if os.path.isabs(chosen) else None


# Released large buffers kept for reuse, at most this many bytes in all.
POOL_CAP_BYTES = _bytes_from_environment("EVERGRAD_POOL_BYTES", 1 << 30)

# Smaller buffers are allocated by NumPy, which recycles them.
POOL_MIN_BYTES = 128 * 1024

# Fill released buffers with 0xA5, so that a read of released memory shows.
POISON = os.environ.get("EVERGRAD_POISON", "") not in ("", "0")

# A compiled function keeps its most recently used programs: at most so many, with at most so many
# bytes besides the arena that they share. See docs/design/running.md.
MAX_PROGRAMS = _count_from_environment("EVERGRAD_MAX_PROGRAMS", 128)
MAX_PROGRAM_BYTES = _bytes_from_environment("EVERGRAD_MAX_PROGRAM_BYTES", 1 << 28)

# Compiled kernels are kept here between processes: an absolute path, or None. Without a home there
# is no cache, rather than one in the working directory.
KERNEL_CACHE = _cache_folder()

# The microarchitecture level that is compiled for (x86-64-v2: SSE4, x86-64-v3: AVX2 and FMA,
# x86-64-v4: AVX-512), to test code for other processors on this one; empty for this processor.
TARGET = os.environ.get("EVERGRAD_TARGET", "")

# Kernels are compiled in worker processes, which end soon after: LLVM takes much memory.
# EVERGRAD_COMPILE_IN_PROCESS=1 compiles in this process. See docs/design/running.md.
COMPILE_IN_PROCESS = os.environ.get("EVERGRAD_COMPILE_IN_PROCESS", "") not in ("", "0")

# Some calls of a compiled function are traced again and compared with its program, at a cost of at
# most 2 %; EVERGRAD_REVALIDATE=0 turns that off. See docs/design/frontend.md.
REVALIDATE = os.environ.get("EVERGRAD_REVALIDATE", "1") != "0"

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


# Limits of readers of files, in bytes: what a data file may unpack to (idx, tar, text, metrics),
# the pixels of a PNG file, a configuration, and a tokenizer in a checkpoint.
UNPACKED_BYTES = _bytes_from_environment("EVERGRAD_UNPACKED_BYTES", 4 << 30)
IMAGE_BYTES = _bytes_from_environment("EVERGRAD_IMAGE_BYTES", 512 << 20)
CONFIG_BYTES = _bytes_from_environment("EVERGRAD_CONFIG_BYTES", 1 << 14)
TOKENIZER_BYTES = _bytes_from_environment("EVERGRAD_TOKENIZER_BYTES", 64 << 20)

# The time limit of a collective in seconds, unless init_process_group is given one: PyTorch's.
DISTRIBUTED_TIMEOUT = float(_count_from_environment("EVERGRAD_DISTRIBUTED_TIMEOUT", 1800))


def set_launcher_variables(values: dict[str, str]) -> None:
    """Give a program the variables that PyTorch's launcher sets; those already set stay."""
    for name, value in values.items():
        os.environ.setdefault(name, value)


def launcher_variable(name: str) -> str | None:
    """An environment variable of a launcher of several processes: RANK, WORLD_SIZE and so on."""
    return os.environ.get(name)
