"""The programs that are kept of a compiled function: which are valid for a call, how many there may
be, and what is dropped."""

from __future__ import annotations

import warnings
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from evergrad.compiler.cache.new_signatures import REASON, SMALL_ELEMENTS, NewSignatures
from evergrad.compiler.cache.program_lru import ProgramLRU
from evergrad.compiler.cache.signature_churn import SignatureChurn, leaf_paths
from evergrad.compiler.calls.call_path import FastPath
from evergrad.compiler.frontend.arguments.signature import PythonCall
from evergrad.compiler.frontend.captured import Captured
from evergrad.compiler.frontend.guards.guard import Guards
from evergrad.compiler.frontend.guards.revalidation import difference
from evergrad.compiler.frontend.paths.path_policy import PathPolicy, same_path
from evergrad.compiler.frontend.session import NotWholeError, Session
from evergrad.compiler.frontend.variant import Variant
from evergrad.compiler.runtime.arena import SharedArena
from evergrad.core.source_location import user_stacklevel
from evergrad.core.storage import Storage

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction

# The most variants kept per signature, and the most fast paths.
VARIANT_LIMIT = 8
# How often the variants of a signature are replaced before its calls are run by Python alone, and
# how many such calls there are for one that is compiled again.
_MOST_ROUNDS = 2
_TRIED_AGAIN = 256
# The most signatures that are remembered because variants were replaced or segments are small.
_MOST_SIGNATURES = 64
# So many calls run in segments before Python alone runs further ones, if equations compute fewer
# elements on average: to record an equation takes as long as to compute half a million of them.
_SMALL_CALLS = 8
# The most programs that keep their lowering, which only reports read.
_LOWERINGS_KEPT = 4
# How often a tensor of which numbers are read is another one before these are taken to vary.
_CHANGES = 3
# A function of which so many programs were stale is run by Python.
_MOST_STALE = 3
# The most programs of a function that are kept on disk.
_PROGRAMS_ON_DISK = 12


class _SmallCalls(NamedTuple):
    """How many calls have run in segments that are too small, and why the last was no program."""

    calls: int
    reason: str


