"""Latency of inference with a batch of one, beside PyTorch and ONNX Runtime.

    python bench/inference.py [--only WORD] [--threads 2]
        [--onnx-python PYTHON [--onnx-packages FOLDER]] [--out FILE]

The same code builds each model with both libraries, with the same weights. ``--onnx-python`` is an
interpreter that has ONNX Runtime; the models are exported by PyTorch, which needs the package
``onnx``, here or in the folder ``--onnx-packages``. All contenders take turns; the least time of a
turn counts. Outputs are compared before.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import evergrad

_TURN = 0.05  # seconds
_ROUNDS = 12
_TOLERANCE = 2e-3


# -- models -------------------------------------------------------------------------------------


class Model(NamedTuple):
    """A module and the shapes of its inputs; the last of several results may be fed back."""

    make: Callable[[Any], Any]
    inputs: tuple[tuple[int, ...], ...]
    is_tokens: bool = False


def mlp(lib: Any) -> Any:
    nn = lib.nn
    return nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )


def lstm(lib: Any) -> Any:
    """One step of a stream: the state comes in and goes out."""

    class Stream(lib.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.cells = lib.nn.LSTM(128, 256, num_layers=2)
            self.head = lib.nn.Linear(256, 32)

        def forward(self, x: Any, h: Any, c: Any) -> Any:
            y, (h, c) = self.cells(x, (h, c))
            return self.head(y), h, c

    return Stream()


def resnet18(lib: Any) -> Any:
    nn = lib.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, inner: int, outer: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
            self.norm1 = nn.BatchNorm2d(outer)
            self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
            self.norm2 = nn.BatchNorm2d(outer)
            self.down = nn.Identity()
            if stride > 1 or inner != outer:
                short = nn.Conv2d(inner, outer, 1, stride, bias=False)
                self.down = nn.Sequential(short, nn.BatchNorm2d(outer))

        def forward(self, x: Any) -> Any:
            y = lib.relu(self.norm1(self.conv1(x)))
            return lib.relu(self.norm2(self.conv2(y)) + self.down(x))

    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers: list[Any] = [*stem, nn.MaxPool2d(3, 2, 1)]
    for inner, outer in ((64, 64), (64, 128), (128, 256), (256, 512)):
        layers += [Block(inner, outer, 1 if inner == outer else 2), Block(outer, outer, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def gpt(lib: Any) -> Any:
    """The prefill of a prompt: logits of its last token."""
    nn, F = lib.nn, lib.nn.functional

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            b, t, width = x.shape
            q, k, v = self.qkv(self.norm1(x)).split(width, 2)
            q, k, v = (a.view(b, t, self.heads, -1).transpose(1, 2) for a in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, width))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class GPT(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(8192, 256), nn.Embedding(128, 256)
            self.blocks = nn.Sequential(*(Block(256, 8) for _ in range(6)))
            self.norm, self.head = nn.LayerNorm(256), nn.Linear(256, 8192, bias=False)

        def forward(self, tokens: Any) -> Any:
            x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
            return self.head(self.norm(self.blocks(x))[:, -1])

    return GPT()


MODELS = {
    "mlp": Model(mlp, ((1, 784),)),
    "lstm streaming": Model(lstm, ((1, 1, 128), (2, 1, 256), (2, 1, 256))),
    "resnet18": Model(resnet18, ((1, 3, 224, 224),)),
    "gpt prefill 128": Model(gpt, ((1, 128),), is_tokens=True),
}


# -- contenders ---------------------------------------------------------------------------------


def inputs_of(model: Model) -> list[Any]:
    rng = np.random.default_rng(0)
    if model.is_tokens:
        return [rng.integers(0, 8192, shape) for shape in model.inputs]
    return [rng.standard_normal(shape).astype(np.float32) for shape in model.inputs]


def outputs_of(found: Any) -> list[Any]:
    parts = found if isinstance(found, tuple) else (found,)
    return [part.detach().numpy() for part in parts]


def made(model: Model, threads: int) -> tuple[Any, dict[str, Callable[[], Any]]]:
    """PyTorch's module, and a call of it and of the compiled one of evergrad."""
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    evergrad.set_num_threads(threads)
    theirs = model.make(torch).eval()
    ours = model.make(evergrad).eval()
    weights = {name: evergrad.tensor(w.numpy()) for name, w in theirs.state_dict().items()}
    ours.load_state_dict(weights)
    compiled = evergrad.compile(lambda *given: ours(*given))
    arrays = inputs_of(model)
    given, tensors = map(torch.tensor, arrays), [evergrad.tensor(a) for a in arrays]
    theirs_given = list(given)

    def call_theirs() -> Any:
        with torch.inference_mode():
            return theirs(*theirs_given)

    def call_ours() -> Any:
        with evergrad.no_grad():
            return compiled(*tensors)

    return theirs, {"torch": call_theirs, "evergrad": call_ours}


