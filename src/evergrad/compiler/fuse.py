"""Which equations become one kernel.

:func:`fuse` cuts a graph into units in the order they will run. A :class:`Group` is a set of
elementwise equations and folds over one space of indices, computed element by element without
writing what only they use; every other equation is a :class:`Single`.

Inside a group a value is *full* (one element per index), a *row* (it does not vary along the
``inner`` dimensions: what folds over these give) or *late* (folded over rows: it is known only
when the kernel has ended).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from math import prod
from typing import Any

from evergrad.compiler import scalar, scalar_curves  # noqa: F401 - enters its ops
from evergrad.core.shapes import Shape
from evergrad.core.trace import Equation, Graph, Var

FOLDS = ("sum", "amax", "amin", "any", "all")
# Ops that look at places other than their own.
_PLACED = ("index", "gather", "scatter_sum")
# Values copied into another kernel rather than written to memory: at most this many equations.
_COPY_LIMIT = 8
_EXPENSIVE_COPIES = 1


class Values:
    """What a graph says about its values: who makes them, who uses them, which are views."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.maker: dict[Var, Equation] = {}
        self.position: dict[int, int] = {}
        self.uses: dict[Var, list[Equation]] = {}
        self.literal: dict[Var, Any] = {}
        self.kept: list[Equation] = []
        for number, eqn in enumerate(graph.equations):
            self.position[id(eqn)] = number
            for out in eqn.outs:
                self.maker[out] = eqn
            for arg in eqn.args:
                if isinstance(arg, Var):
                    self.uses.setdefault(arg, []).append(eqn)
            out = eqn.outs[0].type
            if eqn.op.name == "full" and out.dtype in scalar.KINDS and out.numel:
                self.literal[eqn.outs[0]] = eqn.args[0]
        self.outputs = {o for o in graph.outputs if isinstance(o, Var)}

    def enter(self, eqn: Equation, position: int) -> None:
        """Add an equation that was made later."""
        self.position[id(eqn)] = position
        self.kept.append(eqn)
        self.maker[eqn.outs[0]] = eqn
        for arg in eqn.args:
            if isinstance(arg, Var):
                self.uses.setdefault(arg, []).append(eqn)

    def leave(self, eqn: Equation) -> None:
        """Take back an equation that was entered last."""
        del self.maker[eqn.outs[0]]
        for arg in eqn.args:
            if isinstance(arg, Var):
                self.uses[arg].remove(eqn)

    def give_arguments(self, eqn: Equation, args: tuple[Any, ...]) -> None:
        """Let an equation use other values that are equal to its own."""
        for before, after in zip(eqn.args, args, strict=True):
            if before is not after:
                self.uses[before] = [e for e in self.uses[before] if e is not eqn]
                self.uses.setdefault(after, []).append(eqn)
        eqn.args = args

    def view_of(self, var: Var) -> Var | None:
        """The value a view looks at, or ``None`` if it is none."""
        eqn = self.maker.get(var)
        return eqn.args[0] if eqn is not None and eqn.op.alias else None

    def root(self, var: Var) -> Var:
        """The value in whose memory a view lies."""
        source = self.view_of(var)
        while source is not None:
            var, source = source, self.view_of(source)
        return var

    def users(self, var: Var) -> Iterable[Equation]:
        """The equations that use a value or a view of it."""
        for eqn in self.uses.get(var, ()):
            if eqn.op.alias:
                yield from self.users(eqn.outs[0])
            else:
                yield eqn

    def escapes(self, var: Var) -> bool:
        """Whether a value or a view of it is a result of the graph."""
        if var in self.outputs:
            return True
        return any(self.escapes(e.outs[0]) for e in self.uses.get(var, ()) if e.op.alias)


