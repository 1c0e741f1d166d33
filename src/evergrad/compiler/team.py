"""Threads that run a native program together, without the GIL.

A program is a list of tasks (function, arguments, chunk) cut into waves. Everybody claims tasks of
a wave from one counter until none is left, then waits for the others; who ran what does not matter,
since a task's result depends on its chunk alone. Between programs the helpers spin for a moment and
then sleep on a futex. Who waits for others spins, then lets other processes run.

One program runs with the team at a time; a second caller, a nested one, or one in a process forked
from here runs its program by itself, one task after the other. Callers that meet often are better
off each by itself: once the team was found busy, nobody takes it for a while.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import threading
from functools import cache
from typing import Any

import numpy as np

from evergrad.compiler import llvm
from evergrad.core.settings import get_num_threads

_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine())
_CAN_SLEEP = sys.platform == "linux" and _FUTEX is not None
_SPINS = 4000
# For how many runs nobody takes the team after somebody found it busy.
_APART = 64

# Words of a run, in the order of i64: [0] tasks, [1] where each wave ends, [2] waves, [3] counters,
# [4] the meetings of the team, [5] threads, [6] scratch memory, [7] its bytes for each thread,
# [8] the word that tells of failures, [9] how often threads have met before this run. Meetings only
# grow: one that is slow to leave the last meeting of a run must still find that all were there.
_TEXT = r"""
declare i64 @syscall(i64, ...)
declare i32 @sched_yield()
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
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
  br i1 %left, label %check, label %meet
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
  %long = icmp ugt i64 %n1, 500
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

; Runs with the team; gives the word that tells of failures.
define i64 @team_run(ptr %team, ptr %run) nounwind {
entry:
  %met = getelementptr i64, ptr %team, i64 32
  %barrierp = getelementptr i64, ptr %run, i64 4
  store ptr %met, ptr %barrierp
  %before = load i64, ptr %met
  %metp = getelementptr i64, ptr %run, i64 9
  store i64 %before, ptr %metp
  %statusp = getelementptr i64, ptr %run, i64 8
  %status = load ptr, ptr %statusp
  store i64 0, ptr %status
  %wavesp = getelementptr i64, ptr %run, i64 2
  %waves = load i64, ptr %wavesp
  %bytes = shl i64 %waves, 6
  %countersp = getelementptr i64, ptr %run, i64 3
  %counters = load ptr, ptr %countersp
  call void @llvm.memset.p0.i64(ptr %counters, i8 0, i64 %bytes, i1 false)
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
  %failed = load i64, ptr %status
  ret i64 %failed
}

