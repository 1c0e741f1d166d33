"""The machine code by which a program is run, alone or by a team; :mod:`.team` tells how.

Owns the text (LLVM IR) and what its words mean. It is compiled once, like a kernel.
"""

from __future__ import annotations

import platform
from functools import cache

from evergrad.compiler import llvm

FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine())

# Words of a run, in the order of i64: [0] tasks, [1] where each wave ends, [2] waves, [3] counters,
# [4] the meetings of the team, [5] threads, [6] scratch memory, [7] its bytes for each thread,
# [8] the word that tells of failures, [9] how often threads have met before this run, [10] whether
# it is brief. Meetings only grow: one that is slow to leave the last meeting of a run must still
# find that all were there.
_TEXT = r"""
declare i64 @syscall(i64, ...)
declare i32 @sched_yield()
declare i64 @llvm.usub.sat.i64(i64, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare ptr @PyLong_AsVoidPtr(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyThreadState_Get()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
PAUSE_DECLARATION

; Of all runs by a calling thread alone: who began the last one, how many have begun, for how many
; more there are taken to be several callers; and whether one who came back has the GIL.
@caller = internal global ptr null
@begun = internal global i64 0
@shared = internal global i64 0
@turn = internal global i64 0

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

; As team_alone, as a method of Python's whose object is the address of a run. Runs without the GIL;
; a brief one keeps it as long as there is one caller.
;
; To ask for the GIL while somebody has it is to sleep, and to wake up takes longer than a brief run
; and the Python around it. So who comes back waits, spinning, until none of the others has the GIL;
; and after a brief run until one of them has had it, since who sleeps would never find it free. If
; that was in vain there is taken to be one caller.
define ptr @team_method(ptr %self, ptr %ignored) nounwind {
entry:
  %run = call ptr @PyLong_AsVoidPtr(ptr %self)
  %me = call ptr @PyThreadState_Get()
  %last = load ptr, ptr @caller
  %is_other = icmp ne ptr %me, %last
  store ptr %me, ptr @caller
  %left = load i64, ptr @shared
  %less = call i64 @llvm.usub.sat.i64(i64 %left, i64 1)
  %shared = select i1 %is_other, i64 64, i64 %less
  store i64 %shared, ptr @shared
  %number0 = load i64, ptr @begun
  %number = add i64 %number0, 1
  store atomic i64 %number, ptr @begun monotonic, align 8
  %briefp = getelementptr i64, ptr %run, i64 10
  %brief = load i64, ptr %briefp
  %is_brief = icmp ne i64 %brief, 0
  %is_alone = icmp eq i64 %shared, 0
  %keep = and i1 %is_brief, %is_alone
  br i1 %keep, label %kept, label %free
kept:
  %failed0 = call i64 @team_alone(ptr %run)
  br label %end
free:
  %state = call ptr @PyEval_SaveThread()
  store atomic i64 0, ptr @turn release, align 8
  %failed1 = call i64 @team_alone(ptr %run)
  br label %ask
ask:
  %n = phi i64 [0, %free], [%n1, %wait]
  %now = load atomic i64, ptr @begun monotonic, align 8
  %nobody = icmp eq i64 %now, %number
  %linger = and i1 %nobody, %is_brief
  br i1 %linger, label %patience, label %try
try:
  %pair = cmpxchg ptr @turn, i64 0, i64 1 acquire monotonic
  %taken = extractvalue {i64, i1} %pair, 1
  br i1 %taken, label %back, label %patience
patience:
  %long = icmp ugt i64 %n, 1000
  br i1 %long, label %late, label %wait
wait:
  PAUSE
  %n1 = add i64 %n, 1
  br label %ask
late:
  store atomic i64 1, ptr @turn monotonic, align 8
  br label %back
back:
  %in_vain = phi i1 [false, %try], [true, %late]
  call void @PyEval_RestoreThread(ptr %state)
  br i1 %in_vain, label %forget, label %end
forget:
  store i64 0, ptr @shared
  br label %end
end:
  %failed = phi i64 [%failed0, %kept], [%failed1, %back], [%failed1, %forget]
  %result = call ptr @PyLong_FromLongLong(i64 %failed)
  ret ptr %result
}
"""


@cache
def native() -> dict[str, int]:
    if platform.machine() in ("x86_64", "AMD64"):
        declaration, pause = (
            "declare void @llvm.x86.sse2.pause()",
            "call void @llvm.x86.sse2.pause()",
        )
    else:
        declaration, pause = "", "fence seq_cst"
    text = _TEXT.replace("PAUSE_DECLARATION", declaration).replace("PAUSE", pause)
    text = text.replace("FUTEX", str(FUTEX or 0))
    return llvm.addresses_in(text, ("team_help", "team_method", "team_run"))
