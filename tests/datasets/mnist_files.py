"""Where the real MNIST is, for the tests that train with it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def mnist_root() -> Path:
    """The folder with the four files; the calling test is skipped if there is none."""
    named = os.environ.get("EVERGRAD_MNIST")
    places = [Path(named)] if named else []
    places += [ROOT / "data", ROOT.parent / "shared" / "data" / "mnist"]
    for place in places:
        for folder in (place, place / "MNIST" / "raw"):
            if list(folder.glob("train-images-idx3-ubyte*")):
                return place
    pytest.skip("MNIST is not at hand: set EVERGRAD_MNIST to a folder with its four files")
