"""Gradients by hand: ``backward``, ``grad``, modes, custom functions, checks."""

from typing import TYPE_CHECKING

from evergrad.autograd import functional, graph
from evergrad.autograd.audit import Audit, audit
from evergrad.autograd.engine import backward, grad
from evergrad.autograd.function import Function, FunctionCtx, once_differentiable
from evergrad.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from evergrad.autograd.modes import (
    detect_anomaly,
    enable_grad,
    inference_mode,
    is_anomaly_enabled,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_detect_anomaly,
    set_grad_enabled,
    set_multithreading_enabled,
)
from evergrad.core.tensor import Tensor as Variable
from evergrad.lazy import lazy_modules

__all__ = [
    "Audit",
    "Function",
    "FunctionCtx",
    "GradcheckError",
    "Variable",
    "audit",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "functional",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "is_anomaly_enabled",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "once_differentiable",
    "set_detect_anomaly",
    "set_grad_enabled",
    "set_multithreading_enabled",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_modules(__name__, "forward_ad", "grad_mode", "profiler", "variable")
