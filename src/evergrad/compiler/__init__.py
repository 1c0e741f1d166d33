"""Turns a traced program into native code with a planned memory.

:func:`compile` is the door. A program is traced (:mod:`.capture`), simplified (:mod:`.rewrite`),
cut into kernels (:mod:`.fuse`), placed in one arena (:mod:`.plan`), written as LLVM IR
(:mod:`.loops`, :mod:`.scalar`), compiled (:mod:`.llvm`) and run by a team of threads
(:mod:`.team`).
"""

from evergrad.lazy import lazy_names as _lazy_names

__all__ = ["Compiled", "compile"]

__getattr__ = _lazy_names(__name__, {"entry": ("Compiled", "compile")})
