"""Recurrent layers: RNN, LSTM, GRU, and their single steps.

Between layers the rows of all steps are concatenated, as :class:`Course` says; the loop over time
is that of :func:`~evergrad.ops.rows.recurrent.layer.recurrent_layer`.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any, TypeVar

from evergrad.core.autocast import as_lowered
from evergrad.core.tensor import Tensor
from evergrad.nn import functional as F
from evergrad.nn import init
from evergrad.nn.module import Module
from evergrad.nn.parameter import Parameter
from evergrad.nn.recurrent_function import stacked_layers
from evergrad.nn.utils.rnn import PackedSequence
from evergrad.ops.rows.creation.constants import empty, zeros
from evergrad.ops.rows.recurrent.steps import (
    Course,
    State,
    Step,
    gru_step,
    lstm_step,
    relu_step,
    tanh_step,
)

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike, DtypeLike

# -- layers -------------------------------------------------------------------------------------


_KINDS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")

# What a layer reads and gives back: steps of equally long sequences, or a packed batch.
Rows = TypeVar("Rows", Tensor, PackedSequence)


class RNNBase(Module):
    """The settings, parameters and loop over layers that recurrent layers share.

    Args:
        mode: ``"LSTM"``, ``"GRU"``, ``"RNN_TANH"`` or ``"RNN_RELU"``
        input_size: features of each step
        hidden_size: features of the state
        num_layers: layers above each other; default 1
        bias, batch_first, dropout, bidirectional, proj_size: as :class:`LSTM` has them

    >>> isinstance(nn.LSTM(2, 3), nn.RNNBase), nn.LSTM(2, 3).mode
    (True, 'LSTM')
    """

    def __init__(
        self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        proj_size: int = 0, device: DeviceLike = None, dtype: DtypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__()
        _check_settings(mode, input_size, hidden_size, num_layers, dropout, proj_size)
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout: float = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        directions = 2 if bidirectional else 1
        gates = {"LSTM": 4, "GRU": 3}.get(mode, 1) * hidden_size
        out = proj_size or hidden_size
        for layer in range(num_layers):
            width = input_size if layer == 0 else out * directions
            for suffix in ("", "_reverse")[:directions]:
                shapes: dict[str, tuple[int, ...]]
                shapes = {"weight_ih": (gates, width), "weight_hh": (gates, out)}
                if bias:
                    shapes |= {"bias_ih": (gates,), "bias_hh": (gates,)}
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                for name, shape in shapes.items():
                    parameter = Parameter(empty(*shape, device=device, dtype=dtype))
                    setattr(self, f"{name}_l{layer}{suffix}", parameter)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew, as the constructor does."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def flatten_parameters(self) -> None:
        """Weights need no special layout here."""

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction, in their order."""
        suffixes = ("", "_reverse")[: 2 if self.bidirectional else 1]
        return [
            [getattr(self, name) for kind in _KINDS if hasattr(self, name := f"{kind}_l{layer}{s}")]
            for layer in range(self.num_layers)
            for s in suffixes
        ]  # fmt: skip

    @property
    def _all_weights(self) -> list[list[str]]:
        suffixes = ("", "_reverse")[: 2 if self.bidirectional else 1]
        return [
            [name for kind in _KINDS if hasattr(self, name := f"{kind}_l{layer}{s}")]
            for layer in range(self.num_layers)
            for s in suffixes
        ]

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self) -> list[Any]:
        """The parameters in PyTorch's order. Nothing is kept: what is assigned is dropped, and
        attributes such as ``weight_hh_l0`` are read at each call."""
        return [getattr(self, name) for name in self._flat_weights_names]

    @_flat_weights.setter
    def _flat_weights(self, weights: object) -> None: ...

    def _all_layers(self, x: Tensor, course: Course, first: State) -> tuple[Tensor, State]:
        directions = 2 if self.bidirectional else 1
        weights = [
            [getattr(self, f"{kind}_l{layer}{suffix}", None) for kind in _KINDS]
            for layer in range(self.num_layers)
            for suffix in ("", "_reverse")[:directions]
        ]
        share = self.dropout if self.training else 0.0
        return stacked_layers(self.mode.lower(), x, course, first, weights, directions, share)

    def _widths(self) -> tuple[int, ...]:
        """The width of each part of the state."""
        out = self.proj_size or self.hidden_size
        return (out, self.hidden_size) if self.mode == "LSTM" else (out,)

    def _first_state(self, hx: Any, batch: int, like: Tensor) -> State:
        rows = self.num_layers * (2 if self.bidirectional else 1)
        if hx is None:
            return tuple(zeros(rows, batch, width, dtype=like.dtype) for width in self._widths())
        state = tuple(hx) if self.mode == "LSTM" else (hx,)
        for given, width in zip(state, self._widths(), strict=True):
            if tuple(given.shape) != (rows, batch, width):
                raise RuntimeError(
                    f"Expected hidden size {(rows, batch, width)}, got {list(given.shape)}"
                )
        return state

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        if input.ndim not in (2, 3):
            raise ValueError(
                f"{type(self).__name__}: Expected input to be 2D or 3D, got {input.ndim}D instead"
            )
        if input.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got "
                f"{input.shape[-1]}"
            )
        single = input.ndim == 2
        turned = self.batch_first and not single
        x = input.unsqueeze(1) if single else input.transpose(0, 1) if turned else input
        steps, batch = x.shape[:2]
        if not steps:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        if single and hx is not None:
            hx = tuple(h.unsqueeze(1) for h in hx) if self.mode == "LSTM" else hx.unsqueeze(1)
        course = Course((batch,) * steps)
        first = self._first_state(hx, batch, x)
        output, last = self._all_layers(x.flatten(0, 1), course, first)
        output = output.unflatten(0, x.shape[:2])
        if self.mode == "LSTM" and not self.proj_size:
            output, last = as_lowered(output), tuple(as_lowered(s) for s in last)
        if single:
            output, last = output.squeeze(1), tuple(s.squeeze(1) for s in last)
        elif turned:
            output = output.transpose(0, 1)
        return output, (last if self.mode == "LSTM" else last[0])

    def _forward_packed(
        self, packed: PackedSequence, hx: Any
    ) -> tuple[PackedSequence, tuple[Tensor, ...] | Tensor]:
        sizes = [int(n) for n in packed.batch_sizes.tolist()]
        if hx is not None and packed.sorted_indices is not None:
            order = packed.sorted_indices
            hx = (
                tuple(h.index_select(1, order) for h in hx)
                if self.mode == "LSTM"
                else hx.index_select(1, order)
            )
        first = self._first_state(hx, sizes[0], packed.data)
        output, last = self._all_layers(packed.data, Course(tuple(sizes)), first)
        if packed.unsorted_indices is not None:
            last = tuple(s.index_select(1, packed.unsorted_indices) for s in last)
        return packed._replace_data(output), (last if self.mode == "LSTM" else last[0])

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.proj_size:
            text += f", proj_size={self.proj_size}"
        for name, default in (
            ("num_layers", 1), ("bias", True), ("batch_first", False), ("dropout", 0),
            ("bidirectional", False),
        ):  # fmt: skip
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)}"
        return text


