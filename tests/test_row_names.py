"""Facts about a row are columns of it: code does not choose by the names of rows."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import evergrad
from evergrad.core.op import TABLE

ROOT = Path(evergrad.__file__).parent
# Of the whole package but what tests it: samples are found by the names of their rows.
PACKAGES = tuple(p.name for p in ROOT.iterdir() if p.is_dir() and p.name != "testing")
ROWS = frozenset(name for name, op in TABLE.items() if op.family != "custom")

# Where a comparison with a row's name is right, as "file: expression" with the reason.
ALLOWED = {
    "ops/rows/movement/joining.py: name == 'cat'": "a public function: its errors are PyTorch's",
    "core/bind.py: op.name != 'pow'": "the value of its exponent decides the formula",
    "compiler/frontend/guards/revalidation.py: a.op.name == b.op.name": "ops of custom functions"
    " are made anew in each call, and have only their names in common",
    "core/python_numbers.py: name != 'pow'": "an operator of Python, not a row",
    "compat/torch/_foreach.py: name in ('addcmul', 'addcdiv')": "PyTorch's functions, by name",
    "compiler/frontend/recording/call_stand_ins.py: name == 'log'": "a method of loggers, no row",
}


def is_name_of_row(node: ast.expr, aliases: set[str]) -> bool:
    """Whether an expression is the name of a row: ``eqn.op.name``, or a variable that holds it."""
    if isinstance(node, ast.Name):
        return node.id in aliases
    if not isinstance(node, ast.Attribute) or node.attr != "name":
        return False
    owner = node.value
    return (isinstance(owner, ast.Attribute) and owner.attr in ("op", "row")) or (
        isinstance(owner, ast.Name) and owner.id in ("op", "row")
    )


def strings_of(node: ast.expr) -> set[str]:
    if isinstance(node, ast.Constant):
        return {node.value} if isinstance(node.value, str) else set()
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return set().union(*map(strings_of, node.elts))
    return set()


def aliases_in(scope: ast.AST) -> set[str]:
    """Variables to which a row's name is assigned."""
    found: set[str] = set()
    for node in ast.walk(scope):
        if not isinstance(node, ast.Assign | ast.NamedExpr):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            for one, value in pairs:
                if isinstance(one, ast.Name) and is_name_of_row(value, set()):
                    found.add(one.id)
    return found


def chooses_by_name(node: ast.expr, aliases: set[str]) -> bool:
    """Whether an expression compares a row's name, or looks something up by it."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        if any(is_name_of_row(side, aliases) for side in sides):
            return True
        named = any(
            (isinstance(side, ast.Name) and side.id == "name")
            or (isinstance(side, ast.Attribute) and side.attr == "name")
            for side in sides
        )
        return named and bool(ROWS & set().union(*map(strings_of, sides)))
    if isinstance(node, ast.Subscript):  # TABLE itself is the way from a name to its row
        is_table = isinstance(node.value, ast.Name) and node.value.id == "TABLE"
        return not is_table and is_name_of_row(node.slice, aliases)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        is_get = node.func.attr == "get" and node.args
        return bool(is_get) and is_name_of_row(node.args[0], aliases)
    return False


def choices_in(source: str) -> Iterator[str]:
    tree = ast.parse(source)
    aliases: dict[int, set[str]] = {}
    for scope in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)):
        aliases |= dict.fromkeys(map(id, ast.walk(scope)), aliases_in(scope))
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and chooses_by_name(node, aliases.get(id(node), set())):
            yield ast.unparse(node)


def choices() -> list[str]:
    return sorted(
        f"{path.relative_to(ROOT)}: {expression}"
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for expression in choices_in(path.read_text())
    )


def test_code_does_not_choose_by_the_names_of_rows() -> None:
    assert [found for found in choices() if found not in ALLOWED] == []
    assert len(ALLOWED) < 10
    assert set(ALLOWED) <= set(choices()), "an exception that is not needed any more"


@pytest.mark.parametrize(
    "source",
    [
        'if eqn.op.name == "add": pass',
        'if eqn.op.name not in ("sum", "amax"): pass',
        "if made_by.op.name in _PRODUCTS: pass",
        'def f(eqn):\n    name = eqn.op.name\n    return name == "new_row"',
        "def f(eqn):\n    word, args = eqn.op.name, eqn.args\n    return word in KNOWN",
        'def f(name):\n    return name == "window_sum"',
        "start = _STARTS[eqn.op.name]",
        "rule = RULES.get(op.name)",
        "costs = {op.name: 1}[op.name]",
    ],
)
def test_choices_are_noticed(source: str) -> None:
    assert len(list(choices_in(source))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "if eqn.op is ADD: pass",
        "row = TABLE[step.name]",
        'if dtype.name == "bfloat16": pass',
        'for name in ("sum", "amax"): pass',
        'print(f"call {eqn.op.name}")',
    ],
)
def test_what_is_no_choice_is_left_alone(source: str) -> None:
    assert list(choices_in(source)) == []
