"""The streams of `Generator`: PyTorch's numbers for mt19937, documented ones for philox."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from evergrad.core.rng.bit_generators import MersenneTwister, philox4x32
from evergrad.core.rng.generator import Generator
from evergrad.core.rng.seeded_stream import DEFAULT_SEED

F64, F32 = np.dtype(np.float64), np.dtype(np.float32)
F16, BF16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
I64 = np.dtype(np.int64)
FLOATS = (F64, F32, F16, BF16)
INTEGERS = tuple(np.dtype(name) for name in ("uint8", "int8", "int16", "int32", "int64"))
SEEDS = (0, 1, 42, 2**31, 2**40 + 3, -1)
SHAPES = ((), (0,), (1,), (2,), (15,), (16,), (17,), (31,), (32,), (33,), (100,), (1000,), (3, 7))

torch_missing = "PyTorch 2.13.0 is not installed: pip install torch==2.13.0"

Draw = Callable[[Generator, tuple[int, ...], Any], Any]
Oracle = Callable[[Any, Any, Any], Any]


def bits(array: Any) -> tuple[Any, ...]:
    """Everything two arrays can differ in: -0.0 is not 0.0, and a nan equals itself."""
    return array.dtype, array.shape, array.tobytes()


def check_same(drawn: Any, expected: Any) -> None:
    """Equal bits; up to rounding where PyTorch runs without the AVX2 kernels that are matched."""
    torch = pytest.importorskip("torch", reason=torch_missing)
    if torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512"):
        assert bits(drawn) == bits(expected)
        return
    assert (drawn.dtype, drawn.shape) == (expected.dtype, expected.shape)
    wide = np.complex128 if drawn.dtype.kind == "c" else np.float64
    tolerance = float(ml_dtypes.finfo(drawn.dtype).eps) * 64
    np.testing.assert_allclose(
        drawn.astype(wide), expected.astype(wide), rtol=tolerance, atol=tolerance
    )


class Pair:
    """PyTorch's generator and ours, driven by the same calls."""

    def __init__(self, seed: int) -> None:
        self.torch = pytest.importorskip("torch", reason=torch_missing)
        self.oracle = self.torch.Generator().manual_seed(seed)
        self.ours = Generator().manual_seed(seed)

    def dtype(self, dtype: np.dtype[Any]) -> Any:
        return getattr(self.torch, dtype.name)

    def tensor(self, array: Any) -> Any:
        if array.dtype == BF16:
            return self.torch.tensor(array.astype(np.float32)).to(self.torch.bfloat16)
        return self.torch.tensor(array)

    def numpy(self, tensor: Any) -> Any:
        if tensor.dtype == self.torch.bfloat16:
            return tensor.view(self.torch.int16).numpy().view(BF16)
        return tensor.numpy()

    def check_next(self) -> None:
        """Both have used the same words and keep the same spare normal."""
        expected = self.torch.randint(0, 2**20, (1,), generator=self.oracle).item()
        assert self.ours.randint(0, 2**20, (1,), I64)[0] == expected
        expected = self.torch.empty(1, dtype=self.torch.float64).normal_(generator=self.oracle)
        assert self.ours.normal((1,), F64)[0] == expected.item()


def filled(method: str, *arguments: Any) -> Oracle:
    def draw(pair: Pair, shape: tuple[int, ...], dtype: Any) -> Any:
        target = pair.torch.empty(shape, dtype=pair.dtype(dtype))
        return getattr(target, method)(*arguments, generator=pair.oracle)

    return draw


CONTINUOUS: dict[str, tuple[Oracle, Draw]] = {}
for low, high in ((0.0, 1.0), (-0.1, 0.1), (2.1, 9.7), (1000.0, 1000.01), (-3.0, 5.0)):
    CONTINUOUS[f"uniform {low} {high}"] = (
        filled("uniform_", low, high),
        lambda g, shape, dtype, low=low, high=high: g.uniform(shape, dtype, low, high),
    )
for mean, std in ((0.0, 1.0), (0.37, 2.3), (-5.0, 0.0)):
    CONTINUOUS[f"normal {mean} {std}"] = (
        filled("normal_", mean, std),
        lambda g, shape, dtype, mean=mean, std=std: g.normal(shape, dtype, mean, std),
    )
