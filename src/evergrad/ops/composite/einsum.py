"""Sums of products by subscripts, as matrix products.

An equation is read into labels, one for each dimension; dimensions under an ellipsis get the labels
"1", "2", ... counted from the right. opt_einsum finds the order in which to contract, and each
contraction of two tensors becomes permutations, reshapes and one ``matmul``.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from typing import Any

from evergrad.core.prepared import prepared
from evergrad.core.tensor import Tensor
from evergrad.core.types import Args
from evergrad.errors import ShapeError
from evergrad.ops.rows.matmul import matmul
from evergrad.ops.rows.movement.strided import diagonal
from evergrad.ops.rows.movement.views import permute, reshape
from evergrad.ops.rows.reduce.sums import sum as total
from evergrad.ops.surface.public import expose

Labels = tuple[str, ...]
ELLIPSIS = "..."


@expose(method=False, out=False)
@prepared
def einsum(*args: object) -> Tensor:
    """The sum of products that the subscripts describe.

    Takes ``einsum("ij,jk->ik", a, b)`` or ``einsum(a, [0, 1], b, [1, 2], [0, 2])``.
    """
    equation, operands = _equation_and_operands(args)
    inputs, output = _read(equation, tuple([x._type.shape for x in operands]))
    extents = _extents(inputs, [x._type.shape for x in operands])
    terms = [
        _Term(*_without_repeats(x, labels)).without_broadcast(extents)
        for x, labels in zip(operands, inputs, strict=True)
    ]
    for places in _order(tuple(t.labels for t in terms), output, tuple(extents.items())):
        second, first = (terms.pop(i) for i in sorted(places, reverse=True))
        needed = {*output, *(label for t in terms for label in t.labels)}
        terms.append(_product(first, second, needed))
    return terms[0].summed(set(output)).permuted(output)


# -- reading ------------------------------------------------------------------------------------


def _equation_and_operands(args: Args) -> tuple[str, list[Tensor]]:
    if len(args) < 2:
        raise ValueError(
            "einsum(): must specify the equation string and at least one operand, or at least one "
            "operand and its subscripts list"
        )
    if isinstance(args[0], Tensor):
        return _from_sublists(args)
    equation, *operands = args
    if not isinstance(equation, str):
        raise TypeError(f"einsum(): argument 'equation' must be str, not {type(equation).__name__}")
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = list(operands[0])
    for i, x in enumerate(operands):
        if not isinstance(x, Tensor):
            raise TypeError(
                f"expected Tensor as element {i} in argument 1, but got {type(x).__name__}"
            )
    return equation, operands


def _from_sublists(args: Args) -> tuple[str, list[Tensor]]:
    operands = list(args[0 : len(args) // 2 * 2 : 2])
    equation = ",".join(map(_from_sublist, args[1::2][: len(operands)]))
    if len(args) % 2:
        equation += "->" + _from_sublist(args[-1])
    return equation, operands


def _from_sublist(subscripts: Sequence[object]) -> str:
    return "".join(map(_letter, subscripts))


def _letter(subscript: Any) -> str:
    if subscript is Ellipsis:
        return ELLIPSIS
    if not 0 <= subscript < 52:
        raise ValueError(
            "einsum(): subscript in subscript list is not within the valid range [0, 52)"
        )
    return chr(ord("A") + subscript) if subscript < 26 else chr(ord("a") + subscript - 26)


@functools.lru_cache(maxsize=1024)
def _read(equation: str, shapes: tuple[tuple[int, ...], ...]) -> tuple[list[Labels], Labels]:
    """The labels of every operand and of the output."""
    left, arrow, right = equation.partition("->")
    parts = left.split(",")
    if len(parts) != len(shapes):
        problem = "more" if len(parts) < len(shapes) else "fewer"
        raise ShapeError(
            f"einsum(): {problem} operands were provided than specified in the equation"
        )
    _check_characters(equation, left, right)
    inputs = [
        _labels_of(_tokens(part, f"operand {i}"), len(shape), i)
        for i, (part, shape) in enumerate(zip(parts, shapes, strict=True))
    ]
    hidden = _ellipsis_labels(max(sum(not c.isalpha() for c in labels) for labels in inputs))
    seen = [label for labels in inputs for label in labels]
    if arrow:
        return inputs, _explicit_output(_tokens(right, "output"), hidden, seen)
    once = sorted(label for label in set(seen) if label.isalpha() and seen.count(label) == 1)
    return inputs, (*hidden, *once)


def _check_characters(equation: str, left: str, right: str) -> None:
    for i, character in enumerate(equation):
        inside = i < len(left) or i >= len(equation) - len(right)
        allowed = " .," if i < len(left) else " ."
        if (
            inside
            and not (character.isascii() and character.isalpha())
            and character not in allowed
        ):
            raise ShapeError(
                f"einsum(): invalid subscript given at index {i} in the equation string, "
                "subscripts must be in [a-zA-Z]"
            )


def _tokens(part: str, whose: str) -> list[str]:
    """Letters, and at most one ellipsis."""
    tokens = re.findall(r"\.\.\.|\S", part)
    if "." in tokens:
        raise ShapeError(f"einsum(): found '.' for {whose} that is not part of any ellipsis")
    if tokens.count(ELLIPSIS) > 1:
        raise ShapeError(f"einsum(): found '.' for {whose} for which an ellipsis was already found")
    return tokens


def _ellipsis_labels(count: int) -> Labels:
    return tuple(str(i) for i in range(count, 0, -1))


def _labels_of(tokens: list[str], rank: int, position: int) -> Labels:
    letters = [token for token in tokens if token != ELLIPSIS]
    count = len(letters)
    if ELLIPSIS not in tokens and count != rank:
        raise ShapeError(
            f"einsum(): the number of subscripts in the equation ({count}) does not match the "
            f"number of dimensions ({rank}) for operand {position} and no ellipsis was given"
        )
    if count > rank:
        raise ShapeError(
            f"einsum(): the number of subscripts in the equation ({count}) is more than the number "
            f"of dimensions ({rank}) for operand {position}"
        )
    hidden = _ellipsis_labels(rank - count)
    return tuple(label for token in tokens for label in (hidden if token == ELLIPSIS else (token,)))


def _explicit_output(tokens: list[str], hidden: Labels, seen: list[str]) -> Labels:
    for token in tokens:
        if token != ELLIPSIS and tokens.count(token) > 1:
            raise ShapeError(
                f"einsum(): output subscript {token} appears more than once in the output"
            )
        if token != ELLIPSIS and token not in seen:
            raise ShapeError(
                f"einsum(): output subscript {token} does not appear in the equation for any input "
                "operand"
            )
    return tuple(label for token in tokens for label in (hidden if token == ELLIPSIS else (token,)))


def _extents(inputs: list[Labels], shapes: Sequence[Sequence[int]]) -> dict[str, int]:
    """The extent of each label; singletons broadcast."""
    extents: dict[str, int] = {}
    for i, (labels, shape) in enumerate(zip(inputs, shapes, strict=True)):
        own: dict[str, int] = {}
        for label, extent in zip(labels, shape, strict=True):
            if own.setdefault(label, extent) != extent:
                raise ShapeError(
                    f"einsum(): subscript {label} is repeated for operand {i} but the sizes don't "
                    f"match, {extent} != {own[label]}"
                )
            known = extents.setdefault(label, extent)
            if known == 1:
                extents[label] = extent
            elif extent not in (1, known):
                raise ShapeError(
                    f"einsum(): subscript {label} has size {extent} for operand {i} which does not "
                    f"broadcast with previously seen size {known}"
                )
    return extents


@functools.lru_cache(maxsize=1024)
def _order(
    inputs: tuple[Labels, ...], output: Labels, extents: tuple[tuple[str, int], ...]
) -> tuple[tuple[int, int], ...]:
    """Which pairs to contract in which order; each contraction's result is put last."""
    if len(inputs) <= 2:
        return ((0, 1),) if len(inputs) == 2 else ()
    import opt_einsum  # here, because few programs contract more than two operands

    symbols = {label: opt_einsum.get_symbol(i) for i, (label, _) in enumerate(extents)}
    sizes = dict(extents)
    words = ["".join(symbols[label] for label in labels) for labels in (*inputs, output)]
    path, _ = opt_einsum.contract_path(
        ",".join(words[:-1]) + "->" + words[-1],
        *[tuple(sizes[label] for label in labels) for labels in inputs],
        shapes=True,
    )
    return tuple(path)


