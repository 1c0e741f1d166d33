"""Activations, and attention, which PyTorch keeps beside them."""

from evergrad.nn import activation as _layers
from evergrad.nn.multihead import MultiheadAttention as MultiheadAttention

globals().update({name: value for name, value in vars(_layers).items() if isinstance(value, type)})
