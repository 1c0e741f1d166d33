"""The array API standard: what the namespace offers, gradients through it, libraries on it."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evergrad as eg
import evergrad.array_api as xp

FINITE = np.array([[0.5, -2.0, 3.0], [-1.5, 4.0, 0.25]])

# -- the namespace itself -----------------------------------------------------------------------


def test_tensors_find_the_namespace() -> None:
    x = eg.ones(2)
    assert x.__array_namespace__() is xp is eg.array_api
    assert x.__array_namespace__(api_version="2023.12") is xp
    assert xp.__array_api_version__ == "2024.12"
    with pytest.raises(ValueError, match=r"up to 2024\.12"):
        x.__array_namespace__(api_version="2030.12")


def test_all_is_exactly_what_is_public() -> None:
    for module in (xp, xp.linalg, xp.fft):
        assert len(set(module.__all__)) == len(module.__all__)
        for name in module.__all__:
            value = getattr(module, name)
            assert value.__doc__ or not callable(value), name


# Stated by the standard, version 2024.12; `expand_dims` also takes its axis by position.
SIGNATURES = {
    "(x, /)": """
        abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1
        floor imag isfinite isinf isnan log log10 log1p log2 logical_not matrix_transpose
        negative nonzero positive real reciprocal round sign signbit sin sinh sqrt square
        tan tanh trunc unique_all unique_counts unique_inverse unique_values
    """,
    "(x1, x2, /)": """
        add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor
        copysign divide equal floor_divide greater greater_equal hypot less less_equal
        logaddexp logical_and logical_or logical_xor matmul maximum minimum multiply
        nextafter not_equal pow remainder subtract
    """,
    "(x, /, *, axis=None, keepdims=False)": "all any argmax argmin count_nonzero max mean min",
    "(shape, *, dtype=None, device=None)": "empty ones zeros",
    "(x, /, *, dtype=None, device=None)": "empty_like ones_like zeros_like",
    "(x, /, *, axis=-1, descending=False, stable=True)": "argsort sort",
    "(arrays, /, *, axis=0)": "concat stack",
    "(x, /, *, axis=None, dtype=None, include_initial=False)": "cumulative_prod cumulative_sum",
    "(type, /)": "finfo iinfo",
    "(x, /, *, axis=None, dtype=None, keepdims=False)": "prod sum",
    "(x, /, *, axis=None, correction=0.0, keepdims=False)": "std var",
    "(x, /, *, k=0)": "tril triu",
    "(start, /, stop=None, step=1, *, dtype=None, device=None)": "arange",
    "(obj, /, *, dtype=None, device=None, copy=None)": "asarray",
    "(x, dtype, /, *, copy=True, device=None)": "astype",
    "(*arrays)": "broadcast_arrays",
    "(x, /, shape)": "broadcast_to",
    "(from_, to, /)": "can_cast",
    "(x, /, min=None, max=None)": "clip",
    "(x, /, *, axis=-1, n=1, prepend=None, append=None)": "diff",
    "(x, /, axis=0)": "expand_dims",
    "(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None)": "eye",
    "(x, /, *, axis=None)": "flip",
    "(x, /, *, device=None, copy=None)": "from_dlpack",
    "(shape, fill_value, *, dtype=None, device=None)": "full",
    "(x, /, fill_value, *, dtype=None, device=None)": "full_like",
    "(dtype, kind)": "isdtype",
    "(start, stop, /, num, *, dtype=None, device=None, endpoint=True)": "linspace",
    "(*arrays, indexing='xy')": "meshgrid",
    "(x, source, destination, /)": "moveaxis",
    "(x, /, axes)": "permute_dims",
    "(x, repeats, /, *, axis=None)": "repeat",
    "(x, /, shape, *, copy=None)": "reshape",
    "(*arrays_and_dtypes)": "result_type",
    "(x, /, shift, *, axis=None)": "roll",
    "(x1, x2, /, *, side='left', sorter=None)": "searchsorted",
    "(x, /, axis)": "squeeze",
    "(x, indices, /, *, axis=None)": "take",
    "(x, indices, /, *, axis=-1)": "take_along_axis",
    "(x1, x2, /, *, axes=2)": "tensordot",
    "(x, repetitions, /)": "tile",
    "(x, /, *, axis=0)": "unstack",
    "(x1, x2, /, *, axis=-1)": "vecdot",
    "(condition, x1, x2, /)": "where",
}
LINALG_SIGNATURES = {
    "(x, /)": "det eigh eigvalsh inv matrix_transpose slogdet svdvals",
    "(x1, x2, /)": "matmul outer solve",
    "(x1, x2, /, *, axis=-1)": "cross vecdot",
    "(x, /, *, rtol=None)": "matrix_rank pinv",
    "(x, /, *, upper=False)": "cholesky",
    "(x, /, *, offset=0)": "diagonal",
    "(x, /, *, keepdims=False, ord='fro')": "matrix_norm",
    "(x, n, /)": "matrix_power",
    "(x, /, *, mode='reduced')": "qr",
    "(x, /, *, full_matrices=True)": "svd",
    "(x1, x2, /, *, axes=2)": "tensordot",
    "(x, /, *, offset=0, dtype=None)": "trace",
    "(x, /, *, axis=None, keepdims=False, ord=2)": "vector_norm",
}
FFT_SIGNATURES = {
    "(x, /, *, n=None, axis=-1, norm='backward')": "fft hfft ifft ihfft irfft rfft",
    "(x, /, *, s=None, axes=None, norm='backward')": "fftn ifftn irfftn rfftn",
    "(n, /, *, d=1.0, dtype=None, device=None)": "fftfreq rfftfreq",
    "(x, /, *, axes=None)": "fftshift ifftshift",
}

OTHER_NAMES = """
    __array_api_version__ __array_namespace_info__ e fft inf linalg nan newaxis pi bool complex128
    complex64 float32 float64 int16 int32 int64 int8 uint8