class Unit:
    """Something that runs at once. ``needs`` is a bit set of the units it depends on."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.needs = 0
        self.order = 0

    @property
    def bit(self) -> int:
        return 1 << self.number


class Single(Unit):
    """One equation."""

    def __init__(self, number: int, eqn: Equation) -> None:
        super().__init__(number)
        self.eqn = eqn


class Group(Unit):
    """Equations over one space of indices."""

    def __init__(self, number: int, shape: Shape) -> None:
        super().__init__(number)
        self.shape = shape
        self.members: list[Equation] = []
        # The dimensions of the space along which each dimension of a value runs; -1: none.
        self.axes: dict[Var, tuple[int, ...]] = {}
        self.inner: frozenset[int] | None = None
        self.late: set[Var] = set()
        # For each member the dimensions of the space along which its result's dimensions run.
        self.maps: dict[int, tuple[int, ...]] = {}
        self.reads: set[Var] = set()

    @property
    def dims(self) -> frozenset[int]:
        """The dimensions along which anything varies at all."""
        return frozenset(d for d, n in enumerate(self.shape) if n != 1)

    def varying(self, axes: Sequence[int]) -> frozenset[int]:
        return frozenset(a for a in axes if a >= 0 and self.shape[a] != 1)


def fusable(values: Values, eqn: Equation) -> bool:
    """Whether an equation can be part of a group."""
    rule = eqn.rule
    if any(t.numel == 0 for t in rule.out_types) or eqn.op.outputs != 1:
        return False
    operands = rule.operands
    if not all(hasattr(t, "dtype") and t.dtype in scalar.KINDS and t.numel for t in operands):
        return False
    if any(t.dtype not in scalar.KINDS for t in rule.out_types):
        return False
    name = eqn.op.name
    if name == "where":
        return True
    if name in FOLDS:
        return _foldable(eqn)
    if name == "index":
        return _is_row_lookup(eqn)
    if name == "gather":
        return _is_row_pick(eqn, eqn.args[0].type.shape)
    if name == "scatter_sum":
        return _is_row_pick(eqn, eqn.outs[0].type.shape)
    return scalar.supports(name, operands, rule.out_types)


def _foldable(eqn: Equation) -> bool:
    found, out = eqn.rule.operands[0].dtype, eqn.rule.out_types[0].dtype
    if found not in scalar.KINDS or out not in scalar.KINDS or not eqn.attrs["dims"]:
        return False
    if eqn.op.name in ("any", "all"):
        return out.name == "bool" and found.name == "bool"
    if eqn.op.name == "sum" and found is not out:
        return False
    return eqn.op.name == "sum" or scalar.KINDS[found].is_float


def _is_row_lookup(eqn: Equation) -> bool:
    """A table's rows taken by one tensor of whole numbers."""
    return len(eqn.args) == 2 and eqn.attrs["start"] == 0 and eqn.args[1].type.dtype.name == "int64"


def _is_row_pick(eqn: Equation, shape: Shape) -> bool:
    """One element of each row along the last dimension."""
    index = eqn.args[1].type
    return (
        eqn.attrs["dim"] == len(shape) - 1
        and index.dtype.name == "int64"
        and index.shape == (*shape[:-1], 1)
        and shape[-1] > 1
        and scalar.KINDS[eqn.rule.operands[0].dtype].is_float
    )


def fuse(graph: Graph) -> tuple[list[Unit], Values]:
    """The units of a graph, in an order in which they can run."""
    values = Values(graph)
    fuser = _Fuser(values)
    for eqn in graph.equations:
        if not eqn.op.alias:
            fuser.place(eqn)
    return _ordered(fuser.units), values


