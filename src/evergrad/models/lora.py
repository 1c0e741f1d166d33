"""LoRA: linear layers learn a sum of few outer products beside frozen weights.

``weight + scale * B @ A`` with A (rank, inputs) and B (outputs, rank), scale = alpha / rank. B
begins at zero, so an adapted model begins as it was. Adapters are saved alone, in the layout of the
package ``peft``, merged into the weights, or exchanged for others while a model is in use.
"""

# Modules called give Any, and so do methods of tensors, which are attached at run time.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import evergrad as eg
from evergrad import config as limits
from evergrad import nn
from evergrad.io.safetensors import load_file, save_file
from evergrad.models.model import require
from evergrad.models.packed import PackedLinear, pack_weight
from evergrad.nn import functional as F
from evergrad.utils.atomic_file import replacing
from evergrad.utils.bounded_read import read_json

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
_PREFIX = "base_model.model."


@dataclass(frozen=True)
class LoRAConfig:
    """The size of an adapter and the layers it is for.

    >>> eg.models.LoRAConfig(rank=4).alpha
    16.0
    """

    rank: int = 8
    alpha: float = 16.0
    # Names of linear layers, or their last parts; ``*`` matches anything.
    targets: tuple[str, ...] = ("qkv", "out", "widen", "gate")

    def __post_init__(self) -> None:
        require(self.rank >= 1, f"rank is {self.rank}", "choose 1 or more")
        require(self.alpha > 0, f"alpha is {self.alpha}", "choose a number above 0")
        require(len(self.targets) > 0, "targets is empty", "name layers, such as qkv")

    @property
    def scale(self) -> float:
        """The factor of the adapter: alpha / rank."""
        return self.alpha / self.rank

    def chooses(self, name: str) -> bool:
        """Whether the layer of this full name gets an adapter."""
        last = name.rpartition(".")[2]
        return any(fnmatchcase(name, t) or fnmatchcase(last, t) for t in self.targets)


class LoRALinear(nn.Linear):
    """A linear layer that is frozen, and the adapter that learns in its place."""

    bias: nn.Parameter
    weight: nn.Parameter

    def __init__(self, base: nn.Linear, config: LoRAConfig) -> None:
        super().__init__(base.in_features, base.out_features, bias=base.bias is not None)
        self.weight, self.bias = base.weight, base.bias
        self.scale: float = config.scale
        dtype = base.weight.dtype
        self.lora_A: nn.Parameter = nn.Parameter(
            eg.empty(config.rank, base.in_features, dtype=dtype)
        )
        self.lora_B: nn.Parameter = nn.Parameter(
            eg.zeros(base.out_features, config.rank, dtype=dtype)
        )
        nn.init.kaiming_uniform_(self.lora_A, a=5**0.5)

    def forward(self, x: eg.Tensor) -> eg.Tensor:  # (..., inputs) -> (..., outputs)
        learned = F.linear(F.linear(x, self.lora_A), self.lora_B)
        return F.linear(x, self.weight, self.bias) + self.scale * learned

    def merged(self) -> nn.Linear:
        """A plain layer that computes the same."""
        found = nn.Linear(self.in_features, self.out_features, bias=self.bias is not None)
        with eg.no_grad():
            weight = self.weight + self.scale * (self.lora_B @ self.lora_A)
        found.weight, found.bias = nn.Parameter(weight), self.bias
        return found


def add_lora(model: nn.Module, config: LoRAConfig) -> list[str]:
    """Freeze a model and give the chosen linear layers adapters; gives the names of these layers.

    ::

        add_lora(model, LoRAConfig(rank=4, targets=("qkv",)))

    Args:
        model: the model; it is changed
        config: rank, scale and layers

    >>> model = eg.models.GPT(eg.models.GPTConfig(vocabulary=10, layers=1, width=16))
    >>> names = eg.models.add_lora(model, eg.models.LoRAConfig(rank=2))
    >>> len(names)
    4
    """
    chosen = [
        (name, layer)
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and config.chooses(name)
    ]
    linear = sorted({n.rpartition(".")[2] for n, m in model.named_modules() if _is_linear(m)})
    require(
        bool(chosen),
        f"no linear layer is called {' or '.join(config.targets)}",
        f"choose targets among {', '.join(linear)}",
    )
    require(
        not any(isinstance(layer, LoRALinear) for _, layer in chosen),
        "the model has an adapter already",
        "merge it first, or load the other in its place with load_adapter",
    )
    model.requires_grad_(False)
    for name, layer in chosen:
        _replace(model, name, LoRALinear(layer, config))
    return [name for name, _ in chosen]


def merge_lora(model: nn.Module) -> None:
    """Make plain layers of adapted ones, which compute the same; nothing is frozen any more.

    Args:
        model: a model that :func:`add_lora` has changed

    >>> model = eg.models.GPT(eg.models.GPTConfig(vocabulary=10, layers=1, width=16))
    >>> names = eg.models.add_lora(model, eg.models.LoRAConfig(rank=2))
    >>> x = eg.zeros(1, 4, dtype=eg.int64)
    >>> before = model(x)
    >>> eg.models.merge_lora(model)
    >>> eg.allclose(model(x), before, atol=1e-5)
    True
    """
    for name, layer in list(adapted_layers(model)):
        _replace(model, name, layer.merged())
    model.requires_grad_(True)


def adapted_layers(model: nn.Module) -> Iterator[tuple[str, LoRALinear]]:
    """The layers with adapters by name."""
    for name, layer in model.named_modules():
        if isinstance(layer, LoRALinear):
            yield name, layer


