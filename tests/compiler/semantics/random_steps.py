"""Random Python steps: source text made from a seed, with state, mutations and arguments.

A program is a preamble of state (a class with bases and properties, containers, an iterator, a
parameter with its optimizer, cells), a step of random statements over it, and five calls with
random mutations of the state before each. All names that a statement may use exist from the start,
so any statement can be left out: that is what :func:`shrink` does with a program that fails.
"""

from __future__ import annotations

import linecache
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from .registry import Case

CALLS = 5


@dataclass
class Config:
    """Options of a program."""

    gain: float = 0.5
    steps: int = 0
    rates: list[float] = field(default_factory=lambda: [0.1, 0.2])

    def scaled(self, x: Any, by: Any = None) -> Any:
        return x * (self.gain if by is None else by)


@dataclass
class Item:
    """A record that programs make."""

    value: object
    n: int = 0


class Pair(NamedTuple):
    """A pair that programs replace."""

    value: object
    n: int


PREAMBLE = """
import contextlib, contextvars, io, itertools, math, os, random, time
from collections import Counter, OrderedDict, defaultdict
from dataclasses import replace
from decimal import Decimal
import numpy as np
from compiler.semantics.random_steps import Config, Item, Pair
from compiler.semantics.registry import attempt, ramp

GAIN = 0.5
LEVEL = contextvars.ContextVar("level", default=1)

def outer_scale(x):
    return x * GAIN

def program(lib: Any, wrap: Any) -> Seen:
    global GAIN
    GAIN = 0.5
    LEVEL.set(1)

    class Base:
        level = 0.3
        shared = []

        def scaled(self, x):
            return x * self.level

        @classmethod
        def raised(cls, x):
            return x + cls.level

    class State(Base):
        def __init__(self):
            self.gain, self.shift, self.n, self.flag = 0.7, 0.1, 0, True
            self.h, self.cache, self._beta = ramp(lib, 3), None, 0.25

        @property
        def beta(self):
            return 1.0 - self._beta

        def scaled(self, x):
            return super().scaled(x) + self.shift

        def inner(self, x):
            def deeper(y):
                return y * self.gain
            return deeper(x)

    class Slots:
        __slots__ = ("rate", "hits")

    s, o = State(), Slots()
    o.rate, o.hits = 0.4, 0
    d = {"gain": 0.6, "n": 0, "h": ramp(lib, 3, start=0.2)}
    log, memo, window = [], {}, [0.1, 0.2, 0.3]
    ticks = itertools.cycle([0.5, -0.5, 0.25])
    buf, m = ramp(lib, 3), ramp(lib, 2, 3)
    array = np.array([0.1, -0.2, 0.3], dtype=np.float32)
    shared = lib.from_numpy(array)
    w = ramp(lib, 3, start=0.1).requires_grad_()
    opt = lib.optim.@OPTIMIZER@
    count, act = 0, lib.tanh
    acts = [lib.tanh, lib.sin]

    def helper(x):
        nonlocal count
        count += 1
        return x * 0.5 + count * 0.01

    def defaults(x, gain=0.5, *, shift=0.1, seen=Counter()):
        seen["n"] += 1
        return x * gain + shift

    def parts(x, count):
        for i in range(count):
            s.n += 1
            yield x * i

    @contextlib.contextmanager
    def scope(gain):
        o.hits += 1
        try:
            yield gain * 2
        finally:
            s.shift = gain

    counts, table, cfg, kept = Counter(), defaultdict(float), Config(), []
    pair, seen, order = Pair(ramp(lib, 3), 0), {0}, OrderedDict([(0, 0.5), (1, 0.25)])
    s.rate, s.kinds, s.flags, s.best, s.total, s.text = Decimal(2), (), [], 9.0, 0.0, ""
    source = (0.1 * value for value in itertools.count())
    gen, stream = lib.Generator().manual_seed(3), io.StringIO()

    def listed(x, *rest, scale=0.5):
        return sum(part * scale for part in (x, *rest))

"""

