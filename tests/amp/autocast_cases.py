"""Calls whose precision autocast decides, and calls that it must leave alone.

A case is a function of a namespace and tensors, with the shapes of those tensors; ``"spd"`` stands
for a symmetric positive-definite matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Case = tuple[Callable[..., Any], tuple[Any, ...]]

M, V, B3 = (4, 4), (4,), (2, 4, 4)
SEQ, IMG, VOL = (1, 2, 8), (1, 2, 8, 8), (1, 2, 4, 4, 4)


def functional(name: str, *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """A function of nn.functional, with further arguments after the tensors."""
    return lambda ns, *ts: getattr(ns.nn.functional, name)(*ts, *args, **kwargs)


def top(name: str, *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """A function of the package itself."""
    return lambda ns, *ts: getattr(ns, name)(*ts, *args, **kwargs)


def linalg(name: str) -> Callable[..., Any]:
    return lambda ns, *ts: getattr(ns.linalg, name)(*ts)


def classes(ns: Any, *shape: int) -> Any:
    return ns.zeros(shape or (4,), dtype=ns.int64)


LOWER: dict[str, Case] = {
    "matmul": (top("matmul"), (M, M)),
    "operator": (lambda ns, a, b: a @ b, (M, M)),
    "method": (lambda ns, a, b: a.matmul(b), (M, M)),
    "vectors": (top("matmul"), (V, V)),
    "matrix and vector": (top("matmul"), (M, V)),
    "stack of matrices": (top("matmul"), (B3, M)),
    "mm": (top("mm"), (M, M)),
    "bmm": (top("bmm"), (B3, B3)),
    "addmm": (top("addmm"), (M, M, M)),
    "addbmm": (top("addbmm"), (M, B3, B3)),
    "baddbmm": (top("baddbmm"), (B3, B3, B3)),
    "vecdot": (linalg("vecdot"), (M, M)),
    "linalg.matmul": (linalg("matmul"), (M, M)),
    "einsum": (lambda ns, a, b: ns.einsum("ij,jk->ik", a, b), (M, M)),
    "linear": (functional("linear"), (M, M)),
    "linear with bias": (functional("linear"), (M, M, V)),
    "prelu": (functional("prelu"), (M, V)),
    "conv1d": (functional("conv1d"), (SEQ, (3, 2, 3))),
    "conv2d": (functional("conv2d"), (IMG, (3, 2, 3, 3), (3,))),
    "conv3d": (functional("conv3d"), (VOL, (3, 2, 2, 2, 2))),
    "conv_transpose1d": (functional("conv_transpose1d"), (SEQ, (2, 3, 3))),
    "conv_transpose2d": (functional("conv_transpose2d"), (IMG, (2, 3, 3, 3), (3,))),
    "conv_transpose3d": (functional("conv_transpose3d"), (VOL, (2, 3, 2, 2, 2))),
    "attention": (functional("scaled_dot_product_attention"), (B3, B3, B3)),
    "matrix_power": (lambda ns, a: ns.linalg.matrix_power(a, 2), (M,)),
    "affine_grid": (functional("affine_grid", (1, 1, 3, 3), align_corners=False), ((1, 2, 3),)),
}

FLOAT32: dict[str, Case] = {
    "mse_loss": (functional("mse_loss"), (M, M)),
    "l1_loss": (functional("l1_loss"), (M, M)),
    "smooth_l1_loss": (functional("smooth_l1_loss"), (M, M)),
    "huber_loss": (functional("huber_loss"), (M, M)),
    "nll_loss": (lambda ns, a: ns.nn.functional.nll_loss(a, classes(ns)), (M,)),
    "cross_entropy": (lambda ns, a: ns.nn.functional.cross_entropy(a, classes(ns)), (M,)),
    "cross_entropy of shares": (functional("cross_entropy"), (M, M)),
    "kl_div": (functional("kl_div", reduction="sum"), (M, M)),
    "binary_cross_entropy": (functional("binary_cross_entropy"), (M, M)),
    "with_logits": (functional("binary_cross_entropy_with_logits"), (M, M)),
    "hinge_embedding_loss": (functional("hinge_embedding_loss"), (M, M)),
    "poisson_nll_loss": (functional("poisson_nll_loss"), (M, M)),
    "cosine_embedding_loss": (
        lambda ns, a, b: ns.nn.functional.cosine_embedding_loss(a, b, ns.ones(4)), (M, M)),
    "margin_ranking_loss": (
        lambda ns, a, b: ns.nn.functional.margin_ranking_loss(a, b, ns.ones(4)), (V, V)),
    "soft_margin_loss": (functional("soft_margin_loss"), (M, M)),
    "triplet_margin_loss": (functional("triplet_margin_loss"), (M, M, M)),
    "multi_margin_loss": (lambda ns, a: ns.nn.functional.multi_margin_loss(a, classes(ns)), (M,)),
    "multilabel_margin_loss": (
        lambda ns, a: ns.nn.functional.multilabel_margin_loss(a, classes(ns, 4, 4)), (M,)),
    "ctc_loss": (
        lambda ns, a: ns.nn.functional.ctc_loss(
            a, ns.ones(1, 2, dtype=ns.int64), ns.tensor([4]), ns.tensor([2])), ((4, 1, 4),)),
    "prod": (top("prod"), (M,)),
    "prod over a dimension": (lambda ns, a: a.prod(0), (M,)),
    "trace": (top("trace"), (M,)),
    "quantile": (top("quantile", 0.5), (M,)),
    "cdist": (top("cdist"), (M, M)),
    "polar": (top("polar"), (M, M)),
    "view_as_complex": (top("view_as_complex"), ((4, 2),)),
    "local_response_norm": (functional("local_response_norm", 2), (IMG,)),
    "avg_pool3d": (functional("avg_pool3d", 2), (VOL,)),
    "max_pool3d": (functional("max_pool3d", 2), (VOL,)),
    "adaptive_avg_pool3d": (functional("adaptive_avg_pool3d", 2), (VOL,)),
    "adaptive_max_pool3d": (functional("adaptive_max_pool3d", 2), (VOL,)),
    "fractional_max_pool2d": (functional("fractional_max_pool2d", 2, output_size=3), (IMG,)),
    "grid_sample": (functional("grid_sample", align_corners=False), (IMG, (1, 3, 3, 2))),
    "fft": (lambda ns, a: ns.fft.fft(a), (V,)),
    "rfft": (lambda ns, a: ns.fft.rfft(a), (V,)),
    "irfft": (lambda ns, a: ns.fft.irfft(a), (V,)),
    "inverse": (top("inverse"), ("spd",)),
    "cholesky": (linalg("cholesky"), ("spd",)),
    "solve": (linalg("solve"), ("spd", M)),
    "svdvals": (linalg("svdvals"), ("spd",)),
    "eigvalsh": (linalg("eigvalsh"), ("spd",)),
    "qr": (lambda ns, a: ns.linalg.qr(a)[1].abs(), ("spd",)),
}  # fmt: skip

ALONE: dict[str, Case] = {
    "mv": (top("mv"), (M, V)),
    "dot": (top("dot"), (V, V)),
    "outer": (top("outer"), (V, V)),
    "addmv": (top("addmv"), (V, M, V)),
    "bilinear": (functional("bilinear"), (M, M, (3, 4, 4))),
    "addmm in place": (lambda ns, a, b, c: a.clone().addmm_(b, c), (M, M, M)),
    "addmv in place": (lambda ns, a, b, c: a.clone().addmv_(b, c), (V, M, V)),
    "addbmm in place": (lambda ns, a, b, c: a.clone().addbmm_(b, c), (M, B3, B3)),
    "baddbmm in place": (lambda ns, a, b, c: a.clone().baddbmm_(b, c), (B3, B3, B3)),
    "mm to out": (lambda ns, a, b: ns.mm(a, b, out=ns.empty(0, dtype=a.dtype)), (M, M)),
    "bmm to out": (lambda ns, a, b: ns.bmm(a, b, out=ns.empty(0, dtype=a.dtype)), (B3, B3)),
    "matmul to out": (lambda ns, a, b: ns.matmul(a, b, out=ns.empty(0, dtype=a.dtype)), (M, M)),
    "elementwise einsum": (lambda ns, a, b: ns.einsum("ij,ij->ij", a, b), (M, M)),
    "softmax": (functional("softmax", -1), (M,)),
    "layer_norm": (lambda ns, a, w: ns.nn.functional.layer_norm(a, (4,), w, w), (M, V)),
    "group_norm": (lambda ns, a, w: ns.nn.functional.group_norm(a, 2, w, w), (IMG, (2,))),
    "exp": (top("exp"), (M,)),
    "sum": (top("sum"), (M,)),
    "mean": (top("mean"), (M,)),
    "norm": (top("norm"), (M,)),
    "gelu": (functional("gelu"), (M,)),
    "add": (top("add"), (M, M)),
    "cat": (lambda ns, a, b: ns.cat([a, b]), (M, M)),
    "stack": (lambda ns, a, b: ns.stack([a, b]), (M, M)),
    "avg_pool2d": (functional("avg_pool2d", 2), (IMG,)),
    "max_pool2d": (functional("max_pool2d", 2), (IMG,)),
    "cosine_similarity": (functional("cosine_similarity"), (M, M)),
    "index_copy": (lambda ns, a, b: ns.index_copy(a, 0, ns.arange(4), b), (M, M)),
    "embedding": (lambda ns, w: ns.nn.functional.embedding(ns.arange(4), w), (M,)),
}

CASES = {**LOWER, **FLOAT32, **ALONE}
assert len(CASES) == len(LOWER) + len(FLOAT32) + len(ALONE), "a name stands for two cases"
