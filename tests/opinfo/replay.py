"""What a sample of the database is checked for: the same call under both libraries."""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import evergrad

from .database import Translator, op_db

SEED = 3
TOLERANCE = {"float64": 1e-7, "complex128": 1e-7, "float32": 2e-4, "complex64": 2e-4,
             "float16": 5e-3, "bfloat16": 5e-2, "complex32": 5e-3}  # fmt: skip

Call = tuple[Any, Any, Any]  # input, positional and keyword arguments


def leaves(value: Any, kind: type) -> list[Any]:
    """The members of nested lists and dictionaries that are of a kind."""
    if isinstance(value, (list, tuple)):
        return [leaf for member in value for leaf in leaves(member, kind)]
    if isinstance(value, dict):
        return leaves(list(value.values()), kind)
    return [value] if isinstance(value, kind) else []


def name_of(kind: Any) -> str:
    return str(kind).partition(".")[2]


def as_array(tensor: Any, library: Any) -> np.ndarray[Any, Any]:
    """The elements, dense and in a type that NumPy has."""
    tensor = tensor.detach()
    if tensor.layout is not library.strided:
        tensor = tensor.to_dense()
    wider = {"bfloat16": library.float32, "complex32": library.complex64}
    tensor = tensor.to(wider.get(name_of(tensor.dtype), tensor.dtype))
    if library is not evergrad:
        tensor = tensor.resolve_conj().resolve_neg()
        tensor = library.zeros_like(tensor) if tensor._is_zerotensor() else tensor
    return np.asarray(tensor.numpy())