POSTAMBLE = """
    for n in range(@CALLS@):
        base = ramp(lib, 4, 3, start=-0.5 + 0.3 * n)
        @MUTATIONS@
        a, b = @ARGUMENTS@
        yield attempt(run, a, b, n, 0.3 * n - 0.4)
        yield base, s.gain, s.shift, s.n, s.flag, s.h, s.cache, o.rate, o.hits, Base.shared
        yield d, log, memo, window, buf, m, array, w, w.grad, count, Base.level, GAIN
        yield opt.param_groups[0]["lr"], [dict(v) for v in opt.state.values()]
        yield dict(counts), dict(table), cfg, kept, stream.getvalue(), LEVEL.get()
        yield pair, seen, order, str(s.rate), s.kinds, s.flags, s.best, s.total, s.text
        yield a.requires_grad, a.grad if a.is_leaf else None, w.requires_grad, vars(a), vars(buf)
        yield getattr(s, "backup", None), getattr(s, "grad", None), getattr(s, "shape", None)
        yield lib.rand(1, generator=gen), lib.rand(1)
"""

OPTIMIZERS = (
    "SGD([w], lr=0.1)", "SGD([w], lr=0.1, momentum=0.9)", "Adam([w], lr=0.05)",
    "AdamW([w], lr=0.05)",
)  # fmt: skip

FORMS = {
    "closure": ("    def step(a, b, k, r):", "    run = wrap(step)"),
    "keywords": ("    def step(a, *, b, k, r):",
                 "    made = wrap(step)\n    run = lambda a, b, k, r: made(a, b=b, k=k, r=r)"),
    "container": ("    def step(given):\n        a, b, (k, r) = given['a'], given['b'], given['n']",
                  "    made = wrap(step)\n"
                  "    run = lambda a, b, k, r: made({'a': a, 'b': b, 'n': (k, r)})"),
    "method": ("    class Step:\n      own = 0\n      def run(self, a, b, k, r):\n"
               "        self.own += 1", "    run = wrap(Step().run)"),
    "callable": ("    class Step:\n      own = 0\n      def __call__(self, a, b, k, r):\n"
                 "        self.own += 1", "    run = wrap(Step())"),
    "decorated": ("    class Step:\n      @wrap\n      def run(self, a, b, k, r):",
                  "    run = Step().run"),
}  # fmt: skip

