"""The processes of the peers, seen from the process that drives them.

A peer that fails, hangs or dies becomes a :class:`PeerError` with a reason; its process is ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_LAST_WORDS = 2000


def exit_on_sigterm() -> None:
    """Let SIGTERM raise SystemExit, so that processes which were started are ended."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


class PeerError(Exception):
    """Why a peer has no result. ``status`` is one word for a table, ``trace`` all that is known."""

    def __init__(self, status: str, reason: str, trace: str = "") -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.trace = trace


def environment(threads: int, caches: Path) -> dict[str, str]:
    """What every peer is told alike: threads, and a folder of its own for compiled code. Byte code
    is kept also if the caller keeps none: packages that were installed have theirs."""
    count = str(threads)
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {
        **inherited,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "EVERGRAD_KERNEL_CACHE": str(caches / "evergrad"),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(caches / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


class PeerProcess:
    """A running :mod:`bench.peers.worker`; every answer is waited for ``timeout`` seconds."""

    def __init__(self, request: dict[str, Any], env: dict[str, str], timeout: float) -> None:
        self.timeout = timeout
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - closed in end
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.peers.worker", json.dumps(request)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            env=env, cwd=ROOT, process_group=0,
        )  # fmt: skip
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def answer(self) -> dict[str, Any]:
        """The next answer."""
        try:
            line = self._lines.get(timeout=self.timeout)
        except queue.Empty:
            self.end()
            raise PeerError("timeout", f"no answer within {self.timeout:g} s") from None
        if line is None:
            code = self._process.wait()
            words = self._last_words()
            self.end()
            raise PeerError("died", f"the process ended with code {code}", words)
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            self.end()
            raise PeerError(_status_of(found["kind"]), found["error"], found["trace"])
        return found

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request; gives its answer."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has died; the answer tells how
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        return self.answer()

    def finish(self) -> dict[str, Any]:
        """Let it end; gives its last answer."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        last = self.answer()
        self.end()
        return last

    def end(self) -> None:
        """End the process and those it started, whatever they do."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def _last_words(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-_LAST_WORDS:]


def _status_of(kind: str) -> str:
    return {"ModuleNotFoundError": "missing", "NothingToShowError": "none"}.get(kind, "failed")


def run_python(
    code: str, timeout: float, *arguments: str, env: dict[str, str] | None = None
) -> str:
    """The output of a short program in a fresh interpreter."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=ROOT,
            timeout=timeout, check=True, env=env,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise PeerError("timeout", f"no answer within {timeout:g} s") from None
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or [f"ended with code {error.returncode}"]
        status = _status_of(lines[-1].partition(":")[0])
        raise PeerError(status, lines[-1], error.stderr) from None
    return done.stdout
