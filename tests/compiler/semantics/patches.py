"""Functions and methods of the engine that are replaced between calls."""

from __future__ import annotations

from typing import Any

from .registry import Seen, batch, case, mlp, weights


def trained(lib, wrap, model, optimizer):
    """A step of training."""

    def step(x):
        optimizer.zero_grad()
        loss = lib.nn.functional.mse_loss(model(x), lib.ones(4, 2))
        loss.backward()
        optimizer.step()
        return loss

    return wrap(step)


@case
def the_forward_of_a_layer_class(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    step = trained(lib, wrap, model, lib.optim.SGD(model.parameters(), lr=0.1))
    kind = lib.nn.Linear
    forward = kind.forward
    try:
        for n in range(5):
            kind.forward = (lambda self, x: forward(self, x) * 2) if n in (2, 3) else forward
            yield step(batch(lib, n)), weights(model)
    finally:
        kind.forward = forward


@case
def the_forward_of_one_layer(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    step = trained(lib, wrap, model, lib.optim.SGD(model.parameters(), lr=0.1))
    layer = model[0]
    forward = layer.forward
    for n in range(6):
        if n == 2:
            layer.forward = lambda x: forward(x) * 3
        if n == 4:
            del layer.forward
        yield step(batch(lib, n)), weights(model)


@case
def the_step_of_one_optimizer(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    step = trained(lib, wrap, model, optimizer)
    for n in range(6):
        if n == 2:
            optimizer.step = lambda: None
        if n == 4:
            del optimizer.step
        yield step(batch(lib, n)), weights(model)


@case
def the_step_of_an_optimizer_class(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    step = trained(lib, wrap, model, lib.optim.Adam(model.parameters(), lr=0.1))
    kind = lib.optim.Adam
    original = kind.step
    try:
        for n in range(5):
            kind.step = (lambda self: None) if n in (2, 3) else original
            yield step(batch(lib, n)), weights(model)
    finally:
        kind.step = original


@case
def zero_grad_of_one_optimizer(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    step = trained(lib, wrap, model, optimizer)
    for n in range(5):
        if n == 2:  # gradients accumulate from here on
            optimizer.zero_grad = lambda: None
        yield step(batch(lib, n)), weights(model)


@case
def a_function_of_the_library(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    step = trained(lib, wrap, model, lib.optim.SGD(model.parameters(), lr=0.1))
    functions = lib.nn.functional
    original = functions.mse_loss
    try:
        for n in range(5):
            functions.mse_loss = (lambda a, b: original(a, b) * 3) if n in (2, 3) else original
            yield step(batch(lib, n)), weights(model)
    finally:
        functions.mse_loss = original


@case
def the_forward_of_a_loss_class(lib: Any, wrap: Any) -> Seen:
    model, criterion = mlp(lib), lib.nn.MSELoss()
    kind = lib.nn.MSELoss
    forward = kind.forward
    step = wrap(lambda x: criterion(model(x), lib.ones(4, 2)))
    try:
        for n in range(5):
            kind.forward = (lambda self, a, b: forward(self, a, b) + 1) if n > 2 else forward
            yield step(batch(lib, n))
    finally:
        kind.forward = forward


@case
def a_method_of_tensors(lib: Any, wrap: Any) -> Seen:
    original = lib.Tensor.tanh
    step = wrap(lambda x: x.tanh() + 1)
    try:
        for n in range(5):
            lib.Tensor.tanh = (lambda self: original(self) * 2) if n in (2, 3) else original
            yield step(batch(lib, n))
    finally:
        lib.Tensor.tanh = original


@case
def an_operator_of_tensors(lib: Any, wrap: Any) -> Seen:
    original = lib.Tensor.__matmul__
    step = wrap(lambda x: x @ x.T)
    try:
        for n in range(5):
            changed = lambda a, b: original(a, b) * 2
            lib.Tensor.__matmul__ = changed if n in (2, 3) else original
            yield step(batch(lib, n))
    finally:
        lib.Tensor.__matmul__ = original


@case
def a_function_of_a_submodule(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    utils = lib.nn.utils
    original = utils.clip_grad_norm_

    def step(x):
        model.zero_grad()
        model(x).square().sum().backward()
        return utils.clip_grad_norm_(model.parameters(), 0.1)

    step = wrap(step)
    try:
        for n in range(5):
            utils.clip_grad_norm_ = (lambda p, most: most) if n in (2, 3) else original
            yield step(batch(lib, n)), weights(model)
    finally:
        utils.clip_grad_norm_ = original


@case
def the_step_of_one_scheduler(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    scheduler = lib.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)

    def step(x):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
        scheduler.step()
        return optimizer.param_groups[0]["lr"]

    step = wrap(step)
    for n in range(6):
        if n == 2:
            scheduler.step = lambda: None
        if n == 4:
            del scheduler.step
        yield step(batch(lib, n)), weights(model)
