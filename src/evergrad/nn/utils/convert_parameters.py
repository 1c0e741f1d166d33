"""Parameters as one vector, under PyTorch's module path."""

from evergrad.nn.utils.vector import parameters_to_vector, vector_to_parameters

__all__ = ["parameters_to_vector", "vector_to_parameters"]
