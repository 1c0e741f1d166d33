"""The graph verifier: checks after each pass what every pass must keep.

Of one graph: each value is defined once and before it is used; each equation's types are those of
its row's type rule; layouts of views follow from what they view, all others are contiguous; updates
fit their base. From graph to graph: the same inputs and outputs; the same random numbers drawn from
each generator and the same collectives, each in the same order; and no output loses an input, a
random draw or an update of part of a tensor that it depended on; nor do the checks together.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evergrad.compiler.kernels.random_rows import (
    CHANCE_BITS,
    NORMAL_SINGLES,
    RANDOM_WORDS,
    STREAM_POSITION,
)
from evergrad.compiler.passes.dump import dump
from evergrad.compiler.passes.lower_random import WORD_DRAWS
from evergrad.compiler.passes.outline_updates import UPDATES
from evergrad.core.op import Specialization
from evergrad.core.shapes import TensorType, broadcast_shapes
from evergrad.core.source_location import describe
from evergrad.core.trace import Equation, Graph, Var
from evergrad.core.types import Args
from evergrad.errors import ShapeError, VerificationError
from evergrad.ops.rows.movement.views import PERMUTE, RESHAPE
from evergrad.ops.rows.random.draws import CHANCE
from evergrad.ops.surface.view_forms import UPDATE

if TYPE_CHECKING:
    from evergrad.core.types import Key

# Where collectives are entered among the draws, which have ids of generators.
_COLLECTIVES = -1
# Views through which an update of as many elements as the base has overwrites all of it.
_BIJECTIVE = (PERMUTE, RESHAPE)


class _Draw(NamedTuple):
    """A random equation; ``key`` is what it takes from its generator and its source location."""

    key: Key
    eqn: Equation


class _Facts(NamedTuple):
    """What a pass must keep: ``draws`` of each generator (by ``id``) with the collectives beside
    them, and for each output the bit set of what it depends on; ``checked`` is the same for all
    checks together."""

    graph: Graph
    draws: dict[int, list[_Draw]]
    depends: list[int]
    checked: int


class Verifier:
    """Verifies a graph, and then the graph after each pass against the one before it."""

    def __init__(self, graph: Graph) -> None:
        self.name: str = "tracing"
        self._specializations: dict[int, Specialization] = {}
        self._bits: dict[Any, int] = {}
        self._facts = self._verified(graph)

    def check(self, name: str, graph: Graph, drops_dependence: bool = False) -> None:
        """Raise :class:`VerificationError` if the pass of this name broke the graph."""
        self.name = name
        before, after = self._facts, self._verified(graph)
        self._check_interface(before.graph, graph)
        self._check_draws(before.draws, after.draws)
        if not drops_dependence:
            self._check_dependence(before, after)
        self._facts = after

    def fail(self, problem: str, eqn: Equation | None = None) -> VerificationError:
        lines = [f"the pass {self.name!r} broke the graph: {problem}."]
        if eqn is not None:
            lines += [f"  equation: {_line(eqn)}", f"  traced at: {describe(eqn.location)}"]
        lines += ["  fix: a bug of the compiler; EVERGRAD_SHOW_PASSES=1 prints the graphs."]
        return VerificationError("\n".join(lines))

    # -- one graph ------------------------------------------------------------------------------

    def _verified(self, graph: Graph) -> _Facts:
        depends: dict[Var, int] = {}
        for number, var in enumerate((*graph.inputs, *(var for var, _ in graph.captures))):
            if var in depends:
                raise self.fail(f"input {number} ({var.type}) is defined twice")
            is_input = number < len(graph.inputs)
            depends[var] = self._bit(("input", number)) if is_input else 0
        draws: dict[int, list[_Draw]] = {}
        checked = 0
        for eqn in graph.equations:
            found = self._dependence(eqn, depends)
            self._check_types(eqn)
            self._check_layout(eqn)
            if eqn.op.random:
                source = id(eqn.attrs.get("generator"))
                drawn = draws.setdefault(source, [])
                found |= self._bit(("draw", source, len(drawn)))
                drawn.append(_Draw((_drawn(eqn), eqn.location), eqn))
            if eqn.op.communicates:
                sent = draws.setdefault(_COLLECTIVES, [])
                sent.append(_Draw((eqn.op.name, repr(eqn.attrs), eqn.location), eqn))
            if eqn.op.checks:
                checked |= depends[eqn.args[0]]
            for number, out in enumerate(eqn.outs):
                if out in depends:
                    raise self.fail(f"a value of type {out.type} is defined twice", eqn)
                depends[out] = found
                if eqn.op is UPDATES:
                    depends[out] = _union(depends, eqn.args, eqn.attrs["tail"].reads[number])
        results = [o for o in graph.outputs if isinstance(o, Var)]
        for out in (*results, *(var for _, var in graph.writes)):
            if out not in depends:
                raise self.fail(f"an output of type {out.type} is not defined")
        return _Facts(graph, draws, [depends[out] for out in results], checked)

    def _dependence(self, eqn: Equation, depends: dict[Var, int]) -> int:
        """What an equation depends on, as a bit set; its arguments must be defined."""
        found = 0
        for place, arg in enumerate(eqn.args):
            if isinstance(arg, Var):
                if arg not in depends:
                    raise self.fail(f"argument {place} ({arg.type}) is used before it is set", eqn)
                found |= depends[arg]
        if eqn.op.checks:
            return depends[eqn.args[0]]  # not on what its message shows
        if eqn.op is not UPDATE:
            return found
        self._check_update(eqn)
        base, value = eqn.args
        chain = eqn.attrs["chain"]
        is_whole = value.type.numel == base.type.numel
        if is_whole and all(op in _BIJECTIVE for op, _ in chain.ops):
            return depends[value]
        return found | self._bit((base.type.shape, chain)) if found else found

    def _check_types(self, eqn: Equation) -> None:
        rule = eqn.specialization
        if eqn.op is not rule.op or eqn.attrs is not rule.attrs:
            raise self.fail("its op or attributes are not those it was specialized for", eqn)
        if len(eqn.args) != len(rule.types) or len(eqn.outs) != len(rule.out_types):
            raise self.fail("wrong number of arguments or results", eqn)
        for arg, type in zip(eqn.args, rule.types, strict=True):
            if isinstance(arg, Var):
                if not (isinstance(type, TensorType) and arg.type.same(type)):
                    raise self.fail(f"an argument is {arg.type}, specialized for {type}", eqn)
            elif arg.__class__ is not type:
                raise self.fail(f"an argument is {arg!r}, specialized for {type}", eqn)
        for out, type in zip(eqn.outs, rule.out_types, strict=True):
            if not out.type.same(type):
                raise self.fail(f"a result is {out.type}, its specialization says {type}", eqn)
        if id(rule) not in self._specializations:
            self._check_specialization(rule, eqn)
            self._specializations[id(rule)] = rule

    def _check_specialization(self, rule: Specialization, eqn: Equation) -> None:
        """The row's type rule, applied again."""
        found = rule.op.type(*rule.operands, **rule.attrs)
        types = found if isinstance(found, tuple) else (found,)
        if len(types) != len(rule.out_types) or not all(
            a.same(b) for a, b in zip(types, rule.out_types, strict=True)
        ):
            raise self.fail(f"the type rule of {rule.op.name} gives {found}", eqn)

    def _check_layout(self, eqn: Equation) -> None:
        if eqn.op.alias:
            self._check_view(eqn)
            return
        for out in eqn.outs:
            layout = out._layout
            if layout is None or not layout.size:
                continue
            if layout.shape != out.type.shape:
                raise self.fail(f"the layout of {out.type} has shape {layout.shape}", eqn)
            if not layout.flags.c_contiguous:
                base = eqn.args[0].layout if eqn.op is UPDATE else None
                if base is None or layout.strides != base.strides:
                    raise self.fail(f"a new value has strides {layout.strides}", eqn)

    def _check_view(self, eqn: Equation) -> None:
        source, out = eqn.args[0].layout, eqn.outs[0].layout
        if not out.size:
            return
        if eqn.op.alias == "reshape":
            try:
                expected = np.reshape(source, out.shape, copy=False)
            except ValueError:
                raise self.fail("no view of these strides has this shape", eqn) from None
        else:
            expected = eqn.op.eval(source, **eqn.attrs)
        same = expected.shape == out.shape == eqn.outs[0].type.shape
        extents = zip(out.shape, out.strides, expected.strides, strict=False)
        if not same or any(n > 1 and a != b for n, a, b in extents):
            raise self.fail(f"a view has strides {out.strides}, not {expected.strides}", eqn)
        if out.__array_interface__["data"] != expected.__array_interface__["data"]:
            raise self.fail("a view begins at another element", eqn)

    def _check_update(self, eqn: Equation) -> None:
        """The value of an update fits the part of the base that the views lead to."""
        base, value = eqn.args
        part = base.type
        for op, attrs in eqn.attrs["chain"].ops:
            part = op.type(part, **attrs)
        try:
            fits = broadcast_shapes(value.type.shape, part.shape) == part.shape
        except ShapeError:
            fits = False
        if not fits or value.type.dtype is not part.dtype:
            raise self.fail(f"an update writes {value.type} to a part of type {part}", eqn)

    # -- from graph to graph --------------------------------------------------------------------

    def _check_interface(self, before: Graph, after: Graph) -> None:
        if len(before.inputs) != len(after.inputs):
            raise self.fail(f"{len(before.inputs)} inputs became {len(after.inputs)}")
        for number, (old, new) in enumerate(zip(before.inputs, after.inputs, strict=True)):
            if not old.type.same(new.type) or old.layout.strides != new.layout.strides:
                raise self.fail(f"input {number} was {old.type} and is {new.type}, or its layout")
        for what in ("outputs", "writes"):
            ends, now = getattr(before, what), getattr(after, what)
            if len(ends) != len(now):
                raise self.fail(f"{len(ends)} {what} became {len(now)}")
        for number, (old, new) in enumerate(zip(before.outputs, after.outputs, strict=True)):
            if isinstance(old, Var) != isinstance(new, Var):
                raise self.fail(f"output {number} was {old} and is {new}")
            if isinstance(old, Var) and not old.type.same(new.type):
                raise self.fail(f"output {number} was {old.type} and is {new.type}")

    def _check_draws(self, before: dict[int, list[_Draw]], after: dict[int, list[_Draw]]) -> None:
        """Sequential random numbers and collectives: none dropped, duplicated or reordered."""
        for source in {**before, **after}:
            one, order = "random equation", "random numbers are drawn in another order"
            if source == _COLLECTIVES:
                one, order = "collective", "collectives are called in another order"
            drawn, now = before.get(source, []), after.get(source, [])
            same = [a.key == b.key for a, b in zip(drawn, now, strict=False)]
            place = same.index(False) if False in same else len(same)
            if place == len(drawn) == len(now):
                continue
            if len(drawn) == len(now):
                old, new = drawn[place], now[place]
                raise self.fail(f"{order}, here was {_line(old.eqn)}", new.eqn)
            if len(drawn) > len(now):
                raise self.fail(f"a {one} was dropped", drawn[place].eqn)
            raise self.fail(f"a {one} was duplicated or added", now[place].eqn)

    def _check_dependence(self, before: _Facts, after: _Facts) -> None:
        if before.checked & ~after.checked:
            raise self.fail("a check was dropped")
        for number, (old, new) in enumerate(zip(before.depends, after.depends, strict=True)):
            if old & ~new:
                keys = [key for key, bit in self._bits.items() if bit & old & ~new]
                found = ", ".join(map(_described, keys))
                results = [o for o in after.graph.outputs if isinstance(o, Var)]
                maker = [e for e in after.graph.equations if results[number] in e.outs]
                raise self.fail(
                    f"output {number} ({results[number].type}) does not depend on {found} any more",
                    *maker,
                )

    def _bit(self, key: object) -> int:
        return self._bits.setdefault(key, 1 << len(self._bits))