for mean, std in ((1.0, 2.0), (0.37, 0.5)):
    CONTINUOUS[f"log_normal {mean} {std}"] = (
        filled("log_normal_", mean, std),
        lambda g, shape, dtype, mean=mean, std=std: g.log_normal(shape, dtype, mean, std),
    )
    CONTINUOUS[f"cauchy {mean} {std}"] = (
        filled("cauchy_", mean, std),
        lambda g, shape, dtype, mean=mean, std=std: g.cauchy(shape, dtype, mean, std),
    )
for rate in (1.0, 7.7):
    CONTINUOUS[f"exponential {rate}"] = (
        filled("exponential_", rate),
        lambda g, shape, dtype, rate=rate: g.exponential(shape, dtype, rate),
    )

DISCRETE: dict[str, tuple[Oracle, Draw]] = {
    "random_": (filled("random_"), lambda g, shape, dtype: g.random_full(shape, dtype)),
    "randint 0 100": (
        filled("random_", 0, 100),
        lambda g, shape, dtype: g.randint(0, 100, shape, dtype),
    ),
}
for p in (0.03, 0.5, 0.97):
    DISCRETE[f"bernoulli {p}"] = (
        filled("bernoulli_", p),
        lambda g, shape, dtype, p=p: g.bernoulli(p, shape, dtype),
    )
    DISCRETE[f"geometric {p}"] = (
        filled("geometric_", p),
        lambda g, shape, dtype, p=p: g.geometric(p, shape, dtype),
    )


def check_equal(drawn: Any, expected: Any) -> None:
    assert bits(drawn) == bits(expected)


def check_parity(
    oracle: Oracle,
    draw: Draw,
    dtype: np.dtype[Any],
    check: Callable[[Any, Any], None] = check_equal,
) -> None:
    for seed in SEEDS:
        for shape in SHAPES:
            pair = Pair(seed)
            expected = pair.numpy(oracle(pair, shape, dtype))
            check(draw(pair.ours, shape, dtype), expected)
            pair.check_next()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_draws_equal_pytorch(name: str, dtype: np.dtype[Any]) -> None:
    check_parity(*CONTINUOUS[name], dtype, check_same)


@pytest.mark.parametrize("dtype", (*FLOATS, *INTEGERS), ids=str)
@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_draws_equal_pytorch(name: str, dtype: np.dtype[Any]) -> None:
    check_parity(*DISCRETE[name], dtype)


@pytest.mark.parametrize("name", ["random_", "bernoulli 0.5"])
def test_bool_draws_equal_pytorch(name: str) -> None:
    check_parity(*DISCRETE[name], np.dtype(np.bool_))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_many_normals_equal_pytorch(dtype: np.dtype[Any]) -> None:
    pair = Pair(3)
    expected = pair.numpy(CONTINUOUS["normal 0.37 2.3"][0](pair, (50_021,), dtype))
    check_same(pair.ours.normal((50_021,), dtype, 0.37, 2.3), expected)


