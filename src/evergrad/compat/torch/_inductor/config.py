"""Settings of PyTorch's code generator, without effect here."""

from __future__ import annotations

from types import SimpleNamespace

coordinate_descent_tuning = False
coordinate_descent_check_all_directions = False
epilogue_fusion = True
max_autotune = False
max_autotune_gemm_backends = "ATEN,TRITON,CPP"
fx_graph_cache = True
freezing = False
force_fuse_int_mm_with_mul = False
use_mixed_mm = True
compile_threads = 1
triton = SimpleNamespace(cudagraphs=False, unique_kernel_names=True)
cpp = SimpleNamespace(threads=-1)