def _union(depends: dict[Var, int], args: Args, places: Sequence[int]) -> int:
    """What some of the arguments depend on."""
    found = 0
    for place in places:
        found |= depends[args[place]]
    return found


def _drawn(eqn: Equation) -> tuple[int | str | tuple[str, str], ...]:
    """What a random equation takes from its generator. Masks are drawn in several forms that take
    the same random numbers, others as the words that these are made of."""
    if eqn.op in (RANDOM_WORDS, NORMAL_SINGLES):
        return eqn.attrs["row"], eqn.attrs["drawn"]
    if eqn.op in WORD_DRAWS:
        return eqn.op.name, eqn.outs[0].type.numel
    if eqn.op is STREAM_POSITION:
        return "chance", eqn.attrs["count"]
    if eqn.op in (CHANCE, CHANCE_BITS):
        return "chance", prod(eqn.attrs["size"])
    attrs = [(key, repr(value)) for key, value in eqn.attrs.items() if key != "generator"]
    return eqn.op.name, *attrs, *map(str, eqn.specialization.types)


def _described(key: tuple[object, ...]) -> str:
    if key[0] == "input":
        return f"input {key[1]}"
    if key[0] == "draw":
        return f"random draw {key[2]}"
    return f"the update of a part ({key[1]}) of a tensor of shape {key[0]}"


def _line(eqn: Equation) -> str:
    """An equation as a dump writes it."""
    given = [a for a in eqn.args if isinstance(a, Var)]
    return dump(Graph(list(dict.fromkeys(given)), (), [eqn], ())).splitlines()[-2]