class _Fuser:
    def __init__(self, values: Values) -> None:
        self.values = values
        self.units: list[Unit] = []
        self.unit_of: dict[Var, Unit] = {}
        self.readers: dict[Var, list[Group]] = {}
        self.scalars: list[Group] = []

    # -- where an equation goes -----------------------------------------------------------------

    def place(self, eqn: Equation) -> None:
        values = self.values
        if eqn.outs[0] in values.literal and not self._needed_in_memory(eqn.outs[0]):
            return
        if not fusable(values, eqn) and eqn.outs[0] not in values.literal:
            self._alone(eqn)
            return
        joined = next((g for g in self._candidates(eqn) if self._join(g, eqn)), None)
        group = joined or self._found(eqn)
        if group is not None:
            self._copy_in(group, eqn)

    def _needed_in_memory(self, var: Var) -> bool:
        values = self.values
        return values.escapes(var) or any(not fusable(values, e) for e in values.users(var))

    def _alone(self, eqn: Equation) -> None:
        unit = Single(len(self.units), eqn)
        self.units.append(unit)
        unit.order = self.values.position[id(eqn)]
        self._depend(unit, self._sources(eqn))
        for out in eqn.outs:
            self.unit_of[out] = unit

    def _found(self, eqn: Equation) -> Group | None:
        group = Group(len(self.units), _space(eqn))
        self.units.append(group)
        if not self._join(group, eqn):
            self.units.pop()
            self._alone(eqn)
            return None
        if not group.dims:
            self.scalars.append(group)
        return group

    # -- computing again ------------------------------------------------------------------------

    def _copy_in(self, group: Group, eqn: Equation) -> None:
        """Let a group compute again what another one computes cheaply from values that lie in
        memory anyway, rather than have it written for this one to read."""
        args = list(eqn.args)
        for place, arg in enumerate(eqn.args):
            if not isinstance(arg, Var) or arg in group.axes or arg.type.numel < prod(group.shape):
                continue
            copies: dict[Var, Var] = {}
            chain = self._cheap_chain(arg, group)
            if chain and all(self._copied(group, step, copies) for step in chain):
                axes = self._axes_of(group, copies[arg])
                expected = group.maps[id(eqn)][len(group.maps[id(eqn)]) - len(arg.type.shape) :]
                if axes is not None and group.varying(axes) == group.dims and axes == expected:
                    args[place] = copies[arg]
        if any(a is not b for a, b in zip(args, eqn.args, strict=True)):
            self.values.give_arguments(eqn, tuple(args))
            group.members.remove(eqn)  # it comes after what it uses now
            group.members.append(eqn)

    def _cheap_chain(self, var: Var, group: Group) -> list[Equation]:
        """The equations that lead to a value from others that lie in memory; none if too many."""
        chain: dict[int, Equation] = {}
        expensive = 0
        waiting = [var]
        while waiting:
            found = waiting.pop()
            eqn = self.values.maker.get(found)
            if eqn is None or id(eqn) in chain or self._lies_in_memory(found):
                continue
            if not eqn.op.alias:
                expensive += eqn.op.name in scalar.EXPENSIVE
                if eqn.op.name in (*FOLDS, *_PLACED) or expensive > _EXPENSIVE_COPIES:
                    return []
            chain[id(eqn)] = eqn
            if len(chain) > _COPY_LIMIT:
                return []
            waiting += [a for a in eqn.args if isinstance(a, Var)]
        if all(eqn.op.alias for eqn in chain.values()):
            return []
        return sorted(chain.values(), key=lambda e: self.values.position[id(e)])

    def _lies_in_memory(self, var: Var) -> bool:
        """Whether a value is written to memory whatever is decided about it."""
        values = self.values
        root = values.root(var)
        unit = self.unit_of.get(root)
        if not isinstance(unit, Group) or root in unit.late:
            return True
        if values.maker[root].op.name in FOLDS or root.type.numel < prod(unit.shape):
            return True
        return values.escapes(root) or any(not fusable(values, e) for e in values.users(root))

    def _copied(self, group: Group, eqn: Equation, copies: dict[Var, Var]) -> bool:
        """Enter a copy of an equation into a group."""
        out = eqn.outs[0]
        args = tuple([copies.get(a, a) if isinstance(a, Var) else a for a in eqn.args])
        made = Var(out.type, out.trace, out._layout)
        copy = Equation(eqn.rule, args, (made,), eqn.site)
        self.values.enter(copy, self.values.position[id(eqn)])
        copies[out] = made
        if eqn.op.alias or self._join(group, copy):
            return True
        self.values.leave(copy)
        return False

    def _candidates(self, eqn: Equation) -> list[Group]:
        """Groups an equation might join: its arguments' makers, then readers of the same values."""
        found: dict[int, Group] = {}
        for arg in eqn.args:
            unit = self.unit_of.get(self.values.root(arg)) if isinstance(arg, Var) else None
            if isinstance(unit, Group):
                found[unit.number] = unit
        chosen = [found[n] for n in sorted(found, reverse=True)]
        space = _space(eqn)
        if prod(space) == 1:
            return chosen + [g for g in reversed(self.scalars[-4:]) if g.number not in found]
        for arg in eqn.args:
            if not isinstance(arg, Var) or arg.type.numel < prod(space):
                continue
            for group in reversed(self.readers.get(self.values.root(arg), ())):
                if group.shape == space and group.number not in found:
                    found[group.number] = group
                    chosen.append(group)
        return chosen

    def _sources(self, eqn: Equation) -> list[Var]:
        roots = [self.values.root(a) for a in eqn.args if isinstance(a, Var)]
        return [r for r in roots if r in self.unit_of]

    def _depend(self, unit: Unit, sources: Iterable[Var]) -> None:
        for source in sources:
            other = self.unit_of[source]
            if other is not unit:
                unit.needs |= other.bit | other.needs
        for third in self.units:
            if third.needs & unit.bit:
                third.needs |= unit.needs

    # -- joining --------------------------------------------------------------------------------

    def _join(self, group: Group, eqn: Equation) -> bool:
        inside = self._axes_inside(group, eqn)
        if inside is None:
            return False
        sources = [r for r in self._sources(eqn) if self.unit_of[r] is not group]
        if any(self.unit_of[r].needs & group.bit for r in sources):
            return False  # it would wait for itself
        if not _fit(group, eqn, inside):
            return False
        out = eqn.outs[0]
        group.members.append(eqn)
        group.order = max(group.order, self.values.position[id(eqn)])
        self.unit_of[out] = group
        for arg in eqn.args:
            if isinstance(arg, Var) and arg not in group.axes:
                root = self.values.root(arg)
                group.reads.add(root)
                if group not in self.readers.setdefault(root, []):
                    self.readers[root].append(group)
        self._depend(group, sources)
        return True

    def _axes_inside(self, group: Group, eqn: Equation) -> list[tuple[int, ...] | None] | None:
        """For each argument its axes if it is made in the group; ``None`` if one cannot be used
        there."""
        found: list[tuple[int, ...] | None] = []
        for arg in eqn.args:
            axes = None
            if isinstance(arg, Var) and self.unit_of.get(self.values.root(arg)) is group:
                if self.values.root(arg) in group.late:
                    return None
                axes = self._axes_of(group, arg)
                if axes is None:
                    return None
            found.append(axes)
        return found

    def _axes_of(self, group: Group, var: Var) -> tuple[int, ...] | None:
        """The axes of a value of the group, through views that only add, drop or repeat unit
        dimensions."""
        if var in group.axes:
            return group.axes[var]
        source = self.values.view_of(var)
        if source is None:
            return None
        before = self._axes_of(group, source)
        if before is None:
            return None
        axes = _through_view(self.values.maker[var], before)
        if axes is not None:
            group.axes[var] = axes
        return axes


