"""Signal processing: ``evergrad.signal.windows``, as ``torch.signal`` has it."""

from evergrad.signal import windows

__all__ = ["windows"]
