"""Mistakes that are made often: each message says what is wrong, with the numbers, and what to do.

PyTorch's words come first, because programs match them. ``test_errors.py`` compares the classes.
"""

from __future__ import annotations

import gc
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import evergrad as eg
from evergrad import nn, optim
from evergrad.nn import functional as F
from evergrad.utils import data

ones = eg.ones


@pytest.fixture(scope="module", autouse=True)
def nothing_left() -> Iterator[None]:
    """Tracebacks hold tensors in cycles; tests that follow count live bytes."""
    yield
    gc.collect()


def model() -> nn.Linear:
    return nn.Linear(2, 2)


def needs_grad() -> eg.Tensor:
    return ones(2, requires_grad=True)


def backward_twice() -> None:
    x = needs_grad()
    y = (x * x).sum()
    y.backward()
    y.backward()


def overwritten() -> None:
    x = needs_grad()
    y = x.exp()
    y += 1
    y.sum().backward()


def leaf_in_place() -> None:
    x = needs_grad()
    x += 1


def parameters_read_before() -> None:
    parameters = model().parameters()
    list(parameters)
    optim.SGD(parameters, lr=0.1)


def state_of_another_optimizer() -> None:
    layer = model()
    whole, part = optim.SGD(layer.parameters(), lr=0.1), optim.SGD([layer.weight], lr=0.1)
    whole.load_state_dict(part.state_dict())


def unequal_examples() -> None:
    list(data.DataLoader([ones(2), ones(3)], batch_size=2))


def sampler_and_shuffle() -> None:
    data.DataLoader([1, 2], shuffle=True, sampler=data.SequentialSampler([1, 2]))


def module_without_init() -> None:
    class Late(nn.Module):
        def __init__(self) -> None:
            self.layer = model()

    Late()


def module_without_forward() -> None:
    class Empty(nn.Module):
        pass

    Empty()(ones(2))


def truth() -> None:
    if ones(2) > 0:
        pass


def compiled_branch() -> None:
    @eg.compile(fullgraph=True)
    def step(x: eg.Tensor) -> eg.Tensor:
        return x if x.sum() > 0 else -x

    step(ones(2))


def compiled_mask() -> None:
    eg.compile(lambda x: x[x > 0] * 2, fullgraph=True)(ones(2))


def compiled_shape() -> None:
    layer = nn.Linear(4, 3)
    eg.compile(lambda x: layer(x).sum())(ones(2, 5))


Q = ones(1, 2, 3, 4)
INTS = eg.tensor([0, 1])

