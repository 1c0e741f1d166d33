"""The native code (LLVM IR) of :mod:`.runtime.thread_pool`: serial and parallel runs, workers, and
the release of the GIL. It is compiled once, like a kernel."""

from __future__ import annotations

import platform
from functools import cache

from evergrad.compiler.native import jit

FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine())

# Spins before parking at a barrier, and while idle between runs. One spin takes some ten
# nanoseconds.
_BARRIER_SPINS = 2000
_IDLE_SPINS = 4000
# Spins for a free GIL after a run before blocking on it, and for a handoff to another caller that
# blocks on it. To wake up takes some ten microseconds.
_GIL_SPINS = 1000
_HANDOFF_SPINS = 6000
# How many runs skip the handoff after one has timed out.
_HANDOFF_BACKOFF = 512
# Duration class of a run: microseconds, less than about a tenth of a millisecond, or more.
BRIEF, SHORT, LONG = 2, 1, 0
# Tasks of a wave are claimed from both ends: the high bits count claims from the back.
_BACK_BITS = 32
# Flags added to the number of workers at the gate: that it is open, or that the caller is parked.
_OPEN = 1 << 20
_PARKED = 1 << 16

# Words of a run, each an i64: [0] tasks, [1] the end of each wave, [2] number of waves,
# [3] counters, [4] scratch memory, [5] its bytes per thread, [6] address of the status word,
# [7] duration class. Each wave has 64 bytes of counters: tasks claimed (from the front and from the
# back), tasks done, and threads parked at its barrier.
#
# Words of a thread pool, each in a cache line of its own: [0] epoch (number of runs), [8] current
# run, [16] number of parked workers, [24] the gate: number of workers inside of the run, and
# whether they may enter.
_IR = r"""
declare i64 @syscall(i64, ...)
declare i64 @llvm.usub.sat.i64(i64, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare ptr @PyThreadState_Get()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
PAUSE_DECLARATION
FLUSH_DECLARATIONS

; Callers of serial runs, in one cache line: [0] whether a returning caller has the GIL, [1] number
; of callers blocked on it, [2] number of callers running without it, [3] thread state of the latest
; caller, [4] number of runs that still skip the handoff.
@callers = internal global [8 x i64] zeroinitializer, align 64
@flushing = internal global i32 0, align 64

; Executes all waves of a run as one of its threads.
define internal void @execute(ptr %run, i64 %thread) nounwind {
entry:
  FLUSH
  %tasks = load ptr, ptr %run
  %p1 = getelementptr i64, ptr %run, i64 1
  %ends = load ptr, ptr %p1
  %p2 = getelementptr i64, ptr %run, i64 2
  %waves = load i64, ptr %p2
  %p3 = getelementptr i64, ptr %run, i64 3
  %counters = load ptr, ptr %p3
  %p4 = getelementptr i64, ptr %run, i64 4
  %scratches = load ptr, ptr %p4
  %p5 = getelementptr i64, ptr %run, i64 5
  %stride = load i64, ptr %p5
  %p6 = getelementptr i64, ptr %run, i64 6
  %status = load ptr, ptr %p6
  %mine = mul i64 %thread, %stride
  %scratch = getelementptr i8, ptr %scratches, i64 %mine
  %odd = and i64 %thread, 1
  %from_back = icmp ne i64 %odd, 0
  %one = select i1 %from_back, i64 FROM_BACK, i64 1
  br label %wave
wave:
  %w = phi i64 [0, %entry], [%w1, %next]
  %first = phi i64 [0, %entry], [%end, %next]
  %endp = getelementptr i64, ptr %ends, i64 %w
  %end = load i64, ptr %endp
  %count = sub i64 %end, %first
  %claimed = getelementptr [8 x i64], ptr %counters, i64 %w
  %done = getelementptr i64, ptr %claimed, i64 1
  %parked_count = getelementptr i64, ptr %claimed, i64 2
  br label %claim
claim:
  %ran = phi i64 [0, %wave], [%ran1, %after]
  %were = atomicrmw add ptr %claimed, i64 %one monotonic
  %front = and i64 %were, BELOW_BACK
  %back = lshr i64 %were, BACK_BITS
  %taken = add i64 %front, %back
  %is_left = icmp ult i64 %taken, %count
  br i1 %is_left, label %check, label %finish
check:
  %failed = load atomic i64, ptr %status monotonic, align 8
  %fine = icmp eq i64 %failed, 0
  br i1 %fine, label %work, label %after
work:
  %from_first = add i64 %first, %front
  %behind = sub i64 %end, %back
  %from_last = sub i64 %behind, 1
  %at = select i1 %from_back, i64 %from_last, i64 %from_first
  %task = getelementptr [3 x i64], ptr %tasks, i64 %at
  %function = load ptr, ptr %task
  %argsp = getelementptr i64, ptr %task, i64 1
  %args = load ptr, ptr %argsp
  %chunkp = getelementptr i64, ptr %task, i64 2
  %chunk = load i64, ptr %chunkp
  call void %function(ptr %args, i64 %chunk, ptr %scratch)
  br label %after
after:
  %ran1 = add i64 %ran, 1
  br label %claim
finish:
  %any = icmp ne i64 %ran, 0
  br i1 %any, label %add, label %spin
add:
  %before = atomicrmw add ptr %done, i64 %ran seq_cst
  %now = add i64 %before, %ran
  %is_last = icmp eq i64 %now, %count
  br i1 %is_last, label %last, label %spin
last:
  %parked_now = load atomic i64, ptr %parked_count seq_cst, align 8
  %any_parked = icmp ne i64 %parked_now, 0
  br i1 %any_parked, label %wake, label %next
wake:
  %woken = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %done, i32 WAKE, i32 2147483647)
  br label %next
spin:
  %n = phi i64 [0, %finish], [0, %add], [%n1, %pause]
  %here = load atomic i64, ptr %done acquire, align 8
  %all = icmp eq i64 %here, %count
  br i1 %all, label %next, label %pause
pause:
  PAUSE
  %n1 = add i64 %n, 1
  %long = icmp ugt i64 %n1, BARRIER
  br i1 %long, label %park, label %spin
park:
  %s = atomicrmw add ptr %parked_count, i64 1 seq_cst
  br label %parked
parked:
  %here2 = load atomic i64, ptr %done seq_cst, align 8
  %all2 = icmp eq i64 %here2, %count
  br i1 %all2, label %next, label %sleep
sleep:
  %here32 = trunc i64 %here2 to i32
  %slept = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %done, i32 WAIT, i32 %here32, ptr null)
  br label %parked
next:
  %w1 = add i64 %w, 1
  %more = icmp ult i64 %w1, %waves
  br i1 %more, label %wave, label %end_of_run
end_of_run:
  RESTORE
  ret void
}

; The worker loop: waits for a run and enters it if the gate is still open; a run that is null ends
; it.
define void @pool_worker(ptr %pool, i64 %thread) nounwind {
entry:
  %runp = getelementptr i64, ptr %pool, i64 8
  %parked_count = getelementptr i64, ptr %pool, i64 16
  %gate = getelementptr i64, ptr %pool, i64 24
  br label %top
top:
  %last = phi i64 [0, %entry], [%epoch, %enter], [%epoch, %leave], [%epoch, %wake]
  br label %spin
spin:
  %n = phi i64 [0, %top], [%n1, %pause]
  %now = load atomic i64, ptr %pool acquire, align 8
  %is_new = icmp ne i64 %now, %last
  br i1 %is_new, label %go, label %pause
pause:
  PAUSE
  %n1 = add i64 %n, 1
  %long = icmp ugt i64 %n1, IDLE
  br i1 %long, label %park, label %spin
park:
  %s = atomicrmw add ptr %parked_count, i64 1 seq_cst
  br label %parked
parked:
  %now2 = load atomic i64, ptr %pool seq_cst, align 8
  %is_new2 = icmp ne i64 %now2, %last
  br i1 %is_new2, label %awake, label %sleep
sleep:
  %last32 = trunc i64 %last to i32
  %slept = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %pool, i32 WAIT, i32 %last32, ptr null)
  br label %parked
awake:
  %s2 = atomicrmw sub ptr %parked_count, i64 1 seq_cst
  br label %go
go:
  %epoch = phi i64 [%now, %spin], [%now2, %awake]
  %seen0 = load atomic i64, ptr %gate monotonic, align 8
  br label %enter
enter:
  %seen = phi i64 [%seen0, %go], [%others, %try]
  %is_open = icmp uge i64 %seen, OPEN
  br i1 %is_open, label %try, label %top
try:
  %with_me = add i64 %seen, 1
  %pair = cmpxchg ptr %gate, i64 %seen, i64 %with_me acquire monotonic
  %others = extractvalue {i64, i1} %pair, 0
  %is_in = extractvalue {i64, i1} %pair, 1
  br i1 %is_in, label %inside, label %enter
inside:
  %run = load ptr, ptr %runp
  %is_end = icmp eq ptr %run, null
  br i1 %is_end, label %end, label %work
end:
  ret void
work:
  call void @execute(ptr %run, i64 %thread)
  br label %leave
leave:
  %were = atomicrmw sub ptr %gate, i64 1 seq_cst
  %is_last = icmp eq i64 %were, PARKED_AND_ONE
  br i1 %is_last, label %wake, label %top
wake:
  %woken = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %gate, i32 WAKE, i32 1)
  br label %top
}

; Ends all workers: the gate stays open, so that each finds the run that is null, however late.
define void @pool_end(ptr %pool) nounwind {
  %runp = getelementptr i64, ptr %pool, i64 8
  %gate = getelementptr i64, ptr %pool, i64 24
  store ptr null, ptr %runp
  store atomic i64 OPEN, ptr %gate release, align 8
  %e = load i64, ptr %pool
  %e1 = add i64 %e, 1
  store atomic i64 %e1, ptr %pool seq_cst, align 8
  %woken = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %pool, i32 WAKE, i32 2147483647)
  ret void
}

; Runs by the thread pool, or serially if it is null; returns the status word. Workers that have not
; entered the gate are not waited for; those inside at the end are, since the next run reuses the
; counters.
define i64 @pool_run(ptr %pool, ptr %run) nounwind {
entry:
  %no_pool = icmp eq ptr %pool, null
  br i1 %no_pool, label %inline, label %with_pool
inline:
  %failed_serial = call i64 @serial(ptr %run)
  ret i64 %failed_serial
with_pool:
  %runp = getelementptr i64, ptr %pool, i64 8
  %parked_count = getelementptr i64, ptr %pool, i64 16
  %gate = getelementptr i64, ptr %pool, i64 24
  %statusp = getelementptr i64, ptr %run, i64 6
  %status = load ptr, ptr %statusp
  store i64 0, ptr %status
  %wavesp = getelementptr i64, ptr %run, i64 2
  %waves = load i64, ptr %wavesp
  %bytes = shl i64 %waves, 6
  %countersp = getelementptr i64, ptr %run, i64 3
  %counters = load ptr, ptr %countersp
  call void @llvm.memset.p0.i64(ptr %counters, i8 0, i64 %bytes, i1 false)
  store ptr %run, ptr %runp
  store atomic i64 OPEN, ptr %gate release, align 8
  %e = load i64, ptr %pool
  %e1 = add i64 %e, 1
  store atomic i64 %e1, ptr %pool seq_cst, align 8
  %s = load atomic i64, ptr %parked_count seq_cst, align 8
  %any = icmp ne i64 %s, 0
  br i1 %any, label %wake, label %go
wake:
  %woken = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %pool, i32 WAKE, i32 2147483647)
  br label %go
go:
  call void @execute(ptr %run, i64 0)
  %opened = atomicrmw sub ptr %gate, i64 OPEN acq_rel
  br label %spin
spin:
  %n = phi i64 [0, %go], [%n1, %pause]
  %inside = load atomic i64, ptr %gate acquire, align 8
  %empty = icmp eq i64 %inside, 0
  br i1 %empty, label %end, label %pause
pause:
  PAUSE
  %n1 = add i64 %n, 1
  %long = icmp ugt i64 %n1, BARRIER
  br i1 %long, label %park, label %spin
park:
  %inside1 = atomicrmw add ptr %gate, i64 PARKED seq_cst
  br label %parked
parked:
  %inside2 = load atomic i64, ptr %gate seq_cst, align 8
  %empty2 = icmp eq i64 %inside2, PARKED
  br i1 %empty2, label %end, label %sleep
sleep:
  %inside32 = trunc i64 %inside2 to i32
  %slept = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %gate, i32 WAIT, i32 %inside32, ptr null)
  br label %parked
end:
  %failed = load i64, ptr %status
  ret i64 %failed
}

; Runs all tasks in order on the calling thread, until one fails. The first counter marks that it
; has begun.
define internal i64 @serial(ptr %run) nounwind {
entry:
  FLUSH
  %tasks = load ptr, ptr %run
  %endsp = getelementptr i64, ptr %run, i64 1
  %ends = load ptr, ptr %endsp
  %wavesp = getelementptr i64, ptr %run, i64 2
  %waves = load i64, ptr %wavesp
  %countersp = getelementptr i64, ptr %run, i64 3
  %counters = load ptr, ptr %countersp
  %scratchp = getelementptr i64, ptr %run, i64 4
  %scratch = load ptr, ptr %scratchp
  %statusp = getelementptr i64, ptr %run, i64 6
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
  RESTORE
  ret i64 %failed
}

; As serial, for a caller that holds the GIL. Releases it for the run; a brief run keeps it, since
; releasing and reacquiring takes longer.
;
; Acquiring a GIL that is held blocks, and waking up takes longer than a short run and the Python
; around it. So a returning caller spins until no other caller has the GIL; and after a short run,
; if another caller is blocked or the latest one is not in a run, until that one has taken over
; (handoff), since a blocked caller would never find the GIL free. After a timeout the handoff is
; skipped for a number of runs.
define i64 @pool_serial(ptr %run) nounwind {
entry:
  %waitingp = getelementptr i64, ptr @callers, i64 1
  %insidep = getelementptr i64, ptr @callers, i64 2
  %callerp = getelementptr ptr, ptr @callers, i64 3
  %backoffp = getelementptr i64, ptr @callers, i64 4
  %lengthp = getelementptr i64, ptr %run, i64 7
  %length = load i64, ptr %lengthp
  %is_brief = icmp eq i64 %length, BRIEF
  br i1 %is_brief, label %kept, label %free
kept:
  %failed0 = call i64 @serial(ptr %run)
  br label %end
free:
  %me = call ptr @PyThreadState_Get()
  %last = load ptr, ptr %callerp
  %is_other = icmp ne ptr %me, %last
  store atomic ptr %me, ptr %callerp monotonic, align 8
  %old_backoff = load i64, ptr %backoffp
  %backoff = call i64 @llvm.usub.sat.i64(i64 %old_backoff, i64 1)
  store i64 %backoff, ptr %backoffp
  %is_long = icmp eq i64 %length, LONG
  %backs_off = icmp ne i64 %backoff, 0
  %goes_on = or i1 %is_long, %backs_off
  %waits = xor i1 %goes_on, true
  %state = call ptr @PyEval_SaveThread()
  store atomic i64 0, ptr @callers release, align 8
  %entered = atomicrmw add ptr %insidep, i64 1 monotonic
  %failed1 = call i64 @serial(ptr %run)
  %left_it = atomicrmw sub ptr %insidep, i64 1 monotonic
  br label %contend
contend:
  %n = phi i64 [0, %free], [%n1, %wait]
  %latest = load atomic ptr, ptr %callerp monotonic, align 8
  %no_new_caller = icmp eq ptr %latest, %me
  %waiting = load atomic i64, ptr %waitingp monotonic, align 8
  %any_waiting = icmp ne i64 %waiting, 0
  %inside = load atomic i64, ptr %insidep monotonic, align 8
  %none_runs = icmp eq i64 %inside, 0
  %one_is_away = and i1 %is_other, %none_runs
  %one_may_come = or i1 %any_waiting, %one_is_away
  %to_come = and i1 %no_new_caller, %one_may_come
  %stays = and i1 %to_come, %waits
  br i1 %stays, label %handoff, label %try
handoff:
  %too_long = icmp ugt i64 %n, HANDOFF
  br i1 %too_long, label %handoff_failed, label %wait
try:
  %pair = cmpxchg ptr @callers, i64 0, i64 1 acquire monotonic
  %taken = extractvalue {i64, i1} %pair, 1
  br i1 %taken, label %back, label %acquire_spin
acquire_spin:
  %long = icmp ugt i64 %n, ACQUIRE
  br i1 %long, label %late, label %wait
wait:
  PAUSE
  %n1 = add i64 %n, 1
  br label %contend
handoff_failed:
  br label %late
late:
  %backoff_now = phi i64 [%backoff, %acquire_spin], [BACKOFF, %handoff_failed]
  store atomic i64 1, ptr @callers monotonic, align 8
  br label %back
back:
  %is_late = phi i1 [false, %try], [true, %late]
  %backoff_then = phi i64 [%backoff, %try], [%backoff_now, %late]
  %waiters1 = atomicrmw add ptr %waitingp, i64 1 monotonic
  call void @PyEval_RestoreThread(ptr %state)
  %waiters2 = atomicrmw sub ptr %waitingp, i64 1 monotonic
  br i1 %is_late, label %forget, label %end
forget:
  store i64 %backoff_then, ptr %backoffp
  br label %end
end:
  %failed = phi i64 [%failed0, %kept], [%failed1, %back], [%failed1, %forget]
  ret i64 %failed
}

; Forgets all callers: in a forked child the other threads are gone.
define void @pool_forget_callers() nounwind {
  call void @llvm.memset.p0.i64(ptr @callers, i8 0, i64 64, i1 false)
  ret void
}
"""