; Runs on the calling thread: all tasks in their order, until one fails. The first counter tells
; that it has begun.
define i64 @team_alone(ptr %run) nounwind {
entry:
  %tasks = load ptr, ptr %run
  %endsp = getelementptr i64, ptr %run, i64 1
  %ends = load ptr, ptr %endsp
  %wavesp = getelementptr i64, ptr %run, i64 2
  %waves = load i64, ptr %wavesp
  %countersp = getelementptr i64, ptr %run, i64 3
  %counters = load ptr, ptr %countersp
  %scratchp = getelementptr i64, ptr %run, i64 6
  %scratch = load ptr, ptr %scratchp
  %statusp = getelementptr i64, ptr %run, i64 8
  %status = load ptr, ptr %statusp
  store i64 0, ptr %status
  store i64 1, ptr %counters
  %lastp0 = getelementptr i64, ptr %ends, i64 %waves
  %lastp = getelementptr i64, ptr %lastp0, i64 -1
  %count = load i64, ptr %lastp
  %stop = getelementptr [3 x i64], ptr %tasks, i64 %count
  br label %next
next:
  %task = phi ptr [%tasks, %entry], [%following, %work]
  %failed = load i64, ptr %status
  %fine = icmp eq i64 %failed, 0
  %left = icmp ult ptr %task, %stop
  %go_on = and i1 %fine, %left
  br i1 %go_on, label %work, label %done
work:
  %function = load ptr, ptr %task
  %argsp = getelementptr i64, ptr %task, i64 1
  %args = load ptr, ptr %argsp
  %chunkp = getelementptr i64, ptr %task, i64 2
  %chunk = load i64, ptr %chunkp
  call void %function(ptr %args, i64 %chunk, ptr %scratch)
  %following = getelementptr [3 x i64], ptr %task, i64 1
  br label %next
done:
  ret i64 %failed
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
    return llvm.addresses_in(text, ("team_alone", "team_help", "team_run"))


class Team:
    """The caller and its helpers. It lives as long as the process, since they look at its words."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.lock = threading.Lock()
        # How many runs are still to be done by their callers alone.
        self.apart = 0
        self.words = np.zeros(40, np.int64)  # padded to whole cache lines between its words
        self.words[24] = _SPINS
        self.address = self.words.ctypes.data
        native = _native()
        help = llvm.function_of(native["team_help"], ctypes.c_void_p, ctypes.c_int64)
        self._run = llvm.function_of(
            native["team_run"], ctypes.c_void_p, ctypes.c_void_p, result=ctypes.c_int64
        )
        for number in range(1, size):
            threading.Thread(
                target=help, args=(self.address, number), daemon=True, name=f"evergrad-{number}"
            ).start()

    def take(self) -> bool:
        """Whether the caller has the team for itself now; it must release the lock then."""
        if self.apart > 0:
            self.apart -= 1
            return False
        if self.lock.acquire(blocking=False):
            return True
        self.apart = _APART
        return False

    def run(self, run: int) -> int:
        return int(self._run(self.address, run))


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


@cache
def _alone(brief: bool) -> Any:
    address = _native()["team_alone"]
    return llvm.function_of(address, ctypes.c_void_p, result=ctypes.c_int64, brief=brief)


class Run:
    """A list of tasks in waves, ready to be run; if it is ``brief``, with the GIL held."""

    def __init__(
        self, tasks: np.ndarray, ends: list[int], scratch: int, status: np.ndarray,
        brief: bool = False,
    ) -> None:  # fmt: skip
        self.tasks = tasks
        self.ends = np.array(ends, np.int64)
        self.counters = np.zeros(8 * len(ends), np.int64)
        self.first_counter = self.counters.data[:1]
        self.scratch_bytes = -(-max(scratch, 64) // 64) * 64
        self.status = status
        self.status_word = status.data[:1]
        self.words = np.zeros(10, np.int64)
        self.words[:4] = [
            tasks.ctypes.data, self.ends.ctypes.data, len(ends), self.counters.ctypes.data,
        ]  # fmt: skip
        self.words[7] = self.scratch_bytes
        self.words[8] = status.ctypes.data
        self.address = int(self.words.ctypes.data)
        self.run_alone = _alone(brief)
        self.threads = 0
        self.make_room(1)

    def run(self, threads: int) -> int:
        """Run all tasks; with the team if it is free and several threads are wanted. Gives the word
        that tells of failures."""
        if threads > 1:
            found = team()
            if found.size > 1 and found.take():
                try:
                    self.make_room(found.size)
                    return found.run(self.address)
                finally:
                    found.lock.release()
        return self.run_alone(self.address)  # type: ignore[no-any-return]

    def forget(self) -> None:
        """Be as if it had not been run."""
        self.first_counter[0] = 0

    def has_succeeded(self) -> bool:
        """Whether it was run since it was last forgotten, and no task has failed."""
        return bool(self.first_counter[0]) and not self.status_word[0]

    def make_room(self, threads: int) -> None:
        """Have scratch memory for so many threads."""
        if threads > self.threads:
            self.scratch = np.zeros(threads * self.scratch_bytes, np.uint8)
            self.words[6] = self.scratch.ctypes.data
        if threads != self.threads:
            self.words[5] = self.threads = threads
