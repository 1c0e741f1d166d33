"""Checks of the tasks of ``evergrad train`` whose programs take long to compile; see models.py."""

from __future__ import annotations

from .models import compare, compare_fine_tuning


def check_lstm() -> None:
    compare("lstm", "--dropout", "0")


def check_vit() -> None:
    compare("vit", "--dropout", "0")


def check_lenet() -> None:
    compare("lenet")


def check_resnet_task() -> None:
    """Statistics of batch norms amplify rounding; each convolution is followed by one."""
    compare("resnet", rtol=1e-4)


def check_fine_tuning() -> None:
    compare_fine_tuning("chat")
    compare_fine_tuning("chat", "--accumulate", "2")
    compare_fine_tuning("chat", "--method", "lora")
    compare_fine_tuning("dpo")
