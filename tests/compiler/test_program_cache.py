"""Programs from the disk: the same to the bit as those made here, and found for the same step
alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evergrad as eg
from evergrad import config
from evergrad.compiler.build import build_program
from evergrad.compiler.cache.fingerprint import fingerprint_of
from evergrad.compiler.cache.process_bindings import ProcessBindings
from evergrad.compiler.native import disk_cache, jit
from evergrad.compiler.schedule.buffers import BufferView
from evergrad.core.op import TABLE
from evergrad.core.rng.default_generator import using_generator

from .plans import check_plan
from .program_cache_steps import STEPS, normal
from .steps import programs_of

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    before, config.KERNEL_CACHE = config.KERNEL_CACHE, str(tmp_path / "kernels")
    yield tmp_path / "kernels"
    config.KERNEL_CACHE = before


def process(folder: Path, *words: str) -> Any:
    run = subprocess.run(
        [sys.executable, str(HERE / "program_cache_steps.py"), *words],
        capture_output=True, text=True,
        env={**os.environ, "EVERGRAD_KERNEL_CACHE": str(folder)}, timeout=240, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_another_process_makes_nothing_again(folder: Path) -> None:
    """Neither lowers nor writes nor compiles, and ends with the same bits."""
    cold = process(folder)
    assert list(cold) == list(STEPS)
    assert cold["memory_limit"]["plan"] != cold["memory"]["plan"]
    assert cold["dropout"]["bits"] != cold["counted dropout"]["bits"]
    assert process(folder, "warm") == cold


def make() -> tuple[Any, Any, Any]:
    """A compiled step that moves a weight, with the weight."""
    weight = normal(8, 8, seed=1)

    def step(x: Any) -> Any:
        weight.sub_((x.T @ (x @ weight).tanh()) * 0.1)
        return weight.square().sum(), eg.arange(8.0).sin() * x

    return eg.compile(step), normal(16, 8), weight


def run(threads: int = 1) -> tuple[Any, list[Any], Any]:
    step, x, weight = make()
    step.plan(x)
    (program,) = programs_of(step)
    program.bind()
    program.threads = threads
    found = [result.numpy().copy() for _ in range(2) for result in step(x)]
    return step, [*found, weight.numpy().copy()], program


def is_from_disk(program: Any) -> bool:
    return program.executable.lowering is None


def assert_equal(ours: list[Any], theirs: list[Any]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_second_program_comes_from_the_disk(folder: Path) -> None:
    _, first, made = run()
    _, second, kept = run()
    assert (is_from_disk(made), is_from_disk(kept)) == (False, True)
    assert_equal(first, second)
    check_plan(kept)
    assert [i.label for i in kept.instructions] == [i.label for i in made.instructions]
    assert [b.label for b in kept.plan.buffers] == [b.label for b in made.plan.buffers]
    assert [b.location for b in kept.buffers if b.location] != []
    eg.set_num_threads(2)
    assert_equal(first, run(threads=2)[1])


def test_explaining_lowers_again() -> None:
    before = run()[0].explain(normal(16, 8)).data
    step, _, kept = run()
    assert is_from_disk(kept)
    after = step.explain(normal(16, 8)).data
    for told in ("simplified", "memory"):
        assert after[told] == before[told]
    for ours, theirs in zip(after["nodes"], before["nodes"], strict=True):
        for told in ("label", "kind", "equations", "bytes", "lines"):
            assert ours[told] == theirs[told]


def programs_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.program"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"", lambda data: data[:60], lambda data: data[:-1],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]), lambda data: b"x" + data[1:],
    ],
)  # fmt: skip
def test_a_damaged_program_is_made_again(folder: Path, damage: Any) -> None:
    _, first, _ = run()
    (path,) = programs_in(folder)
    path.write_bytes(damage(path.read_bytes()))
    _, second, made = run()
    assert not is_from_disk(made)
    _, third, kept = run()
    assert is_from_disk(kept)
    assert_equal(first, second)
    assert_equal(first, third)


def test_object_code_that_is_gone_is_made_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, _ = run()
    for path in folder.glob("*.o"):
        path.unlink()
    monkeypatch.setattr(jit, "_addresses", {})
    _, second, made = run()
    assert not is_from_disk(made)
    assert_equal(first, second)
    monkeypatch.setattr(jit, "_addresses", {})
    _, third, kept = run()
    assert is_from_disk(kept)
    assert_equal(first, third)


def test_a_folder_that_cannot_be_written_is_done_without(folder: Path) -> None:
    folder.write_text("not a folder")
    results = [run() for _ in range(2)]
    assert not any(is_from_disk(program) for *_, program in results)
    assert_equal(results[0][1], results[1][1])


def test_numpy_calls_are_kept_with_their_lines(folder: Path) -> None:
    for is_second in (False, True):
        step = eg.compile(lambda x: eg.linalg.cholesky(x + x.T) * 2)
        np.testing.assert_allclose(step(eg.eye(3)).numpy(), np.eye(3) * 8**0.5, rtol=1e-6)
        (program,) = programs_of(step)
        assert any(i.kernel is None for i in program.instructions)
        assert is_from_disk(program) is is_second
        with pytest.raises(Exception, match="positive") as raised:
            step(-eg.eye(3))
        assert "test_program_cache.py" in "".join(raised.value.__notes__)
    assert len(programs_in(folder)) == 1


def test_random_numpy_calls_are_not_kept(folder: Path) -> None:
    step = eg.compile(lambda x: eg.poisson(x.abs()))
    step(normal(3, 3))
    (program,) = programs_of(step)
    assert any(i.kernel is None for i in program.instructions)
    assert programs_in(folder) == []


def test_native_draws_are_kept(folder: Path) -> None:
    found = []
    for is_second in (False, True):
        step = eg.compile(lambda x: (x + eg.randn(3, 7), eg.multinomial(x.softmax(-1), 2)))
        eg.manual_seed(4)
        found += step(normal(3, 7))
        (program,) = programs_of(step)
        assert is_from_disk(program) is is_second
    for first, second in zip(found[:2], found[2:], strict=True):
        np.testing.assert_array_equal(first.numpy(), second.numpy())


def test_a_large_folder_loses_what_was_not_used_lately(tmp_path: Path) -> None:
    for number in range(8):
        path = tmp_path / f"{number}.o"
        path.write_bytes(bytes(100))
        os.utime(path, ns=(number, number))
    disk_cache.prune(tmp_path, 800)
    assert len(list(tmp_path.iterdir())) == 8
    disk_cache.prune(tmp_path, 799)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["5.o", "6.o", "7.o"]


def test_a_file_that_is_read_counts_as_used(tmp_path: Path) -> None:
    path = tmp_path / "one"
    disk_cache.write(path, b"kind ", b"content")
    os.utime(path, ns=(1, 1))
    assert disk_cache.read(path, b"kind ") == b"content"
    assert path.stat().st_mtime_ns > 1
    assert disk_cache.read(path, b"another ") is None


# -- names --------------------------------------------------------------------------------------


@st.composite
def specs(draw: Any) -> dict[str, Any]:
    """A small random step: what it computes, and on what."""
    return {
        "rows": draw(st.sampled_from([1, 4, 6])),
        "dtype": draw(st.sampled_from(["float32", "float64"])),
        "literal": draw(st.sampled_from([1, 1.0, True, 2.0, -0.0, 0.0])),
        "words": draw(st.lists(st.sampled_from(["exp", "tanh", "abs", "neg"]), max_size=2)),
        "layout": draw(st.sampled_from(["whole", "turned", "part", "wide"])),
        "shared": draw(st.booleans()),
        "written": draw(st.sampled_from(["", "first", "second"])),
        "dim": draw(st.sampled_from([0, 1])),
        "algorithm": draw(st.sampled_from(["", "mt19937", "philox"])),
        "limit": draw(st.sampled_from([None, 1 << 20])),
    }


def weight_of(spec: dict[str, Any], seed: int) -> Any:
    """An outside tensor of 4 x 4 that lies as told."""
    memory = normal(8, 8, seed=seed).to(getattr(eg, spec["dtype"]))
    forms = {
        "whole": lambda: memory[:4, :4].clone(), "turned": lambda: memory[:4, :4].clone().T,
        "part": lambda: memory[4:, 4:], "wide": lambda: memory[::2, :4],
    }  # fmt: skip
    return forms[spec["layout"]]()


def step_of(spec: dict[str, Any]) -> tuple[Any, Any]:
    first = weight_of(spec, 1)
    second = first.view(first.shape) if spec["shared"] else weight_of(spec, 2)

    def step(x: Any) -> Any:
        y = (x @ first + second[0]) * spec["literal"]
        for word in spec["words"]:
            y = getattr(y, word)()
        if spec["algorithm"]:
            y = eg.nn.functional.dropout(y, 0.5)
        if spec["written"]:
            {"first": first, "second": second}[spec["written"]].mul_(y.mean())
        return y.sum(spec["dim"]), second + 1

    compiled = eg.compile(step, memory_limit=spec["limit"])
    return compiled, normal(spec["rows"], 4).to(getattr(eg, spec["dtype"]))


def described(program: Any) -> Any:
    """Everything that a program runs, without what belongs to the process."""
    owners: dict[int, int] = {}

    def place(p: Any) -> Any:
        b = p.buffer
        owner = b.owner
        if b.kind == "outside":
            owner = owners.setdefault(id(owner), len(owners))
        layout = p.offset, p.shape, p.strides, p.dtype.name
        return b.number, b.nbytes, b.kind, b.label, owner, b.first, b.last, b.offset, *layout

    def native(kernel: Any) -> Any:
        numbers = [kernel.products.get(at, number) for at, number in enumerate(kernel.numbers)]
        return kernel.name, kernel.chunks, kernel.scratch, numbers

    executable = program.executable
    instructions = [
        (
            i.label, i.may_fail, i.work, i.kernel and native(i.kernel),
            [None if p is None else place(p) for p in i.pointers],
            [place(a) if isinstance(a, BufferView) else repr(a) for a in (*i.args, *i.outs)],
        )
        for i in program.instructions
    ]  # fmt: skip
    return (
        instructions, [len(wave) for wave in program.waves], [place(o) for o in executable.outputs],
        [(place(p), owners.setdefault(id(s), len(owners))) for p, s in executable.copies],
        [owners.setdefault(id(s), len(owners)) for s in executable.written],
        executable.results, executable.numbers, executable.plan.peak,
    )  # fmt: skip


def named(spec: dict[str, Any]) -> tuple[str, Any]:
    """The name of a step's program, and what that is when it is made from the graph on."""
    with using_generator(eg.Generator(algorithm=spec["algorithm"] or "mt19937")):
        step, x = step_of(spec)
        step.plan(x)
        ((variant,),) = step.variants.values()
        key = fingerprint_of(variant.captured, ProcessBindings(variant.captured), spec["limit"])
        assert key is not None
        return key, described(build_program(variant.captured, spec["limit"]))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(specs(), st.data())
