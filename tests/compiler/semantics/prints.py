"""Output of the step: prints, logs, files and progress bars, in order and at each call."""

from __future__ import annotations

import io
import logging
import sys
from typing import Any

from .registry import Seen, batch, case, layer, ramp


@case
def a_constant_line(lib: Any, wrap: Any) -> Seen:
    def step(x):
        print("step")
        return x * 2

    step = wrap(step)
    for _ in range(4):
        yield step(ramp(lib, 3))


@case
def a_counter_printed(lib: Any, wrap: Any) -> Seen:
    calls = []

    def step(x):
        calls.append(1)
        print(f"call {len(calls)}")
        return x + 1

    step = wrap(step)
    for _ in range(4):
        yield step(ramp(lib, 3))


@case
def a_shape_printed(lib: Any, wrap: Any) -> Seen:
    def step(x):
        print(tuple(x.shape), x.ndim)
        return x.sum()

    step = wrap(step)
    for n in (2, 3, 2, 3):
        yield step(lib.ones(n))


@case
def a_value_printed(lib: Any, wrap: Any) -> Seen:
    def step(x):
        y = x.sum()
        print("sum", y.item())
        return y * 2

    step = wrap(step)
    for n in range(4):
        yield step(lib.full((4,), float(n)))


@case
def a_formatted_value(lib: Any, wrap: Any) -> Seen:
    def step(x):
        loss = x.mean()
        print(f"loss {loss.item():.3f} at {int(loss)}")
        return loss

    step = wrap(step)
    for n in range(4):
        yield step(lib.full((4,), 0.5 + n))


@case
def a_format_of_a_scalar_tensor(lib: Any, wrap: Any) -> Seen:
    def step(x):
        print("loss {:.2f}".format(x.sum()))  # noqa: UP032
        print(f"{x.max():.1f}")
        return x * 1

    step = wrap(step)
    for n in range(4):
        yield step(lib.full((4,), 0.5 + n))


@case
def a_tensor_printed(lib: Any, wrap: Any) -> Seen:
    def step(x):
        y = x * 2
        print(y)
        return y + 1

    step = wrap(step)
    for n in range(4):
        yield step(lib.tensor([1, 2, n]))


@case
def a_tensor_as_a_string(lib: Any, wrap: Any) -> Seen:
    def step(x):
        return str(x + 1), repr(x * 2), x

    step = wrap(step)
    for n in range(4):
        yield step(lib.tensor([1, 2, n]))


@case
def printed_between_ops(lib: Any, wrap: Any) -> Seen:
    def step(x):
        print("before", int(x[0]))
        x.add_(1)
        print("after", int(x[0]))
        return x * 2

    step = wrap(step)
    for n in range(4):
        yield step(lib.full((2,), float(n)))


@case
def printed_every_second_call(lib: Any, wrap: Any) -> Seen:
    s = {"n": 0}

    def step(x):
        s["n"] += 1
        if s["n"] % 2 == 0:
            print("even call", s["n"])
        return x

    step = wrap(step)
    for _ in range(6):
        yield step(ramp(lib, 3))


@case
def written_to_stdout(lib: Any, wrap: Any) -> Seen:
    def step(x):
        sys.stdout.write("x")
        return x * 2

    step = wrap(step)
    for _ in range(4):
        yield step(ramp(lib, 3))


@case
def written_to_a_stream(lib: Any, wrap: Any) -> Seen:
    log = io.StringIO()

    def step(x, n):
        print("n =", n, file=log)
        return x * n

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 3), n), log.getvalue()


@case
def logged(lib: Any, wrap: Any) -> Seen:
    records = []

    class Keep(logging.Handler):
        def emit(self, record):
            records.append(record.getMessage())

    logger = logging.getLogger("semantics.logged")
    logger.propagate = False
    logger.handlers = [Keep()]
    logger.setLevel(logging.INFO)

    def step(x):
        logger.info("sum of %d values", x.numel())
        logger.debug("not shown at first")
        return x.sum()

    step = wrap(step)
    for n in range(5):
        if n == 2:
            logger.setLevel(logging.DEBUG)
        yield step(ramp(lib, 3)), records


@case
def verbosity_switched(lib: Any, wrap: Any) -> Seen:
    class Trainer:
        verbose = False

        def run(self, x):
            if self.verbose:
                print("verbose")
            return x + 1

    t = Trainer()
    run = wrap(t.run)
    for n in range(5):
        t.verbose = n in (1, 2, 4)
        yield run(ramp(lib, 3))


@case
def printed_by_a_hook(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    model.register_forward_hook(lambda m, i, o: print("out", tuple(o.shape)))
    step = wrap(lambda x: model(x).sum())
    for n in range(4):
        yield step(batch(lib, n, 2 + n % 2))


@case
def printed_by_a_tensor_hook(lib: Any, wrap: Any) -> Seen:
    w = lib.ones(3, requires_grad=True)

    def step(x):
        y = w * x
        y.register_hook(lambda g: print("backward", tuple(g.shape)))
        y.sum().backward()
        print("done")

    step = wrap(step)
    for _ in range(4):
        step(ramp(lib, 3))
        yield w.grad


@case
def print_replaced_between_calls(lib: Any, wrap: Any) -> Seen:
    seen = []
    out = print

    def step(x):
        out("hello")
        return x * 2

    step = wrap(step)
    for n in range(5):
        out = print if n % 2 == 0 else seen.append
        yield step(ramp(lib, 3)), seen


@case
def stdout_replaced_between_calls(lib: Any, wrap: Any) -> Seen:
    def step(x):
        print("hello")
        return x * 2

    step = wrap(step)
    for n in range(5):
        kept, sys.stdout = sys.stdout, io.StringIO() if n % 2 else sys.stdout
        try:
            yield step(ramp(lib, 3))
        finally:
            sys.stdout = kept


@case
def the_progress_bar(lib: Any, wrap: Any) -> Seen:
    class Bar:
        def __init__(self):
            self.n, self.out = 0, io.StringIO()

        def update(self):
            self.n += 1
            self.out.write(f"\r{self.n}/5")

    bar = Bar()

    def step(x):
        bar.update()
        return x.square()

    step = wrap(step)
    for _ in range(4):
        yield step(ramp(lib, 3)), bar.out.getvalue()


@case
def a_file_appended_to(lib: Any, wrap: Any) -> Seen:
    import tempfile

    with tempfile.TemporaryFile("w+") as file:

        def step(x):
            file.write(f"{x.sum().item():.2f}\n")
            return x + 1

        step = wrap(step)
        for n in range(4):
            yield step(lib.full((3,), float(n)))
        file.seek(0)
        yield file.read()


@case
def a_list_of_messages_by_repr(lib: Any, wrap: Any) -> Seen:
    messages = []

    def step(x, tag):
        messages.append(f"{tag}:{x.dtype is lib.float32}:{list(x.shape)}")
        return x

    step = wrap(step)
    for n in range(4):
        x = ramp(lib, 3) if n % 2 else lib.arange(3)
        yield step(x, f"t{n}"), messages