"""
# What the engine has more, and what it lacks.
MORE_DTYPES = {"bfloat16", "float16"}
LARGE_UNSIGNED = {"uint16", "uint32", "uint64"}


def signature_text(function: Any) -> str:
    """The arguments and their defaults, without annotations."""
    signature = inspect.signature(function)
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=signature.empty))


@pytest.mark.parametrize(
    ("namespace", "signatures", "others"),
    [
        (xp, SIGNATURES, {*OTHER_NAMES.split(), *MORE_DTYPES}),
        (xp.linalg, LINALG_SIGNATURES, set()),
        (xp.fft, FFT_SIGNATURES, set()),
    ],
    ids=["main", "linalg", "fft"],
)
def test_names_and_arguments_are_the_standards(
    namespace: Any, signatures: dict[str, str], others: set[str]
) -> None:
    functions = {name: text for text, names in signatures.items() for name in names.split()}
    assert set(namespace.__all__) == {*functions, *others}
    for name, text in functions.items():
        assert signature_text(getattr(namespace, name)) == text, name


def test_constants() -> None:
    assert (xp.e, xp.pi, xp.inf, xp.newaxis) == (np.e, np.pi, np.inf, None) and xp.nan != xp.nan


def test_inspection() -> None:
    info = xp.__array_namespace_info__()
    # NumPy 2.1 does not state the number of dimensions.
    theirs = {"max dimensions": 64, **np.__array_namespace_info__().capabilities()}
    assert info.capabilities() == theirs
    assert info.devices() == [info.default_device()] == [xp.ones(1).device]
    assert set(info.dtypes()) == set(np.__array_namespace_info__().dtypes()) - LARGE_UNSIGNED
    assert info.dtypes(device="cpu", kind="bool") == {"bool": xp.bool}


def test_array_attributes() -> None:
    x = xp.ones((2, 3))
    assert x.to_device(x.device) is x and x.to_device("cpu") is x
    assert x.T.shape == x.mT.shape == (3, 2) and x.ndim == 2
    with pytest.raises(RuntimeError, match="no device"):
        x.to_device("cuda")
    # `size` is PyTorch's method, not the standard's attribute.
    assert x.size() == (2, 3)


def test_importing_the_namespace_waits_until_it_is_asked_for() -> None:
    assert run("import sys, evergrad; print('evergrad.array_api' in sys.modules)") == "False"


# -- gradients ---------------------------------------------------------------------------------

DIFFERENTIABLE: dict[str, Callable[..., Any]] = {
    "clip": lambda x: xp.clip(x, -1.0, 3.5),
    "cumulative_prod": lambda x: xp.cumulative_prod(x, axis=1, include_initial=True),
    "concat": lambda x: xp.concat([x, x * x], axis=None),
    "astype": lambda x: xp.astype(x, xp.float32) * 2,
    "asarray": lambda x: xp.asarray(x, copy=True) ** 2,
    "prod": lambda x: xp.prod(x, axis=(0, 1)),
    "roll": lambda x: xp.roll(x, 1, axis=(0, 1)) * x,
    "sign": lambda x: xp.sign(x) * x,
    "sort": lambda x: xp.sort(x, axis=1) * xp.arange(3),
    "std": lambda x: xp.std(x, axis=1, correction=1),
    "take": lambda x: xp.take(x, xp.asarray([0, -1]), axis=1) * x[:, :2],
    "vecdot": lambda x: xp.vecdot(x, xp.flip(x)),
    "svdvals": lambda x: xp.linalg.svdvals(x),
    "fft": lambda x: xp.abs(xp.fft.rfft(x)),
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_flow(name: str) -> None:
    """Against central differences through the same namespace."""
    call = DIFFERENTIABLE[name]
    x = eg.tensor(FINITE, requires_grad=True)
    xp.sum(call(x)).backward()
    slopes, step = np.zeros_like(FINITE), 1e-6 if name != "astype" else 0.25
    for at in np.ndindex(FINITE.shape):
        ends = []
        for sign in (1, -1):
            moved = FINITE.copy()
            moved[at] += sign * step
            ends.append(float(xp.sum(call(eg.tensor(moved)))))
        slopes[at] = (ends[0] - ends[1]) / (2 * step)
    np.testing.assert_allclose(x.grad.numpy(), slopes, rtol=1e-5, atol=1e-5)


# -- libraries ----------------------------------------------------------------------------------


def run(program: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, env={**os.environ, **variables},
    )  # fmt: skip
    assert not done.returncode, done.stderr
    return done.stdout.strip()


def test_array_api_compat_finds_the_namespace() -> None:
    compat = pytest.importorskip("array_api_compat", reason="array-api-compat is not installed")
    x = eg.ones((2, 3))
    assert compat.is_array_api_obj(x) and compat.array_namespace(x, x, 1.0) is xp
    assert compat.size(x) == 6 and compat.device(x) == "cpu"
    assert compat.to_device(x, "cpu") is x
    with pytest.raises(TypeError, match="Multiple namespaces"):
        compat.array_namespace(x, np.ones(2))


# Read by a process of its own, because SciPy decides when it is imported.
COMPARE = """
import sys
import numpy as np
import evergrad as eg