# Tensors of three elements.
TENSORS = (
    "a", "b", "t0", "t1", "t0", "t1", "buf", "s.h", "d['h']", "m[0]", "m[k % 2]", "w.detach()",
    "shared", "lib.tensor(array)", "a[[2, 0, 1]]", "m.sum(0)", "b.flip(0)", "lib.rand(3)",
    "ramp(lib, 3, start=r)",
)  # fmt: skip
NUMBERS = (
    "s.gain", "s.beta", "s.shift", "d['gain']", "o.rate", "r", "k", "s.n * 0.1", "len(log) * 0.1",
    "window[0]", "GAIN", "s.level", "Base.level", "float(array[1])", "random.random()",
    "np.random.rand()", "next(ticks)", "opt.param_groups[0]['lr']", "0.3", "min(r, 0.5)",
    "max(s.gain, s.shift)", "count * 0.05", "t0.sum().item() * 0.1", "float(t1.mean())",
    "next(source)", "cfg.gain", "cfg.rates[k % 2]", "counts['a']", "LEVEL.get() * 0.1",
    "float(f'{r:.1f}')", "(0.5 if cfg.steps % 2 else 0.25)",
    "sum(window)", "math.exp(-abs(r))", "(w.grad.sum().item() if w.grad is not None else 0.2)",
)  # fmt: skip
FUNCTIONS = (
    "lib.tanh({})", "lib.sin({})", "({}).clamp(-1, 1)", "act({})", "helper({})", "s.scaled({})",
    "s.inner({})", "outer_scale({})", "s.raised({})", "listed({}, t0)", "listed({}, t1, scale=r)",
    "acts[k % 2]({})", "(lambda v: v * s.gain)({})", "lib.stack([v * s.shift for v in {}])",
    "sum({} * c for c in window)", "({}).clone()", "-({})", "getattr({}, 'abs')()",
    "defaults({})", "defaults({}, r, shift=s.shift)", "cfg.scaled({})", "cfg.scaled({}, by=r)",
    "sum(parts({}, 2))", "lib.stack(list(parts({}, 3))).mean(0)",
    "({}).reshape(3, 1).squeeze(1)", "lib.nn.functional.dropout({}, 0.5)",
)  # fmt: skip
CONDITIONS = (
    "s.flag", "s.n % 2 == 0", "k % 2", "k > 2", "r > 0.1", "random.random() < 0.5",
    "t0.sum() > 0.05", "t1.max() < 0.4", "len(log) > 2", "s.cache is None", "'x' in memo",
    "w.grad is None", "a is b", "a.is_contiguous()", "s.gain > d['gain']", "o.hits < 3",
    "(t0 > 0).any()", "isinstance(r, float) and r < 0.5", "np.random.rand() > 0.5", "not window",
    "counts['a'] > 1", "cfg.steps < 2", "(q := k % 3) == 1", "'k1' in table", "LEVEL.get() > 2",
    "len(kept) % 2", "count > 4", "'SEMANTICS_FLAG' in os.environ", "hasattr(s, 'extra')",
)  # fmt: skip
EFFECTS = (
    "s.n += 1", "s.n = s.n + k", "d['n'] += 1", "o.hits += 1", "s.flag = not s.flag",
    "log.append(s.n)", "log.append(@t.sum())", "log.append(@t.detach())", "s.gain = s.gain * 0.9",
    "d['gain'] = min(d['gain'] + 0.1, 1.0)", "s.h = 0.9 * s.h + 0.1 * @t", "s.cache = @t",
    "d['h'] = lib.tanh(d['h'] + @t)", "memo['x'] = @t", "memo.setdefault(k % 2, @t)",
    "memo[len(memo) % 3] = @f", "buf.add_(@t, alpha=0.1)", "buf.mul_(0.9)", "buf.copy_(@t)",
    "m[0] = @t", "m[:, 1].add_(0.1)", "m.t()[0].mul_(0.5)", "a.add_(0.1)", "a[1:].mul_(0.5)",
    "b.copy_(@t)", "a.view(-1)[0] = 0.5", "t0 = t0.clone(); t0[t0 > 0] = @f", "window[0] = r",
    "window.append(window.pop(0))", "Base.shared.append(k)", "print('call', k, s.n)",
    "array[0] = array[0] * 0.5", "shared.add_(0.01)", "s._beta = s._beta * 0.5",
    "opt.param_groups[0]['lr'] *= 0.9", "w.grad = None", "s.extra = k",
    "t0, t1 = t1, t0", "t1 = t0.flatten().add_(0.1)", "t0 = t0.detach().contiguous()",
    "log[:] = log[-2:]", "t0 = t0[t0 > -5]", "State.level = 0.2 + 0.1 * k",
    "counts['a'] += 1", "counts.update('ab' if k % 2 else 'b')", "table[f'k{k % 2}'] += 0.5",
    "cfg.steps += 1", "cfg.gain *= 0.9", "cfg.rates[0] = r", "cfg.rates.append(0.3)",
    "print(f'n {s.n} of {k}: {(t0 > 0.0137).sum().item():d}')", "print(f'{d[\"n\"]:03d}', o.hits)",
    "stream.write(f'{s.n} {(t1 > 0.0137).sum().item():2d};')",
    "print(k, (t0 < 0.0137).sum().item(), file=stream)",
    "memo.pop('x', None)", "d['n'] = d.pop('n') + 1", "table.clear()",
    "lib.manual_seed(3)", "gen.manual_seed(s.n % 3)", "t1 = t1 + lib.rand(3, generator=gen)",
    "saved = lib.get_rng_state(); t0 = t0 + lib.rand(3); lib.set_rng_state(saved)",
    "kept.append(Item(@t, s.n))", "kept.append(t0.sum().item())", "kept[:] = kept[-1:]",
    "LEVEL.set(LEVEL.get() + 1)", "s.shift = 1.0 / (k % 3)", "s.cache = [@t, s.n]",
    "begun = time.perf_counter(); t0 = t0 * 1; s.elapsed = time.perf_counter() - begun",
    "s.text = f'{s.n}/{k}'", "first, *others = parts(@t, 3); t1 = first + others[-1]",
    "b = a.t() if a.dim() > 1 else a[::1]",
    # Flags, gradients and memory of tensors.
    "a.requires_grad_()", "t1 = a.requires_grad_(k % 2 == 0) * 1", "w.requires_grad_(k != 2)",
    "w.data = @t.detach()", "w.data = w.data * 0.5", "s.backup = w.data", "w.data = buf.clone()",
    "w.grad = buf", "w.grad = @t.detach()", "w.grad = None if w.grad is None else w.grad * 0.5",
    "a.tag = k", "t0 = t0 * getattr(a, 'tag', 1)", "s.h = a", "buf.tag = s.n",
    "t0 = t0 + getattr(buf, 'tag', 0)", "leaf = @t.detach().requires_grad_(); t1 = leaf * @f",
    "leaf = @t.detach().requires_grad_(); (leaf * leaf).sum().backward(); t1 = leaf.grad",
    "s.grad = w.grad", "t1 = a.detach(); t1[0] = @f", "d['h'] = d['h'].clone().t_()",
    # Records, texts, sets, numbers of other types.
    "cfg = replace(cfg, gain=cfg.gain * 0.5)", "pair = pair._replace(n=pair.n + 1, value=@t)",
    "pair = Pair(@t, k)", "s.rate = s.rate * Decimal('0.5')", "seen.add(k % 3)",
    "seen.discard(k % 2)", "s.text = f'{t0.sum().item():.2f}'", "log.append(f'{s.n}:{k}')",
    "stream.write('%d %s\\n' % (s.n, k))", "s.words = ','.join(map(str, sorted(seen)))",
    "s.kinds = s.kinds + (type(r).__name__,)", "s.flags = [s.flag, *s.flags][:2]",
    "order[k % 2] = order.pop(next(iter(order)))", "s.best = min(s.best, t0.sum().item())",
    "s.best = max(s.best, float(t1.mean()), r)", "d |= {'n': d['n'] + 1}",
    "table['mean'] = table['mean'] * 0.5 + t0.mean().item()", "del window[1:]; window += [r, 0.2]",
    "s.hook = lambda v: v * s.gain", "t0 = getattr(s, 'hook', lib.tanh)(t0)",
    "array[:2] = array[1:].copy()", "s.shape = tuple(t0.shape)", "t0 = lib.tensor(@t.tolist())",
    "t1 = lib.full((3,), @f)", "t1 = lib.tensor([@f, 0.5, r])",
    "s.total = s.total + t0.sum().item()",
    # Entries that come and go, places that change their kind, sizes that depend on the data.
    "s.temp = @t; t0 = t0 + s.temp; del s.temp", "s.cache = @t if s.cache is None else None",
    "memo.pop(next(iter(memo)), None) if memo else None", "order.move_to_end(next(iter(order)))",
    "order.popitem(last=False); order[k % 3] = @f", "d['new'] = @t", "d.pop('new', None)",
    "t0 = t0 + d.get('new', 0)", "s.__dict__.pop('extra', None)", "Base.extra = k",
    "t1 = t1 + getattr(Base, 'extra', 0)", "hasattr(Base, 'extra') and delattr(Base, 'extra')",
    "s.backup = t0[t0 > 0]", "t1 = t1 + t0[t0 > @f].sum()", "s.cache = (t1 > 0).nonzero()",
    "at = (t0 > t1).nonzero(as_tuple=True)[0]; t1 = t1.index_add(0, at, t0[at])",
    "t0 = t0 * lib.unique((t1 * 3).round().long()).numel()",
    "s.total = s.total + t1[t1 < 0.1].sum().item()", "t0 = t0.clone(); t0[t1 > 0] = t1[t1 > 0]",
    "t1 = lib.where(t0 > 0)[0].sum() + t1", "parted = [t0]; parted.append(t1); t0 = parted.pop(0)",
)  # fmt: skip
TRAININGS = (
    ("opt.zero_grad()", "loss = (w * @t).square().mean()", "loss.backward()", "opt.step()"),
    ("loss = ((w - @t) ** 2).sum() * @f", "loss.backward()", "opt.step()", "opt.zero_grad()"),
    ("(w * @t).sum().backward()", "w.grad.mul_(0.5)"),
    ("(g,) = lib.autograd.grad((w * w * @t).sum(), w)", "t1 = g * @f"),
    ("loss = (w * @t).sum()", "loss.backward()", "log.append(loss.detach())"),
    ("opt.zero_grad()", "((w - @t).square().sum()).backward()",
     "lib.nn.utils.clip_grad_norm_([w], 0.1)", "opt.step()"),
)  # fmt: skip
MUTATIONS = (
    "s.gain = 0.2 + 0.1 * n", "s.shift = -0.1 * n", "s.flag = n % 2 == 0", "s.n = 0",
    "d['gain'] = 0.1 * n", "o.rate = 0.5 - 0.1 * n", "log.clear()", "log.append(n)",
    "s.h = lib.ones(3)", "s.cache = None", "memo.clear()", "memo['x'] = lib.zeros(3)",
    "window.append(0.05 * n)", "buf.fill_(0.1 * n)", "m = ramp(lib, 2, 3, start=0.1 * n)",
    "array[2] = 0.1 * n", "w.grad = None", "w.grad = lib.ones(3)", "w.data = ramp(lib, 3)",
    "opt.param_groups[0]['lr'] = 0.02 * (n + 1)", "Base.level = 0.1 * n", "GAIN = 0.1 * n",
    "act = lib.sin if n % 2 else lib.tanh", "acts.reverse()", "random.seed(n)",
    "counts.clear()", "cfg = Config(gain=0.1 * n)", "cfg.gain = 0.2 * n", "cfg.rates = [0.5, 0.6]",
    "next(source)", "source = (0.2 * value for value in itertools.count())", "gen.manual_seed(n)",
    "LEVEL.set(n)", "kept.clear()", "table['k1'] = 3.0", "stream.truncate(0); stream.seek(0)",
    "np.random.seed(n)", "lib.manual_seed(n)", "count = 10 * n", "w.requires_grad_(n % 2 == 0)",
    "os.environ['SEMANTICS_FLAG'] = '1'", "os.environ.pop('SEMANTICS_FLAG', None)",
    "State.scaled = lambda self, x: x * self.beta", "s.inner = lambda x: x + s.shift",
    "d = {'gain': 0.3, 'n': n, 'h': lib.zeros(3)}", "s.__dict__.pop('extra', None)",
    "next(ticks)", "s.level = 0.05 * n", "lib.rand(1)", "buf = buf.clone()",
)  # fmt: skip
ARGUMENTS = (
    "base[0], base[1]", "base[0], base[0]", "base[0], base.view(-1)[1:4]", "base[:3, 1], base[1]",
    "base.t()[:, 0], base[2]", "base[0], buf", "m[0], base[1]", "w.detach(), base[0]",
    "base[3].clone().requires_grad_(), base[1]", "shared, base[0]", "base[1], s.h",
    "base.view(-1)[::4], base[0]", "lib.ones(1).expand(3), base[0]",
)  # fmt: skip
RESULTS = (
    "return t0, t1", "return t0.sum().item()", "return {'t': t0, 'n': s.n}", "return a, t1 * 2",
    "return [t0 * r, k, None]", "return t0.detach().numpy().copy()", "return (t0 * t1).sum()",
    "return Item(t0, s.n)", "return {'t': t0, 'c': dict(counts)}", "return cfg, t0",
    "return log, t1", "return w * t0", "return s.h", "return a[1:]",
)  # fmt: skip