def test_equal_names_mean_equal_programs(spec: dict[str, Any], data: Any) -> None:
    """Also of steps that differ in one thing alone."""
    key, program = named(spec)
    assert named(dict(spec)) == (key, program)
    part = data.draw(st.sampled_from(sorted(spec)))
    other = {**spec, part: data.draw(specs())[part]}
    other_key, other_program = named(other)
    assert other_key != key or other_program == program


ONE = {
    "rows": 4, "dtype": "float32", "literal": 2.0, "words": ["exp"], "layout": "whole",
    "shared": False, "written": "", "dim": 0, "algorithm": "mt19937", "limit": None,
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 6}, {"dtype": "float64"}, {"literal": 2}, {"literal": 3.0}, {"words": ["tanh"]},
        {"layout": "turned"}, {"layout": "part"}, {"layout": "wide"}, {"shared": True},
        {"written": "first"}, {"written": "second"}, {"dim": 1}, {"algorithm": "philox"},
        {"algorithm": ""}, {"limit": 1 << 20},
    ],
    ids=str,
)  # fmt: skip
def test_what_changes_the_name(change: dict[str, Any]) -> None:
    key, _ = named(ONE)
    assert named({**ONE, **change})[0] != key
    assert named(dict(ONE))[0] == key


def test_modes_and_versions_change_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {named(ONE)[0]}
    with eg.no_grad():
        names.add(named(ONE)[0])
    with monkeypatch.context() as patch:
        patch.setattr(jit, "target_name", lambda: "another machine")
        from evergrad.compiler.cache import fingerprint

        fingerprint._versions.cache_clear()
        names.add(named(ONE)[0])
    fingerprint._versions.cache_clear()
    assert len(names) == 3


def test_ops_of_other_packages_have_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    step, x = step_of(ONE)
    step.plan(x)
    ((variant,),) = step.variants.values()
    assert fingerprint_of(variant.captured, ProcessBindings(variant.captured), None) is not None
    monkeypatch.setattr(TABLE["exp"], "eval", lambda x: x)
    assert fingerprint_of(variant.captured, ProcessBindings(variant.captured), None) is None


@pytest.mark.usefixtures("made_anew")
def test_what_has_no_form_is_compiled_without_the_disk(folder: Path) -> None:
    results = [run() for _ in range(2)]
    assert not any(is_from_disk(program) for *_, program in results)
    assert programs_in(folder) == []
    assert_equal(results[0][1], results[1][1])


def test_every_source_of_the_compiler_is_part_of_the_name() -> None:
    """A program made by former sources must not be found: files in sub-packages count too."""
    from evergrad.compiler.cache import fingerprint

    fingerprint._versions.cache_clear()
    counted = {(place, name) for place, name, *_ in fingerprint._versions()[-1]}
    root = Path(eg.__file__).parent
    for room in ("compiler", "core", "ops"):
        for path in (root / room).rglob("*.py"):
            assert (str(path.parent.relative_to(root)), path.name) in counted
