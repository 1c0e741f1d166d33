"""A compiled step on an emulated ARM processor, beside the same step in eager mode.

    python emulated.py NAME FOLDER

The kernels of the step are written for registers of 128 bits and become machine code for aarch64; a
small C program runs them, task after task, over an image of the step's memory. What the image holds
afterwards is compared with what eager evaluation gives. It is a program of its own, since kernels
written for other registers must not stay in the process of other tests.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import llvmlite.binding as llvmlite
import numpy as np

import evergrad as eg
from evergrad import nn
from evergrad.compiler.frontend.capture import read_number
from evergrad.compiler.kernels.gemm import select
from evergrad.compiler.native import jit
from evergrad.compiler.schedule.buffers import BufferView

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
_RUNNER = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
DECLARATIONS
typedef void kernel(int64_t *, int64_t, void *);
static kernel *kernels[] = {KERNELS};
/* Of each instruction: its kernel, chunks, pointers, numbers; then places in the image; numbers. */
static int64_t instructions[] = {INSTRUCTIONS};
int main(void) {
    char *image = aligned_alloc(64, IMAGE_BYTES), *scratch = aligned_alloc(64, SCRATCH_BYTES);
    if (fread(image, 1, IMAGE_BYTES, stdin) != IMAGE_BYTES) return 1;
    int64_t *end = instructions + sizeof instructions / sizeof *instructions;
    for (int64_t *at = instructions; at < end;) {
        int64_t number = at[0], chunks = at[1], pointers = at[2], numbers = at[3];
        int64_t *args = malloc(8 * (pointers + numbers));
        at += 4;
        for (int64_t i = 0; i < pointers; i++) args[i] = (int64_t)(image + at[i]);
        memcpy(args + pointers, at + pointers, 8 * numbers);
        for (int64_t chunk = 0; chunk < chunks; chunk++) kernels[number](args, chunk, scratch);
        at += pointers + numbers;
        free(args);
    }
    return fwrite(image, 1, IMAGE_BYTES, stdout) != IMAGE_BYTES;
}
"""


