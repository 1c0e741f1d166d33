"""Functions that validate values, or have to know how many hold: with arguments that they take, and
some that they refuse."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import evergrad as eg
from evergrad import distributions as D
from evergrad import nn
from evergrad.nn import functional as F
from evergrad.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

Step = Callable[..., Any]


def floats(*shape: int, seed: int = 0) -> eg.Tensor:
    return eg.tensor(np.random.default_rng([seed, *shape]).normal(size=shape).astype("f4"))


def ints(low: int, high: int, *shape: int, seed: int = 0) -> eg.Tensor:
    return eg.tensor(np.random.default_rng([seed, *shape]).integers(low, high, shape))


class Case(NamedTuple):
    """A function of tensors, arguments for several calls, and arguments that it refuses."""

    step: Step
    good: list[tuple[Any, ...]]
    bad: Sequence[tuple[Any, ...]] = ()


CASES: dict[str, Callable[[], Case]] = {}


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    CASES[make.__name__] = make
    return make


# -- losses -------------------------------------------------------------------------------------

LOGITS = [(floats(6, 5, seed=s),) for s in range(3)]
PAIRS = [(floats(6, 5, seed=s), ints(0, 5, 6, seed=s)) for s in range(3)]
BAD_PAIRS = [
    (floats(6, 5), eg.tensor([0, 1, 7, 2, -3, 4])),
    (floats(6, 5), eg.tensor([0, 1, 1, 2, 5, 4])),
    (floats(6, 5), eg.tensor([-1, 1, 1, 2, 3, 4])),
]


@case
def cross_entropy() -> Case:
    return Case(lambda x, t: F.cross_entropy(x, t), PAIRS, BAD_PAIRS)


@case
def cross_entropy_ignoring() -> Case:
    def step(x: Any, t: Any) -> Any:
        return F.cross_entropy(x, t, ignore_index=2, reduction="sum")

    return Case(step, PAIRS, BAD_PAIRS)


@case
def cross_entropy_smoothed_and_weighted() -> Case:
    weight = eg.tensor([1.0, 2.0, 0.5, 1.0, 3.0])
    return Case(
        lambda x, t: F.cross_entropy(x, t, weight=weight, label_smoothing=0.1), PAIRS, BAD_PAIRS
    )


@case
def cross_entropy_of_closed_over_targets() -> Case:
    target = ints(0, 5, 6)
    return Case(lambda x: F.cross_entropy(x, target), LOGITS)


@case
def cross_entropy_of_targets_made_inside() -> Case:
    return Case(lambda x: F.cross_entropy(x, (x[:, 0] > 0).long() + x.argmax(1) // 4), LOGITS)


@case
def cross_entropy_module_of_images() -> Case:
    loss, target = nn.CrossEntropyLoss(reduction="none"), ints(0, 3, 2, 4, 4)
    good = [(floats(2, 3, 4, 4, seed=s), target) for s in range(2)]
    return Case(lambda x, t: loss(x, t), good, [(floats(2, 3, 4, 4), target + 2)])


@case
def nll_loss() -> Case:
    return Case(lambda x, t: F.nll_loss(x.log_softmax(1), t), PAIRS, BAD_PAIRS)


@case
def nll_loss_closed_over() -> Case:
    target = ints(0, 5, 6)
    return Case(lambda x: F.nll_loss(F.log_softmax(x, -1), target, reduction="none"), LOGITS)


@case
def unused_loss() -> Case:
    def step(x: Any, t: Any) -> Any:
        F.cross_entropy(x, t)
        return x * 2

    return Case(step, PAIRS, BAD_PAIRS)


@case
def multi_margin() -> Case:
    return Case(lambda x, t: F.multi_margin_loss(x, t), PAIRS, BAD_PAIRS)


@case
def one_hot() -> Case:
    bad = [(eg.tensor([0, -1]),), (eg.tensor([0, 5]),), (eg.tensor([-1, 9]),)]
    return Case(lambda t: F.one_hot(t, 5), [(ints(0, 5, 2, 3, seed=s),) for s in range(3)], bad)


@case
def one_hot_closed_over() -> Case:
    target = ints(0, 5, 6)
    return Case(lambda x: F.one_hot(target, num_classes=5) * x, LOGITS)


@case
def binary_cross_entropy() -> Case:
    target = (floats(6, 5) > 0).float()
    bad = [(floats(6, 5).sigmoid() * 3,), (eg.full((6, 5), float("nan")),)]
    return Case(lambda p: F.binary_cross_entropy(p, target), [(floats(6, 5).sigmoid(),)], bad)


@case
def gaussian_nll() -> Case:
    return Case(
        lambda x, v: F.gaussian_nll_loss(x, x * 0.5, v),
        [(floats(4), floats(4).exp())], [(floats(4), -floats(4).exp())],
    )  # fmt: skip


@case
def quantile() -> Case:
    q = eg.tensor([0.25, 0.5])
    return Case(lambda x, q: eg.quantile(x, q), [(floats(7), q)], [(floats(7), q + 0.6)])


@case
def cov_with_weights() -> Case:
    weights = eg.tensor([1, 2, 3, 1])
    return Case(
        lambda x, w: eg.cov(x, fweights=w), [(floats(3, 4), weights)], [(floats(3, 4), weights - 2)]
    )


# -- distributions ------------------------------------------------------------------------------


def of_distribution(make: Callable[[Any], Any], bad: Sequence[Any] = ()) -> Callable[[], Case]:
    def step(x: Any) -> Any:
        d = make(x)
        drawn = d.rsample() if d.has_rsample else d.sample()
        results = [drawn, d.log_prob(drawn.detach())]
        with contextlib.suppress(NotImplementedError):
            results.append(d.entropy())
        return results

    return lambda: Case(step, LOGITS, [(b,) for b in bad])


NAN = eg.full((6, 5), float("nan"))
BELOW = eg.full((6, 5), -1.0)
DISTRIBUTIONS: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
    "normal": (lambda x: D.Normal(x, x.exp()), [NAN]),
    "normal_scale": (lambda x: D.Normal(0.0, x.abs() * (x.sum() + 50).sign()), [BELOW * 9]),
    "categorical_logits": (lambda x: D.Categorical(logits=x), [NAN]),
    "categorical_probs": (lambda x: D.Categorical((x * (x > -50)).softmax(-1)), [NAN]),
    "bernoulli_logits": (lambda x: D.Bernoulli(logits=x), [NAN]),
    "bernoulli_probs": (lambda x: D.Bernoulli(x.sigmoid() * x.max().sign()), [BELOW]),
    "beta": (lambda x: D.Beta(x.abs() * x.max().sign(), x.exp()), [BELOW]),
    "gamma": (lambda x: D.Gamma(x.exp(), x.abs() * x.max().sign()), [BELOW]),
    "dirichlet": (lambda x: D.Dirichlet(x.abs() * x.max().sign()), [BELOW]),
    "mvn_tril": (
        lambda x: D.MultivariateNormal(x, scale_tril=eg.eye(5) * x.max().sign()), [BELOW]
    ),
    "mvn_covariance": (
        lambda x: D.MultivariateNormal(x, x.T @ x * x.max().sign() + 2 * eg.eye(5)), [BELOW]
    ),
    "independent": (lambda x: D.Independent(D.Normal(x, x.exp()), 1), [NAN]),
    "transformed": (
        lambda x: D.TransformedDistribution(
            D.Normal(x, (x.abs() + 0.5) * x.max().sign()), [D.transforms.ExpTransform()]
        ), [BELOW],
    ),
    "lognormal": (lambda x: D.LogNormal(x, x.exp()), [NAN]),
    "geometric": (lambda x: D.Geometric(x.sigmoid() * (x > -50)), [eg.full((6, 5), -60.0), NAN]),
    "laplace": (lambda x: D.Laplace(x, x.abs() * x.max().sign()), [BELOW]),
    "exponential": (lambda x: D.Exponential(x.abs() * x.max().sign()), [BELOW]),
    "poisson": (lambda x: D.Poisson(x.abs() * x.max().sign()), [BELOW]),
    "uniform": (lambda x: D.Uniform(x, x + 1), []),
    "one_hot_categorical": (lambda x: D.OneHotCategorical(logits=x), [NAN]),
    "relaxed": (lambda x: D.RelaxedOneHotCategorical(eg.tensor(0.5), logits=x), [NAN]),
    "mixture": (
        lambda x: D.MixtureSameFamily(D.Categorical(logits=x), D.Normal(x, x.exp())), [NAN]
    ),
}  # fmt: skip
for _name, (_make, _bad) in DISTRIBUTIONS.items():
    CASES[f"distribution_{_name}"] = of_distribution(_make, _bad)


@case
def values_outside_the_support() -> Case:
    return Case(
        lambda x: D.Beta(2.0, eg.tensor([1.0, 2.0, 3.0, 4.0, 5.0])).log_prob(x),
        [(floats(6, 5).sigmoid(),)], [(floats(6, 5),), (NAN,)],
    )  # fmt: skip


@case
def actions_that_do_not_exist() -> Case:
    def step(x: Any, a: Any) -> Any:
        return D.Categorical(logits=x).log_prob(a)

    return Case(step, PAIRS, BAD_PAIRS)


@case
def kl_of_normals() -> Case:
    return Case(
        lambda x: D.kl_divergence(D.Normal(x, x.exp()), D.Normal(0.0, 1.0)), LOGITS, [(NAN,)]
    )


@case
def unvalidated() -> Case:
    return Case(lambda x: D.Normal(x, x, validate_args=False).log_prob(x), LOGITS)


# -- sequences and tables -----------------------------------------------------------------------

TIMES = [(floats(12, 3, 5, seed=s).log_softmax(-1), ints(1, 5, 3, 4, seed=s)) for s in range(2)]
FRAMES, LENGTHS = eg.tensor([12, 10, 11]), eg.tensor([4, 3, 2])


@case
def ctc() -> Case:
    good = [(*pair, FRAMES, LENGTHS) for pair in TIMES]
    bad = [(*TIMES[0], FRAMES + 1, LENGTHS), (*TIMES[0], FRAMES, LENGTHS + 1)]
    return Case(lambda x, t, n, m: F.ctc_loss(x, t, n, m), good, bad)


@case
def ctc_lists_without_infinities() -> Case:
    def step(x: Any, t: Any) -> Any:
        return F.ctc_loss(x, t, (12, 3, 11), (4, 3, 2), reduction="none", zero_infinity=True)

    return Case(step, TIMES)


@case
def ctc_concatenated() -> Case:
    good = [(x, t.flatten()[:9], FRAMES, LENGTHS) for x, t in TIMES]
    return Case(lambda x, t, n, m: F.ctc_loss(x, t, n, m, blank=2, reduction="sum"), good)


@case
def ctc_closed_over_lengths() -> Case:
    return Case(lambda x, t: nn.CTCLoss()(x, t, FRAMES, LENGTHS), TIMES)


def of_bags(mode: str, **options: Any) -> Callable[[], Case]:
    table = floats(20, 4)

    def step(i: Any, o: Any) -> Any:
        return F.embedding_bag(i, table, o, mode=mode, **options)

    offsets = eg.tensor([0, 3, 3, 7])
    good = [(ints(0, 20, 9, seed=s), offsets) for s in range(3)]
    bad = [(good[0][0], offsets + 1), (good[0][0], eg.tensor([0, 3, 3, 17]))]
    return lambda: Case(step, good, [*bad, (good[0][0], eg.tensor([0, 5, 3, 7]))])


for _mode in ("sum", "mean", "max"):
    CASES[f"bags_{_mode}"] = of_bags(_mode)
    CASES[f"bags_{_mode}_padding"] = of_bags(_mode, padding_idx=3)
CASES["bags_last_offset"] = of_bags("sum", include_last_offset=True)


@case
def bags_in_rows() -> Case:
    layer = nn.EmbeddingBag(20, 4, mode="mean")
    return Case(lambda i: layer(i), [(ints(0, 20, 3, 4, seed=s),) for s in range(2)])


@case
def bags_with_weights() -> Case:
    table, weights = floats(20, 4), floats(3, 4)
    return Case(
        lambda i: F.embedding_bag(i, table, per_sample_weights=weights, mode="sum"),
        [(ints(0, 20, 3, 4, seed=s),) for s in range(2)],
    )


@case
def packed_by_a_list() -> Case:
    layer = nn.LSTM(4, 3)

    def step(x: Any) -> Any:
        return pad_packed_sequence(layer(pack_padded_sequence(x, [5, 3, 2]))[0])[0]

    return Case(step, [(floats(5, 3, 4, seed=s),) for s in range(2)])


@case
def packed_by_a_tensor() -> Case:
    layer, lengths = nn.GRU(4, 3, batch_first=True), eg.tensor([3, 5, 2])

    def step(x: Any) -> Any:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, last = layer(packed)
        return pad_packed_sequence(out, batch_first=True)[0], last

    return Case(step, [(floats(3, 5, 4, seed=s),) for s in range(2)])


# -- masks and counts ---------------------------------------------------------------------------

SOURCE = floats(6, 5, seed=9)


@case
def masked_scatter() -> Case:
    good = [(x, SOURCE) for (x,) in LOGITS]
    return Case(lambda x, s: x.masked_scatter(x > 0, s), good, [(SOURCE.abs() + 1, SOURCE[:2])])


@case
def masked_scatter_broadcast() -> Case:
    return Case(lambda x: eg.zeros(6, 5).masked_scatter(x[:, :1] > 0, SOURCE), LOGITS)


def written(write: Callable[[Any, Any], None], good: Any, bad: Any = ()) -> Callable[[], Case]:
    def step(x: Any, *others: Any) -> Any:
        y = x.clone()
        write(y, *others)
        return y * 2

    return lambda: Case(step, list(good), list(bad))


ROWS = eg.tensor([[1.0] * 5, [-1.0] * 5, [2.0] * 5, [-3.0] * 5, [1.5] * 5, [-1.0] * 5])
THREE = floats(3, 5)


def _rows(y: Any, v: Any) -> None:
    y[y[:, 0] > 0] = v


def _elements(y: Any, v: Any) -> None:
    y[y > 0] = v


def _behind(y: Any, v: Any) -> None:
    y[:, ROWS[:5, 0] > 0] = v


def _put(y: Any, v: Any) -> None:
    y.index_put_((y > 0,), v)


def _put_more(y: Any, v: Any) -> None:
    y.index_put_((y[:, 0] > 0,), v, accumulate=True)


CASES["mask_of_rows"] = written(_rows, [(ROWS, THREE), (ROWS * 2, THREE)], [(ROWS, SOURCE)])
CASES["mask_of_rows_one_row"] = written(_rows, [(ROWS, THREE[0]), (ROWS, THREE[:1])])
CASES["mask_of_rows_column"] = written(_rows, [(ROWS, THREE[:, :1])], [(ROWS, SOURCE[:4, :1])])
CASES["mask_of_elements"] = written(
    _elements, [(ROWS, floats(15))], [(ROWS, floats(14)), (-ROWS.abs(), floats(15))]
)
CASES["mask_of_elements_number"] = written(
    _elements, [(ROWS, eg.tensor(3.0)), (SOURCE, eg.tensor(1.0))]
)
CASES["mask_of_columns"] = written(_behind, [(ROWS, floats(6, 3)), (SOURCE, floats(6, 3))])
CASES["index_put_mask"] = written(_put, [(ROWS, floats(15))], [(ROWS, floats(16))])
CASES["index_put_more"] = written(_put_more, [(ROWS, THREE)], [(ROWS, SOURCE)])


@case
def bincount() -> Case:
    return Case(
        lambda t: eg.bincount(t, minlength=6), [(ints(0, 5, 9, seed=s),) for s in range(2)],
        [(eg.tensor([1, -1]),)],
    )  # fmt: skip


@case
def bincount_of_weights() -> Case:
    return Case(
        lambda t, w: t.bincount(w, 6), [(ints(0, 5, 9), floats(9)), (ints(0, 3, 9), floats(9))]
    )


@case
def repeat_interleave() -> Case:
    def step(x: Any, n: Any) -> Any:
        return eg.repeat_interleave(x, n, 0, output_size=9)

    good = [(SOURCE, eg.tensor([1, 2, 1, 2, 1, 2])), (SOURCE, eg.tensor([0, 0, 9, 0, 0, 0]))]
    bad = [(SOURCE, eg.tensor([1, 2, 1, 2, 1, 3])), (SOURCE, eg.tensor([-1, 4, 1, 2, 1, 2]))]
    return Case(step, good, bad)


@case
def repeat_interleave_by_one_number() -> Case:
    good = [(SOURCE, eg.tensor([3]))]
    return Case(
        lambda x, n: x.repeat_interleave(n, 1, output_size=15), good, [(SOURCE, eg.tensor([2]))]
    )


@case
def repeat_interleave_by_an_int() -> Case:
    return Case(lambda x: x.repeat_interleave(2, dim=1), LOGITS)


@case
def histograms() -> Case:
    def step(x: Any) -> Any:
        given, found = eg.histogram(x, 4, range=(-1.0, 1.0)), eg.histogram(x, 3, density=True)
        return [eg.histc(x, 5, -1, 1), *given, *found]

    return Case(step, LOGITS, [(NAN,)])


@case
def multinomial() -> Case:
    return Case(
        lambda x: (eg.multinomial(x.softmax(-1), 3), eg.multinomial(x[0].exp(), 7, True)), LOGITS
    )


@case
def embedding_with_max_norm() -> Case:
    layer = nn.Embedding(20, 4, max_norm=0.5)
    return Case(lambda i: layer(i), [(ints(0, 20, 6, seed=s),) for s in range(2)])


@case
def guarded_by_where() -> Case:
    def step(x: Any) -> Any:
        loss = x.log().sum()
        return eg.where(eg.isnan(loss).any(), 0.0, loss), eg.isinf(x).any(), (x > 0).all()

    return Case(step, [*LOGITS, (floats(6, 5).abs(),)])


@case
def rrelu() -> Case:
    return Case(lambda x: F.rrelu(x, 0.1, 0.4, training=True), LOGITS)