@dataclass(frozen=True)
class Block:
    """A compound statement: its head and the statements below it."""

    head: str
    body: tuple[Node, ...]


Node = str | Block


@dataclass(frozen=True)
class Program:
    """The parts of a random program; any statement or mutation may be left out."""

    seed: int
    optimizer: str
    form: str
    body: tuple[Node, ...]
    result: str
    mutations: tuple[tuple[int, str], ...]
    arguments: tuple[str, ...]

    def source(self) -> str:
        head, wrapped = FORMS[self.form]
        lines = [*head.split("\n"), *self.rebinding(), "        t0, t1 = a * 0.5, b + 0.1"]
        lines += render(self.body, 8)
        lines += ["        " + self.result, wrapped]
        changes = [f"if n == {call}: {line}" for call, line in self.mutations] or ["pass"]
        chosen = "[" + ", ".join(f"lambda: ({text})" for text in self.arguments) + "][n]()"
        end = POSTAMBLE.replace("@CALLS@", str(CALLS)).replace("@ARGUMENTS@", chosen)
        end = end.replace("@MUTATIONS@", "\n        ".join(changes))
        text = PREAMBLE.replace("@OPTIMIZER@", self.optimizer)
        return text + "\n".join(lines) + end

    def rebinding(self) -> list[str]:
        """The declaration of the variables of the program that the step rebinds."""
        text = "\n".join(render(self.body, 0))
        names = [name for name in ("cfg", "pair", "d") if re.search(rf"\b{name} (\|)?= ", text)]
        return [f"        nonlocal {', '.join(names)}"] if names else []

    def changing_part(self) -> str:
        """The source without the preamble, which is the same for all programs."""
        return self.source()[PREAMBLE.index("\n    def listed") :]

    def case(self) -> Case:
        """The program as a pair for the harness."""
        text, name = self.source(), f"<random step {self.seed}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        namespace: dict[str, Any] = {"__name__": f"random_step_{self.seed}"}
        exec(compile(text, name, "exec"), namespace)
        return Case(f"random/{self.seed}", namespace["program"], True)


