"""Whether collections hold the same objects as before, which every call of a program asks.

An optimizer alone has some ten options and three objects for each parameter. Python takes 40
nanoseconds for each of them, native code two or three.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, cached_property
from typing import Any

from evergrad.compiler import llvm
from evergrad.compiler.builtin import builtin

# The function's own object is a tuple: a list of dictionaries, a list of lists, and a list of what
# these have held: of all dictionaries the values, then of all lists the items.
_TEXT = r"""
declare ptr @PyTuple_GetItem(ptr, i64)
declare i64 @PyList_Size(ptr)
declare ptr @PyList_GetItem(ptr, i64)
declare i32 @PyDict_Next(ptr, ptr, ptr, ptr)
declare ptr @PyBool_FromLong(i64)

; Whether the member of this number was this one.
define internal i1 @was(ptr %seen, i64 %count, i64 %number, ptr %member) alwaysinline nounwind {
  %is_more = icmp sge i64 %number, %count
  br i1 %is_more, label %other, label %compare
compare:
  %then = call ptr @PyList_GetItem(ptr %seen, i64 %number)
  %same = icmp eq ptr %then, %member
  ret i1 %same
other:
  ret i1 false
}

define ptr @same_members(ptr %own, ptr %ignored) nounwind {
entry:
  %at = alloca i64
  %value = alloca ptr
  %dicts = call ptr @PyTuple_GetItem(ptr %own, i64 0)
  %lists = call ptr @PyTuple_GetItem(ptr %own, i64 1)
  %seen = call ptr @PyTuple_GetItem(ptr %own, i64 2)
  %count = call i64 @PyList_Size(ptr %seen)
  %dict_count = call i64 @PyList_Size(ptr %dicts)
  %list_count = call i64 @PyList_Size(ptr %lists)
  br label %next_dict
next_dict:
  %d = phi i64 [0, %entry], [%d1, %in_dict]
  %n0 = phi i64 [0, %entry], [%n1, %in_dict]
  %more_dicts = icmp slt i64 %d, %dict_count
  br i1 %more_dicts, label %dict, label %next_list
dict:
  %this_dict = call ptr @PyList_GetItem(ptr %dicts, i64 %d)
  %d1 = add i64 %d, 1
  store i64 0, ptr %at
  br label %in_dict
in_dict:
  %n1 = phi i64 [%n0, %dict], [%n2, %dict_member]
  %found = call i32 @PyDict_Next(ptr %this_dict, ptr %at, ptr null, ptr %value)
  %is_found = icmp ne i32 %found, 0
  br i1 %is_found, label %dict_member, label %next_dict
dict_member:
  %member = load ptr, ptr %value
  %same0 = call i1 @was(ptr %seen, i64 %count, i64 %n1, ptr %member)
  %n2 = add i64 %n1, 1
  br i1 %same0, label %in_dict, label %end
next_list:
  %l = phi i64 [0, %next_dict], [%l1, %in_list]
  %n3 = phi i64 [%n0, %next_dict], [%n4, %in_list]
  %more_lists = icmp slt i64 %l, %list_count
  br i1 %more_lists, label %list, label %all
list:
  %this_list = call ptr @PyList_GetItem(ptr %lists, i64 %l)
  %l1 = add i64 %l, 1
  %size = call i64 @PyList_Size(ptr %this_list)
  br label %in_list
in_list:
  %i = phi i64 [0, %list], [%i1, %list_member]
  %n4 = phi i64 [%n3, %list], [%n5, %list_member]
  %is_left = icmp slt i64 %i, %size
  br i1 %is_left, label %list_member, label %next_list
list_member:
  %item = call ptr @PyList_GetItem(ptr %this_list, i64 %i)
  %same1 = call i1 @was(ptr %seen, i64 %count, i64 %n4, ptr %item)
  %i1 = add i64 %i, 1
  %n5 = add i64 %n4, 1
  br i1 %same1, label %in_list, label %end
all:
  %are_all = icmp eq i64 %n3, %count
  br label %end
end:
  %same = phi i1 [%are_all, %all], [false, %dict_member], [false, %list_member]
  %answer = zext i1 %same to i64
  %object = call ptr @PyBool_FromLong(i64 %answer)
  ret ptr %object
}
"""


def begin() -> None:
    """Let the text be compiled meanwhile, if it has to be."""
    llvm.begin_text(_TEXT)


@cache
def _address() -> int:
    return llvm.addresses_in(_TEXT, ("same_members",))["same_members"]


class Members:
    """The objects that dictionaries and lists hold now. Other collections (tuples) cannot
    change."""

    def __init__(self, collections: Iterable[Any]) -> None:
        watched = list(collections)
        self.dicts = [c for c in watched if isinstance(c, dict)]
        self.lists = [c for c in watched if isinstance(c, list)]
        self.seen = [member for c in self.dicts for member in dict.values(c)]
        self.seen += [member for c in self.lists for member in list.__iter__(c)]

    @cached_property
    def are_same(self) -> Callable[[], bool]:
        """A function that tells whether they still hold them; made when it is first asked, so
        that nobody waits for its machine code before a first step."""
        own = (self.dicts, self.lists, self.seen)
        return builtin("same_members", _address(), own)  # type: ignore[no-any-return]
