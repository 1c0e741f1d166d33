"""Special functions: ``evergrad.special``, as ``torch.special`` has them.

This module only gathers what modules of ``evergrad.ops`` define.
"""

from evergrad.lazy import known_names as _known_names
from evergrad.ops.rows.special.functions import SPECIAL as _SPECIAL
from evergrad.ops.surface.public import FUNCTIONS as _FUNCTIONS

__getattr__ = _known_names(__name__)

_SAME_NAME = (
    "digamma", "erf", "erfc", "erfinv", "exp2", "expm1", "i0", "log1p", "log_softmax", "logit",
    "logsumexp", "polygamma", "round", "sinc", "softmax", "xlogy",
)  # fmt: skip
_OTHER_NAME = {
    "expit": "sigmoid",
    "gammainc": "igamma",
    "gammaincc": "igammac",
    "gammaln": "lgamma",
    "multigammaln": "mvlgamma",
    "psi": "digamma",
}

globals().update(_SPECIAL)
globals().update({name: _FUNCTIONS[name] for name in _SAME_NAME})
globals().update({name: _FUNCTIONS[there] for name, there in _OTHER_NAME.items()})

__all__ = sorted([*_SPECIAL, *_SAME_NAME, *_OTHER_NAME])
