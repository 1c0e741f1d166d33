"""The transport over MPI: collectives on arrays as generators of requests.

Owns communicators and what MPI calls element types. Arrays are contiguous. Data that is only moved
travels as bytes. Sums of 16-bit floats, which MPI does not know, travel as 16-bit floats: each rank
receives its part from all others, adds them in float32 in the order of ranks, and sends the result
back.
"""

from __future__ import annotations

import faulthandler
import functools
import os
import stat
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.config import DISTRIBUTED_TIMEOUT, launcher_variable
from evergrad.core.types import Array
from evergrad.distributed.agreement import digest, mismatch
from evergrad.distributed.progress import DistributedError, Steps

if TYPE_CHECKING:
    from types import ModuleType

if sys.platform != "win32":
    import fcntl
    import termios


# Launchers give the size of the job and the rank in variables with these prefixes: MPICH and its
# relatives, Open MPI, MVAPICH.
_LAUNCHERS = ("PMI", "OMPI_COMM_WORLD", "MV2_COMM_WORLD")
_DESCRIPTION_BYTES = 1024
_UFUNCS: dict[str, Any] = {
    "SUM": np.add, "AVG": np.add, "PRODUCT": np.multiply, "MIN": np.minimum, "MAX": np.maximum,
}  # fmt: skip
# On bytes that are 0 or 1.
_BOOL_OPS = {"SUM": "BOR", "AVG": "BAND", "PRODUCT": "BAND", "MIN": "BAND", "MAX": "BOR"}


def is_installed() -> bool:
    return find_spec("mpi4py") is not None


def launched_size() -> int | None:
    """The number of processes if an MPI launcher started this one."""
    return _launched("SIZE")


def launched_rank() -> int:
    """The number of this process, by its launcher; 0 without one."""
    return _launched("RANK") or 0


def _launched(what: str) -> int | None:
    for prefix in _LAUNCHERS:
        text = launcher_variable(f"{prefix}_{what}")
        if text is not None:
            return int(text)
    if launcher_variable("PMIX_RANK") is None:
        return None
    # Slurm with PMIx gives the size under a name of its own.
    text = launcher_variable("PMIX_RANK" if what == "RANK" else "SLURM_STEP_NUM_TASKS")
    return None if text is None else int(text)


@functools.cache
def library() -> ModuleType:
    """``mpi4py.MPI``; importing it initializes MPI, which blocks until all ranks have arrived and
    does not release the interpreter's lock. A rank that failed before (it could not import a
    module, say) would block the others forever, so a timer of the operating system ends them."""
    faulthandler.dump_traceback_later(DISTRIBUTED_TIMEOUT, exit=True)
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise RuntimeError(
            "several processes need MPI: pip install 'evergrad[mpi]' (mpi4py and MPICH), or mpi4py "
            f"built for the MPI of your cluster ({error})"
        ) from error
    finally:
        faulthandler.cancel_dump_traceback_later()
    if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
        raise RuntimeError("the MPI library does not allow calls from several threads")
    module: ModuleType = MPI  # without mpi4py's types it is Any
    return module


# The longest wait for a launcher to read the output of a rank that ends the job.
_FORWARDING_SECONDS = 10.0


def abort(code: int) -> None:
    """End all ranks of the job, after the launcher has read the output of this one: what is left in
    a pipe when the ranks are killed would be lost, such as the traceback of the error."""
    end = time.monotonic() + _FORWARDING_SECONDS
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # closed, or without a descriptor
            stream.flush()
            while _unread(stream.fileno()) and time.monotonic() < end:
                time.sleep(1e-3)
    library().COMM_WORLD.Abort(code)
    os._exit(code)  # an abort may return before the launcher has ended this process


def _unread(descriptor: int) -> int:
    """The bytes of a pipe that its reader has not read yet; 0 for what is not a pipe."""
    if sys.platform == "win32" or not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        return 0
    return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4), sys.byteorder)