def _check_settings(
    mode: str, input_size: int, hidden_size: int, num_layers: int, dropout: float, proj_size: int
) -> None:
    if isinstance(dropout, bool) or not 0 <= dropout <= 1:
        raise ValueError(
            "dropout should be a number in range [0, 1] representing the probability of an element "
            "being zeroed"
        )
    if dropout > 0 and num_layers == 1:
        warnings.warn(
            "dropout option adds dropout after all but last recurrent layer, so non-zero dropout "
            f"expects num_layers greater than 1, but got dropout={dropout} and "
            f"num_layers={num_layers}",
            stacklevel=5,  # below _check_settings, two constructors and the wrapper of one
        )
    if input_size <= 0:
        raise ValueError("input_size must be greater than zero")
    if hidden_size <= 0:
        raise ValueError("hidden_size must be greater than zero")
    if num_layers <= 0:
        raise ValueError("num_layers must be greater than zero")
    if proj_size < 0 or proj_size >= hidden_size:
        raise ValueError("proj_size has to be a positive integer, smaller than hidden_size")
    if proj_size and mode != "LSTM":
        raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")


class RNN(RNNBase):
    """Elman layers over time: ``h_t = tanh(W_ih x_t + b_ih + W_hh h_{t-1} + b_hh)``.

    Args:
        input_size: features of each step of the input
        hidden_size: features of the state
        num_layers: layers on top of each other; each reads the states of the one below
        nonlinearity: ``"tanh"`` or ``"relu"``
        bias: whether to add ``b_ih`` and ``b_hh``
        batch_first: input and output as (B, T, ...) in place of (T, B, ...)
        dropout: probability of zeroing between layers while training
        bidirectional: a second pass from the last step to the first, its states appended

    ``rnn(input, h_0=None)`` takes (T, B, input_size), or (T, input_size) without a batch, or a
    ``PackedSequence``, and returns the states (T, B, D * hidden_size) of the last layer and the
    last state of each layer (D * num_layers, B, hidden_size), D = 2 if bidirectional, else 1.

    >>> output, last = nn.RNN(4, 8, num_layers=2)(eg.zeros(5, 3, 4))
    >>> output.shape, last.shape
    (evergrad.Size([5, 3, 8]), evergrad.Size([2, 3, 8]))
    """

    if TYPE_CHECKING:

        def __call__(self, input: Rows, hx: Tensor | None = None) -> tuple[Rows, Tensor]: ...

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh",
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0,
        bidirectional: bool = False, device: DeviceLike = None, dtype: DtypeLike = None, *,
        proj_size: int | None = None,
    ) -> None:  # fmt: skip
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(
                f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'."
            )
        _refuse_projection(proj_size)
        self.__dict__["nonlinearity"] = nonlinearity
        super().__init__(
            f"RNN_{nonlinearity.upper()}", input_size, hidden_size, num_layers, bias, batch_first,
            dropout, bidirectional, 0, device, dtype,
        )  # fmt: skip


