"""Settings of PyTorch's tracer, without effect here."""

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