class MpiTransport:
    """A communicator of several ranks; ``ranks`` are their numbers in the world."""

    def __init__(self, communicator: Any, ranks: list[int]) -> None:
        self.mpi: ModuleType = library()
        self.communicator = communicator
        self.ranks = ranks
        communicator.Set_errhandler(self.mpi.ERRORS_RETURN)
        self.rank: int = communicator.Get_rank()
        self.size: int = communicator.Get_size()

    # -- agreement ----------------------------------------------------------------------------

    def check(self, fingerprint: str, description: object) -> Steps:
        """Raise the same error on all ranks unless all have the same fingerprint: 16 bytes are
        compared, and the descriptions gathered only if they differ."""
        own = digest(fingerprint)
        pair = np.array([own, ~own], np.int64)
        least = np.empty_like(pair)
        yield self.communicator.Iallreduce(pair, least, self.mpi.MIN)
        if least[0] != ~least[1]:
            texts = yield from self._all_gather_texts(str(description))
            raise mismatch(dict(zip(self.ranks, texts, strict=True)))

    def _all_gather_texts(self, text: str) -> Steps:
        encoded = text.encode("utf-8", "replace")[:_DESCRIPTION_BYTES]
        own = np.frombuffer(encoded.ljust(_DESCRIPTION_BYTES, b"\0"), np.uint8)
        everyone = np.empty((self.size, _DESCRIPTION_BYTES), np.uint8)
        yield self.communicator.Iallgather(own, everyone)
        return [row.tobytes().rstrip(b"\0").decode("utf-8", "replace") for row in everyone]

    def barrier(self) -> Steps:
        yield self.communicator.Ibarrier()

    # -- reductions ---------------------------------------------------------------------------

    def _native(self, array: Array, op: str) -> tuple[Array, object] | None:
        """The array and the operation for MPI to reduce; ``None`` if it cannot."""
        kind = array.dtype.kind
        if kind == "b":
            return array.view(np.uint8), getattr(self.mpi, _BOOL_OPS.get(op, op))
        if array.dtype.itemsize < 4 and kind not in "iu":
            return None
        if kind in "fc" and op in ("BAND", "BOR", "BXOR"):
            raise DistributedError(f"ReduceOp.{op} is for integers, not {array.dtype}")
        name = {"AVG": "SUM", "PRODUCT": "PROD"}.get(op, op)
        return array, getattr(self.mpi, name)

    def all_reduce(self, array: Array, op: str) -> Steps:
        """Reduce in place."""
        native = self._native(array, op)
        if native is not None:
            yield self.communicator.Iallreduce(self.mpi.IN_PLACE, *native)
            self._average(array, op)
        else:
            part = yield from self._reduced_part(array, op)
            joined = np.empty(part.size * self.size, array.dtype)
            yield from self.all_gather(joined, part)
            np.copyto(array, joined[: array.size].reshape(array.shape))

    def _reduced_part(self, array: Array, op: str) -> Steps:
        """This rank's share of the sum of flat arrays, padded to equal shares."""
        share = -(-array.size // self.size)
        padded = np.zeros(share * self.size, array.dtype)
        padded[: array.size] = array.reshape(-1)
        parts = np.empty_like(padded)
        count = [share] * self.size
        yield from self.all_to_all(parts, padded, count, count)
        return _reduced(parts.reshape(self.size, share), op)

    def _average(self, array: Array, op: str) -> None:
        if op == "AVG" and array.dtype.kind != "b":
            if array.dtype.kind in "iu":
                np.floor_divide(array, self.size, out=array)
            else:
                np.divide(array, array.dtype.type(self.size), out=array)

    def reduce(self, array: Array, op: str, root: int) -> Steps:
        """Reduce in place on one rank."""
        native = self._native(array, op)
        if native is None:
            parts = np.empty((self.size, *array.shape), array.dtype) if self.rank == root else None
            yield from self.gather(parts, array, root)
            if parts is not None:
                np.copyto(array, _reduced(parts, op))
        elif self.rank == root:
            yield self.communicator.Ireduce(self.mpi.IN_PLACE, *native, root)
            self._average(array, op)
        else:
            yield self.communicator.Ireduce(native[0], None, native[1], root)

    def reduce_scatter(self, out: Array, array: Array, op: str) -> Steps:
        """Reduce arrays of ``size`` equal parts; each rank gets its part."""
        native = self._native(array, op)
        if native is None:
            parts = np.empty(array.size, array.dtype)
            count = [out.size] * self.size
            yield from self.all_to_all(parts, array, count, count)
            np.copyto(out, _reduced(parts.reshape(self.size, out.size), op).reshape(out.shape))
        else:
            target = out.view(np.uint8) if out.dtype.kind == "b" else out
            yield self.communicator.Ireduce_scatter_block(native[0], target, native[1])
            self._average(out, op)

    # -- data movement ------------------------------------------------------------------------

    def broadcast(self, array: Array, root: int) -> Steps:
        yield self.communicator.Ibcast(_bytes(array), root)

    def all_gather(self, out: Array, array: Array) -> Steps:
        yield self.communicator.Iallgather(_bytes(array), _bytes(out))

    def gather(self, out: Array | None, array: Array, root: int) -> Steps:
        target = None if out is None else _bytes(out)
        yield self.communicator.Igather(_bytes(array), target, root)

    def scatter(self, out: Array, array: Array | None, root: int) -> Steps:
        source = None if array is None else _bytes(array)
        yield self.communicator.Iscatter(source, _bytes(out), root)

    def all_to_all(self, out: Array, array: Array, received: list[int], sent: list[int]) -> Steps:
        width = array.dtype.itemsize
        source = [_bytes(array), ([n * width for n in sent], None)]
        target = [_bytes(out), ([n * width for n in received], None)]
        yield self.communicator.Ialltoallv(source, target)

    def all_gather_bytes(self, data: bytes) -> Steps:
        """The bytes of every rank, of any lengths."""
        lengths = np.empty(self.size, np.int64)
        yield self.communicator.Iallgather(np.array([len(data)], np.int64), lengths)
        joined = np.empty(int(lengths.sum()), np.uint8)
        counts = [int(n) for n in lengths]
        yield self.communicator.Iallgatherv(np.frombuffer(data, np.uint8), [joined, (counts, None)])
        ends = np.cumsum(lengths)
        return [joined[end - n : end].tobytes() for end, n in zip(ends, lengths, strict=True)]


def _bytes(array: Array) -> Array:
    """The memory of a contiguous array as bytes."""
    return array.reshape(-1).view(np.uint8)


def _reduced(parts: Array, op: str) -> Array:
    """The reduction over the first dimension, in float32 and in order, rounded once: a mean is in
    range where a sum would not be."""
    if op not in _UFUNCS:
        raise DistributedError(f"ReduceOp.{op} is for integers, not {parts.dtype}")
    total: Array = parts[0].astype(np.float32)
    for part in parts[1:]:
        _UFUNCS[op](total, part.astype(np.float32), out=total)
    if op == "AVG":
        total /= len(parts)
    with np.errstate(over="ignore"):
        rounded: Array = total.astype(parts.dtype)
    return rounded
