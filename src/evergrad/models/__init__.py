"""Models to train and to read: each file from top to bottom, shapes at the margin.

A model takes one frozen dataclass of options: ``GPT(GPTConfig(vocabulary=65, layers=6))``.
Submodules are imported when a name of theirs is first used. Text is drawn from language models with
``evergrad.models.generate``, pictures with the processes of ``evergrad.models.diffusion``.
"""

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

__getattr__ = lazy_names("evergrad.models", _HOMES)
__all__ = [name for names in _HOMES.values() for name in names]


def __dir__() -> list[str]:
    return __all__