@pytest.mark.parametrize("dtype", [np.dtype(np.complex64), np.dtype(np.complex128)], ids=str)
@pytest.mark.parametrize("shape", [(3,), (8,), (5, 7)])
def test_complex_draws_equal_pytorch(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    pair = Pair(0)
    for ours, oracle in ((pair.ours.normal, "randn"), (pair.ours.uniform, "rand")):
        draw = getattr(pair.torch, oracle)
        expected = draw(shape, dtype=pair.dtype(dtype), generator=pair.oracle).numpy()
        check_same(ours(shape, dtype), expected)


@pytest.mark.filterwarnings("ignore:.*precision limitations")
@pytest.mark.parametrize("dtype", [I64, F64, F32], ids=str)
@pytest.mark.parametrize(
    ("low", "high"),
    [
        (0, 2**28 - 1),
        (0, 2**28),
        (-(2**28 - 1), 5),
        (-(2**31), 2**31 - 1),
        (0, 2**32),
        (-(2**62), 2**62 + 9),
        (-(2**63), 2**63 - 1),
    ],
)
def test_wide_randint_equals_pytorch(low: int, high: int, dtype: np.dtype[Any]) -> None:
    for seed in SEEDS:
        pair = Pair(seed)
        expected = pair.torch.randint(
            low, high, (33,), dtype=pair.dtype(dtype), generator=pair.oracle
        )
        assert bits(pair.ours.randint(low, high, (33,), dtype)) == bits(expected.numpy())
        pair.check_next()


def test_all_64_bits_equal_pytorch() -> None:
    pair = Pair(5)
    expected = pair.torch.empty(9, dtype=pair.torch.int64)
    expected.random_(-(2**63), None, generator=pair.oracle)
    assert bits(pair.ours.randint(-(2**63), 2**63, (9,), I64)) == bits(expected.numpy())


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_bernoulli_of_an_array_equals_pytorch(dtype: np.dtype[Any]) -> None:
    probabilities = np.random.RandomState(0).rand(4, 9).astype(np.float32).astype(dtype)
    for seed in SEEDS:
        pair = Pair(seed)
        expected = pair.torch.empty(4, 9).bernoulli_(
            pair.tensor(probabilities), generator=pair.oracle
        )
        assert bits(pair.ours.bernoulli(probabilities, (4, 9), F32)) == bits(expected.numpy())
        pair.check_next()


@pytest.mark.parametrize("n", [0, 1, 2, 3, 10, 1000, 30_000])
def test_randperm_equals_pytorch(n: int) -> None:
    for seed in SEEDS:
        pair = Pair(seed)
        expected = pair.torch.randperm(n, generator=pair.oracle).numpy()
        assert bits(pair.ours.randperm(n, I64)) == bits(expected)
        pair.check_next()


@pytest.mark.parametrize("dtype", [F64, F32], ids=str)
@pytest.mark.parametrize(
    ("samples", "replacement"), [(1, False), (1, True), (4, False), (4, True), (200, True)]
)
def test_multinomial_equals_pytorch(samples: int, replacement: bool, dtype: np.dtype[Any]) -> None:
    for seed in SEEDS:
        pair = Pair(seed)
        weights = np.random.RandomState(1).rand(3, 100).astype(dtype)
        expected = pair.torch.multinomial(
            pair.tensor(weights), samples, replacement, generator=pair.oracle
        )
        drawn = pair.ours.multinomial(weights, samples, replacement)
        assert bits(drawn) == bits(expected.numpy())
        pair.check_next()


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize(("samples", "replacement"), [(1, False), (4, True)])
def test_narrow_multinomial_equals_pytorch(
    samples: int, replacement: bool, dtype: np.dtype[Any]
) -> None:
    pair = Pair(2)
    weights = np.random.RandomState(1).rand(3, 100).astype(np.float32).astype(dtype)
    expected = pair.torch.multinomial(
        pair.tensor(weights), samples, replacement, generator=pair.oracle
    )
    assert bits(pair.ours.multinomial(weights, samples, replacement)) == bits(expected.numpy())


def test_rejection_methods_equal_pytorch() -> None:
    noise = np.random.RandomState(4)
    for seed in SEEDS:
        pair = Pair(seed)
        for scale in (3.0, 50.0, 1e4):
            rates = noise.rand(5, 30) * scale
            expected = pair.torch.poisson(pair.tensor(rates), generator=pair.oracle)
            assert bits(pair.ours.poisson(rates)) == bits(expected.numpy())
            counts, probs = np.floor(rates), noise.rand(5, 30)
            expected = pair.torch.binomial(
                pair.tensor(counts), pair.tensor(probs), generator=pair.oracle
            )
            assert bits(pair.ours.binomial(counts, probs)) == bits(expected.numpy())
            expected = pair.torch._standard_gamma(pair.tensor(rates), generator=pair.oracle)
            assert bits(pair.ours.standard_gamma(rates)) == bits(expected.numpy())
            narrow = rates.astype(np.float32)
            expected = pair.torch._standard_gamma(pair.tensor(narrow), generator=pair.oracle)
            drawn = pair.ours.standard_gamma(narrow)
            np.testing.assert_allclose(drawn, expected.numpy(), rtol=1e-5)
        pair.check_next()


def test_mixed_calls_equal_pytorch() -> None:
    pair = Pair(9)
    order = np.random.RandomState(0)
    draws = {**CONTINUOUS, **DISCRETE}
    for _ in range(400):
        name = list(draws)[order.randint(len(draws))]
        oracle, draw = draws[name]
        dtype = FLOATS[order.randint(len(FLOATS))]
        shape = SHAPES[order.randint(len(SHAPES))]
        expected = pair.numpy(oracle(pair, shape, dtype))
        check = check_same if name in CONTINUOUS else check_equal
        check(draw(pair.ours, shape, dtype), expected)


def test_dropout_mask_equals_pytorch() -> None:
    torch = pytest.importorskip("torch", reason=torch_missing)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        kept = torch.nn.functional.dropout(torch.ones(1000), 0.3).numpy() != 0
    assert np.array_equal(Generator().manual_seed(3).bernoulli(0.7, (1000,), np.bool_), kept)


def test_seeds_read_as_in_pytorch() -> None:
    pair = Pair(0)
    for seed in (*SEEDS, -(2**63), 2**64 - 1):
        assert pair.ours.manual_seed(seed) is pair.ours
        assert pair.ours.initial_seed() == pair.oracle.manual_seed(seed).initial_seed()
        pair.check_next()
    assert Generator().initial_seed() == pair.torch.Generator().initial_seed()


# Known answers: PyTorch 2.13.0, seed 0 unless said otherwise ------------------------------------


def test_known_uniforms() -> None:
    generator = Generator().manual_seed(0)
    assert generator.uniform((3,), F32).tolist() == [
        0.49625658988952637,
        0.7682217955589294,
        0.08847743272781372,
    ]
    generator.manual_seed(0)
    assert generator.uniform((2,), F64).tolist() == [0.9700530018065531, 0.707819864399788]


def test_known_normals() -> None:
    generator = Generator().manual_seed(0)
    few = generator.normal((3,), F32)
    assert few.tolist() == [1.5409960746765137, -0.293428897857666, -2.1787893772125244]
    assert generator.normal((1,), F64)[0] == pytest.approx(0.5684312774, abs=1e-9)
    many = Generator().manual_seed(0).normal((17,), F32)
    assert many[0] == np.float32(-1.1258398294448853)


def test_known_integers() -> None:
    generator = Generator().manual_seed(0)
    assert generator.random_full((4,), np.dtype(np.uint8)).tolist() == [172, 47, 117, 192]
    generator.manual_seed(0)
    assert generator.randint(0, 2**28, (2,), I64).tolist() == [130329135, 136432832]
    generator.manual_seed(0)
    assert generator.bernoulli(0.5, (8,), np.int8).tolist() == [0, 0, 1, 0, 0, 0, 1, 1]
    assert sorted(generator.randperm(50).tolist()) == list(range(50))


def test_philox_known_answers() -> None:
    """The vectors published with Random123."""
    zero = philox4x32(np.zeros(1, np.uint64), 0, 0)
    assert [f"{word:08x}" for word in zero[0]] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]
    ones = philox4x32(np.full(1, 2**64 - 1, np.uint64), 2**64 - 1, 2**64 - 1)
    assert [f"{word:08x}" for word in ones[0]] == ["408f276d", "41c83b0e", "a20bc7c6", "6d5451fd"]
    low = np.array([0x85A308D3_243F6A88], np.uint64)
    pi = philox4x32(low, 0x03707344_13198A2E, 0x299F31D0_A4093822)
    assert [f"{word:08x}" for word in pi[0]] == ["d16cfe09", "94fdcceb", "5001e420", "24126ea1"]


