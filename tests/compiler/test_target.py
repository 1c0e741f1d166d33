"""The model of the machine: read from sysfs, defaults, and what depends on it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

import evergrad as eg
from evergrad import config
from evergrad.compiler.api import Compiled
from evergrad.compiler.cache import fingerprint
from evergrad.compiler.cache.process_bindings import ProcessBindings
from evergrad.compiler.native import target
from evergrad.compiler.native.target import MachineModel, machine, read_model, vector_registers

# Level, kind, size, ways, bytes of a line, processors that share it.
Cache = tuple[str, str, str, str, str, str]
DATA: Cache = ("1", "Data", "48K", "12", "64", "0,64")
INSTRUCTIONS: Cache = ("1", "Instruction", "16K", "4", "32", "0,64")
SECOND: Cache = ("2", "Unified", "1280K", "20", "64", "0,64")
THIRD: Cache = ("3", "Unified", "54M", "18", "64", "0-31,64-95")
FILES = ("level", "type", "size", "ways_of_associativity", "coherency_line_size", "shared_cpu_list")


def sysfs(folder: Path, *caches: Cache, siblings: str = "0,64") -> Path:
    """A folder as sysfs has one for a processor."""
    for number, cache in enumerate(caches):
        index = folder / "cache" / f"index{number}"
        index.mkdir(parents=True)
        for name, value in zip(FILES, cache, strict=True):
            if value:
                (index / name).write_text(f"{value}\n")
    (folder / "topology").mkdir()
    (folder / "topology" / "thread_siblings_list").write_text(f"{siblings}\n")
    return folder


def test_caches_are_read_from_sysfs(tmp_path: Path) -> None:
    found = read_model(sysfs(tmp_path, DATA, INSTRUCTIONS, SECOND, THIRD))
    assert (found.l1_bytes, found.l1_ways, found.line_bytes) == (48 << 10, 12, 64)
    assert (found.l2_bytes, found.l3_bytes) == (1280 << 10, 54 << 20)
    assert found.critical_stride == 4096


def test_a_cache_of_several_cores_counts_by_share(tmp_path: Path) -> None:
    """Two cores with two hardware threads each share the second cache; the third stays whole."""
    second = ("2", "Unified", "2M", "16", "64", "0-1,64-65")
    found = read_model(sysfs(tmp_path, DATA, second, THIRD))
    assert found.l2_bytes == 1 << 20
    assert found.l3_bytes == 54 << 20


@pytest.mark.parametrize("broken", [
    ("2", "Unified", "", "8", "64", "0"), ("2", "Unified", "0K", "8", "64", "0"),
    ("2", "Unified", "many", "8", "64", "0"), ("", "Unified", "512K", "8", "64", "0"),
    ("4", "Unified", "512K", "8", "64", "0"),
])  # fmt: skip
def test_what_is_not_reported_has_a_default(tmp_path: Path, broken: Cache) -> None:
    found = read_model(sysfs(tmp_path, DATA, broken))
    assert found.l1_bytes == 48 << 10
    assert (found.l2_bytes, found.l3_bytes) == (MachineModel().l2_bytes, MachineModel().l3_bytes)


def test_a_first_cache_without_ways_or_a_line(tmp_path: Path) -> None:
    for number, cache in enumerate((
        ("1", "Data", "64K", "", "", "0"), ("1", "Data", "64K", "0", "48", "0"),
    )):  # fmt: skip
        found = read_model(sysfs(tmp_path / str(number), cache))
        assert (found.l1_bytes, found.l1_ways, found.line_bytes) == (64 << 10, 8, 64)


def test_without_sysfs_the_c_library_or_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "_sysconf_caches", lambda: {"l2_bytes": 3 << 20, "l3_bytes": 0})
    found = read_model(tmp_path)
    assert (found.l1_bytes, found.l2_bytes, found.l3_bytes) == (32 << 10, 3 << 20, 32 << 20)
    monkeypatch.setattr(target, "_sysconf_caches", dict)
    assert read_model(tmp_path / "none")._replace(page_bytes=4096) == MachineModel()


def test_the_c_library_reports_the_same_first_cache() -> None:
    reported = target._sysconf_caches()
    if reported.get("l1_bytes") and (target._CPU / "cache" / "index0").exists():
        assert reported["l1_bytes"] == machine().l1_bytes
        assert reported["line_bytes"] == machine().line_bytes


def test_this_machine_has_a_plausible_model() -> None:
    found = machine()
    assert found is machine()
    assert 4 << 10 <= found.l1_bytes < found.l2_bytes < 1 << 30
    assert found.line_bytes in (32, 64, 128, 256)
    assert found.vector_bits == target.vector_bits() in (256, 512)
    assert [vector_registers(bits) for bits in (128, 256, 512)] == [32, 16, 32]


def test_the_limit_of_a_loop_is_a_port_or_the_latency() -> None:
    found = MachineModel(fma_ports=2, load_ports=2, fma_latency=4)
    assert found.cycles(24, 11) == 12
    assert found.cycles(8, 14) == 7
    assert found.cycles(2, 3) == 4


def test_the_fingerprint_of_a_step_changes_with_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    x = eg.ones(3)
    captured = Compiled(lambda x: x * 2 + 1).compiled_for((x,), {})[0].captured

    def fingerprint_now() -> str | None:
        fingerprint._versions.cache_clear()
        return fingerprint.fingerprint_of(captured, ProcessBindings(captured), None)

    before = fingerprint_now()
    try:
        assert before is not None and fingerprint_now() == before
        for field, value in machine()._asdict().items():
            other = machine()._replace(**{field: value * 2})
            monkeypatch.setattr(target, "machine", lambda other=other: other)
            assert fingerprint_now() not in (None, before), field
            monkeypatch.undo()
        assert fingerprint_now() == before
    finally:
        fingerprint._versions.cache_clear()


OTHER_MACHINE = """
import sys
from pathlib import Path
from evergrad.compiler.native import target
target._CPU = Path(sys.argv[1])
import evergrad as eg
from evergrad import config
from evergrad import nn
assert target.machine().l2_bytes == int(sys.argv[2]), target.machine()
eg.manual_seed(0)