def adapter_state(model: nn.Module) -> dict[str, eg.Tensor]:
    """The adapters' tensors under the names ``peft`` gives them."""
    found = {}
    for name, layer in adapted_layers(model):
        found[f"{_PREFIX}{name}.lora_A.weight"] = layer.lora_A.detach()
        found[f"{_PREFIX}{name}.lora_B.weight"] = layer.lora_B.detach()
    require(bool(found), "the model has no adapter", "give it one with add_lora")
    return found


def save_adapter(model: nn.Module, folder: str | Path, config: LoRAConfig) -> None:
    """Write the adapters of a model alone: a few numbers beside the weights of the model."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    save_file(adapter_state(model), place / WEIGHTS)
    described = {
        "peft_type": "LORA", "r": config.rank, "lora_alpha": config.alpha,
        "target_modules": list(config.targets), "bias": "none", "fan_in_fan_out": False,
    }  # fmt: skip
    with replacing(place / CONFIG) as file:
        file.write(json.dumps(described, indent=2).encode())


def read_adapter(folder: str | Path) -> Adapter:
    """The adapters that :func:`save_adapter` wrote."""
    place = Path(folder)
    try:
        described = read_json(
            place / CONFIG, limits.TOKENIZER_BYTES, "set EVERGRAD_TOKENIZER_BYTES"
        )
        tensors = load_file(place / WEIGHTS)
        targets = described["target_modules"]
        config = LoRAConfig(described["r"], described["lora_alpha"], tuple(targets))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{place} has no adapter that can be read: {error!r}.\n"
            f"  fix: name a folder with {CONFIG} and {WEIGHTS}."
        ) from error
    return Adapter(config, tensors)


@dataclass(frozen=True)
class Adapter:
    """An adapter apart from its model."""

    config: LoRAConfig
    tensors: Mapping[str, eg.Tensor]

    @classmethod
    def of(cls, model: nn.Module, config: LoRAConfig) -> Adapter:
        return cls(config, {name: value.clone() for name, value in adapter_state(model).items()})

    def describe(self) -> dict[str, object]:
        return asdict(self.config)

    def layers(self) -> dict[str, tuple[eg.Tensor, eg.Tensor]]:
        """A and B of each layer by its name."""
        ends = (".lora_A.weight", ".lora_B.weight")
        names = [n.removeprefix(_PREFIX).removesuffix(ends[0]) for n in self.tensors]
        named = [n for n in names if not n.endswith(ends[1])]
        get = self.tensors.__getitem__
        return {n: (get(_PREFIX + n + ends[0]), get(_PREFIX + n + ends[1])) for n in named}


def load_adapter(model: nn.Module, adapter: Adapter) -> None:
    """Give a model this adapter in place of the one it has, if it has any."""
    if not any(adapted_layers(model)):
        add_lora(model, adapter.config)
    own = dict(adapted_layers(model))
    given = adapter.layers()
    _require_fits(adapter, {n: (m.lora_A.shape, m.lora_B.shape) for n, m in own.items()})
    with eg.no_grad():
        for name, (a, b) in given.items():
            own[name].lora_A.copy_(a)
            own[name].lora_B.copy_(b)
            own[name].scale = adapter.config.scale


class AdapterSwitch:
    """Exchanges the adapter that is merged into the weights of a model in use.

    Weights are written in place, so compiled programs see them at their next call. The former ones
    are kept and copied back: a model without adapter has the very bits it had.
    """

    def __init__(self, model: nn.Module, adapters: Mapping[str, Adapter]) -> None:
        self.adapters: dict[str, Adapter] = dict(adapters)
        self.current: str | None = None
        layers = {
            n: m for n, m in model.named_modules() if isinstance(m, (nn.Linear, PackedLinear))
        }
        for adapter in self.adapters.values():
            sizes = {n: _sizes(layers[n]) for n in adapter.layers() if n in layers}
            rank = adapter.config.rank
            _require_fits(
                adapter,
                {n: (eg.Size([rank, s[1]]), eg.Size([s[0], rank])) for n, s in sizes.items()},
            )
        used = {name for adapter in self.adapters.values() for name in adapter.layers()}
        self._weights = {name: layers[name].weight for name in sorted(used)}
        self._plain = {name: w.detach().clone() for name, w in self._weights.items()}

    def use(self, name: str | None) -> None:
        """Compute with the adapter of this name from now on; ``None`` for the model alone."""
        if name == self.current:
            return
        given = {} if name is None else self.adapters[name].layers()
        scale = 1.0 if name is None else self.adapters[name].config.scale
        with eg.no_grad():
            for layer, weight in self._weights.items():
                weight.copy_(self._plain[layer])
                if layer in given:
                    a, b = given[layer]
                    learned = scale * (b @ a)
                    weight.add_(learned if weight.ndim == 2 else pack_weight(learned))
        self.current = name


def _sizes(layer: nn.Module) -> tuple[int, int]:
    """Outputs and inputs of a linear layer."""
    if isinstance(layer, PackedLinear):
        return layer.outputs, layer.inputs
    outputs, inputs = layer.weight.shape
    return outputs, inputs


def _require_fits(adapter: Adapter, expected: Mapping[str, Sequence[Sequence[int]]]) -> None:
    """The layers and shapes of an adapter have to be those of the model."""
    for name, parts in adapter.layers().items():
        require(
            name in expected,
            f"the adapter is for a layer {name}, which the model does not have",
            "use it with the model it was trained for",
        )
        shapes = [tuple(part.shape) for part in parts]
        wanted = [tuple(shape) for shape in expected[name]]
        require(
            shapes == wanted,
            f"the adapter of {name} has the shapes {shapes}, the model needs {wanted}",
            "use it with the model it was trained for",
        )


def _is_linear(module: object) -> bool:
    return isinstance(module, nn.Linear)


def _replace(model: nn.Module, name: str, layer: nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, layer)