# State -----------------------------------------------------------------------------------------


ALGORITHMS = pytest.mark.parametrize("algorithm", ["mt19937", "philox"])


@ALGORITHMS
def test_state_restores_the_stream(algorithm: str) -> None:
    generator = Generator(algorithm=algorithm).manual_seed(7)
    generator.normal((3,), F32)  # leaves a spare normal behind
    state = generator.get_state()
    assert state.dtype == np.uint8
    first = [generator.normal((2,), F64), generator.uniform((5,), F32)]
    generator.manual_seed(1)
    assert generator.set_state(state) is generator
    assert generator.initial_seed() == 7
    again = [generator.normal((2,), F64), generator.uniform((5,), F32)]
    assert [bits(a) for a in first] == [bits(a) for a in again]


@ALGORITHMS
@pytest.mark.parametrize(
    "duplicate",
    [
        Generator.clone_state,
        copy.copy,
        copy.deepcopy,
        lambda generator: pickle.loads(pickle.dumps(generator)),
    ],
    ids=["clone_state", "copy", "deepcopy", "pickle"],
)
def test_copies_continue_on_their_own(algorithm: str, duplicate: Any) -> None:
    generator = Generator(algorithm=algorithm).manual_seed(7)
    generator.normal((3,), F32)
    twin = duplicate(generator)
    assert twin is not generator
    assert (twin.algorithm, twin.initial_seed(), twin.device) == (algorithm, 7, "cpu")
    expected = generator.normal((5,), F64)
    assert bits(twin.normal((5,), F64)) == bits(expected)


