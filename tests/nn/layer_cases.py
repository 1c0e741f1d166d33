"""The table of layers: how each is made and called, in evergrad and in PyTorch alike.

Arguments are NumPy arrays. Float arrays become tensors that ask for their gradient, unless they
are wrapped in :class:`Fixed`; integers and booleans become plain tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_random = np.random.default_rng(20)


@dataclass
class Fixed:
    """A float argument whose gradient is not asked for."""

    array: Array


@dataclass
class Case:
    """A layer and the arguments it is called with."""

    name: str
    build: Callable[[Any], Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    # How the layer is called, where that is not simply ``layer(*args, **kwargs)``.
    call: Callable[..., Any] | None = None
    # How far PyTorch itself is off in float64.
    error: float = 0.0

    def __str__(self) -> str:
        return self.name


def normal(*shape: int) -> Array:
    return _random.standard_normal(shape)


def uniform(*shape: int) -> Array:
    """Strictly between 0 and 1."""
    return _random.uniform(0.05, 0.95, shape)


def distinct(*shape: int) -> Array:
    """Shuffled numbers without ties, for maxima."""
    return _random.permutation(int(np.prod(shape))).reshape(shape) / 7.0 - 2.0


def whole(high: int, *shape: int) -> Array:
    return _random.integers(0, high, shape)


def signs(*shape: int) -> Array:
    return _random.choice([-1.0, 1.0], shape)


CASES: list[Case] = []


def case(layer: str, *given: Any, args: tuple[Any, ...], note: str = "", **options: Any) -> None:
    """Add a layer of ``nn`` made with the given arguments; ``args`` are what it is called with."""
    about = {k: options.pop(k) for k in ("call", "kwargs", "error") if k in options}
    words = [str(g) for g in given] + [f"{k}={v}" for k, v in options.items()] + [note]
    name = f"{layer}({', '.join(w for w in words if w)})"
    add(name, lambda ns: getattr(ns.nn, layer)(*given, **options), args, **about)


def add(name: str, build: Callable[[Any], Any], args: tuple[Any, ...], **about: Any) -> None:
    """Add a layer that is made by a function of the namespace."""
    CASES.append(Case(name, build, args, **about))


# -- matrices -----------------------------------------------------------------------------------

case("Identity", 54, unused=True, args=(normal(2, 3),))
case("Linear", 3, 4, args=(normal(2, 3),))
case("Linear", 3, 4, bias=False, args=(normal(2, 2, 3),))
case("Linear", 3, 4, args=(normal(3),), note="vector")
case("Bilinear", 3, 2, 4, args=(normal(5, 3), normal(5, 2)))
case("Bilinear", 3, 2, 4, bias=False, args=(normal(2, 5, 3), normal(2, 5, 2)))

# -- activations --------------------------------------------------------------------------------

for _layer in (
    "CELU", "ELU", "GELU", "Hardshrink", "Hardswish", "Hardtanh", "LeakyReLU", "LogSigmoid",
    "Mish", "PReLU", "ReLU", "ReLU6", "SELU", "Sigmoid", "SiLU", "Softplus", "Softshrink",
    "Softsign", "Tanh", "Tanhshrink",
):  # fmt: skip
    case(_layer, args=(3 * normal(3, 4),))
for _inplace in (False, True):
    case("Hardsigmoid", inplace=_inplace, args=(normal(3, 4),), error=1e-7,
         call=lambda ns, m, x: m(x + 1))  # fmt: skip
    case("RReLU", 0.1, 0.9, inplace=_inplace, args=(normal(3, 4),),
         call=lambda ns, m, x: m(x + 1))  # fmt: skip
case("CELU", 0.5, args=(normal(3, 4),))
case("ELU", 2.0, args=(normal(3, 4),))
case("GELU", "tanh", args=(normal(3, 4),))
case("GLU", args=(normal(3, 4),))
case("GLU", 0, args=(normal(4, 3),))
case("Hardshrink", 0.8, args=(normal(3, 4),))
case("Hardtanh", -2.0, 0.5, args=(normal(3, 4),))
case("LeakyReLU", 0.2, args=(normal(3, 4),))
case("PReLU", 4, args=(normal(3, 4, 2),))
case("PReLU", 4, init=0.1, args=(normal(3, 4),))
case("Softmax", 1, args=(normal(3, 4),))
case("Softmax", dim=-1, args=(normal(2, 3, 4),))
case("Softmax2d", args=(normal(2, 3, 2, 2),))
case("Softmin", 1, args=(normal(3, 4),))
case("LogSoftmax", 0, args=(normal(3, 4),))
case("Softplus", 2.0, 1.0, args=(normal(3, 4),))
case("Softshrink", 0.1, args=(normal(3, 4),))
case("Threshold", 0.1, 20.0, args=(normal(3, 4),))

# With inplace=True a leaf cannot be the input; the sum in between is written to.
for _layer in (
    "CELU", "ELU", "Hardswish", "Hardtanh", "LeakyReLU", "Mish", "ReLU", "ReLU6", "SELU", "SiLU",
):  # fmt: skip
    case(_layer, inplace=True, args=(normal(3, 4),), call=lambda ns, m, x: m(x + 1))
case("Dropout", inplace=True, args=(normal(3, 4),), call=lambda ns, m, x: m(x + 1))

# -- convolutions -------------------------------------------------------------------------------

case("Conv1d", 2, 4, 3, args=(normal(2, 2, 7),))
case("Conv1d", 4, 4, 3, stride=2, padding=1, groups=2, args=(normal(2, 4, 7),))
case("Conv1d", 2, 4, 3, args=(normal(2, 7),), note="no batch")
for _mode in ("zeros", "reflect", "replicate", "circular"):
    case("Conv1d", 2, 3, 3, padding=2, padding_mode=_mode, args=(normal(2, 2, 6),))
    case("Conv2d", 2, 3, 3, padding=(1, 2), padding_mode=_mode, args=(normal(2, 2, 5, 4),))
    case("Conv1d", 2, 3, 4, padding="same", padding_mode=_mode, args=(normal(2, 2, 6),))
case("Conv3d", 2, 3, 2, padding=1, padding_mode="circular", args=(normal(1, 2, 3, 3, 3),))
case("Conv2d", 2, 3, (3, 2), args=(normal(2, 2, 5, 4),))
case("Conv2d", 2, 3, 3, padding="valid", dilation=2, args=(normal(1, 2, 6, 5),))
case("Conv2d", 2, 3, 3, padding="same", dilation=2, bias=False, args=(normal(1, 2, 6, 5),))
case("Conv2d", 4, 8, 3, stride=(2, 1), groups=4, bias=False, args=(normal(1, 4, 5, 5),))
case("Conv2d", 2, 3, 1, args=(normal(2, 2, 3, 3),))
case("Conv2d", 2, 3, 2, args=(normal(2, 4, 4),), note="no batch")
case("Conv3d", 2, 3, 2, args=(normal(1, 2, 3, 3, 3),))
case("Conv3d", 2, 2, (1, 2, 3), stride=(1, 2, 1), groups=2, args=(normal(1, 2, 2, 4, 3),))
case("ConvTranspose1d", 2, 3, 3, args=(normal(2, 2, 5),))
case("ConvTranspose1d", 4, 4, 3, 2, 1, 1, groups=2, dilation=2, args=(normal(2, 4, 5),))
case("ConvTranspose2d", 2, 3, 3, args=(normal(1, 2, 4, 4),))
case("ConvTranspose2d", 2, 4, 3, stride=2, padding=1, groups=2, bias=False,
     args=(normal(1, 2, 4, 3),))  # fmt: skip
case("ConvTranspose2d", 2, 3, 3, stride=2, args=(normal(1, 2, 3, 3),),
     kwargs={"output_size": (8, 7)}, note="output_size")  # fmt: skip
case("ConvTranspose3d", 2, 3, 2, args=(normal(1, 2, 2, 3, 2),))
case("ConvTranspose3d", 2, 2, 2, stride=2, output_padding=1, args=(normal(1, 2, 2, 2, 2),))

# -- norms --------------------------------------------------------------------------------------

_SIZES = {1: (5,), 2: (4, 3), 3: (2, 3, 2)}
for _n, _size in _SIZES.items():
    for _options in (
        {}, {"affine": False}, {"track_running_stats": False}, {"momentum": None}, {"eps": 0.1},
        {"momentum": 0.3, "affine": False}, {"bias": False},
    ):  # fmt: skip
        case(f"BatchNorm{_n}d", 3, args=(normal(4, 3, *_size),), **_options)
    for _options in (
        {}, {"affine": True}, {"track_running_stats": True, "affine": True},
        {"affine": True, "bias": False},
    ):  # fmt: skip
        case(f"InstanceNorm{_n}d", 3, args=(normal(4, 3, *_size),), **_options)
    case(f"InstanceNorm{_n}d", 3, args=(normal(3, *_size),), note="no batch")
case("BatchNorm1d", 3, args=(normal(5, 3),), note="matrix")
case("LayerNorm", 4, args=(normal(3, 4),))
case("LayerNorm", (3, 4), eps=0.1, args=(normal(2, 3, 4),))
case("LayerNorm", [4], bias=False, args=(normal(3, 4),))
case("LayerNorm", 4, elementwise_affine=False, args=(normal(3, 4),))
case("RMSNorm", 4, args=(normal(3, 4),))
case("RMSNorm", (3, 4), eps=0.1, elementwise_affine=False, args=(normal(2, 3, 4),))
case("GroupNorm", 2, 4, args=(normal(3, 4, 5),))
case("GroupNorm", 4, 4, affine=False, eps=0.1, args=(normal(3, 4, 2, 2),))
case("GroupNorm", 1, 4, args=(normal(3, 4),))
case("GroupNorm", 2, 4, bias=False, args=(normal(3, 4),))
case("SyncBatchNorm", 3, args=(normal(4, 3, 2),))
case("LocalResponseNorm", 2, args=(normal(2, 5, 4),))
case("LocalResponseNorm", 3, alpha=0.1, beta=0.5, k=2.0, args=(normal(2, 5, 4, 3),))
# With more channels PyTorch's sums over the window never lose the first one, in gradients sooner.
case("CrossMapLRN2d", 3, alpha=0.1, args=(Fixed(normal(2, 2, 4, 3)),))

# -- pooling ------------------------------------------------------------------------------------

for _n, _size in {1: (7,), 2: (6, 5), 3: (4, 5, 4)}.items():
    _image = distinct(2, 2, *_size)
    case(f"MaxPool{_n}d", 2, args=(_image,))
    case(f"MaxPool{_n}d", 3, stride=2, padding=1, args=(_image,))
    case(f"MaxPool{_n}d", 2, stride=1, dilation=2, ceil_mode=True, args=(_image,))
    case(f"MaxPool{_n}d", 2, return_indices=True, args=(_image,))
    case(f"AvgPool{_n}d", 2, args=(_image,))
    case(f"AvgPool{_n}d", 3, stride=2, padding=1, ceil_mode=True, args=(_image,))
    case(f"AvgPool{_n}d", 3, padding=1, count_include_pad=False, args=(_image,))
    case(f"LPPool{_n}d", 2, 2, args=(_image,))
    case(f"LPPool{_n}d", 1.5, 3, stride=2, ceil_mode=True, args=(np.abs(_image) + 0.1,))
    case(f"AdaptiveAvgPool{_n}d", 3, args=(_image,))
    case(f"AdaptiveMaxPool{_n}d", 3, args=(_image,))
    case(f"AdaptiveMaxPool{_n}d", 2, return_indices=True, args=(_image,))
    add(
        f"MaxUnpool{_n}d", lambda ns, n=_n: getattr(ns.nn, f"MaxUnpool{n}d")(2), (_image,),
        call=functools.partial(
            lambda ns, m, x, n: m(
                *getattr(ns.nn.functional, f"max_pool{n}d")(x, 2, return_indices=True),
                output_size=x.shape,
            ),
            n=_n,
        ),
    )  # fmt: skip
case("MaxPool2d", (2, 3), (1, 2), args=(distinct(2, 4, 5),), note="no batch")
case("AvgPool2d", (2, 3), divisor_override=5, args=(normal(1, 2, 4, 5),))
case("AdaptiveAvgPool2d", (None, 2), args=(normal(1, 2, 4, 5),))
case("AdaptiveMaxPool2d", (1, None), args=(distinct(1, 2, 4, 5),))

# -- padding, shape, dropout --------------------------------------------------------------------

for _n, _size in {1: (5,), 2: (4, 5), 3: (3, 4, 5)}.items():
    for _kind in ("Reflection", "Replication", "Circular", "Zero"):
        case(f"{_kind}Pad{_n}d", 2, args=(normal(1, 2, *_size),))
        case(f"{_kind}Pad{_n}d", (1, 2) * _n, args=(normal(1, 2, *_size),))
    case(f"ConstantPad{_n}d", 1, 3.5, args=(normal(1, 2, *_size),))
    case(f"ConstantPad{_n}d", (1, 0) * _n, -1.0, args=(normal(1, 2, *_size),))
case("ZeroPad2d", (-1, 1, 0, 2), args=(normal(1, 2, 4, 4),))
case("Flatten", args=(normal(2, 3, 4),))
case("Flatten", 0, 1, args=(normal(2, 3, 4),))
case("Unflatten", 1, (2, 3), args=(normal(2, 6),))
case("Fold", (4, 5), (2, 2), args=(normal(2, 12, 12),))
case("Fold", 6, 3, padding=1, stride=2, dilation=2, args=(normal(1, 18, 4),))
case("Unfold", 2, args=(normal(2, 3, 4, 5),))
case("Unfold", (2, 3), dilation=2, padding=2, stride=2, args=(normal(1, 2, 6, 6),))
case("PixelShuffle", 2, args=(normal(1, 8, 2, 3),))
case("PixelUnshuffle", 2, args=(normal(1, 2, 4, 6),))
case("ChannelShuffle", 2, args=(normal(1, 4, 2, 2),))
case("Upsample", scale_factor=2, args=(normal(1, 2, 3),))
case("Upsample", size=5, mode="linear", args=(normal(1, 2, 3),))
case("Upsample", size=(5, 4), mode="bilinear", args=(normal(1, 2, 3, 3),))
case("Upsample", scale_factor=(2.0, 1.5), mode="bilinear", align_corners=True,
     args=(normal(1, 2, 3, 4),))  # fmt: skip
case("Upsample", scale_factor=2, mode="bicubic", args=(normal(1, 2, 3, 3),))
case("Upsample", scale_factor=2, mode="trilinear", args=(normal(1, 1, 2, 3, 2),))
case("UpsamplingNearest2d", scale_factor=2, args=(normal(1, 2, 3, 3),))
case("UpsamplingBilinear2d", size=(5, 4), args=(normal(1, 2, 3, 3),))
case("Dropout", args=(normal(6, 7),))
case("Dropout", 0.0, args=(normal(3, 4),))
case("Dropout", 1.0, args=(normal(3, 4),))
case("Dropout1d", 0.3, args=(normal(3, 4, 2),))
case("Dropout2d", 0.3, args=(normal(3, 4, 2, 2),))
case("Dropout3d", 0.3, args=(normal(3, 4, 2, 2, 1),))
case("AlphaDropout", 0.3, args=(normal(6, 7),))
case("FeatureAlphaDropout", 0.3, args=(normal(6, 7, 2),))

# -- embeddings ---------------------------------------------------------------------------------

case("Embedding", 7, 3, args=(whole(7, 2, 4),))
case("Embedding", 7, 3, padding_idx=-2, args=(whole(7, 3, 6),))
case("Embedding", 7, 3, scale_grad_by_freq=True, args=(whole(7, 3, 6),))
case("Embedding", 7, 3, max_norm=1.0, args=(whole(7, 2, 4),))
case("Embedding", 7, 3, max_norm=1.0, norm_type=1.0, args=(whole(7, 2, 4),))
for _mode in ("sum", "mean", "max"):
    case("EmbeddingBag", 7, 3, mode=_mode, args=(whole(7, 2, 4),))
    case("EmbeddingBag", 7, 3, mode=_mode, padding_idx=1,
         args=(whole(7, 9), np.array([0, 2, 2, 5])), note="offsets")  # fmt: skip
case("EmbeddingBag", 7, 3, mode="sum", include_last_offset=True,
     args=(whole(7, 9), np.array([0, 2, 5, 9])))  # fmt: skip
case("EmbeddingBag", 7, 3, mode="sum", args=(whole(7, 2, 4),),
     kwargs={"per_sample_weights": normal(2, 4)}, note="weights")  # fmt: skip
case("EmbeddingBag", 7, 3, max_norm=1.0, args=(whole(7, 2, 4),))
# PyTorch divides by the counts of other indices if these are not all equal.
case("EmbeddingBag", 7, 3, mode="sum", scale_grad_by_freq=True,
     args=(np.array([[1, 5, 2], [5, 1, 2]]),))  # fmt: skip
case("AdaptiveLogSoftmaxWithLoss", 8, 12, [4, 8], div_value=2.0,
     args=(normal(6, 8), np.array([0, 3, 5, 9, 11, 4])))  # fmt: skip
case("AdaptiveLogSoftmaxWithLoss", 8, 12, [4], head_bias=True,
     args=(normal(8), np.array(7)), note="single")  # fmt: skip

# -- losses -------------------------------------------------------------------------------------

for _reduction in ("mean", "sum", "none"):
    _r = {"reduction": _reduction}
    _pair = (normal(3, 4), normal(3, 4))
    case("L1Loss", args=_pair, **_r)
    case("MSELoss", args=_pair, **_r)
    case("SmoothL1Loss", beta=0.5, args=_pair, **_r)
    case("HuberLoss", delta=0.7, args=_pair, **_r)
    case("PoissonNLLLoss", args=(normal(3, 4), Fixed(uniform(3, 4))), **_r)
    case("PoissonNLLLoss", log_input=False, full=True,
         args=(uniform(3, 4), Fixed(5 * uniform(3, 4))), **_r)  # fmt: skip
    case("GaussianNLLLoss", args=(*_pair, uniform(3, 4)), **_r)
    case("GaussianNLLLoss", full=True, args=(*_pair, uniform(3, 1)), **_r)
    case("KLDivLoss", args=(normal(3, 4), uniform(3, 4)), **_r)
    case("KLDivLoss", log_target=True, args=_pair, **_r)
    case("BCELoss", args=(uniform(3, 4), uniform(3, 4)), **_r)
    case("BCEWithLogitsLoss", args=(normal(3, 4), uniform(3, 4)), **_r)
    case("CrossEntropyLoss", args=(normal(3, 4), whole(4, 3)), **_r)
    case("CrossEntropyLoss", label_smoothing=0.1, args=(normal(3, 4), whole(4, 3)), **_r)
    case("CrossEntropyLoss", ignore_index=1, label_smoothing=0.2,
         args=(normal(4, 4), np.array([0, 1, 3, 1])), **_r)  # fmt: skip
    case("CrossEntropyLoss", args=(normal(2, 4, 3), whole(4, 2, 3)), note="sequence", **_r)
    case("CrossEntropyLoss", args=(normal(3, 4), uniform(3, 4)), note="probabilities", **_r)
    case("CrossEntropyLoss", label_smoothing=0.1, args=(normal(3, 4), uniform(3, 4)),
         note="probabilities", **_r)  # fmt: skip
    case("NLLLoss", args=(normal(3, 4), whole(4, 3)), **_r)
    case("NLLLoss", ignore_index=2, args=(normal(2, 4, 2, 2), whole(4, 2, 2, 2)), **_r)
    case("HingeEmbeddingLoss", margin=0.5, args=(normal(3, 4), Fixed(signs(3, 4))), **_r)
    case("SoftMarginLoss", args=(normal(3, 4), Fixed(signs(3, 4))), **_r)
    case("MultiLabelMarginLoss", args=(normal(2, 4), np.array([[1, 3, -1, 0], [2, -1, 1, 0]])),
         **_r)  # fmt: skip
    case("MultiLabelSoftMarginLoss", args=(normal(3, 4), Fixed(uniform(3, 4))), **_r)
    case("CosineEmbeddingLoss", margin=0.1, args=(*_pair, Fixed(signs(3))), **_r)
    case("MarginRankingLoss", margin=0.1, args=(normal(5), normal(5), Fixed(signs(5))), **_r)
    case("MultiMarginLoss", args=(normal(3, 4), whole(4, 3)), **_r)
    case("MultiMarginLoss", p=2, margin=0.5, args=(normal(3, 4), whole(4, 3)), **_r)
    case("TripletMarginLoss", args=(*_pair, normal(3, 4)), **_r)
    case("TripletMarginLoss", margin=0.5, p=3.0, swap=True, args=(*_pair, normal(3, 4)), **_r)
    case("TripletMarginWithDistanceLoss", swap=True, args=(*_pair, normal(3, 4)), **_r)
    for _zero in (False, True):
        case(
            "CTCLoss", zero_infinity=_zero, **_r,
            args=(normal(8, 3, 5), np.array([[1, 2, 2], [3, 1, 1], [4, 4, 1]]),
                  np.array([8, 7, 6]), np.array([3, 2, 1])),
            call=lambda ns, m, x, *rest: m(x.log_softmax(2), *rest),
        )  # fmt: skip
for _layer, _args in {
    "BCELoss": (uniform(3, 4), Fixed(uniform(3, 4))),
    "BCEWithLogitsLoss": (normal(3, 4), Fixed(uniform(3, 4))),
    "CrossEntropyLoss": (normal(3, 4), whole(4, 3)),
    "NLLLoss": (normal(3, 4), whole(4, 3)),
    "MultiMarginLoss": (normal(3, 4), whole(4, 3)),
    "MultiLabelSoftMarginLoss": (normal(3, 4), Fixed(uniform(3, 4))),
}.items():
    add(
        f"{_layer}(weight)",
        lambda ns, layer=_layer: getattr(ns.nn, layer)(weight=ns.tensor([0.5, 1.0, 2.0, 0.25])),
        _args,
    )
add(
    "BCEWithLogitsLoss(pos_weight)",
    lambda ns: ns.nn.BCEWithLogitsLoss(pos_weight=ns.tensor([0.5, 1.0, 2.0, 3.0])),
    (normal(3, 4), uniform(3, 4)),
)
add(
    "CrossEntropyLoss(weight, label_smoothing)",
    lambda ns: ns.nn.CrossEntropyLoss(ns.tensor([0.5, 1.0, 2.0, 0.25]), label_smoothing=0.3),
    (normal(3, 4), whole(4, 3)),
)
case("CosineSimilarity", args=(normal(3, 4), normal(3, 4)))
case("CosineSimilarity", dim=0, eps=0.5, args=(normal(3, 4), normal(3, 4)))
case("PairwiseDistance", args=(normal(3, 4), normal(3, 4)))
case("PairwiseDistance", p=1.0, keepdim=True, args=(normal(3, 4), normal(3, 4)))

# -- recurrence ---------------------------------------------------------------------------------


def _packed(ns: Any, layer: Any, x: Any, *state: Any, lengths: list[int], ordered: bool) -> Any:
    given = ns.nn.utils.rnn.pack_padded_sequence(
        x, ns.tensor(lengths), layer.batch_first, enforce_sorted=ordered
    )
    output, last = layer(given, *state)
    return ns.nn.utils.rnn.pad_packed_sequence(output, layer.batch_first), output, last


for _layer in ("RNN", "LSTM", "GRU"):
    _pair_of = (lambda a: (a, a[::-1].copy())) if _layer == "LSTM" else (lambda a: a)
    case(_layer, 3, 4, args=(normal(5, 2, 3),))
    case(_layer, 3, 4, args=(normal(5, 3),), note="no batch")
    case(_layer, 3, 4, args=(normal(5, 3), _pair_of(normal(1, 4))), note="no batch, state")
    case(_layer, 3, 4, batch_first=True, bias=False,
         args=(normal(2, 5, 3), _pair_of(normal(1, 2, 4))))  # fmt: skip
    case(_layer, 3, 4, num_layers=2, bidirectional=True,
         args=(normal(5, 2, 3), _pair_of(normal(4, 2, 4))))  # fmt: skip
    case(_layer, 3, 4, num_layers=3, dropout=0.4, args=(normal(5, 2, 3),))
    case(_layer, 3, 4, args=(normal(5, 3, 3),), note="packed",
         call=functools.partial(_packed, lengths=[5, 3, 2], ordered=True))  # fmt: skip
    case(_layer, 3, 4, bidirectional=True, num_layers=2, batch_first=True,
         args=(normal(3, 5, 3), _pair_of(normal(4, 3, 4))), note="packed",
         call=functools.partial(_packed, lengths=[2, 5, 3], ordered=False))  # fmt: skip
case("RNN", 3, 4, nonlinearity="relu", args=(normal(5, 2, 3),))
case("RNN", 3, 4, 2, "relu", False, True, args=(normal(2, 5, 3),))
case("LSTM", 3, 4, proj_size=2, args=(normal(5, 2, 3),))
case("LSTM", 3, 4, proj_size=2, num_layers=2, bidirectional=True,
     args=(normal(5, 2, 3), (normal(4, 2, 2), normal(4, 2, 4))))  # fmt: skip
for _layer in ("RNNCell", "LSTMCell", "GRUCell"):
    _pair_of = (lambda a: (a, a[::-1].copy())) if _layer == "LSTMCell" else (lambda a: a)
    case(_layer, 3, 4, args=(normal(2, 3),))
    case(_layer, 3, 4, bias=False, args=(normal(2, 3), _pair_of(normal(2, 4))))
    case(_layer, 3, 4, args=(normal(3), _pair_of(normal(4))), note="no batch")
case("RNNCell", 3, 4, nonlinearity="relu", args=(normal(2, 3),))

# -- attention ----------------------------------------------------------------------------------

_query, _keys = normal(4, 2, 6), normal(5, 2, 6)
_hidden = np.array([[False] * 3 + [True] * 2, [False] * 5])
_bool_mask = np.triu(np.ones((4, 5), bool), 2)
_float_mask = Fixed(normal(4, 5))
for _options in (
    {}, {"bias": False}, {"add_bias_kv": True}, {"add_zero_attn": True},
    {"add_bias_kv": True, "add_zero_attn": True}, {"dropout": 0.3},
):  # fmt: skip
    case("MultiheadAttention", 6, 2, args=(_query, _keys, _keys + 1), **_options)
    case("MultiheadAttention", 6, 2, args=(_query, _keys, _keys + 1), note="masks",
         kwargs={"key_padding_mask": _hidden, "attn_mask": _bool_mask}, **_options)  # fmt: skip
    case("MultiheadAttention", 6, 2, args=(_query, _keys, _keys + 1), note="no weights",
         kwargs={"key_padding_mask": _hidden, "need_weights": False}, **_options)  # fmt: skip
case("MultiheadAttention", 6, 2, args=(_query, _keys, _keys), note="float mask",
     kwargs={"attn_mask": _float_mask, "average_attn_weights": False})  # fmt: skip
case("MultiheadAttention", 6, 2, args=(_query, _keys, _keys), note="mask per head",
     kwargs={"attn_mask": Fixed(normal(4, 4, 5))})  # fmt: skip
case("MultiheadAttention", 6, 3, kdim=5, vdim=4,
     args=(_query, normal(5, 2, 5), normal(5, 2, 4)))  # fmt: skip
case("MultiheadAttention", 6, 3, batch_first=True, args=(_query, _query * 2, _query))
case("MultiheadAttention", 6, 3, args=(normal(4, 6), normal(5, 6), normal(5, 6)), note="no batch")
case("MultiheadAttention", 6, 3, args=(normal(4, 2, 6),), call=lambda ns, m, x: m(x, x, x),
     note="self")  # fmt: skip
case("MultiheadAttention", 6, 3, batch_first=True, args=(normal(2, 4, 6),),
     call=lambda ns, m, x: m(x, x, x, is_causal=True, need_weights=False,
                             attn_mask=ns.nn.Transformer.generate_square_subsequent_mask(4)),
     note="causal")  # fmt: skip

_small: dict[str, Any] = {"dim_feedforward": 8, "dropout": 0.0}
case("TransformerEncoderLayer", 6, 2, args=(normal(4, 2, 6),), **_small)
case("TransformerEncoderLayer", 6, 2, 8, 0.0, "gelu", batch_first=True, norm_first=True,
     args=(normal(2, 4, 6),),
     kwargs={"src_key_padding_mask": np.array([[False] * 4, [False] * 3 + [True]])})  # fmt: skip
case("TransformerEncoderLayer", 6, 2, 8, 0.2, bias=False, args=(normal(4, 2, 6),),
     kwargs={"src_mask": np.triu(np.ones((4, 4), bool), 1)})  # fmt: skip
case("TransformerDecoderLayer", 6, 2, args=(normal(4, 2, 6), normal(5, 2, 6)), **_small)
case("TransformerDecoderLayer", 6, 2, 8, 0.2, "gelu", batch_first=True, norm_first=True,
     args=(normal(2, 4, 6), normal(2, 5, 6)),
     kwargs={"tgt_mask": np.triu(np.ones((4, 4), bool), 1),
             "memory_key_padding_mask": np.array([[False] * 5, [True] + [False] * 4])})  # fmt: skip
add(
    "TransformerEncoder",
    lambda ns: ns.nn.TransformerEncoder(
        ns.nn.TransformerEncoderLayer(6, 2, batch_first=True, **_small), 2,
        norm=ns.nn.LayerNorm(6), enable_nested_tensor=False,
    ),
    (normal(2, 4, 6),),
    kwargs={"mask": np.triu(np.ones((4, 4), bool), 1)},
)  # fmt: skip
add(
    "TransformerDecoder",
    lambda ns: ns.nn.TransformerDecoder(ns.nn.TransformerDecoderLayer(6, 2, **_small), 2),
    (normal(4, 2, 6), normal(5, 2, 6)),
    kwargs={"tgt_mask": np.triu(np.ones((4, 4), bool), 1)},
)
case("Transformer", 6, 2, 1, 1, args=(normal(5, 2, 6), normal(4, 2, 6)), **_small)
case("Transformer", 6, 2, 2, 1, batch_first=True, norm_first=True, activation="gelu", **_small,
     args=(normal(2, 5, 6), normal(2, 4, 6)),
     kwargs={"tgt_mask": np.triu(np.ones((4, 4), bool), 1)})  # fmt: skip

# -- containers ---------------------------------------------------------------------------------

add(
    "Sequential",
    lambda ns: ns.nn.Sequential(
        ns.nn.Linear(3, 4), ns.nn.ReLU(inplace=True), ns.nn.BatchNorm1d(4), ns.nn.Dropout(0.2),
        ns.nn.Sequential(ns.nn.Linear(4, 2), ns.nn.Softmax(dim=1)),
    ),
    (normal(5, 3),),
)  # fmt: skip