# The mistake, words that name it, and words that mend it.
MISTAKES: dict[str, tuple[Callable[[], object], str, str]] = {
    # shapes
    "features": (lambda: nn.Linear(4, 3)(ones(2, 5)), "2x5 and 4x3", r"5 features.*takes 4"),
    "compiled features": (compiled_shape, "2x5 and 4x3", r"5 features.*takes 4"),
    "matmul": (lambda: ones(2, 3) @ ones(4, 5), "2x3 and 4x5", "3 columns.*4 rows.*equal"),
    "batched matmul": (
        lambda: ones(7, 2, 3) @ ones(7, 4, 5), r"\[7, 3\].*\[7, 4\]", "last but one",
    ),
    "channels": (lambda: nn.Conv2d(3, 8, 3)(ones(2, 8, 8, 3)), "3 channels.*8", "movedim"),
    "image of two": (lambda: nn.Conv2d(3, 8, 3)(ones(8, 8)), r"\[8, 8\]", "3D.*4D"),
    "large kernel": (lambda: nn.Conv2d(3, 8, 5)(ones(1, 3, 3, 3)), r"3 x 3.*5 x 5", "padding="),
    "groups": (lambda: nn.Conv2d(3, 8, 3, groups=2), "in_channels", "divisible.*3 and 2"),
    "cat": (lambda: eg.cat([ones(2, 3), ones(2, 4)]), "3 but got size 4", "tensor number 1"),
    "cat of ranks": (lambda: eg.cat([ones(2, 3), ones(3)]), "2 and 1.*number 1", "unsqueeze"),
    "cat of one": (lambda: eg.cat(ones(2), ones(2)), "not Tensor", r"list: cat\(\[x, y\]\)"),
    "stack": (lambda: eg.stack([ones(2), ones(3)]), r"\[2\].*\[3\]", "equal size"),
    "broadcast": (lambda: ones(2, 3) + ones(4), r"\[2, 3\] and \[4\]", "dimension 1"),
    "strides of a view": (lambda: ones(2, 3).t().view(6), "view size", r"\.reshape"),
    "norm": (lambda: nn.BatchNorm2d(4)(ones(2, 3, 5, 5)), "3 elements not 4", "dimension 1"),
    "heads": (lambda: nn.MultiheadAttention(10, 3), "num_heads", "divisible.*10 and 3"),
    "tensors of a dataset": (lambda: data.TensorDataset(ones(2), ones(3)), "Size", r"\[2, 3\]"),
    "examples of a batch": (unequal_examples, r"\[2\].*\[3\]", "collate_fn.*pad_sequence"),
    # targets and element types
    "weights of another type": (
        lambda: nn.Linear(4, 3)(ones(2, 4, dtype=eg.float64)), "float64 != float32",
        r"\.to\(evergrad\.float32\)",
    ),
    "float as class": (lambda: F.cross_entropy(ones(2, 3), ones(2)), "float32", "Class numbers"),
    "narrow class": (lambda: F.nll_loss(ones(2, 3), INTS.int()), "int32", "Class numbers.*long"),
    "class": (lambda: F.cross_entropy(ones(2, 3), INTS + 2), "Target 3", "3 classes, 0 to 2"),
    "compiled class": (
        lambda: eg.compile(F.cross_entropy)(ones(2, 3), INTS + 2), "Target 3", "3 classes, 0 to 2",
    ),
    "targets": (
        lambda: F.cross_entropy(ones(2, 3), eg.tensor([0, 1, 2])), r"\(2\).*\(3\)",
        r"input is \[2, 3\], the target \[3\]",
    ),
    "integers as one-hot": (
        lambda: F.cross_entropy(ones(2, 3), ones(2, 3).long()), "int64", r"\.float\(\)",
    ),
    "loss": (
        lambda: F.binary_cross_entropy_with_logits(ones(2, 1), ones(2)), r"\[2\].*\[2, 1\]",
        "view_as",
    ),
    "one-hot": (lambda: F.one_hot(ones(2)), "float32", r"\.long\(\)"),
    "mask": (lambda: ones(2).masked_fill(ones(2), 0), "float32", r"mask > 0"),
    "condition": (lambda: eg.where(ones(2), 1.0, 2.0), "float32", r"\.bool\(\)"),
    "list as array": (lambda: eg.from_numpy([1, 2]), "list", r"evergrad\.tensor"),
    "several as one": (lambda: ones(2).item(), "2 elements", r"\.sum\(\)"),
    "truth of several": (truth, "more than one value", r"\.any\(\) or \.all\(\)"),
    # gradients
    "integers with gradients": (lambda: INTS.requires_grad_(), "int64", r"\.float\(\)"),
    "nothing requires grad": (lambda: ones(2).sum().backward(), "grad_fn", "requires_grad=True"),
    "gradient of several": (lambda: (needs_grad() * 2).backward(), r"\[2\]", r"\.sum\(\)"),
    "backward twice": (backward_twice, "second time.*MulBackward0", "retain_graph=True"),
    "overwritten": (overwritten, "ExpBackward0.*version 1", "out-of-place"),
    "leaf in place": (leaf_in_place, "leaf Variable", r"no_grad\(\)"),
    "array of a leaf": (lambda: needs_grad().numpy(), r"numpy\(\)", r"detach\(\)\.numpy\(\)"),
    # names and devices
    "function": (lambda: eg.relUU, "relUU", "'relu'"),
    "layer": (lambda: nn.Conv2D, "Conv2D", "'Conv2d'"),
    "keyword": (lambda: nn.Linear(4, 3, biass=True), "biass", "'bias'"),
    "keyword of an optimizer": (lambda: optim.AdamW([ones(1)], lrr=1), "lrr", "'lr'"),
    "device": (lambda: ones(2, device="cuda"), "'cuda'", "device='cpu'"),
    "device of a module": (lambda: model().to("cuda"), "'cuda'", "device='cpu'"),
    "method cuda": (lambda: ones(2).cuda(), "'cuda'", "device='cpu'"),
    # modules, optimizers and their states
    "no super().__init__": (module_without_init, "Late", r"super\(\)\.__init__\(\)"),
    "no forward": (module_without_forward, "Empty", r"Define forward\(self"),
    "list of modules": (lambda: nn.Sequential([model()]), "list is not a Module", r"\*modules"),
    "call of a list": (lambda: nn.ModuleList([model()])(ones(2)), "ModuleList", "one by one"),
    "no parameters": (lambda: optim.SGD([], lr=0.1), "empty parameter list", "without parameters"),
    "used-up parameters": (parameters_read_before, "empty parameter list", "call it again"),
    "module as parameters": (lambda: optim.SGD(model(), lr=0.1), "Linear", r"\.parameters\(\)"),
    "tensor as parameters": (lambda: optim.SGD(ones(2), lr=0.1), "Tensor", "in a list"),
    "result as parameter": (
        lambda: optim.SGD([needs_grad() * 2], lr=0.1), "MulBackward0", r"\.detach\(\)",
    ),
    "schedule": (lambda: optim.lr_scheduler.StepLR(0.1, 5), "float", "optimizer first"),
    "state in front": (
        lambda: nn.Sequential(model()).load_state_dict(model().state_dict()), '"0.weight"',
        'submodule',
    ),
    "state behind": (
        lambda: model().load_state_dict(nn.Sequential(model()).state_dict()), '"0.weight"',
        r'removeprefix\("0\."\)',
    ),
    "checkpoint": (
        lambda: model().load_state_dict({"model": model().state_dict(), "epoch": 3}), '"weight"',
        r'checkpoint\["model"\]',
    ),
    "sizes of a state": (
        lambda: model().load_state_dict(nn.Linear(3, 2).state_dict()), "weight", "2, 3.*2, 2",
    ),
    "state of another optimizer": (
        state_of_another_optimizer, r"\[1\] in the state dict, \[2\]", "another model",
    ),
    "sampler and shuffle": (sampler_and_shuffle, "sampler", "mutually exclusive with shuffle"),
    # compiled
    "compiled branch": (compiled_branch, "value of a traced tensor", r"evergrad\.where"),
    "compiled mask": (compiled_mask, "value of a traced tensor", "outside of the function"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_says_what_is_wrong_and_what_to_do(name: str) -> None:
    make, what, fix = MISTAKES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Exception) as caught:
            make()
    said = str(caught.value)
    assert re.search(what, said, re.S), said
    assert re.search(fix, said, re.S), said


def test_a_file_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "notes.pt"
    path.write_bytes(b"hello world")
    with pytest.raises(eg.errors.FileFormatError, match="corrupted, or was not written by save"):
        eg.load(path)


def test_python_suggests_attributes_of_modules_and_tensors() -> None:
    """The interpreter adds "Did you mean" to an error that has the name and the owner."""
    for owner, name in ((model(), "weigth"), (ones(2), "sofmax")):
        with pytest.raises(AttributeError) as caught:
            getattr(owner, name)
        assert caught.value.name == name and caught.value.obj is owner