def _through_view(eqn: Equation, axes: tuple[int, ...]) -> tuple[int, ...] | None:
    source, target = eqn.args[0].type.shape, eqn.outs[0].type.shape
    if eqn.op.name == "expand":
        return (-1,) * (len(target) - len(source)) + axes
    if eqn.op.name == "reshape":
        kept = [a for a, n in zip(axes, source, strict=True) if n != 1]
        if [n for n in source if n != 1] != [n for n in target if n != 1]:
            return None
        return tuple(kept.pop(0) if n != 1 else -1 for n in target)
    return None


def _space(eqn: Equation) -> Shape:
    """The space of indices an equation runs over by itself."""
    if eqn.op.name in (*FOLDS, "gather"):
        return eqn.args[0].type.shape
    return eqn.outs[0].type.shape


def _fit(group: Group, eqn: Equation, inside: list[tuple[int, ...] | None]) -> bool:
    """Enter an equation's axes into a group, if it runs over the same space."""
    if eqn.op.name in FOLDS:
        return _fit_fold(group, eqn, inside[0])
    if eqn.op.name == "gather":
        return _fit_pick(group, eqn, inside)
    shape = eqn.outs[0].type.shape
    if eqn.op.name == "index":
        return _fit_lookup(group, eqn, inside)
    axes = _aligned(group, shape, inside)
    if axes is None:
        return False
    if eqn.op.name == "scatter_sum":
        last = frozenset((len(shape) - 1,))
        if len(shape) != len(group.shape) or group.varying(axes) != group.dims:
            return False
        if group.inner not in (None, last):
            return False
        group.inner = last
    if not _is_full_or_row(group, axes):
        return False
    group.axes[eqn.outs[0]] = group.maps[id(eqn)] = axes
    return True


def _is_full_or_row(group: Group, axes: tuple[int, ...]) -> bool:
    varying = group.varying(axes)
    return varying == group.dims or (
        group.inner is not None and varying == group.dims - group.inner
    )


