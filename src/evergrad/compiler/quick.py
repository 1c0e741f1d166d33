"""The shortest way of a call: all it does until its run has ended, one native function after the
other.

While one caller is in Python no other can be. What Python's instructions touch on their way
(reference counts of functions, classes and constants) also moves from one processor's cache to the
other's whenever callers take turns, and Python takes half as long again. So of the usual call only
the making of its results is Python's. An interrupt may come in there; since the run has happened,
the results are made once more before it is told. Like a function of :mod:`.plain` it says
``UNSERVED`` where a call is not of the usual kind, before it has changed anything.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from evergrad.compiler import llvm
from evergrad.compiler.builtin import builtin
from evergrad.core.state import STATE, State

# Stands for the result of a call that has to go another way.
UNSERVED: Any = object()

# The function's own object is a tuple: [0] the context variable of the modes, [1] the modes,
# [2] takes the lock, [3] with this, [4] gives it back, [5] whether the arguments fit, [6] a list
# with what tells whether the conditions still hold, [7] tells the kernels of the arguments,
# [8] runs, [9] gives the result, [10] what is given if something is not as it should be; [11] True,
# [12] zero.
TEXT = r"""
declare ptr @PyTuple_GetItem(ptr, i64)
declare ptr @PyList_GetItem(ptr, i64)
declare i32 @PyContextVar_Get(ptr, ptr, ptr)
declare ptr @PyObject_CallFunctionObjArgs(ptr, ...)
declare ptr @PyErr_Occurred()
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @PyErr_Restore(ptr, ptr, ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)

; Calls something, whatever it gives, also where an error is on its way.
define internal void @quietly(ptr %function) nounwind {
  %kind = alloca ptr
  %error = alloca ptr
  %trace = alloca ptr
  call void @PyErr_Fetch(ptr %kind, ptr %error, ptr %trace)
  %ignored = call i1 @gives(ptr %function, ptr null, ptr null)
  %kind1 = load ptr, ptr %kind
  %error1 = load ptr, ptr %error
  %trace1 = load ptr, ptr %trace
  call void @PyErr_Restore(ptr %kind1, ptr %error1, ptr %trace1)
  ret void
}

; Calls with one argument, or none if it is null; whether that gives this very object.
define internal i1 @gives(ptr %function, ptr %argument, ptr %expected) nounwind {
  %result = call ptr (ptr, ...)
      @PyObject_CallFunctionObjArgs(ptr %function, ptr %argument, ptr null)
  %same = icmp eq ptr %result, %expected
  %failed = icmp eq ptr %result, null
  br i1 %failed, label %end, label %drop
drop:
  call void @Py_DecRef(ptr %result)
  br label %end
end:
  ret i1 %same
}

define ptr @quick(ptr %own, ptr %args) nounwind {
entry:
  %found = alloca ptr
  %variable = call ptr @PyTuple_GetItem(ptr %own, i64 0)
  %modes = call ptr @PyTuple_GetItem(ptr %own, i64 1)
  %take = call ptr @PyTuple_GetItem(ptr %own, i64 2)
  %at_once = call ptr @PyTuple_GetItem(ptr %own, i64 3)
  %release = call ptr @PyTuple_GetItem(ptr %own, i64 4)
  %fit = call ptr @PyTuple_GetItem(ptr %own, i64 5)
  %current = call ptr @PyTuple_GetItem(ptr %own, i64 6)
  %tell = call ptr @PyTuple_GetItem(ptr %own, i64 7)
  %run = call ptr @PyTuple_GetItem(ptr %own, i64 8)
  %deliver = call ptr @PyTuple_GetItem(ptr %own, i64 9)
  %unserved = call ptr @PyTuple_GetItem(ptr %own, i64 10)
  %true = call ptr @PyTuple_GetItem(ptr %own, i64 11)
  %zero = call ptr @PyTuple_GetItem(ptr %own, i64 12)
  %got = call i32 @PyContextVar_Get(ptr %variable, ptr null, ptr %found)
  %now = load ptr, ptr %found
  %failed = icmp ne i32 %got, 0
  br i1 %failed, label %nothing, label %modes_found
modes_found:
  call void @Py_DecRef(ptr %now)
  %same_modes = icmp eq ptr %now, %modes
  br i1 %same_modes, label %lock, label %other_way
lock:
  %taken = call i1 @gives(ptr %take, ptr %at_once, ptr %true)
  br i1 %taken, label %look_at_args, label %other_way
look_at_args:
  %fits = call i1 @gives(ptr %fit, ptr %args, ptr %true)
  br i1 %fits, label %look_around, label %unlock
look_around:
  %holds = call ptr @PyList_GetItem(ptr %current, i64 0)
  call void @Py_IncRef(ptr %holds)
  %untouched = call i1 @gives(ptr %holds, ptr null, ptr %true)
  call void @Py_DecRef(ptr %holds)
  br i1 %untouched, label %tell_kernels, label %unlock
tell_kernels:
  %told = call i1 @gives(ptr %tell, ptr %args, ptr %true)
  br i1 %told, label %go, label %unlock
go:
  %fine = call i1 @gives(ptr %run, ptr null, ptr %zero)
  br i1 %fine, label %end, label %unlock
end:
  %result = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %deliver, ptr null)
  %interrupted = icmp eq ptr %result, null
  br i1 %interrupted, label %again, label %given
again:
  call void @quietly(ptr %deliver)
  br label %given
given:
  call void @quietly(ptr %release)
  ret ptr %result
unlock:
  call void @quietly(ptr %release)
  br label %other_way
other_way:
  %error = call ptr @PyErr_Occurred()
  %raised = icmp ne ptr %error, null
  br i1 %raised, label %nothing, label %say_so
nothing:
  ret ptr null
say_so:
  call void @Py_IncRef(ptr %unserved)
  ret ptr %unserved
}
"""


@cache
def _address() -> int:
    return llvm.addresses_in(TEXT, ("quick",))["quick"]


def quick_call(
    state: State, lock: Any, fit: Callable[..., bool], current: list[Callable[[], bool]],
    tell: Callable[..., bool], run: Callable[[], int], deliver: Callable[[], Any], kept: Any = None,
) -> Callable[[tuple[Any, ...]], Any]:  # fmt: skip
    """A function that serves calls in these modes, with what they consist of: whether the arguments
    fit, whether the conditions still hold (the only entry of a list), to tell the kernels of the
    arguments, to run, which gives zero, and to deliver the result. The lock is held meanwhile, and
    what is ``kept`` lives as long as the function."""
    own = (
        STATE, state, lock.acquire, False, lock.release, fit, current, tell, run, deliver, UNSERVED,
        True, 0, kept,
    )  # fmt: skip
    return builtin("quick", _address(), own, takes_one=True)  # type: ignore[no-any-return]
