"""Settings of PyTorch's tracer, without effect here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

suppress_errors = False
verbose = False
cache_size_limit = 8
recompile_limit = 8
accumulated_cache_size_limit = 256
optimize_ddp = True
capture_scalar_outputs = False
automatic_dynamic_shapes = True
assume_static_by_default = True
compiled_autograd = False
skip_fwd_side_effects_in_bwd_under_checkpoint = False
inline_inbuilt_nn_modules = True
allow_unspec_int_on_nn_module = False
force_parameter_static_shapes = True


@contextmanager
def patch(*args: object, **settings: object) -> Iterator[None]:
    """Settings for the time of a block."""
    settings = {**(args[0] if args and isinstance(args[0], dict) else {}), **settings}
    former = {name: globals().get(name) for name in settings}
    globals().update(settings)
    try:
        yield
    finally:
        globals().update(former)
