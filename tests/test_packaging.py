"""The package without a folder of sources: in a zip file, as bytecode alone, in an application."""

from __future__ import annotations

import compileall
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

import evergrad
from evergrad.__pyinstaller import get_hook_dirs
from evergrad.compiler.cache import fingerprint

ROOT = Path(evergrad.__file__).parent
PROGRAM = Path(__file__).with_name("packaged_program.py")


class Found(NamedTuple):
    """What the program reports of where it runs."""

    file: str
    uses_compile_pool: bool
    is_cached: bool
    loss: float


def run(command: list[str], folder: Path, path: str | None = None) -> Found:
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("PYTHON", "EVERGRAD_"))}
    own = {
        "XDG_CACHE_HOME": str(folder / "cache"),
        **({} if path is None else {"PYTHONPATH": path}),
    }
    done = subprocess.run(
        command, env=kept | own, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    file, outside, cached, loss = done.stdout.split("|")
    return Found(file, outside == "True", cached == "True", float(loss))


def sources() -> list[Path]:
    return [path for path in ROOT.rglob("*") if path.is_file() and path.suffix != ".pyc"]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    found = tmp_path / "evergrad.zip"
    with zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sources():
            file.write(path, path.relative_to(ROOT.parent))
    return found


def test_a_zip_file_works_and_compiles_in_workers(archive: Path, tmp_path: Path) -> None:
    first = run([sys.executable, str(PROGRAM)], tmp_path, str(archive))
    assert first.file.startswith(str(archive))
    assert first.uses_compile_pool, "a worker could not be started"
    assert first.is_cached
    kept = sorted((tmp_path / "cache").rglob("*"))
    assert run([sys.executable, str(PROGRAM)], tmp_path, str(archive)) == first
    assert sorted((tmp_path / "cache").rglob("*")) == kept, "the second run found its programs"
    os.utime(archive, ns=(1, 1))
    assert run([sys.executable, str(PROGRAM)], tmp_path, str(archive)) == first
    assert sorted((tmp_path / "cache").rglob("*")) != kept, "another archive, other programs"


def test_bytecode_alone_works_without_a_cache_of_programs(tmp_path: Path) -> None:
    for path in sources():
        target = tmp_path / "lib" / path.relative_to(ROOT.parent)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    assert compileall.compile_dir(tmp_path / "lib", quiet=1, legacy=True, workers=1)
    for path in (tmp_path / "lib").rglob("*.py"):
        path.unlink()
    found = run([sys.executable, str(PROGRAM)], tmp_path, str(tmp_path / "lib"))
    assert found.file.endswith(".pyc")
    assert not found.is_cached


def test_an_archive_or_an_executable_stands_for_the_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(fingerprint._sources()) > 100
    archive = tmp_path / "some.zip"
    archive.write_bytes(b"1234")
    with monkeypatch.context() as patched:
        patched.setattr(evergrad, "__loader__", SimpleNamespace(archive=str(archive)))
        ((path, size, time),) = fingerprint._sources()
        assert (path, size, time) == (str(archive), 4, archive.stat().st_mtime_ns)
        archive.unlink()
        assert fingerprint._sources() == ()
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert fingerprint._sources()[0][0] == sys.executable


@pytest.fixture
def pyinstaller(tmp_path: Path) -> str:
    """The path on which PyInstaller is found; it is installed for this test if need be."""
    if find_spec("PyInstaller") is not None:
        return ""
    target = tmp_path / "pyinstaller"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(target)]
    done = subprocess.run([*install, "pyinstaller"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("PyInstaller is missing and pip cannot install it: pip install evergrad[test]")
    return str(target)


def test_a_frozen_application_works(tmp_path: Path, pyinstaller: str) -> None:
    command = [sys.executable, "-m", "PyInstaller", "--onedir", "--noconfirm", "--log-level=ERROR"]
    for name in ("pytest", "scipy", "torch"):
        command += ["--exclude-module", name]  # of the test's environment, not the program's
    for folder in get_hook_dirs():  # also found by the entry point, where the package is installed
        command += ["--additional-hooks-dir", folder]
    own = {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT.parent), pyinstaller))),
        "PYINSTALLER_CONFIG_DIR": str(tmp_path / "pyinstaller-cache"),
    }
    subprocess.run([*command, str(PROGRAM)], env=os.environ | own, cwd=tmp_path, check=True)
    found = run([str(tmp_path / "dist" / PROGRAM.stem / PROGRAM.stem)], tmp_path)
    assert found.file.startswith(str(tmp_path / "dist"))
    assert not found.uses_compile_pool, "its executable is not Python: it compiles in this process"
    assert found.is_cached


# -- wheel and sdist ------------------------------------------------------------------------------

CHECKOUT = ROOT.parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist of this checkout."""
    pytest.importorskip("hatchling", reason="hatchling is not installed: see evergrad[test]")
    if not (CHECKOUT / "pyproject.toml").is_file():
        pytest.skip("not a checkout")
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=CHECKOUT,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


def environment(folder: Path, wheel: Path) -> Path:
    """The interpreter of a new environment with the wheel; dependencies are those of this one."""
    venv.create(folder, with_pip=False)
    own = folder / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    with zipfile.ZipFile(wheel) as file:
        file.extractall(own)  # what an installer does with a pure wheel
    others = [path for path in sys.path if path.endswith("site-packages")]
    (own / "dependencies.pth").write_text("\n".join(others) + "\n")
    return folder / "bin" / "python"


@pytest.mark.skipif(os.name != "posix", reason="the places in an environment are POSIX's")
def test_the_wheel_works_in_a_new_environment(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    python = environment(tmp_path / "venv", wheel)
    found = run([str(python), str(PROGRAM)], tmp_path)
    assert found.file.startswith(str(tmp_path / "venv"))
    done = subprocess.run(
        [str(python), "-m", "evergrad", "--version"], cwd=tmp_path, capture_output=True, text=True,
        env={n: v for n, v in os.environ.items() if n != "PYTHONPATH"},
    )  # fmt: skip
    assert done.stdout.strip().endswith(evergrad.__version__), done.stderr


def test_wheel_and_sdist_hold_what_they_should(built: Path, tmp_path: Path) -> None:
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    names = set(zipfile.ZipFile(wheel).namelist())
    missing = [
        path for path in sources()
        if "__pycache__" not in path.parts and str(path.relative_to(ROOT.parent)) not in names
    ]  # fmt: skip
    assert missing == []
    assert not any(name.startswith(("tests/", "docs/", "bench/")) for name in names)
    with tarfile.open(sdist) as file:
        held = {name.partition("/")[2] for name in file.getnames()}
    assert {"README.md", "LICENSE", "CITATION.cff", "CHANGELOG.md", "mkdocs.yml"} <= held
    assert any(name.startswith("tests/") for name in held)
    assert not any(".venv" in name or name.startswith("build/") for name in held)


def test_versions_agree() -> None:
    with open(CHECKOUT / "pyproject.toml", "rb") as file:
        version = tomllib.load(file)["project"]["version"]
    cited = re.search(r"^version: (.+)$", (CHECKOUT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited is not None and evergrad.__version__ == version == cited[1]
