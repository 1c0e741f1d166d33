"""The results of a call assembled from the tensors that its program has computed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from evergrad.compiler.frontend.effects.outputs import (
    COMPUTED,
    Alias,
    ArrayOf,
    Evaluated,
    Form,
    MadeLeaf,
    Output,
    Results,
)
from evergrad.core.tensor import Tensor
from evergrad.core.tree import TreeSpec, tree_unflatten

if TYPE_CHECKING:
    from evergrad.core.types import Leaves

# The result of a call from the computed tensors and the arguments.
Assemble = Callable[[list[Any], Sequence[Tensor]], Any]
# A tree from the list of all its different leaves.
_Build = Callable[[list[Any]], Any]


def number_outputs(results: Results) -> set[int]:
    """The outputs of which only the number is a result."""
    leaves = [leaf for leaf in results.leaves if isinstance(leaf, Output)]
    tensors = {leaf.index for leaf in leaves if not leaf.is_number}
    if any(isinstance(leaf, (Alias, MadeLeaf, ArrayOf)) for leaf in results.leaves):
        return set()  # it may be a view of any output
    return {leaf.index for leaf in leaves} - tensors


def assembler(results: Results, numbers: Collection[int] = ()) -> Assemble:
    """As ``results.assemble``, for a given structure; outputs in ``numbers`` are numbers."""
    if results.form is Form.ONE:
        return lambda computed, arguments: computed[0]
    if results.form is Form.TUPLE:
        return lambda computed, arguments: tuple(computed)
    places: dict[int, int] = {}
    leaves: Leaves = []
    for leaf in results.leaves:
        if id(leaf) not in places:
            places[id(leaf)] = len(leaves)
            leaves.append(leaf)
    tensors, evaluated, others = [], [], []
    for place, leaf in enumerate(leaves):
        if isinstance(leaf, Output) and (leaf.index in numbers or not leaf.is_number):
            tensors.append((place, leaf.index))
        elif isinstance(leaf, Evaluated) and leaf.index not in leaf.table.late:
            evaluated.append((place, leaf.table, leaf.index))
        elif isinstance(leaf, COMPUTED):
            others.append((place, leaf.find))
    order = [places[id(leaf)] for leaf in results.leaves]
    if results.objects is None:
        build = _builder(results.spec, iter(order))
    else:
        build = _object_builder(results, order)

    def assemble(computed: list[Tensor], arguments: Sequence[Tensor]) -> object:
        found = leaves.copy()
        for place, index in tensors:
            found[place] = computed[index]
        for place, table, index in evaluated:
            found[place] = table.values[index]
        for place, find in others:
            found[place] = find(arguments, computed)
        return build(found)

    return assemble


def _object_builder(results: Results, order: Sequence[int]) -> _Build:
    """Builds the objects of which the leaves are at these places."""
    objects = results.objects
    assert objects is not None
    return lambda found: objects.build([found[place] for place in order], results.given)


def _builder(spec: TreeSpec, places: Any) -> _Build:
    """Builds a tree whose leaves are at the next of these places."""
    if spec.is_leaf():
        return itemgetter(next(places))
    if spec.kind in (tuple, list, dict):
        return _container_builder(spec, places)
    leaves = [next(places) for _ in range(spec.num_leaves)]
    return lambda found: tree_unflatten([found[place] for place in leaves], spec)


def _container_builder(spec: TreeSpec, places: Any) -> _Build:
    kind, keys = spec.kind, spec.context
    members: Callable[[Leaves], Any]
    if len(spec.children) > 1 and all(child.is_leaf() for child in spec.children):
        members = itemgetter(*[next(places) for _ in spec.children])
        if kind is tuple:
            return members
    else:
        parts = [_builder(child, places) for child in spec.children]
        if kind is tuple and len(parts) == 2:
            first, second = parts
            return lambda found: (first(found), second(found))
        members = lambda found: [part(found) for part in parts]
        if kind is list:
            return members
    if kind is dict:
        return lambda found: dict(zip(keys, members(found), strict=True))
    return lambda found: kind(members(found))