def _aligned(
    group: Group, shape: Shape, inside: Sequence[tuple[int, ...] | None]
) -> tuple[int, ...] | None:
    """The dimensions of the space along which a result of this shape runs."""
    rank = len(shape)
    axes: list[int | None] = [None] * rank
    for given in inside:
        if given is None:
            continue
        for place, axis in enumerate(given, rank - len(given)):
            if axis < 0:
                continue
            if axes[place] not in (None, axis):
                return None
            axes[place] = axis
    taken = {a for a in axes if a is not None}
    limit = len(group.shape)
    for place in reversed(range(rank)):
        if axes[place] is not None:
            limit = axes[place]  # type: ignore[assignment]
            continue
        if shape[place] == 1:
            axes[place] = -1
            continue
        axis = next(
            (
                d
                for d in reversed(range(limit))
                if d not in taken and group.shape[d] == shape[place]
            ),
            None,
        )
        if axis is None:
            return None
        axes[place] = limit = axis
        taken.add(axis)
    found: tuple[int, ...] = tuple(axes)  # type: ignore[arg-type]
    running = [a for a in found if a >= 0]
    return found if running == sorted(set(running)) else None


def _fit_fold(group: Group, eqn: Equation, inside: tuple[int, ...] | None) -> bool:
    shape = eqn.args[0].type.shape
    axes = inside if inside is not None else _aligned(group, shape, ())
    if axes is None:
        return False
    varying = group.varying(axes)
    folded = group.varying([axes[d] for d in eqn.attrs["dims"]])
    kept = tuple(
        -1 if d in eqn.attrs["dims"] else a
        for d, a in enumerate(axes)
        if eqn.attrs["keepdim"] or d not in eqn.attrs["dims"]
    )
    out = eqn.outs[0]
    full = varying == group.dims
    if not full and (group.inner is None or varying != group.dims - group.inner):
        return False
    if full and folded != group.dims:
        rest = group.dims - folded
        trailing = max(rest, default=-1) > max(folded, default=-1) and min(rest) > max(folded)
        if group.inner is None:
            group.inner = rest if trailing else folded
        if folded == group.inner:
            pass  # a row value
        elif folded == group.dims - group.inner:
            group.late.add(out)
        else:
            return False
    elif full:
        if group.inner is not None and group.inner == group.dims:
            pass  # the only row
        else:
            group.late.add(out)
    elif folded == varying:
        group.late.add(out)
    else:
        return False
    group.maps[id(eqn)] = axes
    group.axes[out] = kept
    return True


def _fit_pick(group: Group, eqn: Equation, inside: list[tuple[int, ...] | None]) -> bool:
    source, index = eqn.args[0].type.shape, inside[1]
    axes = inside[0] if inside[0] is not None else _aligned(group, source, ())
    if axes is None or len(source) != len(group.shape) or axes != tuple(range(len(source))):
        if axes is None or group.varying(axes) != group.dims:
            return False
    last = frozenset((axes[-1],)) & group.dims
    if not last or group.inner not in (None, last):
        return False
    if index is not None and group.varying(index) & last:
        return False
    group.inner = last
    group.maps[id(eqn)] = axes
    group.axes[eqn.outs[0]] = (*axes[:-1], -1)
    return True


def _fit_lookup(group: Group, eqn: Equation, inside: list[tuple[int, ...] | None]) -> bool:
    if inside[0] is not None or inside[1] is not None:
        return False  # the table and the places come from memory
    shape = eqn.outs[0].type.shape
    rank = len(eqn.args[1].type.shape)
    axes = _aligned(group, shape, ())
    if axes is None or group.varying(axes) != group.dims:
        return False
    inner = group.varying(axes[rank:])
    if not inner or group.inner not in (None, inner):
        return False
    group.inner = inner
    group.axes[eqn.outs[0]] = group.maps[id(eqn)] = axes
    return True


def _ordered(units: list[Unit]) -> list[Unit]:
    """By the place of the last equation, as far as dependences allow."""
    by_number = {u.number: u for u in units}
    waiting = {
        u.number: [n for n in by_number if n != u.number and u.needs >> n & 1] for u in units
    }
    dependents: dict[int, list[int]] = {}
    missing = {}
    for number, needs in waiting.items():
        missing[number] = len(needs)
        for n in needs:
            dependents.setdefault(n, []).append(number)
    ready = [(u.order, u.number) for u in units if not missing[u.number]]
    heapify(ready)
    done: list[Unit] = []
    while ready:
        _, number = heappop(ready)
        done.append(by_number[number])
        for other in dependents.get(number, ()):
            missing[other] -= 1
            if not missing[other]:
                heappush(ready, (by_number[other].order, other))
    assert len(done) == len(units), "units wait for each other"
    return done
