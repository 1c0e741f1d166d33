"""Threads that run a native program together, without the GIL.

A program is a list of tasks (function, arguments, chunk) cut into waves. Everybody claims tasks of
a wave from one counter until none is left, then waits for the others; who ran what does not matter,
since a task's result depends on its chunk alone. Between programs the helpers spin for a moment and
then sleep on a futex.

One program runs with the team at a time; a second caller, a nested one, or one in a process forked
from here runs its program by itself.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import threading
from functools import cache

import numpy as np

from evergrad.compiler import llvm
from evergrad.core.settings import get_num_threads

_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine())
_CAN_SLEEP = sys.platform == "linux" and _FUTEX is not None
_SPINS = 4000
# The word of a team that counts how often its threads have met.
_MEETINGS = 32

# Words of a run, in the order of i64: see `Run`.
_TEXT = r"""
declare i64 @syscall(i64, ...)
declare i32 @sched_yield()
PAUSE_DECLARATION

define void @team_execute(ptr %run, i64 %thread) nounwind {
entry:
  %tasks = load ptr, ptr %run
  %p1 = getelementptr i64, ptr %run, i64 1
  %ends = load ptr, ptr %p1
  %p2 = getelementptr i64, ptr %run, i64 2
  %waves = load i64, ptr %p2
  %p3 = getelementptr i64, ptr %run, i64 3
  %counters = load ptr, ptr %p3
  %p4 = getelementptr i64, ptr %run, i64 4
  %barrier = load ptr, ptr %p4
  %p5 = getelementptr i64, ptr %run, i64 5
  %threads = load i64, ptr %p5
  %p6 = getelementptr i64, ptr %run, i64 6
  %scratches = load ptr, ptr %p6
  %p7 = getelementptr i64, ptr %run, i64 7
  %stride = load i64, ptr %p7
  %p8 = getelementptr i64, ptr %run, i64 8
  %status = load ptr, ptr %p8
  %p9 = getelementptr i64, ptr %run, i64 9
  %met = load i64, ptr %p9
  %target0 = add i64 %met, %threads
  %mine = mul i64 %thread, %stride
  %scratch = getelementptr i8, ptr %scratches, i64 %mine
  %alone = icmp eq i64 %threads, 1
  br label %wave
wave:
  %w = phi i64 [0, %entry], [%w1, %next]
  %first = phi i64 [0, %entry], [%end, %next]
  %target = phi i64 [%target0, %entry], [%target1, %next]
  %endp = getelementptr i64, ptr %ends, i64 %w
  %end = load i64, ptr %endp
  %cp = shl i64 %w, 6
  %counter = getelementptr i8, ptr %counters, i64 %cp
  br label %claim
claim:
  %t = atomicrmw add ptr %counter, i64 1 monotonic
  %at = add i64 %first, %t
  %left = icmp ult i64 %at, %end
  br i1 %left, label %check, label %arrived
check:
  %failed = load atomic i64, ptr %status monotonic, align 8
  %fine = icmp eq i64 %failed, 0
  br i1 %fine, label %work, label %claim
work:
  %offset = mul i64 %at, 24
  %task = getelementptr i8, ptr %tasks, i64 %offset
  %function = load ptr, ptr %task
  %argsp = getelementptr i64, ptr %task, i64 1
  %args = load ptr, ptr %argsp
  %chunkp = getelementptr i64, ptr %task, i64 2
  %chunk = load i64, ptr %chunkp
  call void %function(ptr %args, i64 %chunk, ptr %scratch)
  br label %claim
arrived:
  br i1 %alone, label %next, label %meet
meet:
  %before = atomicrmw add ptr %barrier, i64 1 acq_rel
  br label %spin
spin:
  %n = phi i64 [0, %meet], [%n1, %again]
  %here = load atomic i64, ptr %barrier acquire, align 8
  %all = icmp uge i64 %here, %target
  br i1 %all, label %next, label %pause
pause:
  PAUSE
  %n1 = add i64 %n, 1
  %long = icmp ugt i64 %n1, 2000
  br i1 %long, label %yield, label %again
yield:
  %ignored = call i32 @sched_yield()
  br label %again
again:
  br label %spin
next:
  %w1 = add i64 %w, 1
  %target1 = add i64 %target, %threads
  %more = icmp ult i64 %w1, %waves
  br i1 %more, label %wave, label %done
done:
  ret void
}

; The team: [0] epoch, [8] run, [16] sleepers, [24] spins before sleeping, [32] meetings
define void @team_help(ptr %team, i64 %thread) nounwind {
entry:
  %runp = getelementptr i64, ptr %team, i64 8
  %sleepers = getelementptr i64, ptr %team, i64 16
  %spinsp = getelementptr i64, ptr %team, i64 24
  %spins = load i64, ptr %spinsp
  br label %top
top:
  %last = phi i64 [0, %entry], [%epoch, %run]
  br label %spin
spin:
  %n = phi i64 [0, %top], [%n1, %pause]
  %now = load atomic i64, ptr %team acquire, align 8
  %called = icmp ne i64 %now, %last
  br i1 %called, label %run, label %pause
pause:
  PAUSE
  %n1 = add i64 %n, 1
  %go_on = icmp ult i64 %n1, %spins
  br i1 %go_on, label %spin, label %sleep
sleep:
  %s = atomicrmw add ptr %sleepers, i64 1 seq_cst
  br label %asleep
asleep:
  %now2 = load atomic i64, ptr %team seq_cst, align 8
  %called2 = icmp ne i64 %now2, %last
  br i1 %called2, label %awake, label %wait
wait:
  %last32 = trunc i64 %last to i32
  %w = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %team, i32 128, i32 %last32, ptr null)
  br label %asleep
