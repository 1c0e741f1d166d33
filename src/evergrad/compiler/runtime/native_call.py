"""The shortest way of a call: all it does is native.

While one caller is in Python no other can be. What Python's instructions touch on their way
(reference counts of functions, classes and constants) also moves from one processor's cache to the
other's whenever callers take turns, and Python takes half as long again. So the usual call asks its
questions, runs and makes its results natively (:mod:`.runtime.native_results`); Python is asked
where that cannot be. An interrupt may come in there; since the run has happened, the results are
made once more before it is told. Like a function of :mod:`.runtime.call_path` it says ``UNSERVED``
where a call is not of the usual kind, before it has changed anything.

Nobody else may use the programs of the step meanwhile (:mod:`.runtime.step_lock`). Where all is
native it is enough to say so in a word; otherwise the lock is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from evergrad.compiler.frontend.native_predicates import ASK_TEXT, code_of, native
from evergrad.compiler.native import jit
from evergrad.compiler.native.builtin import builtin
from evergrad.compiler.native.object_words import (
    kind_word,
    table,
)
from evergrad.compiler.runtime.native_results import TEXT as DELIVERY_TEXT
from evergrad.compiler.runtime.native_results import Delivery
from evergrad.compiler.runtime.native_storages import TEXT as STORAGES_TEXT
from evergrad.compiler.runtime.step_lock import Turns
from evergrad.compiler.schedule.instructions import address_of
from evergrad.core.state import STATE, State

# Stands for the result of a call that has to go another way.
UNSERVED: Any = object()

# The function's own object is a tuple that begins with the address of a table. Its words: [0] the
# context variable of the modes, [1] the modes, [2] what is given if something is not as it should
# be, [3] True, [4] zero, [5] takes the lock, [6] with this, [7] gives it back, [8] where its number
# of times taken lies, or null if it has to be taken always; whether the arguments fit: [9] the
# function, [10] its code or null, [11] its table; [12] a list with what tells whether the
# conditions still hold, [13] the class of builtin functions, [14] where objects have their class,
# [15] the code of builtin functions that answer; what tells the kernels of the arguments: [16] the
# function, [17] code, [18] table; what runs: [19] the function, [20] code, [21] table;
# [22] delivers results, [23] the table of a delivery or null; [24] the word that says that a native
# call is going on.
TEXT = (
    STORAGES_TEXT
    + DELIVERY_TEXT
    + ASK_TEXT
    + r"""
declare ptr @PyList_GetItem(ptr, i64)
declare i32 @PyContextVar_Get(ptr, ptr, ptr)
declare ptr @PyCFunction_GetFunction(ptr)
declare ptr @PyCFunction_GetSelf(ptr)
declare ptr @PyErr_Occurred()
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @PyErr_Restore(ptr, ptr, ptr)

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

; Whether a function says what is expected, an object or natively a number; its words begin here.
define internal i1 @says(ptr %words, i64 %first, ptr %argument, i64 %object, i64 %number) nounwind {
  %second = add i64 %first, 1
  %third = add i64 %first, 2
  %function = call ptr @address(ptr %words, i64 %first)
  %code = call ptr @address(ptr %words, i64 %second)
  %table = call ptr @address(ptr %words, i64 %third)
  %unknown = icmp eq ptr %code, null
  br i1 %unknown, label %ask_python, label %ask
ask:
  %said = call i64 %code(ptr %table, ptr %argument)
  %expected = icmp eq i64 %said, %number
  ret i1 %expected
ask_python:
  %thing = call ptr @address(ptr %words, i64 %object)
  %given = call i1 @gives(ptr %function, ptr %argument, ptr %thing)
  ret i1 %given
}