def compare(model, x):
    def step(x):
        model.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss.detach(), *(p.grad.clone() for p in model.parameters())
    for a, b in zip(eg.compile(step)(x), step(x), strict=True):
        assert eg.allclose(a, b, rtol=1e-3, atol=1e-5), (a - b).abs().max()

compare(nn.Sequential(nn.Linear(300, 520), nn.GELU(), nn.Linear(520, 70)), eg.randn(1024, 300))
compare(nn.Linear(700, 900), eg.randn(3, 700))
layers = nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 40, 3), nn.MaxPool2d(2)
for batch in (2, 64):
    compare(nn.Sequential(*layers), eg.randn(batch, 3, 20, 20))
"""


@pytest.mark.parametrize(("first", "second", "third", "line"), [
    ("16K", 96 << 10, "1M", 32), ("48K", 1280 << 10, "30M", 64), ("128K", 16 << 20, "256M", 128),
])  # fmt: skip
def test_kernels_are_right_on_machines_with_other_caches(
    tmp_path: Path, first: str, second: int, third: str, line: int
) -> None:
    folder = sysfs(
        tmp_path,
        ("1", "Data", first, "4", str(line), "0"),
        ("2", "Unified", f"{second >> 10}K", "8", str(line), "0"),
        ("3", "Unified", third, "16", str(line), "0-7"),
        siblings="0",
    )
    command = [sys.executable, "-c", OTHER_MACHINE, str(folder), str(second)]
    subprocess.run(command, check=True)


# -- levels: EVERGRAD_TARGET ----------------------------------------------------------------------

REPORT = """
import evergrad as eg
from evergrad import config
from evergrad.compiler.native import jit, target
ir = (
    "define <8 x float> @f(<8 x float> %a, <8 x float> %b) {\\n"
    "  %c = call <8 x float> @llvm.fma.v8f32(<8 x float> %a, <8 x float> %b, <8 x float> %b)\\n"
    "  ret <8 x float> %c\\n}\\n"
    "declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)\\n"
)
x = eg.linspace(-2, 2, 60 * 70).reshape(60, 70)
step = lambda x: ((x @ x.t()).tanh() + x.sum(1)).square().mean()
error = abs(eg.compile(step)(x).item() / step(x).item() - 1)
words = jit.assembly(ir)
print(jit.vector_bits(), jit.has_fma(), "vfmadd" in words, error < 1e-4, target.level())
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="levels are those of x86-64")
@pytest.mark.parametrize(
    ("level", "in_process", "expected"),
    [
        ("x86-64-v2", "0", "256 False False True x86-64-v2"),
        ("x86-64-v3", "0", "256 True True True x86-64-v3"),
        ("x86-64-v3", "1", "256 True True True x86-64-v3"),
    ],
)
def test_code_for_another_level(level: str, in_process: str, expected: str, tmp_path: Path) -> None:
    environment = {
        "EVERGRAD_TARGET": level, "EVERGRAD_KERNEL_CACHE": str(tmp_path),
        "EVERGRAD_COMPILE_IN_PROCESS": in_process,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", REPORT], env={**os.environ, **environment}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == expected, done.stderr


@pytest.mark.skipif(platform.machine() != "x86_64", reason="levels are those of x86-64")
def test_a_level_names_the_files_of_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    names = set()
    for level in ("", "x86-64-v2"):
        monkeypatch.setattr(config, "TARGET", level)
        names.add(target.target_name.__wrapped__())
    assert len(names) == 2


@pytest.mark.parametrize("level", ["x86-64-v9", "haswell", "avx2", " x86-64-v3"])
def test_an_unknown_level_is_refused(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "TARGET", level)
    with pytest.raises(ValueError, match="EVERGRAD_TARGET"):
        target.level()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="levels are those of x86-64")
def test_a_level_beyond_this_processor_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "TARGET", "x86-64-v3")
    monkeypatch.setattr(target, "_host_has", lambda feature: False)
    with pytest.raises(ValueError, match="lacks"):
        target.level()
