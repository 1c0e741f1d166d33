"""``torch.library``: schemas, keywords, derivatives, and checks of registered operators."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, Optional

import evergrad._operators
import pytest

import evergrad


def operators(library: ModuleType) -> Any:
    """What ``torch.ops`` is in a library."""
    return evergrad._operators if library is evergrad else library.ops


def prototypes(library: ModuleType) -> list[Any]:
    Tensor = library.Tensor

    def plain(x: Tensor) -> Tensor: ...
    def several(x: Tensor, b: Optional[Tensor], sizes: Sequence[int]) -> tuple[Tensor, Tensor]: ...  # noqa: UP045
    def defaults(
        x: Tensor, n: int = 2, f: float = 2.0, g: float = 0.5, flag: bool = True, s: str = "a",
        h: float | None = None, *, many: list[Tensor], scale: float = 1.5,
    ) -> list[Tensor]: ...  # fmt: skip
    def number(x: Tensor, ks: list[int], kinds: library.dtype) -> float: ...
    def nothing(x: Tensor) -> None: ...

    return [plain, several, defaults, number, nothing]


@pytest.mark.parametrize("mutated", [(), ("x",), "unknown"])
def test_schemas_are_inferred_as_in_pytorch(torch: ModuleType, mutated: Any) -> None:
    """Optional[...] and ``| None``, lists, defaults and keyword-only parameters."""

    def schemas(library: ModuleType) -> list[str]:
        infer = library.library.infer_schema
        # Annotations are texts here, which PyTorch evaluates among the module's names only.
        for function in (made := prototypes(library)):
            names = {"Tensor": library.Tensor, "library": library}
            function.__annotations__ = {
                key: eval(text, {**globals(), **names})
                for key, text in function.__annotations__.items()
            }
        return [infer(function, mutates_args=mutated, op_name="f") for function in made]

    assert schemas(evergrad) == schemas(torch)


def test_an_operator_takes_keywords_and_differentiates(torch: ModuleType) -> None:
    def run(library: ModuleType) -> Any:
        name = f"evergrad_tests::scale_{library.__name__}"

        def scale(x, factor=2.0, *, shift=0):
            return x.detach() * factor + shift

        scale.__annotations__ = {
            "x": library.Tensor, "factor": float, "shift": int, "return": library.Tensor,
        }  # fmt: skip
        op = library.library.custom_op(name, scale, mutates_args=())

        def setup(ctx, inputs, keyword_only_inputs, output):
            ctx.factor, ctx.shift = inputs[1], keyword_only_inputs["shift"]

        op.register_autograd(
            lambda ctx, grad: (grad * ctx.factor + ctx.shift, None), setup_context=setup
        )
        x = library.ones(3, requires_grad=True)
        y = op(x, factor=3.0, shift=1)
        y.sum().backward()
        space, _, short = name.partition("::")
        again = getattr(getattr(operators(library), space), short).default(x, 5.0)
        return y.tolist(), x.grad.tolist(), again.tolist()

    assert run(evergrad) == run(torch)


def test_a_declared_operator_is_given_its_parts(torch: ModuleType) -> None:
    """define, impl, register_autograd and the schema that can be read."""

    def run(library: ModuleType) -> Any:
        lib = library.library
        name = f"evergrad_tests::part_{library.__name__}"
        lib.define(name, "(Tensor x, int n=2, *, float f=0.5) -> (Tensor, Tensor)")
        lib.impl(name, "cpu", lambda x, n=2, *, f=0.5: (x.detach() * n, x.detach() * f))
        lib.register_autograd(
            name, lambda ctx, a, b: (a * ctx.n, None),
            setup_context=lambda ctx, inputs, keyword_only_inputs, output: setattr(
                ctx, "n", inputs[1]
            ),
        )  # fmt: skip
        space, _, short = name.partition("::")
        packet = getattr(getattr(operators(library), space), short)
        x = library.ones(2, requires_grad=True)
        a, b = packet(x, n=3)
        (a + b).sum().backward()
        schema = packet.default._schema
        read = [(p.name, p.default_value, p.kwarg_only) for p in schema.arguments]
        text = str(schema).replace(name, "name")
        return (a.tolist(), b.tolist(), x.grad.tolist()), read, text

    assert run(evergrad) == run(torch)


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((1, 2, 3), {}), ((1,), {"other": 2}), ((1,), {"x": 1})]
)
def test_wrong_calls_are_refused(torch: ModuleType, args: Any, kwargs: Any) -> None:
    for library in (evergrad, torch):
        with library.library._scoped_library("evergrad_refusals", "FRAGMENT") as lib:
            lib.define("f(Tensor x, int n) -> Tensor")
            lib.impl("f", lambda x, n: x, "CPU")
            given = tuple(library.ones(1) if a == 1 else a for a in args)
            with pytest.raises(RuntimeError):
                operators(library).evergrad_refusals.f(*given, **kwargs)


def test_opcheck_finds_a_write_that_is_not_declared() -> None:
    def add_one(x: evergrad.Tensor) -> evergrad.Tensor:
        x.add_(1)
        return x.clone()

    lib = evergrad.library
    wrong = lib.custom_op("evergrad_tests::wrong", add_one, schema="(Tensor x) -> Tensor")
    right = lib.custom_op("evergrad_tests::right", add_one, schema="(Tensor(a!) x) -> Tensor")
    x = evergrad.zeros(2)
    with pytest.raises(lib.OpCheckError, match="mutated"):
        lib.opcheck(wrong, (x,))
    found = lib.opcheck(wrong, (x,), raise_exception=False)
    assert isinstance(found["test_schema"], RuntimeError)
    assert set(lib.opcheck(right, (x,)).values()) == {"SUCCESS"}
    assert x.tolist() == [0.0, 0.0]
    with pytest.raises(RuntimeError, match="non-functional"):
        right.register_autograd(lambda ctx, grad: grad)


def test_a_rule_for_batches_is_used() -> None:
    lib = evergrad.library
    seen: list[Any] = []
    op = lib.custom_op("evergrad_tests::cube", lambda x: x**3, schema="(Tensor x) -> Tensor")

    @op.register_vmap
    def _(info: Any, in_dims: Any, x: Any) -> Any:
        seen.append(in_dims)
        return op(x), in_dims[0]

    cubes = evergrad.vmap(op)(evergrad.arange(4.0).reshape(2, 2))
    assert cubes.tolist() == [[0.0, 1.0], [8.0, 27.0]]
    assert seen