awake:
  %s2 = atomicrmw sub ptr %sleepers, i64 1 seq_cst
  br label %run
run:
  %epoch = phi i64 [%now, %spin], [%now2, %awake]
  %given = load ptr, ptr %runp
  call void @team_execute(ptr %given, i64 %thread)
  br label %top
}

define void @team_run(ptr %team, ptr %run) nounwind {
entry:
  %runp = getelementptr i64, ptr %team, i64 8
  %sleepers = getelementptr i64, ptr %team, i64 16
  store ptr %run, ptr %runp
  %e = load i64, ptr %team
  %e1 = add i64 %e, 1
  store atomic i64 %e1, ptr %team seq_cst, align 8
  %s = load atomic i64, ptr %sleepers seq_cst, align 8
  %any = icmp ne i64 %s, 0
  br i1 %any, label %wake, label %go
wake:
  %w = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %team, i32 129, i32 2147483647)
  br label %go
go:
  call void @team_execute(ptr %run, i64 0)
  ret void
}
"""


@cache
def _native() -> dict[str, int]:
    if platform.machine() in ("x86_64", "AMD64"):
        declaration, pause = (
            "declare void @llvm.x86.sse2.pause()",
            "call void @llvm.x86.sse2.pause()",
        )
    else:
        declaration, pause = "", "fence seq_cst"
    text = _TEXT.replace("PAUSE_DECLARATION", declaration).replace("PAUSE", pause)
    text = text.replace("FUTEX", str(_FUTEX or 0))
    return llvm.addresses_in(text, ("team_execute", "team_help", "team_run"))


class Team:
    """The caller and its helpers. It lives as long as the process, since they look at its words."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.lock = threading.Lock()
        self.words = np.zeros(40, np.int64)  # padded to whole cache lines between its words
        self.words[24] = _SPINS
        self.address = self.words.ctypes.data
        native = _native()
        help = llvm.function_of(native["team_help"], ctypes.c_void_p, ctypes.c_int64)
        self._run = llvm.function_of(native["team_run"], ctypes.c_void_p, ctypes.c_void_p)
        for number in range(1, size):
            threading.Thread(
                target=help, args=(self.address, number), daemon=True, name=f"evergrad-{number}"
            ).start()

    @property
    def met(self) -> int:
        """How often threads have met so far. It only grows: one that is slow to leave the last
        meeting of a run must still find that all were there."""
        return int(self.words[_MEETINGS])

    @property
    def meetings(self) -> int:
        """The address of that number."""
        return int(self.address + 8 * _MEETINGS)

    def run(self, run: int) -> None:
        self._run(self.address, run)


# The teams of this process by their size.
_teams: dict[int, Team] = {}
_made = threading.Lock()


def team() -> Team:
    """The team of this process, of the size that ``set_num_threads`` asks for."""
    size = get_num_threads() if _CAN_SLEEP else 1
    found = _teams.get(size)
    if found is None:
        with _made:
            found = _teams.get(size) or _teams.setdefault(size, Team(size))
    return found


def _forget_teams() -> None:
    """In a forked child the helpers are gone."""
    global _made
    _teams.clear()
    _made = threading.Lock()


os.register_at_fork(after_in_child=_forget_teams)


class Run:
    """A list of tasks in waves, ready to be run."""

    def __init__(
        self, tasks: np.ndarray, ends: list[int], scratch: int, status: np.ndarray
    ) -> None:
        self.tasks = tasks
        self.ends = np.array(ends, np.int64)
        self.counters = np.zeros(8 * len(ends), np.int64)
        self.scratch_bytes = -(-max(scratch, 64) // 64) * 64
        self.scratch = np.zeros(0, np.uint8)
        self.status = status
        self.words = np.zeros(10, np.int64)
        self.words[:4] = [
            tasks.ctypes.data, self.ends.ctypes.data, len(ends), self.counters.ctypes.data,
        ]  # fmt: skip
        self.words[7] = self.scratch_bytes
        self.words[8] = status.ctypes.data
        self.address = self.words.ctypes.data
        self._alone = llvm.function_of(_native()["team_execute"], ctypes.c_void_p, ctypes.c_int64)

    def run(self, threads: int) -> None:
        """Run all tasks; with the team if it is free and several threads are wanted."""
        self.counters.fill(0)
        found = team() if threads > 1 else None
        if found is not None and found.size > 1 and found.lock.acquire(blocking=False):
            try:
                self._prepare(found.size)
                self.words[4], self.words[9] = found.meetings, found.met
                found.run(self.address)
            finally:
                found.lock.release()
            return
        self._prepare(1)
        self._alone(self.address, 0)

    def forget(self) -> None:
        """Be as if it had not been run."""
        self.counters[0] = 0

    def started(self) -> bool:
        """Whether a task was claimed since it was last forgotten."""
        return bool(self.counters[0])

    def _prepare(self, threads: int) -> None:
        size = threads * self.scratch_bytes
        if self.scratch.size < size:
            self.scratch = np.zeros(size, np.uint8)
            self.words[6] = self.scratch.ctypes.data
        self.words[5] = threads