; Whether the conditions still hold.
define internal i1 @holds(ptr %words) nounwind {
entry:
  %current = call ptr @address(ptr %words, i64 12)
  %builtins = call ptr @address(ptr %words, i64 13)
  %to_class = call i64 @entry(ptr %words, i64 14)
  %answers = call ptr @address(ptr %words, i64 15)
  %function = call ptr @PyList_GetItem(ptr %current, i64 0)
  %class = call ptr @word(ptr %function, i64 %to_class)
  %is_builtin = icmp eq ptr %class, %builtins
  br i1 %is_builtin, label %look, label %ask_python
look:
  %its_code = call ptr @PyCFunction_GetFunction(ptr %function)
  %is_known = icmp eq ptr %its_code, %answers
  br i1 %is_known, label %ask, label %ask_python
ask:
  %own = call ptr @PyCFunction_GetSelf(ptr %function)
  %said = call i64 @ask(ptr %own, ptr null)
  %yes = icmp ne i64 %said, 0
  ret i1 %yes
ask_python:
  %true = call ptr @address(ptr %words, i64 3)
  call void @Py_IncRef(ptr %function)
  %given = call i1 @gives(ptr %function, ptr null, ptr %true)
  call void @Py_DecRef(ptr %function)
  ret i1 %given
}

; Whether a call is of the usual kind: its arguments fit, and the conditions hold.
define internal i1 @is_usual(ptr %words, ptr %args) nounwind {
entry:
  %fits = call i1 @says(ptr %words, i64 9, ptr %args, i64 3, i64 1)
  br i1 %fits, label %look_around, label %end
look_around:
  %untouched = call i1 @holds(ptr %words)
  br label %end
end:
  %yes = phi i1 [false, %entry], [%untouched, %look_around]
  ret i1 %yes
}

; Tells the kernels of the arguments and runs; whether that has gone well.
define internal i1 @runs(ptr %words, ptr %args) nounwind {
entry:
  %told = call i1 @says(ptr %words, i64 16, ptr %args, i64 3, i64 1)
  br i1 %told, label %go, label %end
go:
  %fine = call i1 @says(ptr %words, i64 19, ptr null, i64 4, i64 0)
  br label %end
end:
  %yes = phi i1 [false, %entry], [%fine, %go]
  ret i1 %yes
}

define ptr @quick(ptr %own, ptr %args) nounwind {
entry:
  %found = alloca ptr
  %number = call ptr @PyTuple_GetItem(ptr %own, i64 0)
  %words = call ptr @PyLong_AsVoidPtr(ptr %number)
  %variable = call ptr @address(ptr %words, i64 0)
  %modes = call ptr @address(ptr %words, i64 1)
  %times_taken = call ptr @address(ptr %words, i64 8)
  %delivery = call ptr @address(ptr %words, i64 23)
  %busy = call ptr @address(ptr %words, i64 24)
  %got = call i32 @PyContextVar_Get(ptr %variable, ptr null, ptr %found)
  %now = load ptr, ptr %found
  %failed = icmp ne i32 %got, 0
  br i1 %failed, label %nothing, label %modes_found
modes_found:
  call void @Py_DecRef(ptr %now)
  %same_modes = icmp eq ptr %now, %modes
  br i1 %same_modes, label %see, label %other_way
see:
  %is_locked_always = icmp eq ptr %times_taken, null
  br i1 %is_locked_always, label %look_for_others, label %look
look:
  %usual = call i1 @is_usual(ptr %words, ptr %args)
  br i1 %usual, label %look_at_lock, label %other_way
look_at_lock:
  %times = load i64, ptr %times_taken
  %is_open = icmp eq i64 %times, 0
  br i1 %is_open, label %look_for_others, label %other_way
look_for_others:
  %is_busy = load i64, ptr %busy
  %is_idle = icmp eq i64 %is_busy, 0
  br i1 %is_idle, label %choose, label %other_way
choose:
  br i1 %is_locked_always, label %lock, label %look_for_memory
look_for_memory:
  %set = call ptr @free_set(ptr %delivery)
  %no_set = icmp eq ptr %set, null
  br i1 %no_set, label %lock, label %go
go:
  store i64 1, ptr %busy
  %fine = call i1 @runs(ptr %words, ptr %args)
  br i1 %fine, label %end, label %undone
undone:
  store i64 0, ptr %busy
  br label %other_way
end:
  call void @finish(ptr %delivery)
  call void @copy_out(ptr %delivery, ptr %set)
  store i64 0, ptr %busy
  %results = call ptr @hand_out(ptr %delivery, ptr %set)
  ret ptr %results
lock:
  %take = call ptr @address(ptr %words, i64 5)
  %at_once = call ptr @address(ptr %words, i64 6)
  %true = call ptr @address(ptr %words, i64 3)
  %taken = call i1 @gives(ptr %take, ptr %at_once, ptr %true)
  br i1 %taken, label %locked, label %other_way
locked:
  %result = call ptr @under_lock(ptr %words, ptr %args)
  %release = call ptr @address(ptr %words, i64 7)
  call void @quietly(ptr %release)
  %served = icmp ne ptr %result, null
  br i1 %served, label %give, label %other_way
give:
  ret ptr %result
other_way:
  %error = call ptr @PyErr_Occurred()
  %raised = icmp ne ptr %error, null
  br i1 %raised, label %nothing, label %say_so
nothing:
  ret ptr null
say_so:
  %unserved = call ptr @address(ptr %words, i64 2)
  call void @Py_IncRef(ptr %unserved)
  ret ptr %unserved
}

