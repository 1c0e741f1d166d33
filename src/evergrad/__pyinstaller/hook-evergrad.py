"""What PyInstaller cannot see in import statements: modules that are imported by name when they
are first used, PyTorch's other names (``evergrad.cuda`` is ``compat/torch/cuda``), OpenBLAS."""

from PyInstaller.utils.hooks import collect_data_files, collect_dynamic_libs, collect_submodules


def is_for_applications(name: str) -> bool:
    """Whether a program may reach a module that it does not import: not the command line, nor the
    samples of every op."""
    others = ("evergrad.__pyinstaller", "evergrad.cli", "evergrad.testing.samples")
    return not name.startswith(others)


_stand_ins = collect_submodules("evergrad.compat.torch")
_by_other_names = {name.replace(".compat.torch", "", 1) for name in _stand_ins}
_modules = collect_submodules("evergrad", filter=is_for_applications)
hiddenimports = [
    *(name for name in _modules if name not in _by_other_names),
    *_stand_ins,
    "scipy_openblas32",
]
# The chat's page, the names of PyTorch, direction numbers of Sobol's sequence.
datas = collect_data_files("evergrad", excludes=["**/*.pyi", "**/py.typed"])
binaries = collect_dynamic_libs("scipy_openblas32")
