"""Schedulers, gradient scalers and averaged models in the step."""

from __future__ import annotations

import copy
from typing import Any

from .optimizers import training
from .registry import Seen, batch, case, layer, weights


@case
def a_scheduler_inside(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    scheduler = lib.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)

    def step(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        scheduler.step()

    step = wrap(step)
    for n in range(6):
        step(batch(lib, n))
        yield weights(model), scheduler.get_last_lr(), scheduler.last_epoch


@case
def a_cosine_scheduler_inside(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = lib.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)

    def step(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        scheduler.step()
        return scheduler.get_last_lr()[0]

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n)), weights(model)


@case
def a_lambda_scheduler_outside(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    scheduler = lib.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1.0 / (n + 1))
    step = wrap(training(lib, model, optimizer))
    for n in range(5):
        yield step(batch(lib, n)), weights(model)
        scheduler.step()


@case
def a_one_cycle_scheduler_inside(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = lib.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=10)

    def step(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        scheduler.step()

    step = wrap(step)
    for n in range(5):
        step(batch(lib, n))
        yield weights(model), optimizer.param_groups[0]["momentum"]


@case
def a_plateau_scheduler_inside(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    scheduler = lib.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        scheduler.step(loss.item())

    step = wrap(step)
    for n in (0, 3, 1, 4, 2):
        step(batch(lib, n) * (n + 1))
        yield model.weight, optimizer.param_groups[0]["lr"]


@case
def a_grad_scaler(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    scaler = lib.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    step = wrap(step)
    for n in range(6):
        x = batch(lib, n)
        if n == 3:
            x[0, 0] = float("inf")
        step(x)
        yield model.weight, scaler.get_scale()


@case
def a_grad_scaler_with_unscaling(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.AdamW(model.parameters(), lr=0.1)
    scaler = lib.amp.GradScaler("cpu", init_scale=16.0)

    def step(x, limit):
        optimizer.zero_grad()
        scaler.scale(model(x).square().mean()).backward()
        scaler.unscale_(optimizer)
        norm = lib.nn.utils.clip_grad_norm_(model.parameters(), limit)
        scaler.step(optimizer)
        scaler.update()
        return norm

    step = wrap(step)
    for n in range(4):
        yield step(batch(lib, n), 0.1 * (n + 1)), weights(model)


@case
def an_averaged_model(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    average = lib.optim.swa_utils.AveragedModel(model)
    train = training(lib, model, optimizer)

    def step(x):
        train(x)
        average.update_parameters(model)
        return average(x).sum()

    step = wrap(step)
    for n in range(4):
        yield step(batch(lib, n)), list(average.module.parameters()), average.n_averaged


@case
def an_ema_model(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    ema = copy.deepcopy(model)
    decay = 0.5
    train = training(lib, model, optimizer)

    def step(x):
        train(x)
        with lib.no_grad():
            for a, b in zip(ema.parameters(), model.parameters(), strict=True):
                a.lerp_(b, 1 - decay)

    step = wrap(step)
    for n in range(5):
        decay = 0.1 * n
        step(batch(lib, n))
        yield weights(ema), weights(model)


@case
def a_warm_up_scheduler_chained(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    schedule = lib.optim.lr_scheduler
    warm = schedule.LinearLR(optimizer, start_factor=0.1, total_iters=2)
    decay = schedule.ExponentialLR(optimizer, gamma=0.5)
    both = schedule.SequentialLR(optimizer, [warm, decay], milestones=[2])
    step = wrap(training(lib, model, optimizer))
    for n in range(5):
        yield step(batch(lib, n)), weights(model)
        both.step()