class LSTM(RNNBase):
    """Long short-term memory: a state ``h`` and a cell ``c`` that four gates control.

    ``i, f, o = sigmoid(...)``, ``g = tanh(...)`` of ``W x_t + b + U h_{t-1} + b'``; then
    ``c_t = f * c_{t-1} + i * g`` and ``h_t = o * tanh(c_t)``.

    Args:
        input_size: features of each step of the input
        hidden_size: features of the state and of the cell
        num_layers: layers on top of each other; each reads the states of the one below
        bias: whether to add the biases
        batch_first: input and output as (B, T, ...) in place of (T, B, ...)
        dropout: probability of zeroing between layers while training
        bidirectional: a second pass from the last step to the first, its states appended
        proj_size: features that ``h`` is projected to; 0 for none

    ``lstm(input, (h_0, c_0)=None)`` takes (T, B, input_size), or (T, input_size) without a batch,
    or a ``PackedSequence``, and returns the states (T, B, D * hidden_size) of the last layer and
    ``(h_n, c_n)``, the last state and cell of each layer (D * num_layers, B, hidden_size).

    >>> lstm = nn.LSTM(4, 8, batch_first=True, bidirectional=True)
    >>> output, (h, c) = lstm(eg.zeros(3, 5, 4))
    >>> output.shape, c.shape
    (evergrad.Size([3, 5, 16]), evergrad.Size([2, 3, 8]))
    """

    if TYPE_CHECKING:

        def __call__(
            self, input: Rows, hx: tuple[Tensor, Tensor] | None = None
        ) -> tuple[Rows, tuple[Tensor, Tensor]]: ...

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        proj_size: int = 0, device: DeviceLike = None, dtype: DtypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__(
            "LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            proj_size, device, dtype,
        )  # fmt: skip


class GRU(RNNBase):
    """Gated recurrent units: a reset gate ``r`` and an update gate ``z``.

    ``r, z = sigmoid(W x_t + b + U h_{t-1} + b')``, ``n = tanh(W_n x_t + b_n + r * (U_n h_{t-1} +
    b'_n))`` and ``h_t = (1 - z) * n + z * h_{t-1}``.

    Args:
        input_size: features of each step of the input
        hidden_size: features of the state
        num_layers: layers on top of each other; each reads the states of the one below
        bias: whether to add the biases
        batch_first: input and output as (B, T, ...) in place of (T, B, ...)
        dropout: probability of zeroing between layers while training
        bidirectional: a second pass from the last step to the first, its states appended

    ``gru(input, h_0=None)`` takes (T, B, input_size), or (T, input_size) without a batch, or a
    ``PackedSequence``, and returns the states (T, B, D * hidden_size) of the last layer and the
    last state of each layer (D * num_layers, B, hidden_size), D = 2 if bidirectional, else 1.

    >>> output, last = nn.GRU(4, 8)(eg.zeros(5, 3, 4))
    >>> output.shape, last.shape
    (evergrad.Size([5, 3, 8]), evergrad.Size([1, 3, 8]))
    """

    if TYPE_CHECKING:

        def __call__(self, input: Rows, hx: Tensor | None = None) -> tuple[Rows, Tensor]: ...

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: DeviceLike = None, dtype: DtypeLike = None, *, proj_size: int | None = None,
    ) -> None:  # fmt: skip
        _refuse_projection(proj_size)
        super().__init__(
            "GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            0, device, dtype,
        )  # fmt: skip