def test_seed_is_fresh_and_repeatable() -> None:
    generator = Generator()
    assert generator.initial_seed() == DEFAULT_SEED
    seed = generator.seed()
    assert seed == generator.initial_seed() != generator.seed()
    expected = generator.uniform((3,), F32)
    repeated = Generator().manual_seed(generator.initial_seed())
    assert bits(repeated.uniform((3,), F32)) == bits(expected)


def test_wrong_arguments_are_refused() -> None:
    generator = Generator()
    with pytest.raises(TypeError, match="expects an int, but got float"):
        generator.manual_seed(1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="seed in"):
        generator.manual_seed(2**64)
    with pytest.raises(RuntimeError, match="device 'cpu'"):
        Generator("cuda")
    with pytest.raises(ValueError, match="algorithm must be"):
        Generator(algorithm="pcg")
    with pytest.raises(RuntimeError, match="state of size"):
        generator.set_state(Generator(algorithm="philox").get_state())
    with pytest.raises(TypeError, match="uint8"):
        generator.set_state(np.zeros(3))
    with pytest.raises(RuntimeError, match="only a philox"):
        _ = generator.offset


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda g: g.uniform((2,), F32, 1.0, 0.0), "from=1.0 > to=0.0"),
        (lambda g: g.normal((2,), F32, 0.0, -1.0), "std >= 0.0"),
        (lambda g: g.log_normal((2,), F32, 0.0, 0.0), "std > 0.0"),
        (lambda g: g.exponential((2,), F32, 0.0), "lambda > 0.0"),
        (lambda g: g.cauchy((2,), F32, 0.0, 0.0), "sigma > 0.0"),
        (lambda g: g.geometric(0.0, (2,), F32), "p to be in"),
        (lambda g: g.bernoulli(1.5, (2,)), "p to be in"),
        (lambda g: g.bernoulli(np.array([1.5]), (1,)), "every probability"),
        (lambda g: g.randint(5, 5, (2,), I64), "'from' to be less than 'to'"),
        (lambda g: g.poisson(np.array([-1.0])), "non-negative"),
        (lambda g: g.multinomial(np.array([[0.0, 0.0]]), 1), "sum of probabilities"),
        (lambda g: g.multinomial(np.array([[1.0, -1.0]]), 1), "element < 0"),
        (lambda g: g.multinomial(np.array([[1.0, 1.0]]), 3), "without replacement"),
        (lambda g: g.multinomial(np.array([[1.0, 1.0]]), 0), "n_sample <= 0"),
    ],
)
def test_impossible_draws_are_refused(draw: Callable[[Generator], Any], message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        draw(Generator())


# Philox ----------------------------------------------------------------------------------------


def philox(seed: int = 11, offset: int = 0) -> Generator:
    generator = Generator(algorithm="philox").manual_seed(seed)
    generator.offset = offset
    return generator


@pytest.mark.parametrize(
    "draw",
    [
        lambda g, n: g.uniform((n,), F32),
        lambda g, n: g.uniform((n,), F64),
        lambda g, n: g.normal((n,), F32),
        lambda g, n: g.normal((n,), F16),
        lambda g, n: g.normal((n,), F64),
        lambda g, n: g.log_normal((n,), F32),
        lambda g, n: g.exponential((n,), F32),
        lambda g, n: g.cauchy((n,), F64),
        lambda g, n: g.geometric(0.3, (n,), I64),
        lambda g, n: g.bernoulli(0.3, (n,)),
        lambda g, n: g.bernoulli(np.full(n, 0.3, np.float32), (n,)),
        lambda g, n: g.randint(0, 10, (n,), I64),
        lambda g, n: g.randint(0, 2**40, (n,), I64),
        lambda g, n: g.random_full((n,), np.dtype(np.int32)),
        lambda g, n: g.poisson(np.full(n, 4.0)),
        lambda g, n: g.poisson(np.full(n, 40.0)),
        lambda g, n: g.binomial(np.full(n, 100.0), np.full(n, 0.3)),
        lambda g, n: g.standard_gamma(np.full(n, 0.5)),
    ],
)
def test_a_philox_element_depends_on_its_index_alone(
    draw: Callable[[Generator, int], Any],
) -> None:
    long, short = draw(philox(offset=5), 20_000), draw(philox(offset=5), 33)
    assert bits(long[:33]) == bits(short)
    assert bits(draw(philox(offset=6), 33)) != bits(short)
    assert bits(draw(philox(seed=12, offset=5), 33)) != bits(short)


def test_part_of_a_philox_mask_can_be_computed_again() -> None:
    generator = philox(offset=1000)
    mask = generator.bernoulli(0.4, (4096,))
    assert generator.offset == 1000 + 4096 // 2  # two words an element, four a block
    assert np.array_equal(philox(offset=1000 + 512).bernoulli(0.4, (16,)), mask[1024:1040])


def test_philox_calls_use_disjoint_counters() -> None:
    generator = philox()
    drawn = np.concatenate([generator.uniform((n,), F64) for n in (3, 1, 10, 4, 7)])
    assert len(np.unique(drawn)) == drawn.size


def test_philox_offset_wraps() -> None:
    generator = philox(offset=2**64 - 1)
    drawn = generator.uniform((8,), F32)
    assert generator.offset == 1
    assert bits(drawn[4:]) == bits(philox(offset=0).uniform((4,), F32))


@pytest.mark.parametrize("algorithm", ["mt19937", "philox"])
def test_moments(algorithm: str) -> None:
    generator = Generator(algorithm=algorithm).manual_seed(2024)
    n = 100_000
    expected: list[tuple[Any, float, float]] = [
        (generator.uniform((n,), F32), 1 / 2, 1 / 12),
        (generator.normal((n,), F32, 1.0, 2.0), 1.0, 4.0),
        (generator.normal((n,), F64), 0.0, 1.0),
        (generator.exponential((n,), F64, 2.0), 1 / 2, 1 / 4),
        (generator.log_normal((n,), F64, 0.0, 0.25), 1.0317434, 0.0686539),
        (generator.bernoulli(0.3, (n,), F32), 0.3, 0.21),
        (generator.geometric(0.4, (n,), F32), 2.5, 3.75),
        (generator.randint(0, 10, (n,), F64), 4.5, 8.25),
        (generator.poisson(np.full(n // 10, 4.0)), 4.0, 4.0),
        (generator.poisson(np.full(n // 10, 60.0)), 60.0, 60.0),
        (generator.binomial(np.full(n // 10, 20.0), np.full(n // 10, 0.1)), 2.0, 1.8),
        (generator.binomial(np.full(n // 10, 90.0), np.full(n // 10, 0.7)), 63.0, 18.9),
        (generator.standard_gamma(np.full(n // 10, 0.5)), 0.5, 0.5),
        (generator.standard_gamma(np.full(n // 10, 9.0)), 9.0, 9.0),
    ]
    for drawn, mean, variance in expected:
        wide = drawn.astype(np.float64)
        assert wide.mean() == pytest.approx(mean, abs=5 * (variance / wide.size) ** 0.5)
        assert wide.var() == pytest.approx(variance, rel=0.1)


@ALGORITHMS
def test_multinomial_follows_the_weights(algorithm: str) -> None:
    generator = Generator(algorithm=algorithm).manual_seed(0)
    weights = np.array([[1.0, 0.0, 3.0, 4.0]])
    drawn = generator.multinomial(weights, 40_000, replacement=True)
    shares = np.bincount(drawn[0], minlength=4) / drawn.size
    np.testing.assert_allclose(shares, weights[0] / 8, atol=0.01)
    for _ in range(20):
        assert sorted(generator.multinomial(weights, 3)[0].tolist()) == [0, 2, 3]


def test_philox_permutation() -> None:
    order = philox().randperm(1000, np.int32)
    assert order.dtype == np.int32
    assert sorted(order.tolist()) == list(range(1000))


def test_the_memory_of_a_twister_is_its_state() -> None:
    """What lies in NumPy's memory is what ``get_state`` tells; written there, it is drawn from."""
    twister, other = MersenneTwister(5), MersenneTwister(6)
    for count in (0, 1, 623, 700):
        twister.words32(count)
        _, words, place, *_ = twister.state.get_state(legacy=True)
        np.testing.assert_array_equal(twister.memory, [*words, place])
        other.memory[:] = twister.memory
        np.testing.assert_array_equal(other.words64(1000), twister.words64(1000))