# -- contracting --------------------------------------------------------------------------------


class _Term:
    """A tensor with a label for each dimension."""

    __slots__ = ("labels", "tensor")

    def __init__(self, tensor: Tensor, labels: Labels) -> None:
        self.tensor = tensor
        self.labels = labels

    def without_broadcast(self, extents: dict[str, int]) -> _Term:
        """Without the singletons that stand for a longer dimension: they multiply nothing."""
        shape = self.tensor._type.shape
        kept = [
            (label, n) for label, n in zip(self.labels, shape, strict=True) if n == extents[label]
        ]
        if len(kept) == len(shape):
            return self
        return _Term(
            reshape(self.tensor, tuple(n for _, n in kept)), tuple(label for label, _ in kept)
        )

    def summed(self, needed: set[str]) -> _Term:
        """With unused labels summed away."""
        gone = tuple(i for i, label in enumerate(self.labels) if label not in needed)
        if not gone:
            return self
        return _Term(
            total(self.tensor, gone), tuple(label for label in self.labels if label in needed)
        )

    def permuted(self, labels: Labels) -> Tensor:
        if labels == self.labels:
            return self.tensor
        return permute(self.tensor, tuple(self.labels.index(label) for label in labels))

    def grouped(self, *groups: Labels) -> tuple[Tensor, list[tuple[int, ...]]]:
        """The tensor permuted to the groups' order, and the extents in each group."""
        shape = dict(zip(self.labels, self.tensor._type.shape, strict=True))
        order = tuple(label for group in groups for label in group)
        return self.permuted(order), [tuple(shape[label] for label in group) for group in groups]


