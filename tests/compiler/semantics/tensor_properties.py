"""Properties of tensors that code reads: versions, bases, offsets, addresses, names of nodes."""

from __future__ import annotations

from typing import Any

from .registry import Seen, case, leaf, ramp


def called(lib: Any, wrap: Any, step: Any, calls: int = 6) -> Seen:
    """Call with tensors that differ in what no signature has."""
    step = wrap(step)
    memory = ramp(lib, 40)
    for n in range(calls):
        x = ramp(lib, 3)
        if n in (1, 4):
            x.add_(1).add_(1)
        if n in (2, 4):
            x = memory[n : n + 3]
        if n == 3:
            x = leaf(lib, 1.0, 2.0, 3.0) * 2
        if n == 5:
            x = leaf(lib, 1.0, 2.0, 3.0) + 2
        yield step(x)


@case
def the_version(lib: Any, wrap: Any) -> Seen:
    yield from called(lib, wrap, lambda x: (x * 2, x._version))


@case
def the_version_of_a_captured_tensor(lib: Any, wrap: Any) -> Seen:
    kept = ramp(lib, 3)

    def step(x):
        before = kept._version
        kept.add_(1)
        return x.detach() * 2, kept._version - before, kept._version

    yield from called(lib, wrap, step)


@case
def the_base(lib: Any, wrap: Any) -> Seen:
    yield from called(lib, wrap, lambda x: (x * 2, x._base is None, x._is_view()))


@case
def the_offset(lib: Any, wrap: Any) -> Seen:
    yield from called(lib, wrap, lambda x: (x * 2, x.storage_offset()))


@case
def the_size_of_the_storage(lib: Any, wrap: Any) -> Seen:
    yield from called(lib, wrap, lambda x: (x * 2, x.untyped_storage().nbytes()))


@case
def whether_two_share_memory(lib: Any, wrap: Any) -> Seen:
    kept = ramp(lib, 3)

    def step(x):
        return x * 2, x.data_ptr() == kept.data_ptr(), x.detach().data_ptr() == x.data_ptr()

    step = wrap(step)
    for n in range(6):
        yield step(kept if n in (2, 5) else ramp(lib, 3))


@case
def the_name_of_the_node(lib: Any, wrap: Any) -> Seen:
    def step(x):
        return x.detach() * 2, type(x.grad_fn).__name__ if x.grad_fn is not None else None

    yield from called(lib, wrap, step)


@case
def the_next_functions_of_the_node(lib: Any, wrap: Any) -> Seen:
    def step(x):
        node = x.grad_fn
        return x.detach() * 2, None if node is None else len(node.next_functions)

    yield from called(lib, wrap, step)


@case
def whether_it_is_a_leaf(lib: Any, wrap: Any) -> Seen:
    yield from called(lib, wrap, lambda x: (x.detach() * 2, x.is_leaf, x.requires_grad))


@case
def the_element_size_and_layout(lib: Any, wrap: Any) -> Seen:
    def step(x):
        layout = str(x.layout).rpartition(".")[2]
        return x.detach() * x.element_size(), layout, x.device.type, x.is_contiguous()

    yield from called(lib, wrap, step)


@case
def whether_it_is_an_inference_tensor(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: (x * 2, x.is_inference()))
    for n in range(6):
        with lib.inference_mode(n in (2, 4)):
            x = ramp(lib, 3) * 1
        yield step(x)


@case
def strided_from_the_offset_it_has(lib: Any, wrap: Any) -> Seen:
    def step(x):
        return x.as_strided((2,), (1,)) * 2, x.as_strided((2, 1), (1, 1), 1).sum()

    step = wrap(step)
    memory = ramp(lib, 40)
    for n in range(6):
        yield step(memory[n : n + 3] if n % 2 else ramp(lib, 4, start=float(n)))


@case
def properties_of_computed_tensors(lib: Any, wrap: Any) -> Seen:
    def step(x):
        y = x.detach() * 2
        part = y[1:]
        y.add_(1)
        return y, part.storage_offset(), y._version, part._base is y, y.is_inference(), y.output_nr

    yield from called(lib, wrap, step)