def render(nodes: tuple[Node, ...], indent: int) -> list[str]:
    lines = []
    for node in nodes:
        if isinstance(node, str):
            lines.append(" " * indent + node)
        else:
            lines.append(" " * indent + node.head)
            lines += render(node.body, indent + 4) or [" " * (indent + 4) + "pass"]
    return lines


def generate(seed: int) -> Program:
    """The program of a seed."""
    rng = random.Random(seed)
    body = tuple(n for _ in range(rng.randint(2, 6)) for n in statement(rng, 0))
    calls = [(rng.randrange(1, CALLS), rng.choice(MUTATIONS)) for _ in range(rng.randint(1, 6))]
    return Program(
        seed, rng.choice(OPTIMIZERS), rng.choice(tuple(FORMS)), body, rng.choice(RESULTS),
        tuple(sorted(calls)), arguments(rng),
    )  # fmt: skip


def arguments(rng: random.Random) -> tuple[str, ...]:
    """Mostly two rows; sometimes other strides, overlaps, parameters or buffers."""
    return tuple(
        ARGUMENTS[0] if rng.random() < 0.6 else rng.choice(ARGUMENTS) for _ in range(CALLS)
    )


def statement(rng: random.Random, depth: int) -> Iterator[Node]:
    kind = rng.random()
    if kind < 0.3:
        yield f"t{rng.randrange(2)} = {tensor(rng)}"
    elif kind < 0.65 or depth == 2:
        yield filled(rng, rng.choice(EFFECTS))
    elif kind < 0.77:
        yield from (filled(rng, line) for line in rng.choice(TRAININGS))
    elif kind < 0.93:
        yield Block(f"if {rng.choice(CONDITIONS)}:", below(rng, depth))
        if rng.random() < 0.5:
            # A block of its own, so that each can be left out.
            yield Block(f"if not ({rng.choice(CONDITIONS)}):", below(rng, depth))
    elif kind < 0.96:
        yield Block(
            f"for i in range({rng.choice(('2', 'k % 3', 'len(window)'))}):", below(rng, depth)
        )
    elif kind < 0.98:
        heads = ("lib.no_grad()", "contextlib.suppress(ZeroDivisionError)", "scope(r) as gain",
                 "contextlib.nullcontext()", "lib.enable_grad()")  # fmt: skip
        yield Block(f"with {rng.choice(heads)}:", below(rng, depth))
    elif kind < 0.99:
        yield Block("for _once in (0,) if k % 2 else (0, 1):", below(rng, depth))
    else:
        yield Block("for part in [c for c in window if c > r][:2]:", below(rng, depth))