# Threads of a run flush subnormal numbers to zero if ``set_flush_denormal`` was called: @flushing
# has the bits of the control register for it (flush results, and read operands as zeros), or 0.
# The previous mode is restored afterwards. ``pool_set_flushing`` sets the mode of the calling
# thread as well, for what NumPy computes there.
_X86_FLUSH = (
    "declare void @llvm.x86.sse.stmxcsr(ptr)\ndeclare void @llvm.x86.sse.ldmxcsr(ptr)",
    "%mode = alloca i32\n  call void @llvm.x86.sse.stmxcsr(ptr %mode)\n"
    "  %mode_before = load i32, ptr %mode\n  %flushing = load i32, ptr @flushing\n"
    "  %mode_of_run = or i32 %mode_before, %flushing\n"
    "  store i32 %mode_of_run, ptr %mode\n  call void @llvm.x86.sse.ldmxcsr(ptr %mode)",
    "store i32 %mode_before, ptr %mode\n  call void @llvm.x86.sse.ldmxcsr(ptr %mode)",
)
_X86_SET = """
define void @pool_set_flushing(i32 %on) nounwind {
  %flushing = mul i32 %on, 32832
  store i32 %flushing, ptr @flushing
  %mode = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %mode)
  %before = load i32, ptr %mode
  %without = and i32 %before, -32833
  %after = or i32 %without, %flushing
  store i32 %after, ptr %mode
  call void @llvm.x86.sse.ldmxcsr(ptr %mode)
  ret void
}
"""
_ARM_FLUSH = (
    "declare i64 @llvm.aarch64.get.fpcr()\ndeclare void @llvm.aarch64.set.fpcr(i64)",
    "%mode_before = call i64 @llvm.aarch64.get.fpcr()\n"
    "  %flushing32 = load i32, ptr @flushing\n  %flushing = zext i32 %flushing32 to i64\n"
    "  %mode_of_run = or i64 %mode_before, %flushing\n"
    "  call void @llvm.aarch64.set.fpcr(i64 %mode_of_run)",
    "call void @llvm.aarch64.set.fpcr(i64 %mode_before)",
)
_ARM_SET = """
define void @pool_set_flushing(i32 %on) nounwind {
  %flushing = shl i32 %on, 24
  store i32 %flushing, ptr @flushing
  %before = call i64 @llvm.aarch64.get.fpcr()
  %without = and i64 %before, -16777217
  %wide = zext i32 %flushing to i64
  %after = or i64 %without, %wide
  call void @llvm.aarch64.set.fpcr(i64 %after)
  ret void
}
"""