class KeptPrograms:
    """A function with the variants that were compiled for it, by signature."""

    __slots__ = (
        "arena", "calls_without", "changed_storages", "check_finite", "churn", "fast_paths",
        "function", "function_name", "memory_limit", "new_signatures", "path_policy", "programs",
        "refusal", "replacements", "small_calls", "stale_programs", "variants", "varying_storages",
    )  # fmt: skip

    def __init__(self, function: AnyFunction, check_finite: bool, memory_limit: int | None) -> None:
        self.function = function
        self.check_finite = check_finite
        self.memory_limit = memory_limit
        self.function_name = getattr(function, "__qualname__", type(function).__name__)
        self.variants: dict[object, list[Variant]] = {}
        # The memory of its programs, and which of them are kept.
        self.arena = SharedArena()
        self.programs = ProgramLRU[Variant, Variant]()
        self.churn = SignatureChurn(self.function_name)
        self.new_signatures = NewSignatures()
        # The paths that it takes by the data.
        self.path_policy = PathPolicy()
        # How many programs were found to be stale when a call was traced again.
        self.stale_programs: int = 0
        # How often the variants of a signature were replaced, since guards keep failing.
        self.replacements: Counter[object] = Counter()
        # How often calls have run in segments that are too small to be worth their recording.
        self.small_calls: dict[object, _SmallCalls] = {}
        self.calls_without: int = 0
        # Storages, not of arguments, of which the function reads elements that keep changing, and
        # how often that made a program invalid.
        self.varying_storages: weakref.WeakSet[Storage] = weakref.WeakSet()
        self.changed_storages: weakref.WeakKeyDictionary[Storage, int] = weakref.WeakKeyDictionary()
        # Why it is no program, if it takes long to find out.
        self.refusal: str | None = None
        # Fast paths by variant, most recently added first.
        self.fast_paths: dict[Variant, FastPath] = {}

    def reason_for_python(self, call: PythonCall) -> str | None:
        """Why a call is run by Python alone: its signature is new, as nearly all are; a guard
        fails at nearly every call with this signature, so that a program for it would not be used
        again; the function reaches so much that it takes long to find out that it is no program; or
        its segments are small. ``None`` for other calls, and for some of these later on."""
        known = self.variants.get(call.key, [])
        may_be_eager = not self.check_finite and self.memory_limit is None
        if not known and may_be_eager and self.new_signatures.is_rare(call.key):
            return REASON
        is_failing = (
            self.replacements[call.key] >= _MOST_ROUNDS
            and len(_without_paths(known)) >= VARIANT_LIMIT
        )
        small = self.small_calls.get(call.key)
        is_small = small is not None and small.calls >= _SMALL_CALLS
        changing = None if known else self.churn.passes(call.key)
        if self.refusal is None and changing is None and not (is_failing or is_small):
            return None
        self.calls_without += 1
        if self.calls_without % _TRIED_AGAIN == 0:
            return None
        if self.refusal is not None:
            return self.refusal
        if changing is not None:
            return changing
        if small is not None and is_small:
            return f"{small.reason}; to record its operations takes longer than to compute them"
        return f"{known[-1].guards.first_failed()} changes from call to call"

    def note_segments(self, call: PythonCall, session: Session, reason: str) -> None:
        """Note a call that has run in segments, and why."""
        if session.is_passing:
            return
        if session.elements > SMALL_ELEMENTS * session.equation_count:
            self.small_calls.pop(call.key, None)
            return
        earlier = self.small_calls.get(call.key)
        if earlier is None and len(self.small_calls) >= _MOST_SIGNATURES:
            self.small_calls.clear()
        self.small_calls[call.key] = _SmallCalls(1 + (earlier.calls if earlier else 0), reason)

    def require_same_elements(self, session: Session) -> None:
        """Raise if a session has read elements that its call replaces: further calls read them from
        the data."""
        found = session.read_and_written()
        if found:
            self.varying_storages.update(found)
            session.is_passing = True
            raise NotWholeError("elements of a tensor are read that the function writes")

    def note_changed_elements(self, guards: Guards) -> None:
        """Note the tensors of which a program has read elements that are others now."""
        for storage, version in guards.read_versions:
            if storage.version != version:
                count = self.changed_storages.get(storage, 0) + 1
                self.changed_storages[storage] = count
                if count >= _CHANGES:
                    self.varying_storages.add(storage)

    def add_variant(self, call: PythonCall, captured: Captured) -> Variant:
        """Compile a captured call, and keep its program."""
        known = self.variants.get(call.key, [])
        on_disk = len(self.programs) < _PROGRAMS_ON_DISK
        if captured.path is not None:
            older = self.path_policy.add(
                call.key, captured, known, self.memory_limit, self.arena, on_disk
            )
            for variant in older:
                self.programs.evict(variant)
            self.forget(older)
        elif len(_without_paths(known)) >= VARIANT_LIMIT:
            if len(self.replacements) >= _MOST_SIGNATURES:
                self.replacements.clear()
            self.replacements[call.key] += 1
            warnings.warn(
                f"{self.function} was recompiled {len(known)} times for the same signature; failed "
                f"guard: {known[-1].guards.first_failed()}",
                RuntimeWarning,
                stacklevel=user_stacklevel(),
            )
            for old in list(known):
                self.programs.evict(old)
            self.forget(list(known))
        paths = leaf_paths(self.function, call.spec)
        churn = self.churn.record(paths, call.leaves, call.number_positions)
        if churn is not None:
            warnings.warn(churn, RuntimeWarning, stacklevel=user_stacklevel())
        variant = Variant(captured, self.check_finite, self.memory_limit, self.arena, on_disk)
        if not known:
            self.new_signatures.note_program(call.key, captured.graph)
        self.variants.setdefault(call.key, []).append(variant)
        self.forget(self.programs.put(variant, variant))
        for kept in list(self.programs)[:-_LOWERINGS_KEPT]:
            kept.discard_lowering()
        return variant

    def variant_for(
        self, call: PythonCall, captured: Captured, kept: Variant | None, data: Sequence[object]
    ) -> Variant:
        """The variant for a captured call that has read this data: the one that is valid for it, if
        that is still the same program."""
        found_path = same_path(self.variants.get(call.key, []), captured, data)
        if kept is None and found_path is not None:
            return found_path
        if kept is not None:
            found = difference(kept.captured, captured)
            if found is None:
                return kept
            self.drop_stale(kept, found)
            if self.is_unreliable:  # for this call alone
                return Variant(captured, self.check_finite, self.memory_limit, self.arena, False)
        return self.add_variant(call, captured)

    @property
    def is_unreliable(self) -> bool:
        """Whether so many programs were stale that no further ones are kept."""
        return self.stale_programs >= _MOST_STALE

    def drop_stale(self, kept: Variant, found: str) -> None:
        """Drop a program that was run though it is not what Python does."""
        self.stale_programs += 1
        self.programs.evict(kept)
        self.forget([kept])
        if self.is_unreliable:
            self.forget(self.programs.clear())
        warnings.warn(
            f"a program of {self.function_name} was not valid any more, and no guard has failed: "
            f"{found}. Calls before this one may have had the results of the old program; please "
            "report it.",
            RuntimeWarning,
            stacklevel=user_stacklevel(),
        )

    def valid_variant(self, call: PythonCall) -> Variant | None:
        """The variant for a call whose guards hold, if there is one already."""
        return next(self.valid_variants(call), None)

    def valid_variants(self, call: PythonCall) -> Iterator[Variant]:
        """The variants for a call whose guards hold, but for those on impure calls, which are not
        made yet."""
        known = self.variants.get(call.key, [])
        for variant in known[::-1]:  # most recently used last
            tensors = variant.inputs_for(call.tensors, call.numbers)
            if tensors is None or not variant.accepts(tensors):
                continue
            if variant.is_for_objects(call.args, call.kwargs) and variant.guards.hold():
                known.remove(variant)
                known.append(variant)
                self.programs.get(variant)
                yield variant

    def forget(self, evicted: list[Variant]) -> None:
        """Drop the references to variants that are evicted, and their memory."""
        if evicted:
            gone = set(evicted)
            kept = {
                key: [v for v in known if v not in gone] for key, known in self.variants.items()
            }
            self.variants = {key: known for key, known in kept.items() if known}
            self.fast_paths = {v: path for v, path in self.fast_paths.items() if v not in gone}


def _without_paths(known: Sequence[Variant]) -> list[Variant]:
    """The variants that are one program each, whatever the data."""
    return [variant for variant in known if variant.captured.path is None]