class Image:
    """The memory of a program, in one piece: its arena, then every other buffer."""

    def __init__(self, program: Any, given: list[Any], numbers: list[float]) -> None:
        self.size = -(-int(program.plan.peak) // 64) * 64
        self.parts: list[tuple[int, Any]] = []
        self.starts: dict[Any, int] = {}
        self.status = self.add(np.zeros(8, np.int64))
        self.numbers = self.add(np.array([*numbers, 0.0]))
        self.given = given

    def add(self, array: Any) -> int:
        start: int = self.size
        self.parts.append((start, array))
        self.size += -(-(array.nbytes + 64) // 64) * 64
        return start

    def place(self, place: BufferView | None) -> int:
        return self.status if place is None else self.start(place.buffer) + int(place.offset)

    def start(self, buffer: Any) -> int:
        if buffer.kind == "arena":
            return int(buffer.offset)
        if buffer.kind == "number":
            return self.numbers + 8 * int(buffer.owner)
        key = id(buffer.owner) if buffer.kind == "outside" else (buffer.kind, buffer.number)
        if key not in self.starts:
            self.starts[key] = self.add(self.content(buffer))
        return int(self.starts[key])

    def content(self, buffer: Any) -> Any:
        if buffer.kind == "input":
            return self.given[buffer.owner]
        return np.zeros(buffer.nbytes, np.uint8) if buffer.kind == "output" else buffer.owner.value

    def bytes(self) -> bytes:
        whole = np.full(self.size, 0xA5, np.uint8)  # what nobody wrote must not be read
        for start, array in self.parts:
            flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            whole[start : start + flat.size] = flat
        return whole.tobytes()


def run_emulated(compiled: Any, arguments: tuple[Any, ...], folder: Path) -> list[Any]:
    """The results of a compiled step and what it writes to the outside."""
    variant, _ = compiled.compiled_for(arguments, {})
    program, captured = variant.program, variant.captured
    numbers = [read_number(*place) for place in captured.numbers]
    image = Image(program, [np.ascontiguousarray(a.numpy()) for a in arguments], numbers)
    kernels = {i.kernel.name: i.kernel for i in program.instructions}
    order = list(kernels)
    words: list[int] = []
    for instruction in program.instructions:
        kernel = instruction.kernel
        assert not kernel.products and not kernel.calls, "addresses of this process"
        places = [image.place(p) for p in instruction.pointers]
        head = (order.index(kernel.name), kernel.chunks, len(places), len(kernel.numbers))
        words += [*head, *places, *kernel.numbers]
    outputs = [p for p in program.executable.outputs if isinstance(p, BufferView)]
    starts = [image.place(p) for p in outputs]
    scratch = 64 + max(-(-i.kernel.scratch // 64) * 64 for i in program.instructions)
    (folder / "kernels.o").write_bytes(_object_code(jit.module_ir(kernels.values())))
    runner = _RUNNER.replace("DECLARATIONS", "".join(f"void {n}();\n" for n in order))
    runner = runner.replace("KERNELS", ", ".join(f"(kernel *){n}" for n in order))
    runner = runner.replace("INSTRUCTIONS", ", ".join(f"{w}LL" for w in words))
    runner = runner.replace("IMAGE_BYTES", str(image.size)).replace("SCRATCH_BYTES", str(scratch))
    (folder / "runner.c").write_text(runner)
    command = [
        COMPILER,
        "-std=gnu11",
        "-O1",
        "-static",
        "runner.c",
        "kernels.o",
        "-lm",
        "-o",
        "run",
    ]
    subprocess.run(command, check=True, cwd=folder)
    ended = subprocess.run(
        [EMULATOR, "./run"], check=True, cwd=folder, input=image.bytes(), stdout=subprocess.PIPE
    )
    memory = np.frombuffer(ended.stdout, np.uint8)
    assert not memory[image.status : image.status + 8].any()
    return [_read(memory, start, place) for start, place in zip(starts, outputs, strict=True)]


def _read(memory: Any, start: int, place: BufferView) -> Any:
    size = prod(place.shape) * place.dtype.itemsize
    return memory[start : start + size].view(place.dtype.np).reshape(place.shape)


def _object_code(text: str) -> bytes:
    llvmlite.initialize_all_targets()
    llvmlite.initialize_all_asmprinters()
    target = llvmlite.Target.from_triple("aarch64-linux-gnu")
    machine = target.create_target_machine(cpu="neoverse-n1", opt=2)
    module = llvmlite.parse_assembly(text)
    module.triple = "aarch64-linux-gnu"
    module.verify()
    builder = llvmlite.create_pass_builder(
        machine, llvmlite.create_pipeline_tuning_options(speed_level=2)
    )
    builder.getModulePassManager().run(module, builder)
    return bytes(machine.emit_object(module))


# -- steps --------------------------------------------------------------------------------------


class Trained:
    """A model and its step."""

    def __init__(
        self, model: Any, loss: Callable[[Any, Any], Any], x: Any, y: Any, adam: bool = False
    ) -> None:
        self.model = model
        # Adam makes steps of full length of gradients that are zero but for their rounding.
        if adam:
            self.optimizer: Any = eg.optim.AdamW(model.parameters(), lr=0.01)
        else:
            self.optimizer = eg.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        self.loss = loss
        self.given = (x, y)

    def step(self, x: Any, y: Any) -> Any:
        loss = self.loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


def _mlp() -> Trained:
    model = nn.Sequential(
        nn.Linear(40, 96), nn.GELU(), nn.LayerNorm(96), nn.Linear(96, 64), nn.Tanh(),
        nn.Linear(64, 24),
    )  # fmt: skip
    return Trained(model, nn.functional.mse_loss, eg.randn(50, 40), eg.randn(50, 24), adam=True)


def _lenet() -> Trained:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.SiLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(16 * 9, 10),
    )  # fmt: skip
    images, labels = eg.randn(17, 3, 16, 16), eg.randint(0, 10, (17,))
    return Trained(model, nn.functional.cross_entropy, images, labels)


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(30, 72)
        self.qkv, self.out = nn.Linear(72, 216), nn.Linear(72, 30)

    def forward(self, words: Any) -> Any:
        x = self.table(words)
        q, k, v = (p.unflatten(-1, (2, 36)).transpose(1, 2) for p in self.qkv(x).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(x + y.transpose(1, 2).flatten(2)).flatten(0, 1)


def _gpt() -> Trained:
    words = eg.randint(0, 30, (3, 41))
    following = words.roll(-1, 1).flatten()
    return Trained(_Attention(), nn.functional.cross_entropy, words, following)


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.LSTM(20, 24, bidirectional=True), nn.Linear(48, 10)

    def forward(self, x: Any) -> Any:
        return self.out(self.layer(x)[0])


def _lstm() -> Trained:
    return Trained(_Recurrent(), nn.functional.mse_loss, eg.randn(7, 9, 20), eg.randn(7, 9, 10))


STEPS: dict[str, Callable[[], Trained]] = {
    "mlp": _mlp, "lenet": _lenet, "gpt": _gpt, "lstm": _lstm,
}  # fmt: skip


def main(name: str, folder: Path) -> None:
    found = []
    for is_compiled in (True, False):
        eg.manual_seed(0)
        trained = STEPS[name]()
        trained.step(*trained.given)  # with the state that optimizers make in their first step
        if is_compiled:
            found.append(run_emulated(eg.compile(trained.step), trained.given, folder))
        else:
            loss = trained.step(*trained.given)
            found.append([loss.numpy(), *(p.detach().numpy() for p in trained.model.parameters())])
    emulated, eager = found
    for expected in eager:
        alike = [a for a in emulated if a.shape == expected.shape]
        near = any(np.allclose(a, expected, 2e-5, 2e-6) for a in alike)
        assert near, f"no result of the emulated step is near {expected.shape} of the eager one"
    print(f"{name}: {len(eager)} tensors agree")


if __name__ == "__main__":
    for module in list(sys.modules.values()):
        if module.__name__.startswith("evergrad.compiler") and hasattr(module, "vector_bits"):
            setattr(module, "vector_bits", lambda: 128)  # noqa: B010 - unknown to mypy
    select.is_blocked = lambda product, found: True
    main(sys.argv[1], Path(sys.argv[2]))