def _refuse_projection(proj_size: int | None) -> None:
    if proj_size is not None:
        raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")


class RNNCellBase(Module):
    """One step as a layer.

    Args:
        input_size: features of the input
        hidden_size: features of the state
        bias: whether to add one
        num_chunks: gates: 1 for :class:`RNNCell`, 3 for :class:`GRUCell`, 4 for :class:`LSTMCell`

    >>> nn.GRUCell(4, 3).weight_ih.shape
    evergrad.Size([9, 4])
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool, num_chunks: int,
        device: DeviceLike = None, dtype: DtypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        gates = num_chunks * hidden_size
        self.weight_ih: Parameter = Parameter(empty(gates, input_size, device=device, dtype=dtype))
        self.weight_hh: Parameter = Parameter(empty(gates, hidden_size, device=device, dtype=dtype))
        if bias:
            self.bias_ih: Parameter = Parameter(empty(gates, device=device, dtype=dtype))
            self.bias_hh: Parameter = Parameter(empty(gates, device=device, dtype=dtype))
        else:
            self.register_parameter("bias_ih", None)
            self.register_parameter("bias_hh", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew, as the constructor does."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def _check(self, x: Tensor, state: State) -> None:
        """Nothing is broadcast: sizes and batches agree."""
        if x.shape[1] != self.input_size:
            raise RuntimeError(
                f"input has inconsistent input_size: got {x.shape[1]} expected {self.input_size}"
            )
        for number, part in enumerate(state):
            if part.ndim != 2 or part.shape[0] != x.shape[0]:
                raise RuntimeError(
                    f"Input batch size {x.shape[0]} doesn't match hidden{number} batch size "
                    f"{part.shape[0]}"
                )
            if part.shape[1] != self.hidden_size:
                raise RuntimeError(
                    f"hidden{number} has inconsistent hidden_size: got {part.shape[1]}, expected "
                    f"{self.hidden_size}"
                )

    def _advance(self, step: Step, input: Tensor, state: State | None, parts: int) -> State:
        if input.ndim not in (1, 2):
            raise ValueError(
                f"{type(self).__name__}: Expected input to be 1D or 2D, got {input.ndim}D instead"
            )
        single = input.ndim == 1
        x = input.unsqueeze(0) if single else input
        if state is None:
            blank = zeros(x.shape[0], self.hidden_size, dtype=x.dtype)
            state = (blank,) * parts
        elif single:
            state = tuple(s.unsqueeze(0) for s in state)
        self._check(x, state)
        new = step(F.linear(x, self.weight_ih, self.bias_ih), state)
        return tuple(s.squeeze(0) for s in new) if single else new

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if not self.bias:
            text += f", bias={self.bias}"
        kind = self.__dict__.get("nonlinearity", "tanh")
        return text if kind == "tanh" else f"{text}, nonlinearity={kind}"


class RNNCell(RNNCellBase):
    """One step of :class:`RNN`.

    Args:
        input_size: features of the input
        hidden_size: features of the state
        bias: whether to add one; default ``True``
        nonlinearity: ``"tanh"`` (default) or ``"relu"``

    Called with input (N, input_size) and state (N, hidden_size), zeros if not given.

    >>> nn.RNNCell(4, 3)(eg.ones(2, 4)).shape
    evergrad.Size([2, 3])
    """

    if TYPE_CHECKING:

        def __call__(self, input: Tensor, hx: Tensor | None = None) -> Tensor: ...

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh",
        device: DeviceLike = None, dtype: DtypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        if nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {nonlinearity}")
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        make = tanh_step if self.nonlinearity == "tanh" else relu_step
        state = None if hx is None else (hx,)
        return self._advance(make(self.weight_hh, self.bias_hh), input, state, 1)[0]


class LSTMCell(RNNCellBase):
    """One step of :class:`LSTM`."""

    if TYPE_CHECKING:

        def __call__(
            self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
        ) -> tuple[Tensor, Tensor]: ...

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: DeviceLike = None,
        dtype: DtypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        step = lstm_step(self.weight_hh, self.bias_hh)
        h, c = self._advance(step, input, None if hx is None else tuple(hx), 2)
        return h, c


class GRUCell(RNNCellBase):
    """One step of :class:`GRU`."""

    if TYPE_CHECKING:

        def __call__(self, input: Tensor, hx: Tensor | None = None) -> Tensor: ...

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: DeviceLike = None,
        dtype: DtypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        step = gru_step(self.weight_hh, self.bias_hh)
        return self._advance(step, input, None if hx is None else (hx,), 1)[0]
