"""Models to train and to read: each file from top to bottom, shapes at the margin.

A model takes one frozen dataclass of options: ``GPT(GPTConfig(vocabulary=65, layers=6))``.
Submodules are imported when a name of theirs is first used. Text is drawn from language models with
``evergrad.models.generate``, pictures with the processes of ``evergrad.models.diffusion``.
"""

from typing import TYPE_CHECKING

from evergrad.lazy import lazy_names

_HOMES: dict[str, tuple[str, ...]] = {
    "diffusion": ("DDPM", "Flow"),
    "dit": ("DiT", "DiTConfig"),
    "flux": ("Flux", "FluxConfig"),
    "gpt": ("GPT", "GPTConfig"),
    "lenet": ("LeNet5", "LeNetConfig"),
    "lora": ("LoRAConfig", "add_lora", "merge_lora"),
    "lstm": ("LSTMConfig", "LSTMLanguageModel"),
    "mlp": ("MLP", "MLPConfig"),
    "painter": ("Painter", "PainterConfig"),
    "resnet": ("ResNet", "ResNetConfig"),
    "vit": ("ViT", "ViTConfig"),
}

if TYPE_CHECKING:
    from evergrad.models.diffusion import DDPM as DDPM
    from evergrad.models.diffusion import Flow as Flow
    from evergrad.models.dit import DiT as DiT
    from evergrad.models.dit import DiTConfig as DiTConfig
    from evergrad.models.flux import Flux as Flux
    from evergrad.models.flux import FluxConfig as FluxConfig
    from evergrad.models.gpt import GPT as GPT
    from evergrad.models.gpt import GPTConfig as GPTConfig
    from evergrad.models.lenet import LeNet5 as LeNet5
    from evergrad.models.lenet import LeNetConfig as LeNetConfig
    from evergrad.models.lora import LoRAConfig as LoRAConfig
    from evergrad.models.lora import add_lora as add_lora
    from evergrad.models.lora import merge_lora as merge_lora
    from evergrad.models.lstm import LSTMConfig as LSTMConfig
    from evergrad.models.lstm import LSTMLanguageModel as LSTMLanguageModel
    from evergrad.models.mlp import MLP as MLP
    from evergrad.models.mlp import MLPConfig as MLPConfig
    from evergrad.models.painter import Painter as Painter
    from evergrad.models.painter import PainterConfig as PainterConfig
    from evergrad.models.resnet import ResNet as ResNet
    from evergrad.models.resnet import ResNetConfig as ResNetConfig
    from evergrad.models.vit import ViT as ViT
    from evergrad.models.vit import ViTConfig as ViTConfig
else:
    __getattr__ = lazy_names("evergrad.models", _HOMES)

__all__ = [name for names in _HOMES.values() for name in names]


def __dir__() -> list[str]:
    return __all__
