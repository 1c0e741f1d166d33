"""Divergences of distributions: ``kl_divergence`` for all pairs that are registered."""

from evergrad.distributions import kl_cross_family, kl_same_family  # noqa: F401 - register pairs
from evergrad.distributions.kl_registry import _KL_REGISTRY as _KL_REGISTRY
from evergrad.distributions.kl_registry import kl_divergence, register_kl

__all__ = ["kl_divergence", "register_kl"]
