"""Named results of functions that return several tensors, as ``torch.return_types`` has them."""

from __future__ import annotations

from collections import namedtuple

from evergrad.core.package_name import package_name


def _show(self: object) -> str:
    lines = ",\n".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
    return f"{package_name()}.return_types.{type(self).__name__}(\n{lines})"


def _result(name: str, fields: str) -> object:
    kind = namedtuple(name, fields, module=__name__)  # type: ignore[misc]
    kind.__repr__ = _show  # type: ignore[method-assign]
    return kind


max = _result("max", "values indices")
min = _result("min", "values indices")
aminmax = _result("aminmax", "min max")
median = _result("median", "values indices")
nanmedian = _result("nanmedian", "values indices")
mode = _result("mode", "values indices")
kthvalue = _result("kthvalue", "values indices")
sort = _result("sort", "values indices")
topk = _result("topk", "values indices")
cummax = _result("cummax", "values indices")
cummin = _result("cummin", "values indices")
qr = _result("qr", "Q R")
svd = _result("svd", "U S V")
slogdet = _result("slogdet", "sign logabsdet")
lu_unpack = _result("lu_unpack", "P L U")
frexp = _result("frexp", "mantissa exponent")
histogram = _result("histogram", "hist bin_edges")
histogramdd = _result("histogramdd", "hist bin_edges")
geqrf = _result("geqrf", "a tau")
triangular_solve = _result("triangular_solve", "solution cloned_coefficient")
linalg_cholesky_ex = _result("linalg_cholesky_ex", "L info")
linalg_eig = _result("linalg_eig", "eigenvalues eigenvectors")
linalg_eigh = _result("linalg_eigh", "eigenvalues eigenvectors")
linalg_inv_ex = _result("linalg_inv_ex", "inverse info")
linalg_ldl_factor = _result("linalg_ldl_factor", "LD pivots")
linalg_ldl_factor_ex = _result("linalg_ldl_factor_ex", "LD pivots info")
linalg_lstsq = _result("linalg_lstsq", "solution residuals rank singular_values")
linalg_lu = _result("linalg_lu", "P L U")
linalg_lu_factor = _result("linalg_lu_factor", "LU pivots")
linalg_lu_factor_ex = _result("linalg_lu_factor_ex", "LU pivots info")
linalg_qr = _result("linalg_qr", "Q R")
linalg_slogdet = _result("linalg_slogdet", "sign logabsdet")
linalg_solve_ex = _result("linalg_solve_ex", "result info")
linalg_svd = _result("linalg_svd", "U S Vh")
