"""Each op's eager time beside PyTorch's, forward and backward, at three sizes in one run.

    python bench/ops.py [--forward] [--compiled] [--forms] [--sizes 1k,64k,1m] [--only WORD]
                        [--rounds N]

Both libraries get the same shapes and one thread; what is compared is processor time, which a busy
machine disturbs least. Rounds alternate; medians are compared. Prints the ratio evergrad / PyTorch
for every op; for each size the median, the geometric mean of the inverse (above 1: evergrad is
faster), how many ops are below 0.33 of PyTorch's speed, and the ten worst. ``--forward`` leaves out
backward, on tensors that do not require grad; ``--compiled`` compiles each op, alone, forward.
``--forms`` takes a second list: strided, broadcast, 0-d and expanded arguments, other element
types, ``out=`` and in-place forms, and dimensions spelled in other ways.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import evergrad
import evergrad.nn.functional

try:
    import torch
except ImportError:
    sys.exit("PyTorch 2.13.0 is needed for the comparison: pip install torch==2.13.0")

# Elements of a plain operand at each size.
SIZES = {"small": 64, "medium": 16_384, "large": 1_048_576}
OTHER_SIZES = {"1k": 1_024, "64k": 65_536, "1m": 1_048_576}

_ALL_SIZES = SIZES | OTHER_SIZES

Call = Callable[..., Any]
Case = tuple[Call, Callable[[int], list[np.ndarray[Any, Any]]]]

_random = np.random.default_rng(0)


def _uniform(*shape: int) -> np.ndarray[Any, Any]:
    return _random.uniform(0.1, 0.9, shape).astype(np.float32)


def vectors(count: int = 1) -> Callable[[int], list[Any]]:
    return lambda n: [_uniform(n) for _ in range(count)]


def matrices(count: int = 1) -> Callable[[int], list[Any]]:
    """Nearly square."""
    return lambda n: [_uniform(_side(n), n // _side(n)) for _ in range(count)]


def _side(n: int) -> int:
    return 1 << (n.bit_length() // 2)


def rows_and_index(n: int) -> list[Any]:
    rows, columns = _side(n), n // _side(n)
    return [_uniform(rows, columns), _random.integers(0, rows, rows)]


def same_shape_index(n: int) -> list[Any]:
    rows, columns = _side(n), n // _side(n)
    return [_uniform(rows, columns), _random.integers(0, rows, (rows, columns))]


def square(n: int) -> list[Any]:
    side = int(n**0.5)
    return [_uniform(side, side), _uniform(side, side)]


def spd(n: int) -> list[Any]:
    side = min(int(n**0.5), 256)
    half = _uniform(side, side)
    return [half @ half.T + side * np.eye(side, dtype=np.float32)]


def images(n: int) -> list[Any]:
    side = max(8, int((n / 16) ** 0.5) // 2 * 2)
    return [_uniform(4, 4, side, side)]


def images_and_filter(n: int) -> list[Any]:
    return [*images(n), _uniform(8, 4, 3, 3)]


def logits(n: int) -> list[Any]:
    rows = max(8, n // 128)
    return [_uniform(rows, 128), _random.integers(0, 128, rows)]


def heads(n: int) -> list[Any]:
    steps = max(8, n // (2 * 4 * 32))
    steps = min(steps, 512)
    return [_uniform(2, 4, steps, 32) for _ in range(3)]


UNARY = (
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "digamma",
    "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "floor", "lgamma", "log", "log10", "log1p",
    "log2", "neg", "reciprocal", "relu", "round", "rsqrt", "sigmoid", "sign", "sin", "sinc", "sinh",
    "sqrt", "square", "tan", "tanh", "trunc", "i0", "logit", "frac",
)  # fmt: skip
BINARY = (
    "add", "sub", "mul", "div", "maximum", "minimum", "fmax", "fmin", "pow", "atan2", "hypot",
    "fmod", "remainder", "logaddexp", "xlogy", "copysign",
)  # fmt: skip
COMPARE = (
    "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "isnan", "isfinite", "isclose",
)  # fmt: skip
ALONG_DIM = (
    "sum", "mean", "prod", "amax", "amin", "var", "std", "logsumexp", "cumsum", "cumprod",
    "softmax", "log_softmax", "argmax", "argmin", "norm",
)  # fmt: skip
ACTIVATIONS = (
    "gelu", "silu", "mish", "softplus", "elu", "selu", "celu", "leaky_relu", "relu6", "hardtanh",
    "hardswish", "hardsigmoid", "softsign", "tanhshrink", "logsigmoid", "softshrink", "hardshrink",
)  # fmt: skip


def cases() -> dict[str, Case]:
    table: dict[str, Case] = {}
    for name in UNARY:
        table[name] = ((lambda lib, x, f=name: getattr(lib, f)(x)), vectors())
    table["acosh"] = (lambda lib, x: lib.acosh(x + 1), vectors())
    for name in BINARY:
        table[name] = ((lambda lib, a, b, f=name: getattr(lib, f)(a, b)), vectors(2))
        table[f"{name} broadcast"] = (
            (lambda lib, a, f=name: getattr(lib, f)(a, a[:1])), matrices()
        )  # fmt: skip
    for name in COMPARE:
        if name.startswith("is") and name != "isclose":
            table[name] = ((lambda lib, a, f=name: getattr(lib, f)(a)), vectors())
        else:
            table[name] = ((lambda lib, a, b, f=name: getattr(lib, f)(a, b)), vectors(2))
    for name in ALONG_DIM:
        for dim in (0, 1):
            table[f"{name} dim={dim}"] = (
                (lambda lib, x, f=name, d=dim: getattr(lib, f)(x, dim=d)), matrices()
            )  # fmt: skip
    for name in ("sum", "mean", "amax", "std", "norm"):
        table[f"{name} all"] = ((lambda lib, x, f=name: getattr(lib, f)(x)), matrices())
    for name in ACTIVATIONS:
        table[name] = ((lambda lib, x, f=name: getattr(lib.nn.functional, f)(x)), vectors())
    table.update(_structured())
    return table


def _structured() -> dict[str, Case]:
    return {
        "where": (lambda lib, a, b: lib.where(a > b, a, b), vectors(2)),
        "clamp": (lambda lib, x: x.clamp(0.2, 0.8), vectors()),
        "lerp": (lambda lib, a, b: lib.lerp(a, b, 0.3), vectors(2)),
        "addcmul": (lambda lib, a, b: lib.addcmul(a, a, b, value=0.5), vectors(2)),
        "cast to float64": (lambda lib, x: x.double(), vectors()),
        "cast to bfloat16": (lambda lib, x: x.bfloat16(), vectors()),
        "transpose + contiguous": (lambda lib, x: x.t().contiguous(), matrices()),
        "reshape": (lambda lib, x: x.reshape(-1), matrices()),
        "slice": (lambda lib, x: x[1:-1, ::2], matrices()),
        "cat": (lambda lib, a, b: lib.cat([a, b], 1), matrices(2)),
        "stack": (lambda lib, a, b: lib.stack([a, b]), matrices(2)),
        "split": (lambda lib, x: lib.cat(x.split(4, 0)[::-1]), matrices()),
        "flip": (lambda lib, x: x.flip(1), matrices()),
        "roll": (lambda lib, x: x.roll(3, 1), matrices()),
        "repeat": (lambda lib, x: x.repeat(2, 1), matrices()),
        "repeat_interleave": (lambda lib, x: x.repeat_interleave(2, 0), matrices()),
        "expand + sum": (lambda lib, x: x[:, :1].expand(*x.shape) + x, matrices()),
        "pad": (lambda lib, x: lib.nn.functional.pad(x, (1, 2, 3, 1)), matrices()),
        "tril": (lambda lib, x: x.tril(), matrices()),
        "diagonal": (lambda lib, x: x.diagonal() * 2, matrices()),
        "gather": (lambda lib, x, i: x.gather(0, i), same_shape_index),
        "scatter_add": (lambda lib, x, i: lib.zeros_like(x).scatter_add(0, i, x), same_shape_index),
        "index_select": (lambda lib, x, i: x.index_select(0, i), rows_and_index),
        "index_add": (lambda lib, x, i: x.index_add(0, i, x), rows_and_index),
        "x[index]": (lambda lib, x, i: x[i], rows_and_index),
        "x[mask]": (lambda lib, x: x[x > 0.5], matrices()),
        "masked_fill": (lambda lib, x: x.masked_fill(x > 0.5, 0.0), matrices()),
        "embedding": (lambda lib, x, i: lib.nn.functional.embedding(i, x), rows_and_index),
        "sort": (lambda lib, x: x.sort(1).values, matrices()),
        "topk": (lambda lib, x: x.topk(5, 1).values, matrices()),
        "max dim": (lambda lib, x: x.max(1).values, matrices()),
        "matmul": (lambda lib, a, b: a @ b, square),
        "batched matmul": (lambda lib, q, k, v: q @ k.transpose(-2, -1), heads),
        "linear": (lambda lib, a, b: lib.nn.functional.linear(a, b), square),
        "einsum": (lambda lib, a, b: lib.einsum("ij,kj->ik", a, b), square),
        "outer": (lambda lib, a, b: lib.outer(a[0], b[0]), square),
        "cdist": (lambda lib, a, b: lib.cdist(a[:64], b[:64]), square),
        "conv2d": (lambda lib, x, w: lib.nn.functional.conv2d(x, w, padding=1), images_and_filter),
        "conv2d stride 2": (
            lambda lib, x, w: lib.nn.functional.conv2d(x, w, stride=2), images_and_filter),
        "conv_transpose2d": (
            lambda lib, x, w: lib.nn.functional.conv_transpose2d(x, w.transpose(0, 1), stride=2),
            images_and_filter),
        "max_pool2d": (lambda lib, x: lib.nn.functional.max_pool2d(x, 2), images),
        "avg_pool2d": (lambda lib, x: lib.nn.functional.avg_pool2d(x, 2), images),
        "adaptive_avg_pool2d": (lambda lib, x: lib.nn.functional.adaptive_avg_pool2d(x, 3), images),
        "interpolate bilinear": (
            lambda lib, x: lib.nn.functional.interpolate(x, scale_factor=2, mode="bilinear"),
            images),
        "interpolate nearest": (
            lambda lib, x: lib.nn.functional.interpolate(x, scale_factor=2), images),
        "unfold": (lambda lib, x: lib.nn.functional.unfold(x, 3), images),
        "layer_norm": (lambda lib, x: lib.nn.functional.layer_norm(x, x.shape[-1:]), matrices()),
        "group_norm": (lambda lib, x: lib.nn.functional.group_norm(x, 2), images),
        "batch_norm": (
            lambda lib, x: lib.nn.functional.batch_norm(x, None, None, training=True), images),
        "cross_entropy": (lambda lib, x, t: lib.nn.functional.cross_entropy(x, t), logits),
        "nll_loss": (lambda lib, x, t: lib.nn.functional.nll_loss(x, t), logits),
        "mse_loss": (lambda lib, a, b: lib.nn.functional.mse_loss(a, b), vectors(2)),
        "bce_with_logits": (
            lambda lib, a, b: lib.nn.functional.binary_cross_entropy_with_logits(a, b),
            vectors(2)),
        "attention": (
            lambda lib, q, k, v: lib.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=True), heads),
        "cholesky": (lambda lib, x: lib.linalg.cholesky(x), spd),
        "solve": (lambda lib, x: lib.linalg.solve(x, x[:, :4]), spd),
        "inv": (lambda lib, x: lib.linalg.inv(x), spd),
        "det": (lambda lib, x: lib.linalg.slogdet(x)[1], spd),
        "eigh": (lambda lib, x: lib.linalg.eigh(x)[0], spd),
        "svd": (lambda lib, x: lib.linalg.svdvals(x), spd),
        "rfft": (lambda lib, x: lib.fft.rfft(x).abs(), vectors()),
    }  # fmt: skip


def floats(dtype: str) -> Callable[[int], list[Any]]:
    """A matrix of floats of another width."""
    return lambda n: [_uniform(_side(n), n // _side(n)).astype(dtype)]


def integers(dtype: str) -> Callable[[int], list[Any]]:
    return lambda n: [_random.integers(1, 100, (_side(n), n // _side(n))).astype(dtype)]


def forms() -> dict[str, Case]:
    """Forms of arguments that programs use beside contiguous float32."""
    table: dict[str, Case] = {}
    unary = ("exp", "sigmoid", "relu", "neg", "sqrt", "tanh")
    for name in unary:
        table[f"{name} of transposed"] = (
            (lambda lib, x, f=name: getattr(lib, f)(x.t())), matrices())  # fmt: skip
        table[f"{name} of steps"] = (
            (lambda lib, x, f=name: getattr(lib, f)(x[:, ::2])), matrices())  # fmt: skip
        table[f"{name} float64"] = ((lambda lib, x, f=name: getattr(lib, f)(x)), floats("float64"))
        table[f"{name} float16"] = ((lambda lib, x, f=name: getattr(lib, f)(x)), floats("float16"))
    for name in ("add", "mul", "div", "maximum", "eq", "lt"):
        table[f"{name} of flipped"] = (
            (lambda lib, x, f=name: getattr(lib, f)(x, x.flip(0))), matrices())  # fmt: skip
        table[f"{name} of column"] = (
            (lambda lib, x, f=name: getattr(lib, f)(x, x[:, :1])), matrices())  # fmt: skip
        table[f"{name} of 0-d"] = (
            (lambda lib, x, f=name: getattr(lib, f)(x, x[0, 0])), matrices())  # fmt: skip
        table[f"{name} of expanded"] = (
            (lambda lib, x, f=name: getattr(lib, f)(x, x[0].expand(x.shape))), matrices()
        )  # fmt: skip
        for kind in ("int64", "int32", "float64"):
            make = floats(kind) if kind == "float64" else integers(kind)
            table[f"{name} {kind}"] = ((lambda lib, x, f=name: getattr(lib, f)(x, x)), make)
    for name in ("sum", "mean", "amax", "var", "norm", "softmax"):
        keep = {} if name == "softmax" else {"keepdim": True}
        table[f"{name} dim=-1 keepdim"] = (
            (lambda lib, x, f=name, k=keep: getattr(lib, f)(x, dim=-1, **k)), matrices()
        )  # fmt: skip
        table[f"{name} of transposed"] = (
            (lambda lib, x, f=name: getattr(lib, f)(x.t(), dim=1)), matrices())  # fmt: skip
        table[f"{name} float64"] = (
            (lambda lib, x, f=name: getattr(lib, f)(x, dim=1)), floats("float64"))  # fmt: skip
        if name != "softmax":
            table[f"{name} dim=(0, 1)"] = (
                (lambda lib, x, f=name: getattr(lib, f)(x, dim=(0, 1))), matrices())  # fmt: skip
    for name in ("sum", "amax", "cumsum", "argmax"):
        table[f"{name} int64"] = (
            (lambda lib, x, f=name: getattr(lib, f)(x, dim=1)), integers("int64"))  # fmt: skip
    table.update({
        "any": (lambda lib, x: (x > 0.5).any(-1), matrices()),
        "all": (lambda lib, x: (x > 0.5).all(), matrices()),
        "bool and": (lambda lib, x: (x > 0.5) & (x < 0.7), matrices()),
        "not": (lambda lib, x: ~(x > 0.5), matrices()),
        "mul_ on a view": (lambda lib, x: x[1:].mul_(1.0), matrices()),
        "add_ of a number": (lambda lib, x: x.add_(0.0), matrices()),
        "add out=": (lambda lib, x, y: lib.add(x, x, out=y), matrices(2)),
        "exp out= transposed": (lambda lib, x, y: lib.exp(x.t(), out=y.t()), matrices(2)),
        "relu_": (lambda lib, x: x.relu_(), matrices()),
        "clamp_": (lambda lib, x: x.clamp_(0.2, 0.8), matrices()),
        "div_ of a tensor": (lambda lib, x: x.div_(x), matrices()),
        "add_ of a row": (lambda lib, x, y: x.add_(y[0] * 0), matrices(2)),
        "clamp int16": (lambda lib, x: x.clamp(2, 50), integers("int16")),
        "masked_fill int64": (lambda lib, x: x.masked_fill(x > 50, 0), integers("int64")),
        "index_copy_": (lambda lib, x, i: x.index_copy_(0, i[:1], x[:1] * 1), rows_and_index),
        "scatter_": (lambda lib, x, i: x.scatter_(0, i, x * 1), same_shape_index),
        "copy_": (lambda lib, x, y: x.copy_(y.flip(0)), matrices(2)),
        "fill_": (lambda lib, x: x.fill_(0.5), matrices()),
        "setitem": (lambda lib, x, y: x.__setitem__((slice(None), 0), y[:, 0]), matrices(2)),
        "flip both": (lambda lib, x: x.flip((0, 1)), matrices()),
        "channels_last relu": (
            lambda lib, x: lib.relu(x.contiguous(memory_format=lib.channels_last)), images),
        "permute + contiguous": (lambda lib, x: x.permute(0, 2, 3, 1).contiguous(), images),
        "sum of channels": (lambda lib, x: x.sum((0, 2, 3)), images),
        "mean of pixels": (lambda lib, x: x.mean(dim=(-2, -1), keepdim=True), images),
        "int to float": (lambda lib, x: x.float(), integers("int64")),
        "float to int": (lambda lib, x: (x * 100).long(), matrices()),
        "one_hot": (lambda lib, x, i: lib.nn.functional.one_hot(i % 64, 64), rows_and_index),
        "unsqueeze + mul": (lambda lib, x: x.unsqueeze(-1) * x[0, :4], matrices()),
        "pad reflect": (
            lambda lib, x: lib.nn.functional.pad(x, (1, 1, 1, 1), mode="reflect"), images),
        "grid_sample": (
            lambda lib, x: lib.nn.functional.grid_sample(
                x, x[:, :2].permute(0, 2, 3, 1), align_corners=False), images),
        "huber_loss": (lambda lib, a, b: lib.nn.functional.huber_loss(a, b), matrices(2)),
        "cosine_similarity": (
            lambda lib, a, b: lib.nn.functional.cosine_similarity(a, b), matrices(2)),
        "attention of one query": (
            lambda lib, q, k, v: lib.nn.functional.scaled_dot_product_attention(q[:, :, :1], k, v),
            heads),
        "linspace": (lambda lib, x: lib.linspace(0, 1, x.numel()), matrices()),
        "matmul transposed": (lambda lib, a, b: a.t() @ b.T, square),
        "matmul vector": (lambda lib, a, b: a @ b[0], square),
        "matmul float64": (lambda lib, a, b: a @ b, lambda n: [a.astype("f8") for a in square(n)]),
        "addmm": (lambda lib, a, b: lib.addmm(a[0], a, b, beta=0.5), square),
    })  # fmt: skip
    return table


def _as_tensors(lib: Any, arrays: list[Any]) -> list[Any]:
    return [
        lib.tensor(a).requires_grad_() if a.dtype.kind == "f" else lib.tensor(a) for a in arrays
    ]


def _forward(lib: Any, call: Call, arrays: list[Any]) -> Callable[[], None]:
    tensors = [lib.tensor(a) for a in arrays]
    return lambda: call(lib, *tensors)


def _step(lib: Any, call: Call, arrays: list[Any]) -> Callable[[], None]:
    tensors = _as_tensors(lib, arrays)

    def step() -> None:
        out = call(lib, *tensors)
        if out.requires_grad:
            out.sum().backward()
            for tensor in tensors:
                tensor.grad = None

    return step


def _time(step: Callable[[], None], repeats: int) -> float:
    start = time.process_time()
    for _ in range(repeats):
        step()
    return (time.process_time() - start) / repeats


def _compiled(lib: Any, call: Call, arrays: list[Any]) -> Callable[[], Any]:
    """One compiled call of evergrad, or one of PyTorch in eager mode."""
    if lib is torch:
        return _forward(lib, call, arrays)
    tensors = [lib.tensor(a) for a in arrays]
    function = lib.compile(lambda *given: call(lib, *given))
    return lambda: function(*tensors)


def measure(
    call: Call, arrays: list[Any], rounds: int, make: Callable[..., Any]
) -> tuple[float, float]:
    """Median seconds for (evergrad, PyTorch), in turns."""
    steps = [make(lib, call, arrays) for lib in (evergrad, torch)]
    for step in steps:
        step()
    repeats = max(1, min(100, int(0.004 / max(_time(steps[1], 1), 1e-6))))
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        for mine, step in zip(times, steps, strict=True):
            mine.append(_time(step, repeats))
    return statistics.median(times[0]), statistics.median(times[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="", help="measure only ops whose name has this word")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--forward", action="store_true", help="without backward")
    parser.add_argument("--forms", action="store_true", help="the list of other argument forms")
    parser.add_argument("--compiled", action="store_true", help="each op compiled, forward")
    parser.add_argument("--sizes", default=",".join(SIZES), help="of " + ", ".join(_ALL_SIZES))
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results/ops.json")
    options = parser.parse_args()
    sizes = {name: _ALL_SIZES[name] for name in options.sizes.split(",")}
    make_step = _compiled if options.compiled else _forward if options.forward else _step
    torch.set_num_threads(1)
    evergrad.set_num_threads(1)
    found: list[dict[str, Any]] = []
    print(f"{'op':28}" + "".join(f"{size:>30}" for size in sizes))
    for name, (call, make) in (forms() if options.forms else cases()).items():
        if options.only not in name:
            continue
        entry: dict[str, Any] = {"op": name}
        cells = []
        for size, n in sizes.items():
            mine, theirs = measure(call, make(n), options.rounds, make_step)
            entry[size] = {"evergrad": mine, "torch": theirs, "ratio": mine / theirs}
            cells.append(f"{mine * 1e6:10.1f} /{theirs * 1e6:9.1f} us {mine / theirs:6.2f}")
        found.append(entry)
        print(f"{name:28}" + "".join(f"{cell:>30}" for cell in cells), flush=True)
    for size in sizes:
        ratios = sorted((entry[size]["ratio"], entry["op"]) for entry in found)
        middle = statistics.median(r for r, _ in ratios)
        worst = ", ".join(f"{op} {ratio:.1f}" for ratio, op in ratios[:-11:-1])
        speed = statistics.geometric_mean(1 / r for r, _ in ratios)
        slow = sum(1 / r < 0.33 for r, _ in ratios)
        print(
            f"{size}: median {middle:.2f}; PyTorch's time over evergrad's {speed:.2f} in the "
            f"geometric mean, {slow} of {len(ratios)} below 0.33; worst: {worst}"
        )
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"torch": torch.__version__, "ops": found}, indent=1))


if __name__ == "__main__":
    main()
