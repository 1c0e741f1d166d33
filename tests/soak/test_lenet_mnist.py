"""LeNet on all of MNIST: five epochs, about two minutes on one core."""

from __future__ import annotations

import runpy

from tests.datasets.mnist_files import ROOT, mnist_root


def test_five_epochs_reach_98_9_percent() -> None:
    lenet = runpy.run_path(str(ROOT / "examples" / "lenet.py"))
    assert lenet["main"](["--root", str(mnist_root()), "--epochs", "5"]) >= 0.989