def below(rng: random.Random, depth: int) -> tuple[Node, ...]:
    return tuple(n for _ in range(rng.randint(1, 2)) for n in statement(rng, depth + 1))


def tensor(rng: random.Random) -> str:
    first, second = rng.choice(TENSORS), rng.choice(TENSORS)
    text = rng.choice(("{0} * {2} + {1}", "{0} + {2}", "{0} * {1}", "{0} - {1} * {2}", "{0}"))
    return rng.choice(FUNCTIONS).format(text.format(first, second, f"({number(rng)})"))


def number(rng: random.Random) -> str:
    return rng.choice(NUMBERS)


def filled(rng: random.Random, line: str) -> str:
    """The line with its places for tensors and numbers filled."""
    while "@t" in line:
        line = line.replace("@t", f"({tensor(rng)})", 1)
    while "@f" in line:
        line = line.replace("@f", f"({number(rng)})", 1)
    return line


def smaller(nodes: tuple[Node, ...]) -> Iterator[tuple[Node, ...]]:
    """The statements with one left out, or with a block replaced by its body."""
    for k, node in enumerate(nodes):
        yield nodes[:k] + nodes[k + 1 :]
        if isinstance(node, Block):
            yield nodes[:k] + node.body + nodes[k + 1 :]
            for body in smaller(node.body):
                yield (*nodes[:k], Block(node.head, body), *nodes[k + 1 :])


def variants(program: Program) -> Iterator[Program]:
    for body in smaller(program.body):
        yield replace(program, body=body)
    for k in range(len(program.mutations)):
        yield replace(program, mutations=program.mutations[:k] + program.mutations[k + 1 :])
    for k, text in enumerate(program.arguments):
        if text != ARGUMENTS[0]:
            chosen = (*program.arguments[:k], ARGUMENTS[0], *program.arguments[k + 1 :])
            yield replace(program, arguments=chosen)
    if program.form != "closure":
        yield replace(program, form="closure")
    if program.result != RESULTS[0]:
        yield replace(program, result=RESULTS[0])


def shrink(program: Program, fails: Callable[[Program], bool], budget: int = 60) -> Program:
    """A smaller program that fails too: parts are left out as long as it does."""
    while budget > 0:
        for candidate in variants(program):
            budget -= 1
            if fails(candidate):
                program = candidate
                break
            if budget <= 0:
                return program
        else:
            return program
    return program
