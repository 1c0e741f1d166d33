"""``evergrad.fft`` and the short-time Fourier transform; ``evergrad.special``."""

_ARGUMENTS = """
    n: length; the signal is cut or filled with zeros to it
    dim: dimension, the last by default
    norm: ``"backward"`` (the inverse divides by n), ``"forward"`` or ``"ortho"`` (both by sqrt(n))
"""

DOCS = {
    "fft.fft": """The discrete Fourier transform ``X_k = sum_j x_j exp(-2 pi i j k / n)``.

Args:
    input: real or complex tensor
"""
    + _ARGUMENTS
    + """
>>> eg.fft.fft(eg.tensor([1.0, 0.0, 0.0, 0.0])).abs()
tensor([1., 1., 1., 1.])
""",
    "fft.ifft": """The inverse of :func:`fft`.

Args:
    input: real or complex tensor
"""
    + _ARGUMENTS
    + """
>>> eg.fft.ifft(eg.fft.fft(eg.tensor([1.0, 2.0]))).real
tensor([1., 2.])
""",
    "fft.rfft": """\
The transform of a real signal: the ``n // 2 + 1`` frequencies that are not mirrored.

Args:
    input: real tensor
"""
    + _ARGUMENTS
    + """
>>> eg.fft.rfft(eg.tensor([1.0, 1.0, 1.0, 1.0]))
tensor([4.+0.j, 0.+0.j, 0.+0.j])
""",
    "fft.irfft": """The inverse of :func:`rfft`: a real signal of length ``n``.

Args:
    input: complex tensor
"""
    + _ARGUMENTS
    + """
>>> eg.fft.irfft(eg.fft.rfft(eg.tensor([1.0, 2.0, 3.0, 4.0])), n=4).shape
evergrad.Size([4])
""",
    "fft.fft2": """:func:`fft` along two dimensions, the last ones by default.

>>> eg.fft.fft2(eg.ones(2, 2))
tensor([[4.+0.j, 0.+0.j],
        [0.+0.j, 0.+0.j]])
""",
    "fft.fftn": """:func:`fft` along several dimensions, all of them by default.

>>> eg.fft.fftn(eg.ones(2, 2)).shape
evergrad.Size([2, 2])
""",
    "fft.hfft2": """``hfftn`` along two dimensions, the last if not given.

Args:
    input: the signal; any dimensions
    s: extents to cut or pad to; default its own
    dim: the two dimensions; default the last
    norm: ``"backward"`` (default) scales the inverse by 1 / n, ``"ortho"`` both by 1 / sqrt(n),
        ``"forward"`` the transform
    out: where to write the result

>>> x = eg.tensor([[1.0, 2.0], [3.0, 4.0]])
>>> eg.fft.hfft2(x)
tensor([[10., -2.],
        [-4.,  0.]])
""",
    "fft.ihfft2": """``ihfftn`` along two dimensions, the last if not given.

Args:
    input: the signal; any dimensions
    s: extents to cut or pad to; default its own
    dim: the two dimensions; default the last
    norm: ``"backward"`` (default) scales the inverse by 1 / n, ``"ortho"`` both by 1 / sqrt(n),
        ``"forward"`` the transform
    out: where to write the result

>>> x = eg.tensor([[1.0, 2.0], [3.0, 4.0]])
>>> eg.fft.ihfft2(x).real
tensor([[ 2.5000, -0.5000],
        [-1.0000,  0.0000]])
""",
    "fft.ifft2": """``ifftn`` along two dimensions, the last if not given.

Args:
    input: the signal; any dimensions
    s: extents to cut or pad to; default its own
    dim: the two dimensions; default the last
    norm: ``"backward"`` (default) scales the inverse by 1 / n, ``"ortho"`` both by 1 / sqrt(n),
        ``"forward"`` the transform
    out: where to write the result

>>> x = eg.tensor([[1.0, 2.0], [3.0, 4.0]])
>>> eg.allclose(eg.fft.ifft2(eg.fft.fft2(x)).real, x)
True
""",
    "fft.rfft2": """``rfftn`` along two dimensions, the last if not given.

Args:
    input: the signal; any dimensions
    s: extents to cut or pad to; default its own
    dim: the two dimensions; default the last
    norm: ``"backward"`` (default) scales the inverse by 1 / n, ``"ortho"`` both by 1 / sqrt(n),
        ``"forward"`` the transform
    out: where to write the result

>>> x = eg.tensor([[1.0, 2.0], [3.0, 4.0]])
>>> eg.fft.rfft2(x)
tensor([[10.+0.j, -2.+0.j],
        [-4.+0.j,  0.+0.j]])
""",
    "fft.irfft2": """``irfftn`` along two dimensions, the last if not given.

Args:
    input: the signal; any dimensions
    s: extents to cut or pad to; default its own
    dim: the two dimensions; default the last
    norm: ``"backward"`` (default) scales the inverse by 1 / n, ``"ortho"`` both by 1 / sqrt(n),
        ``"forward"`` the transform
    out: where to write the result

>>> x = eg.tensor([[1.0, 2.0], [3.0, 4.0]])
>>> eg.allclose(eg.fft.irfft2(eg.fft.rfft2(x), s=(2, 2)), x)
True
""",
    "fft.fftfreq": """The frequencies of :func:`fft` of ``n`` samples, ``d`` apart.

>>> eg.fft.fftfreq(4)
tensor([ 0.0000,  0.2500, -0.5000, -0.2500])
""",
    "fft.rfftfreq": """The frequencies of :func:`rfft` of ``n`` samples, ``d`` apart.

>>> eg.fft.rfftfreq(4)
tensor([0.0000, 0.2500, 0.5000])
""",
    "fft.fftshift": """The spectrum with frequency zero in the middle.

>>> eg.fft.fftshift(eg.fft.fftfreq(4))
tensor([-0.5000, -0.2500,  0.0000,  0.2500])
""",
    "stft": """The short-time Fourier transform: spectra of overlapping windows.

Args:
    input: (T) or (B, T)
    n_fft: length of each transform
    hop_length: samples between windows, ``n_fft // 4`` by default
    win_length: length of the window, ``n_fft`` by default
    window: its values, ones by default
    center: whether the signal is padded so that window ``t`` is centred at ``t * hop_length``
    pad_mode: how it is padded
    normalized: whether to divide by the root of ``n_fft``
    onesided: whether mirrored frequencies are left off; true for real signals by default
    return_complex: must be true for real signals

Returns (B, frequencies, windows), complex.

>>> eg.stft(eg.zeros(64), 16, window=eg.ones(16), return_complex=True).shape
evergrad.Size([9, 17])
""",
    "istft": """The inverse of :func:`stft`: the signal by overlapping and adding.

>>> spectrum = eg.stft(eg.ones(64), 16, window=eg.ones(16), return_complex=True)
>>> eg.istft(spectrum, 16, window=eg.ones(16)).shape
evergrad.Size([64])
""",
    "special.entr": """``-x log(x)``, 0 at zero, minus infinity below.

>>> eg.special.entr(eg.tensor([0.0, 0.5]))
tensor([0.0000, 0.3466])
""",
    "special.ndtr": """The probability that a standard normal number is at most x.

>>> eg.special.ndtr(eg.tensor([0.0, 1.0]))
tensor([0.5000, 0.8413])
""",
    "special.ndtri": """The inverse of :func:`ndtr`.

>>> eg.special.ndtri(eg.tensor([0.5, 0.9]))
tensor([0.0000, 1.2816])
""",
    "special.log_ndtr": """The logarithm of :func:`ndtr`, exact far below zero.

>>> eg.special.log_ndtr(eg.tensor([-10.0]))
tensor([-53.2313])
""",
    "special.i1": """The modified Bessel function of the first kind, order one.

>>> eg.special.i1(eg.tensor([1.0]))
tensor([0.5652])
""",
    "special.zeta": """The Hurwitz zeta function ``sum_k (k + other)^-input``.

>>> eg.special.zeta(eg.tensor([2.0]), eg.tensor([1.0]))
tensor([1.6449])
""",
    "special.erfcx": """``exp(x^2) erfc(x)``, which stays finite where erfc underflows.

>>> eg.special.erfcx(eg.tensor([1.0]))
tensor([0.4276])
""",
    "special.xlog1py": """``input * log(1 + other)``, 0 where ``input`` is 0.

>>> eg.special.xlog1py(eg.tensor([0.0, 2.0]), eg.tensor([-1.0, 1.0]))
tensor([0.0000, 1.3863])
""",
}