def _without_repeats(x: Tensor, labels: Labels) -> tuple[Tensor, Labels]:
    """Take the diagonal of dimensions that share a label."""
    for label in set(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            x = diagonal(x, 0, first, second)
            labels = (*labels[:first], *labels[first + 1 : second], *labels[second + 1 :], label)
    return x, labels


def _product(a: _Term, b: _Term, needed: set[str]) -> _Term:
    """The product of two terms, summed over the labels that only they share."""
    a = a.summed(needed | set(b.labels))
    b = b.summed(needed | set(a.labels))
    shared = tuple(label for label in a.labels if label in b.labels)
    batch = tuple(label for label in shared if label in needed)
    inner = tuple(label for label in shared if label not in needed)
    rows = tuple(label for label in a.labels if label not in shared)
    columns = tuple(label for label in b.labels if label not in shared)
    left, (stack, m, k) = a.grouped(batch, rows, inner)
    right, (_, _, n) = b.grouped(batch, inner, columns)
    shape = stack + m + n
    if not inner:
        product = reshape(left, stack + m + (1,) * len(n)) * reshape(
            right, stack + (1,) * len(m) + n
        )
    else:
        left = reshape(left, (*stack, math.prod(m), math.prod(k)))
        right = reshape(right, (*stack, math.prod(k), math.prod(n)))
        product = reshape(matmul(left, right), shape)
    return _Term(product, batch + rows + columns)
