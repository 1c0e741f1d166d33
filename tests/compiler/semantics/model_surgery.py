"""Models that are rebuilt, copied, pruned, extended and loaded between two calls."""

from __future__ import annotations

import copy
import importlib
import io
import pickle
from typing import Any

from .registry import Seen, attempt, batch, case, layer, leaf, mlp, ramp, weights


def trainer(lib: Any, model: Any, optimizer: Any) -> Any:
    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@case
def a_parameter_assigned_anew(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    step = wrap(trainer(lib, model, optimizer))
    for n in range(8):
        if n == 3:
            model.weight = lib.nn.Parameter(ramp(lib, 2, 3, scale=0.2))
        if n == 5:
            optimizer.param_groups[0]["params"] = list(model.parameters())
        yield step(batch(lib, n)), weights(model)


@case
def a_copy_of_the_model_trained_on(lib: Any, wrap: Any) -> Seen:
    holder = {"model": layer(lib)}

    def step(x):
        model = holder["model"]
        loss = model(x).square().mean()
        loss.backward()
        with lib.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
                p.grad = None
        return loss.detach()

    step = wrap(step)
    former = holder["model"]
    for n in range(8):
        if n == 2:
            holder["model"] = copy.deepcopy(former)
        if n == 4:
            holder["model"] = former
        if n == 6:
            holder["model"] = pickle.loads(pickle.dumps(former.state_dict())) and former
        yield step(batch(lib, n)), weights(former), weights(holder["model"])


@case
def a_state_saved_and_loaded_through_a_file(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    optimizer = lib.optim.Adam(model.parameters(), lr=0.05)
    step = wrap(trainer(lib, model, optimizer))
    file = io.BytesIO()
    for n in range(9):
        if n == 3:
            lib.save({"m": model.state_dict(), "o": optimizer.state_dict()}, file)
        if n == 6:
            file.seek(0)
            held = lib.load(file)
            model.load_state_dict(held["m"])
            optimizer.load_state_dict(held["o"])
        yield step(batch(lib, n)), weights(model), optimizer.state_dict()["state"][0]["exp_avg"]


@case
def a_state_assigned_while_loading(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    step = wrap(lambda x: model(x).sum())
    for n in range(7):
        if n in (2, 5):
            held = {k: v + 0.5 for k, v in model.state_dict().items()}
            model.load_state_dict(held, assign=n == 2)
        yield step(batch(lib, n)), model.weight


@case
def layers_appended_inserted_and_removed(lib: Any, wrap: Any) -> Seen:
    model = lib.nn.Sequential(layer(lib, 3, 3), lib.nn.Tanh())
    step = wrap(lambda x: model(x))
    for n in range(9):
        if n == 2:
            model.append(layer(lib, 3, 3))
        if n == 4:
            model.insert(1, lib.nn.ReLU())
        if n == 6:
            del model[0]
        if n == 7:
            model[0] = lib.nn.Sigmoid()
        yield step(batch(lib, n)), len(model)


@case
def experts_in_a_list_and_a_dictionary(lib: Any, wrap: Any) -> Seen:
    class Experts(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.list = lib.nn.ModuleList([layer(lib, 3, 3) for _ in range(2)])
            self.table = lib.nn.ModuleDict({"a": lib.nn.Tanh()})
            self.scales = lib.nn.ParameterList([leaf(lib, 1.0, 2.0, 3.0)])

        def forward(self, x):
            for expert, scale in zip(self.list, self.scales):  # noqa: B905
                x = expert(x) * scale
            for name in sorted(self.table):
                x = self.table[name](x)
            return x

    model = Experts()
    step = wrap(lambda x: model(x))
    for n in range(8):
        if n == 2:
            model.scales.append(leaf(lib, 0.5, 0.5, 0.5))
        if n == 4:
            model.table["b"] = lib.nn.ReLU()
        if n == 5:
            model.table.pop("a")
        if n == 6:
            model.list[0] = lib.nn.Identity()
        yield step(batch(lib, n))


@case
def parameters_frozen_layer_by_layer(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    step = wrap(trainer(lib, model, optimizer))
    for n in range(9):
        if n in (2, 6):
            model[0].requires_grad_(n == 6)
        if n in (4, 7):
            model[2].bias.requires_grad = n == 7
        yield step(batch(lib, n)), weights(model)


@case
def spectral_norm_in_training_and_evaluation(lib: Any, wrap: Any) -> Seen:
    model = lib.nn.utils.parametrizations.spectral_norm(layer(lib))
    with lib.no_grad():
        table = model.parametrizations.weight[0]
        table._u.copy_(lib.tensor([0.6, 0.8]))
        table._v.copy_(lib.tensor([1.0, 0.0, 0.0]))
    step = wrap(lambda x: model(x))
    for n in range(8):
        if n == 3:
            model.eval()
        if n == 5:
            model.train()
        yield step(batch(lib, n)), table._u, table._v


@case
def weight_norm_added_and_removed(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    parametrize = lib.nn.utils.parametrize
    step = wrap(lambda x: model(x))
    for n in range(8):
        if n == 2:
            lib.nn.utils.parametrizations.weight_norm(model)
        if n == 4:
            with lib.no_grad():
                model.parametrizations.weight.original0.mul_(2)
        if n == 6:
            parametrize.remove_parametrizations(model, "weight")
        yield step(batch(lib, n))


@case
def weights_pruned_between_calls(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    prune = importlib.import_module(f"{lib.__name__}.nn.utils.prune")
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(8):
        if n == 2:
            prune.l1_unstructured(model, "weight", amount=0.5)
        if n == 4:
            prune.random_unstructured(model, "bias", amount=1)
        if n == 6:
            prune.remove(model, "weight")
        yield step(batch(lib, n)), model.weight, model.bias


@case
def a_functional_call_with_changing_parameters(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    parameters = {k: v.detach().clone() for k, v in model.named_parameters()}
    step = wrap(lambda x, more: lib.func.functional_call(model, {**parameters, **more}, (x,)))
    for n in range(7):
        if n == 2:
            parameters["weight"] = ramp(lib, 2, 3)
        if n == 4:
            del parameters["bias"]
        yield step(batch(lib, n), {"bias": lib.ones(2) * n} if n % 2 else {})


@case
def an_average_by_in_place_lerps(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    options = {"decay": 0.5, "on": True}

    def step(x):
        optimizer.zero_grad()
        loss = (model(x) - average(x)).square().mean() + model(x).square().mean()
        loss.backward()
        optimizer.step()
        if options["on"]:
            with lib.no_grad():
                for a, p in zip(average.parameters(), model.parameters(), strict=True):
                    a.lerp_(p, 1 - options["decay"])
        return loss.detach()

    step = wrap(step)
    for n in range(9):
        if n == 3:
            options["decay"] = 0.9
        if n in (5, 7):
            options["on"] = n == 7
        if n == 6:
            model, average = average.requires_grad_(True), model.requires_grad_(False)
            optimizer = lib.optim.SGD(model.parameters(), lr=0.05)
        yield step(batch(lib, n)), weights(model), weights(average)


@case
def a_model_moved_to_another_precision(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    step = wrap(lambda x: model(x))
    for n in range(7):
        if n == 2:
            model.double()
        if n == 5:
            model.float()
        x = batch(lib, n)
        yield step(x.double() if 2 <= n < 5 else x), attempt(step, x.to(lib.int64))


@case
def weights_tied_after_some_calls(lib: Any, wrap: Any) -> Seen:
    model = lib.nn.Sequential(layer(lib, 3, 3), lib.nn.Tanh(), layer(lib, 3, 3))
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    step = wrap(trainer(lib, model, optimizer))
    for n in range(8):
        if n == 2:
            model[2].weight = model[0].weight
        if n == 5:
            model[2].weight = lib.nn.Parameter(model[0].weight.detach().clone())
        yield step(batch(lib, n)), weights(model)


@case
def parameters_as_one_vector_and_back(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    utils = lib.nn.utils
    step = wrap(lambda x: (model(x).sum(), utils.parameters_to_vector(model.parameters())))
    for n in range(6):
        if n in (2, 4):
            flat = utils.parameters_to_vector(model.parameters()).detach() * 0.5
            utils.vector_to_parameters(flat, model.parameters())
        yield step(batch(lib, n))


@case
def norms_with_cumulative_and_no_statistics(lib: Any, wrap: Any) -> Seen:
    norm = lib.nn.BatchNorm1d(3, momentum=None)
    step = wrap(lambda x: norm(x))
    for n in range(9):
        if n == 3:
            norm.momentum = 0.5
        if n == 5:
            norm.reset_running_stats()
        if n == 6:
            norm.track_running_stats = False
            norm.running_mean = norm.running_var = None
        yield step(batch(lib, n)), norm.num_batches_tracked, norm.running_mean


@case
def a_forward_bound_to_one_instance(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    step = wrap(lambda x: model(x))
    former = model[1].forward
    for n in range(7):
        if n == 2:
            model[1].forward = lambda x: former(x) * 3
        if n == 4:
            model[1].forward = type(model[1]).forward.__get__(model[1])
        if n == 5:
            del model[1].forward
        yield step(batch(lib, n))


@case
def gradients_scaled_by_a_hook_with_a_changing_factor(lib: Any, wrap: Any) -> Seen:
    model, factor = layer(lib), {"f": 1.0}
    handles = [p.register_hook(lambda g: g * factor["f"]) for p in model.parameters()]
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    step = wrap(trainer(lib, model, optimizer))
    for n in range(8):
        if n in (2, 4):
            factor["f"] = 0.5 * n
        if n == 6:
            handles[0].remove()
        yield step(batch(lib, n)), weights(model)


@case
def an_optimizer_step_in_the_backward_pass(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    table = {p: lib.optim.SGD([p], lr=0.1, momentum=0.9) for p in model.parameters()}

    def update(p):
        table[p].step()
        table[p].zero_grad()

    handles = [p.register_post_accumulate_grad_hook(update) for p in model.parameters()]

    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        return loss.detach()

    step = wrap(step)
    for n in range(8):
        if n == 3:
            for optimizer in table.values():
                optimizer.param_groups[0]["lr"] = 0.01
        if n == 5:
            handles[0].remove()
        yield step(batch(lib, n)), weights(model)


@case
def a_lazy_layer_and_a_reset(lib: Any, wrap: Any) -> Seen:
    model = lib.nn.Sequential(lib.nn.LazyLinear(2), lib.nn.Tanh())
    step = wrap(lambda x: model(x).sum())
    for n in range(6):
        if n == 3:
            with lib.no_grad():
                model[0].weight.fill_(0.1)
                model[0].bias.zero_()
        found = step(batch(lib, n))
        yield found if n >= 3 else tuple(model[0].weight.shape)
