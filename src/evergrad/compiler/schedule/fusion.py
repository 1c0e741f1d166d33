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
from math import prod

from evergrad.compiler.codegen import activations, elementwise  # noqa: F401 - enters its ops
from evergrad.compiler.schedule.horizontal_fusion import unite
from evergrad.compiler.schedule.index_maps import FOLDS, fit, space_of, through_view
from evergrad.compiler.schedule.nodes import FAR, Group, Single, Unit, Values, ordered
from evergrad.core.shapes import Shape
from evergrad.core.trace import Equation, Graph, Var

__all__ = ["FAR", "FOLDS", "PLACED", "fusable", "fuse", "is_elementwise"]

# Ops that look at places other than their own.
_LOOKUPS = ("index", "gather")
PLACED = (*_LOOKUPS, "scatter_sum")
# Values copied into another kernel rather than written to memory: at most this many equations.
_COPY_LIMIT = 8
_EXPENSIVE_COPIES = 1
_FEW = 16


def fusable(values: Values, eqn: Equation) -> bool:
    """Whether an equation can be part of a group."""
    specialization = eqn.specialization
    if any(t.numel == 0 for t in specialization.out_types) or eqn.op.outputs != 1:
        return False
    operands = specialization.operands
    if not all(hasattr(t, "dtype") and t.dtype in elementwise.KINDS and t.numel for t in operands):
        return False
    if any(t.dtype not in elementwise.KINDS for t in specialization.out_types):
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
    return elementwise.supports(name, operands, specialization.out_types)


def is_elementwise(values: Values, eqn: Equation) -> bool:
    """Whether an equation can be part of a group and looks at one place for each that it gives."""
    is_plain = not eqn.op.alias and not eqn.op.random and eqn.op.name not in (*FOLDS, *PLACED)
    return is_plain and fusable(values, eqn)


def _foldable(eqn: Equation) -> bool:
    found, out = eqn.specialization.operands[0].dtype, eqn.specialization.out_types[0].dtype
    if found not in elementwise.KINDS or out not in elementwise.KINDS or not eqn.attrs["dims"]:
        return False
    if eqn.op.name in ("any", "all"):
        return out.name == "bool" and found.name == "bool"
    if eqn.op.name == "sum" and found is not out:
        return False
    return eqn.op.name == "sum" or elementwise.KINDS[found].is_float


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
        and elementwise.KINDS[eqn.specialization.operands[0].dtype].is_float
    )


def fuse(
    graph: Graph,
    again: frozenset[int] = frozenset(),
    overwrites: Sequence[tuple[Var, Sequence[Var]]] = (),
) -> tuple[list[Unit], Values]:
    """The units of a graph, in an order in which they can run.

    Equations in ``again`` (by ``id``) compute a value a second time, and must not do so at the
    place of the first. ``overwrites`` are outputs with the inputs whose memory they take over.
    """
    values = Values(graph)
    fuser = _Fuser(values, again, _ending_in(values, {out for out, _ in overwrites}))
    for eqn in graph.equations:
        if not eqn.op.alias:
            fuser.place(eqn)
    fuser.place_rest()
    unite(fuser.units, fuser.unit_of, fuser.readers, again)
    fuser.leave_out_unneeded()
    fuser.wait_for_readers(overwrites)
    return ordered(fuser.units, values, fuser.unit_of), values


def _ending_in(values: Values, ends: set[Var]) -> set[int]:
    """The equations (by ``id``) whose results are needed for nothing but some outputs."""
    found: set[int] = set()
    for eqn in reversed(values.graph.equations):
        out, users = eqn.outs[0], values.uses.get(eqn.outs[0], ())
        is_end = out in ends or (users and out not in values.outputs)
        if is_end and eqn.op.name not in FOLDS and all(id(e) in found for e in users):
            found.add(id(eqn))
    return found


