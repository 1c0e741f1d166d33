"""For PyInstaller, which finds this package by an entry point: what an application must contain."""

import os


def get_hook_dirs() -> list[str]:
    """The folder with the hook."""
    return [os.path.dirname(__file__)]
