"""Whether everything holds the same objects as before, which every call of a program asks.

An optimizer alone has some ten options and three objects for each parameter. Python takes 40
nanoseconds for each of them, native code one to three; it asks for words of objects
(:mod:`.native.object_words`), for names in dictionaries, and for all that is in dictionaries and
lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from evergrad.compiler.frontend.native_predicates import answer
from evergrad.compiler.native import jit
from evergrad.compiler.native.object_words import table
from evergrad.compiler.schedule.instructions import address_of

# Stands for what a dictionary does not have.
MISSING = object()

# A word of an object: the object, how far from its beginning it lies, and what it held.
Word = tuple[Any, int, Any]
# A dictionary, a text, and what it held under it.
Named = tuple[dict[str, Any], str, Any]

# The function's table is ten words, each number followed by the address of as many rows: words
# (address, object), names (dictionary, name, object or null), dictionaries, lists, and what these
# have held: of all dictionaries the values, then of all lists the items.
TEXT = r"""
declare i64 @PyList_Size(ptr)
declare ptr @PyList_GetItem(ptr, i64)
declare i32 @PyDict_Next(ptr, ptr, ptr, ptr)
declare ptr @PyDict_GetItemWithError(ptr, ptr)

define internal ptr @rows(ptr %table, i64 %number) alwaysinline nounwind {
  %at = getelementptr [2 x ptr], ptr %table, i64 %number, i64 1
  %rows = load ptr, ptr %at
  ret ptr %rows
}

define internal i64 @count(ptr %table, i64 %number) alwaysinline nounwind {
  %at = getelementptr [2 x i64], ptr %table, i64 %number, i64 0
  %count = load i64, ptr %at
  ret i64 %count
}

; Whether the member of this number was this one.
define internal i1 @was(ptr %seen, i64 %count, i64 %number, ptr %member) alwaysinline nounwind {
  %is_more = icmp sge i64 %number, %count
  br i1 %is_more, label %other, label %compare
compare:
  %at = getelementptr ptr, ptr %seen, i64 %number
  %then = load ptr, ptr %at
  %same = icmp eq ptr %then, %member
  ret i1 %same
other:
  ret i1 false
}

define i64 @unchanged(ptr %table, ptr %ignored) nounwind {
entry:
  %at = alloca i64
  %value = alloca ptr
  %word_count = call i64 @count(ptr %table, i64 0)
  %words = call ptr @rows(ptr %table, i64 0)
  %name_count = call i64 @count(ptr %table, i64 1)
  %names = call ptr @rows(ptr %table, i64 1)
  %dict_count = call i64 @count(ptr %table, i64 2)
  %dicts = call ptr @rows(ptr %table, i64 2)
  %list_count = call i64 @count(ptr %table, i64 3)
  %lists = call ptr @rows(ptr %table, i64 3)
  %count = call i64 @count(ptr %table, i64 4)
  %seen = call ptr @rows(ptr %table, i64 4)
  br label %next_word
next_word:
  %w = phi i64 [0, %entry], [%w1, %word]
  %more_words = icmp slt i64 %w, %word_count
  br i1 %more_words, label %word, label %next_name
word:
  %wordp = getelementptr [2 x ptr], ptr %words, i64 %w, i64 0
  %thenp = getelementptr [2 x ptr], ptr %words, i64 %w, i64 1
  %place = load ptr, ptr %wordp
  %now = load ptr, ptr %place
  %then = load ptr, ptr %thenp
  %w1 = add i64 %w, 1
  %same_word = icmp eq ptr %now, %then
  br i1 %same_word, label %next_word, label %end
next_name:
  %k = phi i64 [0, %next_word], [%k1, %name]
  %more_names = icmp slt i64 %k, %name_count
  br i1 %more_names, label %name, label %next_dict
name:
  %spacep = getelementptr [3 x ptr], ptr %names, i64 %k, i64 0
  %namep = getelementptr [3 x ptr], ptr %names, i64 %k, i64 1
  %heldp = getelementptr [3 x ptr], ptr %names, i64 %k, i64 2
  %space = load ptr, ptr %spacep
  %text = load ptr, ptr %namep
  %held = load ptr, ptr %heldp
  %holds = call ptr @PyDict_GetItemWithError(ptr %space, ptr %text)
  %k1 = add i64 %k, 1
  %same_name = icmp eq ptr %holds, %held
  br i1 %same_name, label %next_name, label %end
next_dict:
  %d = phi i64 [0, %next_name], [%d1, %in_dict]
  %n0 = phi i64 [0, %next_name], [%n1, %in_dict]
  %more_dicts = icmp slt i64 %d, %dict_count
  br i1 %more_dicts, label %dict, label %next_list
dict:
  %dictp = getelementptr ptr, ptr %dicts, i64 %d
  %this_dict = load ptr, ptr %dictp
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
  %listp = getelementptr ptr, ptr %lists, i64 %l
  %this_list = load ptr, ptr %listp
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
  %same = phi i1 [%are_all, %all], [false, %word], [false, %name], [false, %dict_member],
                 [false, %list_member]
  %answer = zext i1 %same to i64
  ret i64 %answer
}
"""


@cache
def _address() -> int:
    return jit.addresses_in(TEXT, ("unchanged",))["unchanged"]


def unchanged(
    collections: Iterable[Any], words: Iterable[Word] = (), named: Iterable[Named] = ()
) -> Callable[[], bool]:
    """A function that tells whether words of objects and names in dictionaries are as given, and
    dictionaries and lists still hold the objects that they hold now. Other collections (tuples)
    cannot change."""
    words, named, watched = list(words), list(named), list(collections)
    dicts = [c for c in watched if isinstance(c, dict)]
    lists = [c for c in watched if isinstance(c, list)]
    seen = [member for c in dicts for member in dict.values(c)]
    seen += [member for c in lists for member in list.__iter__(c)]
    rows: tuple[list[Any], ...] = (
        [(id(holder) + distance, id(held)) for holder, distance, held in words],
        [(id(d), id(name), 0 if held is MISSING else id(held)) for d, name, held in named],
        list(map(id, dicts)), list(map(id, lists)), list(map(id, seen)),
    )  # fmt: skip
    tables = [table(r) for r in rows]
    counted = table([(len(r), address_of(t)) for r, t in zip(rows, tables, strict=True)])
    kept = (words, named, dicts, lists, seen, tables, counted)
    return answer("unchanged", _address(), address_of(counted), kept)  # type: ignore[no-any-return]
