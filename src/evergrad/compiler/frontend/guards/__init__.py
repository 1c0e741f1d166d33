"""Guards: the state outside of a graph on which its program depends."""
