"""The examples of CONTRIBUTING.md do what it says."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"

OP = """
import evergrad as eg

from evergrad.testing.samples import SAMPLES, elementwise
exec(SAMPLE, vars(elementwise))
assert [sample.torch for sample in SAMPLES["logcosh"]] == [False] * 3
for x in (eg.tensor(0.5), eg.randn(2, 3), eg.zeros(0, 3)):
    expected = (x.cosh()).log()
    eg.testing.assert_close(logcosh(x), expected)
    eg.testing.assert_close(x.clone().logcosh_(), expected)
    eg.testing.assert_close(eg.compile(lambda x: x.logcosh())(x), expected)
    eg.testing.assert_close(eg.func.grad(lambda x: x.logcosh().sum())(x), x.tanh())
x = eg.randn(4, dtype=eg.float64, requires_grad=True)
assert eg.autograd.gradgradcheck(logcosh, (x,))
eg.testing.assert_close(logcosh(eg.tensor([-800.0])), eg.tensor([800.0 - math.log(2)]))

conv = eg.nn.Conv2d(8, 8, 3, padding=1)
with eg.no_grad():
    step = eg.compile(lambda x: conv(x).logcosh())
    images = eg.randn(2, 8, 64, 64)
    eg.testing.assert_close(step(images), logcosh(conv(images)))
    assert "conv+add+logcosh" in str(step.explain(images))
"""

PASS = """
import evergrad as eg
from evergrad.compiler.passes import pipeline

pipeline.PASSES = (pipeline.Pass("cancel_negations", cancel_negations), *pipeline.PASSES)
step = eg.compile(lambda x: -(-(-(x * 2))) + 1)
x = eg.randn(5)
eg.testing.assert_close(step(x), 1 - x * 2)
shown = str(step.explain(x, passes=True))
traced, after = shown.partition("after traced:")[2].split("after ")[:2]
assert traced.count("= neg(") == 3
assert after.startswith("cancel_negations") and after.count("= neg(") == 1, after
"""


def examples() -> list[str]:
    found = re.findall(r"^( *)```python\n(.*?)^\1```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(text) for _, text in found]


def run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not PAGE.is_file(), reason="not a checkout")
def test_an_op() -> None:
    op, sample, _ = examples()
    lines = [line for line in (op + sample).splitlines() if line and "import" not in line]
    assert len(lines) <= 15
    run(f"{op}\nSAMPLE = {sample!r}\n{OP}")


@pytest.mark.skipif(not PAGE.is_file(), reason="not a checkout")
def test_a_pass() -> None:
    run(examples()[2] + PASS)