@cache
def native() -> dict[str, int]:
    """The addresses of the functions of the IR."""
    names = (
        "pool_serial", "pool_forget_callers", "pool_worker", "pool_run", "pool_end",
        "pool_set_flushing",
    )  # fmt: skip
    return jit.addresses_in(ir(), names)


@cache
def ir() -> str:
    """The IR for this machine."""
    is_x86 = platform.machine() in ("x86_64", "AMD64")
    declarations, flush, restore = _X86_FLUSH if is_x86 else _ARM_FLUSH
    pause = "call void @llvm.x86.sse2.pause()" if is_x86 else "fence seq_cst"
    words = {
        "PAUSE_DECLARATION": "declare void @llvm.x86.sse2.pause()" if is_x86 else "",
        "FLUSH_DECLARATIONS": declarations, "FLUSH": flush, "RESTORE": restore,
        "PAUSE": pause, "FUTEX": FUTEX or 0, "WAIT": 128, "WAKE": 129,
        "BARRIER": _BARRIER_SPINS, "IDLE": _IDLE_SPINS, "ACQUIRE": _GIL_SPINS,
        "HANDOFF": _HANDOFF_SPINS, "BACKOFF": _HANDOFF_BACKOFF,
        "BRIEF": BRIEF, "LONG": LONG,
        "FROM_BACK": 1 << _BACK_BITS, "BELOW_BACK": (1 << _BACK_BITS) - 1, "BACK_BITS": _BACK_BITS,
        "PARKED_AND_ONE": _PARKED + 1, "PARKED": _PARKED, "OPEN": _OPEN,
    }  # fmt: skip
    found = _IR + (_X86_SET if is_x86 else _ARM_SET)
    for word, meaning in words.items():
        found = found.replace(word, str(meaning))
    return found