rows = np.random.default_rng(0).normal(size=(6, 4))
labels = (rows[:, 0] > 0).astype(int)


def compare(call, found, expected):
    assert isinstance(found, eg.Tensor), call
    np.testing.assert_allclose(found.detach().numpy(), expected, err_msg=call, atol=1e-10)


def slope(function, direction):
    ends = [float(function(eg.tensor(rows + step * direction)).sum()) for step in (1e-6, -1e-6)]
    return (ends[0] - ends[1]) / 2e-6
"""

SCIPY = """
import scipy.cluster.vq, scipy.differentiate, scipy.fft, scipy.integrate, scipy.ndimage
import scipy.optimize, scipy.signal, scipy.special, scipy.stats
from scipy import cluster, differentiate, fft, integrate, ndimage, optimize, signal, special, stats

for call in CALLS:
    function = eval(f"lambda x: {call}")
    compare(call, function(eg.tensor(rows)), function(rows))
for call in DIFFERENTIABLE:
    function = eval(f"lambda x: abs({call})")
    x = eg.tensor(rows, requires_grad=True)
    function(x).sum().backward()
    direction = np.cos(np.arange(24.0)).reshape(6, 4)
    expected = slope(function, direction)
    np.testing.assert_allclose((x.grad.numpy() * direction).sum(), expected, 1e-5, err_msg=call)
print("done")
"""

SCIPY_DIFFERENTIABLE = [
    "special.logsumexp(x, axis=1)",
    "special.softmax(x, axis=1)[:, 0]",
    "special.xlogy(x * x, x * x)",
    "stats.skew(x, axis=0)",
    "stats.gmean(x * x, axis=0)",
    "stats.circmean(x, axis=0)",
    "fft.rfft(x)",
    "integrate.trapezoid(x)",
    "integrate.cumulative_simpson(x)",
    "signal.fftconvolve(x, x)",
    "signal.hilbert(x)",
    "optimize.rosen(x)",
    "differentiate.derivative(lambda t: t**3, x).df",
]
SCIPY_CALLS = [
    *SCIPY_DIFFERENTIABLE,
    "special.expit(x)",
    "stats.zmap(x, x, axis=0)",
    "stats.ttest_1samp(x, 0.0, axis=0).pvalue",
    "stats.quantile(x, 0.3, axis=0)",
    "cluster.vq.whiten(x)",
    "fft.dct(x)",
    "ndimage.gaussian_filter(x, 1.0)",
]


def test_scipy_takes_tensors() -> None:
    pytest.importorskip("scipy", reason="SciPy is not installed")
    tables = f"CALLS = {SCIPY_CALLS}\nDIFFERENTIABLE = {SCIPY_DIFFERENTIABLE}\n"
    assert run(COMPARE + tables + SCIPY, SCIPY_ARRAY_API="1") == "done"


SKLEARN = """
import sklearn
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, pairwise_distances, r2_score
from sklearn.preprocessing import MinMaxScaler, StandardScaler

for call in CALLS:
    function = eval(f"lambda x, y: {call}")
    with sklearn.config_context(array_api_dispatch=True):
        found = function(eg.tensor(rows), eg.tensor(labels))
    compare(call, found, function(rows, labels))
with sklearn.config_context(array_api_dispatch=True):
    assert accuracy_score(eg.tensor(labels), eg.tensor(labels)) == 1.0
    assert r2_score(eg.tensor(rows), eg.tensor(rows)) == 1.0
print("done")
"""

SKLEARN_CALLS = [
    "PCA(2, svd_solver='full').fit_transform(x)",
    "StandardScaler().fit_transform(x)",
    "MinMaxScaler().fit_transform(x)",
    "LinearDiscriminantAnalysis().fit(x, y).predict_proba(x)",
    "LogisticRegression().fit(x, y).predict(x)",
    "Ridge(solver='svd').fit(x, x[:, 1]).coef_",
    "pairwise_distances(x)",
]


def test_scikit_learn_takes_tensors() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    tables = f"CALLS = {SKLEARN_CALLS}\n"
    assert run(COMPARE + tables + SKLEARN, SCIPY_ARRAY_API="1") == "done"