class _Fuser:
    def __init__(self, values: Values, again: frozenset[int], ending: set[int]) -> None:
        self.values = values
        self.again = again
        self.ending = ending
        self.units: list[Unit] = []
        self.unit_of: dict[Var, Unit] = {}
        self.readers: dict[Var, list[Group]] = {}
        self.scalars: list[Group] = []
        # Equations that go where they are first used.
        self.waiting: dict[Var, Equation] = {}
        self.last_draw: Unit | None = None

    # -- where an equation goes -----------------------------------------------------------------

    def place(self, eqn: Equation) -> None:
        values = self.values
        if eqn.outs[0] in values.literal and not self._needed_in_memory(eqn.outs[0]):
            return
        is_single = not fusable(values, eqn) and eqn.outs[0] not in values.literal
        if not is_single and self._may_wait(eqn):
            self.waiting[eqn.outs[0]] = eqn
            return
        for root in [values.root(a) for a in eqn.args if isinstance(a, Var)]:
            if root in self.waiting:
                self._place_in_group(self.waiting.pop(root), self._candidates(eqn))
        if is_single:
            self._alone(eqn)
        elif not self._place_in_group(eqn, self._candidates(eqn), self._waits_for_user(eqn)):
            self.waiting[eqn.outs[0]] = eqn

    def place_rest(self) -> None:
        """Place what nobody has used: sums of inputs, where these are read anyway."""
        for eqn in self.waiting.values():
            self._place_in_group(eqn, self._candidates(eqn))
        self.waiting = {}

    def _may_wait(self, eqn: Equation) -> bool:
        """Whether an equation reads nothing that the program makes, but for single numbers; or
        spreads numbers out, one to a row."""
        values, out = self.values, eqn.outs[0]
        if eqn.op.name in _LOOKUPS or id(eqn) in self.again or eqn.op.random:
            return False
        if eqn.op.name not in FOLDS and (out.type.numel == 1 or values.escapes(out)):
            return False
        sources = [values.root(a) for a in eqn.args if isinstance(a, Var)]
        if any(s in self.waiting for s in sources):
            return False
        if eqn.op.name == "scatter_sum":
            return all(s.type.numel < out.type.numel for s in sources)
        return bool(sources) and all(s.type.numel == 1 or s not in values.maker for s in sources)

    def _waits_for_user(self, eqn: Equation) -> bool:
        """Whether an equation that joins no group goes where its result is first used, soon: a
        gradient that comes two ways is added up in the kernel that goes on with it. Others would
        keep products waiting, and with them what these read."""
        values, out = self.values, eqn.outs[0]
        if eqn.op.name != "add" or id(eqn) in self.again:
            return False
        if out.type.numel == 1 or values.escapes(out):
            return False
        users = sorted(values.users(out), key=lambda e: values.position[id(e)])
        if not users or not fusable(values, users[0]):
            return False
        is_near = values.position[id(users[0])] - values.position[id(eqn)] <= FAR
        return is_near and space_of(users[0]) == out.type.shape

    def _place_in_group(
        self, eqn: Equation, candidates: Sequence[Group], may_wait: bool = False
    ) -> bool:
        """Enter an equation into one of the groups or into a new one, unless it rather waits."""
        joined = next((g for g in candidates if self._join(g, eqn)), None)
        if joined is None and may_wait:
            return False
        group = joined or self._found(eqn)
        if group is not None:
            self._copy_in(group, eqn)
        return True

    def _needed_in_memory(self, var: Var) -> bool:
        """Whether a value is a result, or somebody reads it who computes nothing by himself."""
        values = self.values
        return values.escapes(var) or any(
            e.op.name == "index" or not fusable(values, e) for e in values.users(var)
        )

    def _alone(self, eqn: Equation) -> None:
        unit = Single(len(self.units), eqn)
        self.units.append(unit)
        unit.order = self.values.position[id(eqn)]
        self._depend(unit, self._sources(eqn))
        if eqn.op.random:  # one after the other takes its numbers from the stream
            if self.last_draw is not None:
                unit.needs |= self.last_draw.bit | self.last_draw.needs
            self.last_draw = unit
        for out in eqn.outs:
            self.unit_of[out] = unit

    def _found(self, eqn: Equation) -> Group | None:
        group = Group(len(self.units), space_of(eqn))
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
        if eqn.op.name == "index":
            return  # it looks at other rows of its table than the one at hand
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
            if found.type.numel * _FEW <= var.type.numel and not eqn.op.alias:
                continue  # so few that they may be written
            if not eqn.op.alias:
                expensive += eqn.op.name in elementwise.EXPENSIVE
                if eqn.op.name in (*FOLDS, *_LOOKUPS) or expensive > _EXPENSIVE_COPIES:
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
        return self._needed_in_memory(root)

    def _copied(self, group: Group, eqn: Equation, copies: dict[Var, Var]) -> bool:
        """Enter a copy of an equation into a group."""
        out = eqn.outs[0]
        args = tuple([copies.get(a, a) if isinstance(a, Var) else a for a in eqn.args])
        made = Var(out.type, out.trace, out._layout)
        copy = Equation(eqn.specialization, args, (made,), eqn.location)
        self.values.enter(copy, self.values.position[id(eqn)])
        copies[out] = made
        if eqn.op.alias or self._join(group, copy):
            return True
        self.values.leave(copy)
        return False

    def leave_out_unneeded(self) -> None:
        """Drop groups whose values others compute by themselves now."""
        for unit in reversed(self.units):
            if isinstance(unit, Group) and not any(map(self._is_needed, unit.members)):
                for eqn in reversed(unit.members):
                    self.values.leave(eqn)
                    del self.unit_of[eqn.outs[0]]
                unit.members.clear()
        self.units = [u for u in self.units if not isinstance(u, Group) or u.members]

    def _is_needed(self, eqn: Equation) -> bool:
        """Whether a value is a result, or used by another unit."""
        out, values = eqn.outs[0], self.values
        if values.escapes(out):
            return True
        own = self.unit_of[out]
        return any(self.unit_of.get(e.outs[0]) is not own for e in values.users(out))

    def _candidates(self, eqn: Equation) -> list[Group]:
        """Groups an equation might join: its arguments' makers, then readers of the same values."""
        found: dict[int, Group] = {}
        for arg in eqn.args:
            unit = self.unit_of.get(self.values.root(arg)) if isinstance(arg, Var) else None
            if isinstance(unit, Group) and not self._is_past(unit, eqn):
                found[unit.number] = unit
        # What belongs to rows goes where the rows are: were it computed beside them, what is made
        # of both could not follow in that kernel.
        chosen = sorted(found.values(), key=lambda g: (prod(g.shape), g.number), reverse=True)
        if id(eqn) in self.again:
            return [g for g in chosen if all(id(e) in self.again for e in g.members)]
        space = space_of(eqn)
        if prod(space) == 1:
            # Single numbers may share a kernel, but none waits for what only another needs.
            needs = self._needs_of(eqn)
            return chosen + [
                g for g in reversed(self.scalars[-4:]) if g.number not in found and g.needs == needs
            ]
        for arg in eqn.args:
            if not isinstance(arg, Var) or arg.type.numel < prod(space):
                continue
            for group in reversed(self.readers.get(self.values.root(arg), ())):
                if group.number in found or self._is_past(group, eqn):
                    continue
                if group.shape == space:
                    found[group.number] = group
                    chosen.append(group)
        return chosen

    def _is_past(self, group: Group, eqn: Equation) -> bool:
        """Whether an equation stands so far behind a group that joining it would mean to keep the
        result for long: the derivative of a layer does not belong to the layer. What ends in
        memory outside is not kept: the update of a parameter belongs to that of its averages."""
        if id(eqn) in self.ending:
            return False
        return self.values.position[id(eqn)] - group.order > FAR

    def _sources(self, eqn: Equation) -> list[Var]:
        roots = [self.values.root(a) for a in eqn.args if isinstance(a, Var)]
        return [r for r in roots if r in self.unit_of]

    def _needs_of(self, eqn: Equation) -> int:
        """The units that an equation waits for, as bits."""
        needs = 0
        for source in self._sources(eqn):
            needs |= self.unit_of[source].bit | self.unit_of[source].needs
        return needs

    def _depend(self, unit: Unit, sources: Iterable[Var]) -> None:
        for source in sources:
            other = self.unit_of[source]
            if other is not unit:
                self._depend_on(unit, other)

    def _depend_on(self, unit: Unit, other: Unit) -> None:
        added = other.bit | other.needs
        if unit.needs & added == added:
            return
        unit.needs |= added
        for third in self.units:
            if third.needs & unit.bit:
                third.needs |= added

    def wait_for_readers(self, overwrites: Sequence[tuple[Var, Sequence[Var]]]) -> None:
        """Let a unit that overwrites an input run after all that read it, if that can be."""
        for out, sources in overwrites:
            writer = self.unit_of.get(self.values.root(out))
            if not isinstance(writer, Group):
                continue
            for source in sources:
                for eqn in self.values.users(source):
                    reader = self.unit_of.get(eqn.outs[0])
                    if reader is None or reader is writer or reader.needs & writer.bit:
                        continue
                    self._depend_on(writer, reader)

    # -- joining --------------------------------------------------------------------------------

    def _join(self, group: Group, eqn: Equation) -> bool:
        inside = self._axes_inside(group, eqn)
        if inside is None:
            return False
        sources = [r for r in self._sources(eqn) if self.unit_of[r] is not group]
        if any(self.unit_of[r].needs & group.bit for r in sources):
            return False  # it would wait for itself
        if not fit(group, eqn, inside):
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
        axes = through_view(self.values.maker[var], before)
        if axes is not None:
            group.axes[var] = axes
        return axes