class Replay:
    """Runs samples of ops and collects what differs, by op."""

    def __init__(self, torch: Any, per_op: int) -> None:
        self.torch, self.per_op = torch, per_op
        self.translate = Translator(torch)
        self.failures: dict[str, list[str]] = {}
        self.counts: Counter[str] = Counter()

    # -- comparing ------------------------------------------------------------------------------

    def compare(self, ours: Any, theirs: Any) -> None:
        found = leaves(ours, object) if isinstance(ours, (list, tuple, dict)) else [ours]
        expected = leaves(theirs, object) if isinstance(theirs, (list, tuple, dict)) else [theirs]
        assert len(found) == len(expected), f"{len(found)} results instead of {len(expected)}"
        for mine, other in zip(found, expected, strict=True):
            if isinstance(other, self.torch.Tensor):
                self.compare_tensors(mine, other)
            elif isinstance(other, (bool, int, float, complex)):
                np.testing.assert_allclose(mine, other, rtol=1e-6)

    def compare_tensors(self, ours: Any, theirs: Any) -> None:
        assert isinstance(ours, evergrad.Tensor), type(ours)
        kind = name_of(theirs.dtype)
        assert name_of(ours.dtype) == kind, f"dtype {ours.dtype} instead of {theirs.dtype}"
        assert tuple(ours.shape) == tuple(theirs.shape), f"shape {ours.shape} not {theirs.shape}"
        if theirs.is_meta:
            assert ours.is_meta
            return
        bound = TOLERANCE.get(kind, 0)
        np.testing.assert_allclose(
            as_array(ours, evergrad), as_array(theirs, self.torch), rtol=bound, atol=bound * 5
        )

    # -- samples --------------------------------------------------------------------------------

    def ops(self, kind: str, every: int = 1, first: int = 0) -> Iterator[Any]:
        dtype = getattr(self.torch, kind)
        for op in op_db()[first::every]:
            if dtype in op.supported_dtypes("cpu"):
                yield op

    def samples(self, op: Any, kind: str, requires_grad: bool) -> list[Any]:
        self.torch.manual_seed(SEED)
        made = op.sample_inputs("cpu", getattr(self.torch, kind), requires_grad=requires_grad)
        some = list(itertools.islice(made, 8 * self.per_op))
        return some[:: max(1, len(some) // self.per_op)][: self.per_op]

    def run(self, library: Any, function: Callable[..., Any], call: Call, **further: Any) -> Any:
        library.manual_seed(SEED)
        return function(call[0], *call[1], **call[2], **further)

    def note(self, op: Any, what: str, error: BaseException) -> None:
        text = f"{what}: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
        self.failures.setdefault(op.full_name, []).append(text)

    def attempt(self, op: Any, what: str, check: Callable[[], None]) -> bool:
        self.counts[what.split()[0]] += 1
        try:
            check()
        except Exception as error:
            self.note(op, what, error)
            return False
        return True

    # -- checks ---------------------------------------------------------------------------------

    def replay(self, op: Any, kind: str, checks: frozenset[str]) -> None:
        """All checks of the samples of one op in one element type."""
        dtype = getattr(self.torch, kind)
        has_grad = (
            "gradient" in checks and op.supports_autograd
            and dtype in op.supported_backward_dtypes("cpu")
        )  # fmt: skip
        for number, sample in enumerate(self.samples(op, kind, has_grad)):
            label = f"({kind}, sample {number})"
            try:
                theirs = self.call_torch(op, sample)
            except Exception:
                self.counts["refused by PyTorch"] += 1
                continue
            self.attempt(op, f"forward {label}", partial(self.forward, op, sample, theirs))
            if has_grad:
                self.attempt(op, f"gradient {label}", partial(self.gradients, op, sample))
            if "out" in checks and op.supports_out:
                self.attempt(op, f"out= {label}", partial(self.out, op, sample, theirs))
            if "in-place" in checks and op.inplace_variant is not None:
                self.attempt(op, f"in-place {label}", partial(self.in_place, op, sample))
            if "compiled" in checks and number == 0:
                self.attempt(op, f"compiled {label}", partial(self.compiled, op, sample, theirs))

    def call_torch(self, op: Any, sample: Any) -> Any:
        return self.run(self.torch, op.op, (sample.input, sample.args, sample.kwargs))

    def ours(self, sample: Any) -> Call:
        call = sample.input, sample.args, sample.kwargs
        made: Call = self.translate(call)
        return made

    def processed(self, sample: Any, ours: Any, theirs: Any) -> tuple[Any, Any]:
        """Results without what is not determined, such as the signs of singular vectors."""
        process = sample.output_process_fn_grad
        if process is None:
            return ours, theirs
        return self.translate(process)(ours), process(theirs)

    def forward(self, op: Any, sample: Any, theirs: Any) -> None:
        found = self.run(evergrad, self.translate(op.op), self.ours(sample))
        if "empty" not in op.name:
            self.compare(*self.processed(sample, found, theirs))

    def out(self, op: Any, sample: Any, theirs: Any) -> None:
        targets = leaves(theirs, self.torch.Tensor)
        if not targets or "empty" in op.name:
            return
        made = [evergrad.empty(tuple(t.shape), dtype=self.translate(t.dtype)) for t in targets]
        given = made[0] if isinstance(theirs, self.torch.Tensor) else tuple(made)
        with evergrad.no_grad():
            call = self.ours(sample)
            result = self.run(evergrad, self.translate(op.op), call, out=given)
        assert all(a is b for a, b in zip(leaves(result, evergrad.Tensor), made, strict=True))
        whole = made[0] if isinstance(theirs, self.torch.Tensor) else type(theirs)(made)
        self.compare(*self.processed(sample, whole, theirs))

    def in_place(self, op: Any, sample: Any) -> None:
        if not isinstance(sample.input, self.torch.Tensor):
            return
        input = sample.input.detach().clone()
        call = self.translate((input, sample.args, sample.kwargs))
        try:
            with self.torch.no_grad():
                args = input, sample.args, sample.kwargs
                theirs = self.run(self.torch, op.inplace_variant, args)
        except Exception:
            return  # the result does not fit into the input
        with evergrad.no_grad():
            found = self.run(evergrad, self.translate(op.inplace_variant), call)
        assert found is call[0]
        self.compare(found, theirs)

    def compiled(self, op: Any, sample: Any, theirs: Any) -> None:
        function = evergrad.compile(self.translate(op.op))
        found = self.run(evergrad, function, self.ours(sample))
        if "empty" not in op.name:
            self.compare(*self.processed(sample, found, theirs))

    # -- derivatives ----------------------------------------------------------------------------

    def gradients(self, op: Any, sample: Any) -> None:
        """First derivatives and, where PyTorch has them, second ones."""
        theirs = self.call_torch(op, sample)
        call = self.ours(sample)
        found = self.run(evergrad, self.translate(op.op), call)
        found, theirs = self.processed(sample, found, theirs)
        own, other = Derivatives(evergrad, call, found), Derivatives(
            self.torch, (sample.input, sample.args, sample.kwargs), theirs
        )  # fmt: skip
        if not other.points or not other.values:
            return
        own.differentiate(), other.differentiate()
        self.compare(own.dense(other), other.dense(own))
        if op.supports_gradgrad:
            try:
                other.differentiate()
            except RuntimeError:
                return  # PyTorch has no second derivative here
            own.differentiate()
            self.compare(own.dense(other), other.dense(own))

    # -- errors ---------------------------------------------------------------------------------

    def errors(self, op: Any) -> None:
        """Calls that PyTorch refuses are refused with the same kind of error."""
        if op.error_inputs_func is None:
            return
        for number, error_input in enumerate(op.error_inputs("cpu")):
            sample = error_input.sample_input
            try:
                self.call_torch(op, sample)
            except Exception as error:
                expected = error
            else:
                continue
            if _takes_a_number_for_a_tensor(expected) or "memory location" in str(expected):
                continue  # memory that arguments share is not translated
            what = f"error ({number}, {type(expected).__name__}: {str(expected)[:90]})"
            self.attempt(op, what, partial(self.refuse, op, sample, expected))

    def refuse(self, op: Any, sample: Any, expected: Exception) -> None:
        try:
            self.run(evergrad, self.translate(op.op), self.ours(sample))
        except Exception as error:
            related = isinstance(error, type(expected)) or isinstance(expected, type(error))
            assert related, f"{type(error).__name__}: {error}"
        else:
            raise AssertionError("no error")


def _takes_a_number_for_a_tensor(error: Exception) -> bool:
    """evergrad takes a number wherever it takes a tensor of no dimensions."""
    text = str(error)
    return isinstance(error, (TypeError, AttributeError)) and (
        "must be Tensor, not int" in text or "got (int, " in text or "'int' object" in text
    )


class Derivatives:
    """The derivatives of results by the leaves of a call, again and again."""

    def __init__(self, library: Any, call: Call, result: Any) -> None:
        self.library = library
        strided = [t for t in leaves(list(call), library.Tensor) if t.layout is library.strided]
        self.points = [t for t in strided if t.requires_grad]
        self.values = [
            t for t in leaves(result, library.Tensor)
            if (t.dtype.is_floating_point or t.dtype.is_complex) and t.layout is library.strided
        ]  # fmt: skip
        self.order = 0

    def cotangent(self, tensor: Any, number: int) -> Any:
        """Numbers that depend on the place only."""
        places = np.arange(tensor.numel()).reshape(tuple(tensor.shape))
        values = np.cos(places * 1.3 + number + self.order)
        if tensor.dtype.is_complex:
            values = values + 1j * np.sin(places + number)
        kind = getattr(self.library, name_of(tensor.dtype))
        return self.library.tensor(values).to(kind)

    def differentiate(self) -> None:
        numbered = [(k, t) for k, t in enumerate(self.values) if t is not None and t.requires_grad]
        values = [t for _, t in numbered]
        cotangents = [self.cotangent(t, k) for k, t in numbered]
        self.order += 1
        found: Any = (None,) * len(self.points)
        if values:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = self.library.autograd.grad(
                    values, self.points, cotangents, create_graph=True, allow_unused=True
                )
        self.values = list(found)

    def dense(self, other: Derivatives) -> list[Any]:
        """Derivatives with zeros for those that only the other library has."""
        return [
            self.library.zeros_like(point) if mine is None else mine
            for mine, its, point in zip(self.values, other.values, self.points, strict=True)
            if mine is not None or its is not None
        ]
