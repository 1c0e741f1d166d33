"""opt_einsum can work with other libraries; evergrad asks it for orders of contraction alone."""

excludedimports = ["autograd", "cupy", "dask", "jax", "sparse", "tensorflow", "theano", "torch"]
