"""Functions that make tensors from sizes, numbers and data."""

_OPTIONS = """
    dtype: element type; the default type of floats if not given
    device: only the CPU
    requires_grad: whether ``backward`` accumulates a gradient for it
"""

DOCS = {
    "tensor": """A tensor of its own memory from numbers, nested lists, arrays or tensors.

Args:
    data: numbers; the element type follows from them (floats give the default type, float32)
    dtype: element type
    device: only the CPU
    requires_grad: whether ``backward`` accumulates a gradient for it
    pin_memory: accepted, has no effect

The data is always copied; :func:`as_tensor` and :func:`from_numpy` share memory.

>>> eg.tensor([[1, 2], [3, 4]])
tensor([[1, 2],
        [3, 4]])
>>> eg.tensor([1.0, 2.5], dtype=eg.float64)
tensor([1.0000, 2.5000], dtype=evergrad.float64)
""",
    "as_tensor": """\
A tensor on the memory of ``data`` if it is an array or tensor of the right type,
else a copy.

>>> x = eg.tensor([1.0, 2.0])
>>> eg.as_tensor(x) is x
True
""",
    "asarray": """A tensor from any object: tensors, arrays, DLPack, buffers, numbers.

Args:
    obj: the object
    dtype: element type
    device: only the CPU
    copy: ``True`` copies always, ``False`` never (an error if needed), ``None`` if needed
    requires_grad: whether ``backward`` accumulates a gradient for it

>>> eg.asarray([1, 2, 3])
tensor([1, 2, 3])
""",
    "from_numpy": """A tensor on the memory of a NumPy array: a change of one is seen in the other.

>>> array = np.zeros(2)
>>> x = eg.from_numpy(array)
>>> array[0] = 5
>>> x
tensor([5., 0.], dtype=evergrad.float64)
""",
    "from_dlpack": """A tensor that shares the memory of any DLPack object on the CPU.

>>> eg.from_dlpack(np.arange(3))
tensor([0, 1, 2])
""",
    "frombuffer": """A one-dimensional tensor on the memory of a Python buffer.

>>> eg.frombuffer(bytearray([1, 2, 3]), dtype=eg.uint8)
tensor([1, 2, 3], dtype=evergrad.uint8)
""",
    "zeros": """A tensor of zeros.

Args:
    size: numbers, or one sequence of them
"""
    + _OPTIONS
    + """
>>> eg.zeros(2, 3)
tensor([[0., 0., 0.],
        [0., 0., 0.]])
""",
    "ones": """A tensor of ones.

Args:
    size: numbers, or one sequence of them
"""
    + _OPTIONS
    + """
>>> eg.ones(2, dtype=eg.int64)
tensor([1, 1])
""",
    "empty": """A tensor whose elements are not set: whatever the memory holds.

Args:
    size: numbers, or one sequence of them
"""
    + _OPTIONS
    + """    memory_format: order of the dimensions in memory

>>> eg.empty(2, 3).shape
evergrad.Size([2, 3])
""",
    "full": """A tensor of one number.

Args:
    size: sizes, a sequence
    fill_value: the number; the element type follows from it
"""
    + _OPTIONS
    + """
>>> eg.full((2, 2), 7)
tensor([[7, 7],
        [7, 7]])
""",
    "zeros_like": """Zeros of the shape and type of another tensor.

>>> eg.zeros_like(eg.tensor([1, 2]))
tensor([0, 0])
""",
    "ones_like": """Ones of the shape and type of another tensor.

>>> eg.ones_like(eg.tensor([1, 2]))
tensor([1, 1])
""",
    "empty_like": """A tensor of the shape and type of another, elements not set.

>>> eg.empty_like(eg.ones(2, 3)).shape
evergrad.Size([2, 3])
""",
    "full_like": """One number in the shape and type of another tensor.

>>> eg.full_like(eg.tensor([1.0, 2.0]), 7)
tensor([7., 7.])
""",
    "empty_strided": """A tensor of given sizes and strides, elements not set.

>>> eg.empty_strided((2, 3), (1, 2)).stride()
(1, 2)
""",
    "scalar_tensor": """A tensor without dimensions.

>>> eg.scalar_tensor(2.5)
tensor(2.5000)
""",
    "arange": """Numbers from ``start`` up to, not including, ``end``.

Args:
    start: first number; with one argument it is the end and the start is 0
    end: where to stop
    step: distance, may be negative
"""
    + _OPTIONS
    + """
Integers give int64.

>>> eg.arange(5)
tensor([0, 1, 2, 3, 4])
>>> eg.arange(1, 2, 0.25)
tensor([1.0000, 1.2500, 1.5000, 1.7500])
""",
    "range": """Numbers from ``start`` up to and including ``end``; :func:`arange` is preferred.

>>> eg.arange(1, 4)
tensor([1, 2, 3])
""",
    "linspace": """``steps`` numbers at equal distances, both ends included.

>>> eg.linspace(0, 1, 5)
tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000])
""",
    "logspace": """``steps`` numbers from ``base ** start`` to ``base ** end``, at equal ratios.

>>> eg.logspace(0, 2, 3, base=2)
tensor([1., 2., 4.])
""",
    "eye": """The identity matrix: ones on the diagonal of ``n`` rows and ``m`` columns.

>>> eg.eye(2)
tensor([[1., 0.],
        [0., 1.]])
""",
    "complex": """A complex tensor from real and imaginary parts.

>>> eg.complex(eg.tensor([1.0]), eg.tensor([2.0]))
tensor([1.+2.j])
""",
    "polar": """A complex tensor from absolute values and angles.

>>> eg.polar(eg.tensor([2.0]), eg.tensor([0.0]))
tensor([2.+0.j])
""",
    "vander": """Powers of a vector as columns, the highest first unless ``increasing``.

>>> eg.vander(eg.tensor([1, 2, 3]))
tensor([[1, 1, 1],
        [4, 2, 1],
        [9, 3, 1]])
""",
    "hann_window": """The Hann window ``0.5 - 0.5 cos(2 pi n / N)`` of signal processing.

Args:
    window_length: length of the window
    periodic: whether ``N`` is the length, for spectra, or one less, symmetric, for filters
    dtype: element type, floating point

>>> eg.hann_window(4)
tensor([0.0000, 0.5000, 1.0000, 0.5000])
""",
    "hamming_window": """The window ``alpha - beta cos(2 pi n / N)`` of signal processing.

>>> eg.hamming_window(4)
tensor([0.0800, 0.5400, 1.0000, 0.5400])
""",
    "blackman_window": """The window ``0.42 - 0.5 cos(2 pi n / N) + 0.08 cos(4 pi n / N)``.

>>> eg.blackman_window(5, periodic=False).shape
evergrad.Size([5])
""",
    "bartlett_window": """A triangle from 0 up to 1 and back.

>>> eg.bartlett_window(5, periodic=False)
tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
""",
    "kaiser_window": """The window ``i0(beta sqrt(1 - (2 n / N - 1)^2)) / i0(beta)``.

>>> eg.kaiser_window(4)
tensor([5.2773e-05, 2.1567e-01, 1.0000e+00, 2.1567e-01])
""",
    "is_tensor": """Whether an object is a tensor.

>>> eg.is_tensor(1.0)
False
""",
    "numel": """The number of elements.

>>> eg.numel(eg.zeros(2, 3))
6
""",
    "result_type": """The element type that arithmetic of two operands gives.

>>> eg.result_type(eg.tensor([1]), 1.0)
evergrad.float32
""",
    "set_default_dtype": """Set the element type that floats get: float32 at the start.

>>> eg.set_default_dtype(eg.float32)
""",
    "is_floating_point": """Whether the element type is floating point.

>>> eg.is_floating_point(eg.ones(1))
True
""",
    "is_complex": """Whether the element type is complex.

>>> eg.is_complex(eg.ones(1))
False
""",
    "unravel_index": """Places in the flattened tensor as one index for each dimension.

>>> eg.unravel_index(eg.tensor([5]), (2, 3))
(tensor([1]), tensor([2]))
""",
}