class OnnxRuntime:
    """A process that runs an exported model on request."""

    _CODE = """
import json, sys, time
import numpy as np, onnxruntime
path, arrays, threads, turn = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
options = onnxruntime.SessionOptions()
options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
data = np.load(arrays)
feed = {i.name: data[f"arr_{n}"] for n, i in enumerate(session.get_inputs())}
for line in sys.stdin:
    if line.strip() == "outputs":
        np.savez(arrays + ".out.npz", *session.run(None, feed))
        print("done", flush=True)
        continue
    calls, start = 0, time.perf_counter()
    while time.perf_counter() - start < turn:
        session.run(None, feed)
        calls += 1
    print((time.perf_counter() - start) / calls, flush=True)
"""

    def __init__(self, python: str, module: Any, arrays: list[Any], threads: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        path, self.arrays = (str(Path(self.folder.name, n)) for n in ("model.onnx", "inputs.npz"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given = tuple(map(torch.tensor, arrays))
            torch.onnx.export(module, given, path, dynamo=False, opset_version=17)
        np.savez(self.arrays, *arrays)
        command = [python, "-c", self._CODE, path, self.arrays, str(threads), str(_TURN)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, word: str) -> str:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(word, file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()

    def outputs(self) -> list[Any]:
        self.ask("outputs")
        with np.load(f"{self.arrays}.out.npz") as found:
            return [found[name] for name in found.files]

    def turn(self) -> float:
        return float(self.ask("turn"))

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        self.folder.cleanup()


def turn_of(call: Callable[[], Any]) -> float:
    """Seconds of a call, the mean over a turn."""
    calls, start = 0, time.perf_counter()
    while time.perf_counter() - start < _TURN:
        call()
        calls += 1
    return (time.perf_counter() - start) / calls


# -- the table ----------------------------------------------------------------------------------


def measured(model: Model, options: argparse.Namespace) -> dict[str, float]:
    """Seconds of each contender."""
    module, calls = made(model, options.threads)
    expected = outputs_of(calls["torch"]())
    results = {"evergrad": outputs_of(calls["evergrad"]())}
    turns: dict[str, Callable[[], float]] = {
        name: lambda call=call: turn_of(call)  # type: ignore[misc]
        for name, call in calls.items()
    }
    runtime = None
    if options.onnx_python:
        runtime = OnnxRuntime(options.onnx_python, module, inputs_of(model), options.threads)
        results["onnxruntime"] = runtime.outputs()
        turns["onnxruntime"] = runtime.turn
    for name, found in results.items():
        for a, b in zip(found, expected, strict=True):
            if not np.allclose(a, b, rtol=_TOLERANCE, atol=_TOLERANCE * float(np.abs(b).max())):
                raise RuntimeError(f"{name} disagrees with PyTorch")
    best = dict.fromkeys(turns, math.inf)
    for round in range(_ROUNDS):
        names = list(turns)
        for name in names[round % len(names) :] + names[: round % len(names)]:
            best[name] = min(best[name], turns[name]())
    if runtime is not None:
        runtime.close()
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--onnx-python", default="")
    parser.add_argument("--onnx-packages", default="")
    parser.add_argument("--out", default="")
    options = parser.parse_args()
    if options.onnx_packages:
        sys.path.append(options.onnx_packages)
    lines, ratios, kept = [], [], {}
    for name, model in MODELS.items():
        if options.only not in name:
            continue
        kept[name] = found = measured(model, options)
        others = [seconds for who, seconds in found.items() if who != "evergrad"]
        ratios.append(min(others) / found["evergrad"])
        times = "  ".join(f"{who} {1e6 * seconds:9.1f} us" for who, seconds in found.items())
        lines.append(f"{name:18} {times}  best / evergrad {ratios[-1]:.2f}")
        print(lines[-1], flush=True)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    lines.append(f"geometric mean of best / evergrad: {mean:.2f}")
    print(lines[-1])
    if options.out:
        Path(options.out).write_text("\n".join([*lines, json.dumps(kept), ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