; The results of a call that has the lock; null if it has to go another way, or with an error.
define internal ptr @under_lock(ptr %words, ptr %args) nounwind {
entry:
  %deliver = call ptr @address(ptr %words, i64 22)
  %delivery = call ptr @address(ptr %words, i64 23)
  %usual = call i1 @is_usual(ptr %words, ptr %args)
  br i1 %usual, label %go, label %no
go:
  %fine = call i1 @runs(ptr %words, ptr %args)
  br i1 %fine, label %end, label %no
end:
  %is_native = icmp ne ptr %delivery, null
  br i1 %is_native, label %natively, label %in_python
natively:
  call void @finish(ptr %delivery)
  %set = call ptr @free_set(ptr %delivery)
  %is_free = icmp ne ptr %set, null
  br i1 %is_free, label %hand_out, label %in_python
hand_out:
  call void @copy_out(ptr %delivery, ptr %set)
  %results = call ptr @hand_out(ptr %delivery, ptr %set)
  ret ptr %results
in_python:
  %result = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %deliver, ptr null)
  %interrupted = icmp eq ptr %result, null
  br i1 %interrupted, label %again, label %given
again:
  call void @quietly(ptr %deliver)
  br label %given
given:
  ret ptr %result
no:
  ret ptr null
}
"""
)


@cache
def _address() -> int:
    return jit.addresses_in(TEXT, ("quick",))["quick"]


def quick_call(
    state: State, turns: Turns, fit: Callable[..., bool], current: list[Callable[[], bool]],
    tell: Callable[..., bool], run: Callable[[], int], deliver: Callable[[], Any] | Delivery,
    kept: Any = None,
) -> Callable[[tuple[Any, ...]], Any]:  # fmt: skip
    """A function that serves calls in these modes, with what they consist of: whether the arguments
    fit, whether the conditions still hold (the only entry of a list), to tell the kernels of the
    arguments, to run, which gives zero, and to deliver the result. What is ``kept`` lives as long
    as the function."""
    parts = [(id(part), *code_of(part)) for part in (fit, tell, run)]
    delivery = deliver if isinstance(deliver, Delivery) else None
    make = deliver if delivery is None else delivery.deliver
    is_native = delivery is not None and all(code for _, code, _ in parts)
    times, busy = turns.addresses()
    times = times if is_native else 0
    take, release, zero = turns.lock.acquire, turns.lock.release, 0
    words = table([
        id(STATE), id(state), id(UNSERVED), id(True), id(zero), id(take), id(False), id(release),
        times, *parts[0], id(current), id(type(len)), kind_word(), native()["answer"], *parts[1],
        *parts[2], id(make), 0 if delivery is None else address_of(delivery.table), busy,
    ])  # fmt: skip
    alive = (words, state, turns, take, release, fit, current, tell, run, make, kept)
    own = (address_of(words), *alive)
    return builtin("quick", _address(), own, takes_one=True)  # type: ignore[no-any-return]
