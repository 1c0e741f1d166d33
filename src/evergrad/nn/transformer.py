"""The transformer of "Attention is all you need" and its parts."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from evergrad.amp.autocast_mode import is_autocast_enabled
from evergrad.core import dtypes
from evergrad.core.package_name import package_name
from evergrad.core.state import STATE
from evergrad.core.tensor import Tensor
from evergrad.core.types import Kwargs
from evergrad.nn import functional as F
from evergrad.nn import init
from evergrad.nn.containers import ModuleList
from evergrad.nn.dropout import Dropout
from evergrad.nn.linear import Linear
from evergrad.nn.module import Module, TensorModule
from evergrad.nn.multihead import MultiheadAttention
from evergrad.nn.norm import LayerNorm
from evergrad.ops.rows.creation.constants import full

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike, DtypeLike


def _activation(activation: object) -> Callable[[Tensor], Tensor]:
    if callable(activation):
        return activation
    if activation not in ("relu", "gelu"):
        raise RuntimeError(f"activation should be relu/gelu, not {activation}")
    return F.relu if activation == "relu" else F.gelu


class _Layer(TensorModule):
    """What encoder and decoder layers share: self-attention, the feed-forward block and residual
    steps. Subclasses change a layer by its blocks (``_sa_block`` and the like), as in PyTorch."""

    self_attn: MultiheadAttention
    dropout1: Dropout

    def _make_feed_forward(
        self, d_model: int, dim_feedforward: int, dropout: float, bias: bool, factory: Kwargs
    ) -> None:
        self.linear1: Linear = Linear(d_model, dim_feedforward, bias=bias, **factory)
        self.dropout: Dropout = Dropout(dropout)
        self.linear2: Linear = Linear(dim_feedforward, d_model, bias=bias, **factory)

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))

    def _residual(self, x: Tensor, norm: Module, block: Callable[[Tensor], Tensor]) -> Tensor:
        """Add a block's result, normalising before it or after the sum."""
        if self.norm_first:
            return x + block(norm(x))
        return norm(x + block(x))  # type: ignore[no-any-return]

    def _sa_block(
        self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """Self-attention, before its residual."""
        found, _ = self.self_attn(
            x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask,
            need_weights=False, is_causal=is_causal and attn_mask is not None,
        )  # fmt: skip
        return self.dropout1(found)


class TransformerEncoderLayer(_Layer):
    """Self-attention and a feed-forward block, each with a residual and a norm."""

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: object = "relu", layer_norm_eps: float = 1e-5, batch_first: bool = False,
        norm_first: bool = False, bias: bool = True, device: DeviceLike = None,
        dtype: DtypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__()
        factory: Kwargs = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **factory
        )
        self._make_feed_forward(d_model, dim_feedforward, dropout, bias, factory)
        self.norm_first = norm_first
        self.norm1: LayerNorm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **factory)
        self.norm2: LayerNorm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **factory)
        self.dropout1 = Dropout(dropout)
        self.dropout2: Dropout = Dropout(dropout)
        self.activation: Callable[[Tensor], Tensor] = _activation(activation)

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None, is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        x = self._residual(
            src, self.norm1,
            lambda y: self._sa_block(y, src_mask, src_key_padding_mask, is_causal=is_causal),
        )  # fmt: skip
        return self._residual(x, self.norm2, self._ff_block)

    def _ff_block(self, x: Tensor) -> Tensor:
        """The feed-forward block, before its residual."""
        return self.dropout2(self._feed_forward(x))


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the encoder's output, and a feed-forward block.

    The arguments are those of :class:`TransformerEncoderLayer`. Called with ``tgt`` (T, N, E) and
    ``memory`` (S, N, E), and masks for both.

    >>> layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
    >>> layer(eg.ones(3, 4, 8), eg.ones(3, 5, 8)).shape
    evergrad.Size([3, 4, 8])
    """

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: object = "relu", layer_norm_eps: float = 1e-5, batch_first: bool = False,
        norm_first: bool = False, bias: bool = True, device: DeviceLike = None,
        dtype: DtypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__()
        factory: Kwargs = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout=dropout, batch_first=batch_first, bias=bias, **factory
        )
        self.multihead_attn: MultiheadAttention = MultiheadAttention(
            d_model, nhead, dropout=dropout, batch_first=batch_first, bias=bias, **factory
        )
        self._make_feed_forward(d_model, dim_feedforward, dropout, bias, factory)
        self.norm_first = norm_first
        self.norm1: LayerNorm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **factory)
        self.norm2: LayerNorm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **factory)
        self.norm3: LayerNorm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **factory)
        self.dropout1 = Dropout(dropout)
        self.dropout2: Dropout = Dropout(dropout)
        self.dropout3: Dropout = Dropout(dropout)
        self.activation: Callable[[Tensor], Tensor] = _activation(activation)

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        x = self._residual(
            tgt, self.norm1,
            lambda y: self._sa_block(y, tgt_mask, tgt_key_padding_mask, tgt_is_causal),
        )  # fmt: skip
        x = self._residual(
            x, self.norm2,
            lambda y: self._mha_block(
                y, memory, memory_mask, memory_key_padding_mask, memory_is_causal
            ),
        )  # fmt: skip
        return self._residual(x, self.norm3, self._ff_block)

    def _mha_block(
        self, x: Tensor, mem: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """Attention to the encoder's output, before its residual."""
        found, _ = self.multihead_attn(
            x, mem, mem, attn_mask=attn_mask, key_padding_mask=key_padding_mask,
            need_weights=False, is_causal=is_causal and attn_mask is not None,
        )  # fmt: skip
        return self.dropout2(found)

    def _ff_block(self, x: Tensor) -> Tensor:
        """The feed-forward block, before its residual."""
        return self.dropout3(self._feed_forward(x))


def _copies(module: Module, count: int) -> ModuleList:
    return ModuleList([copy.deepcopy(module) for _ in range(count)])


def _why_no_nested(layer: Any) -> str:
    """Why PyTorch's encoder does not drop padding before such layers; empty if it does."""
    attention = getattr(layer, "self_attn", None)
    checks = (
        (
            isinstance(layer, TransformerEncoderLayer),
            "encoder_layer was not TransformerEncoderLayer",
        ),
        (not getattr(layer, "norm_first", False), "encoder_layer.norm_first was True"),
        (
            getattr(attention, "batch_first", False),
            "encoder_layer.self_attn.batch_first was not True"
            "(use batch_first for better inference performance)",
        ),
        (
            getattr(attention, "_qkv_same_embed_dim", True),
            "encoder_layer.self_attn._qkv_same_embed_dim was not True",
        ),
        (
            getattr(attention, "in_proj_bias", None) is not None,
            "encoder_layer.self_attn was passed bias=False",
        ),
        (
            getattr(layer, "activation", None) in (F.relu, F.gelu),
            "encoder_layer.activation_relu_or_gelu was not True",
        ),
        (
            getattr(layer, "norm1", None) is None or layer.norm1.eps == layer.norm2.eps,
            "encoder_layer.norm1.eps was not equal to encoder_layer.norm2.eps",
        ),
        (getattr(attention, "num_heads", 0) % 2 == 0, "encoder_layer.self_attn.num_heads is odd"),
    )
    return next((reason for holds, reason in checks if not holds), "")


class TransformerEncoder(TensorModule):
    """Several encoder layers, each a copy of the given one."""

    def __init__(
        self, encoder_layer: Module, num_layers: int, norm: Module | None = None,
        enable_nested_tensor: bool = True, mask_check: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.layers: ModuleList = _copies(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor = enable_nested_tensor
        reason = _why_no_nested(encoder_layer)
        self.use_nested_tensor: bool = enable_nested_tensor and not reason
        self.mask_check = mask_check
        if enable_nested_tensor and reason and package_name() == "torch":
            warnings.warn(
                "enable_nested_tensor is True, but self.use_nested_tensor is False because "
                f"{reason}",
                stacklevel=2,
            )

    def forward(
        self, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:  # fmt: skip
        padding = self._padding_of_nested(src, mask, src_key_padding_mask)
        for layer in self.layers:
            src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask)
        if padding is not None:
            src = src.masked_fill(padding.unsqueeze(-1), 0.0)
        return src if self.norm is None else self.norm(src)

    def _padding_of_nested(
        self, src: Tensor, mask: Tensor | None, padding: Tensor | None
    ) -> Tensor | None:
        """What is padding, where PyTorch evaluates a nested tensor of the examples without it:
        the results are zero there. Only without gradients, and where padding comes last."""
        first: Any = self.layers[0] if len(self.layers) else None
        if (
            padding is None or mask is not None or not getattr(self, "use_nested_tensor", False)
            or first.training or src.ndim != 3 or is_autocast_enabled()
        ):  # fmt: skip
            return None
        if STATE.get().grad and any(p.requires_grad for p in (src, *first.parameters())):
            return None
        is_padding = padding if padding.dtype is dtypes.bool_ else padding != 0
        is_last = (is_padding[:, 1:] >= is_padding[:, :-1]).all()
        return is_padding if not self.mask_check or bool(is_last) else None


class TransformerDecoder(TensorModule):
    """Several decoder layers, each a copy of the given one.

    Args:
        decoder_layer: a :class:`TransformerDecoderLayer`
        num_layers: how many
        norm: a module that is called last; default none

    >>> layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
    >>> nn.TransformerDecoder(layer, 2)(eg.ones(3, 4, 8), eg.ones(3, 5, 8)).shape
    evergrad.Size([3, 4, 8])
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers: ModuleList = _copies(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        for layer in self.layers:
            tgt = layer(
                tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
            )  # fmt: skip
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(TensorModule):
    """An encoder and a decoder.

    Args:
        d_model: features; default 512
        nhead: heads; default 8
        num_encoder_layers, num_decoder_layers: default 6
        dim_feedforward: features within the feed-forward blocks; default 2048
        dropout: default 0.1
        activation: ``"relu"`` (default), ``"gelu"`` or a function
        custom_encoder, custom_decoder: modules in their place
        layer_norm_eps: default 1e-5
        batch_first: (N, T, E) in place of (T, N, E); default ``False``
        norm_first: norms before the blocks in place of after them; default ``False``
        bias: whether linear layers and norms have one; default ``True``

    >>> model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    >>> model(eg.ones(3, 5, 8), eg.ones(3, 4, 8)).shape
    evergrad.Size([3, 4, 8])
    """

    def __init__(
        self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6,
        num_decoder_layers: int = 6, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: object = "relu", custom_encoder: Any = None, custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False,
        bias: bool = True, device: DeviceLike = None, dtype: DtypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__()
        factory: Kwargs = {"device": device, "dtype": dtype}
        settings = (
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first,
            norm_first, bias,
        )  # fmt: skip
        if custom_encoder is not None:
            self.encoder: Module = custom_encoder
        else:
            layer: Module = TransformerEncoderLayer(*settings, **factory)
            norm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **factory)
            self.encoder = TransformerEncoder(layer, num_encoder_layers, norm)
        if custom_decoder is not None:
            self.decoder: Module = custom_decoder
        else:
            layer = TransformerDecoderLayer(*settings, **factory)
            norm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **factory)
            self.decoder = TransformerDecoder(layer, num_decoder_layers, norm)
        self._reset_parameters()
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def forward(
        self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None, src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError(
                "the feature number of src and tgt must be equal to d_model "
                f"({self.d_model}), got {src.shape[-1]} and {tgt.shape[-1]}"
            )
        batch = 0 if self.batch_first else 1
        if src.ndim == 3 and src.shape[batch] != tgt.shape[batch]:
            raise RuntimeError("the batch number of src and tgt must be equal")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask)
        return self.decoder(  # type: ignore[no-any-return]
            tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
        )  # fmt: skip

    @staticmethod
    def generate_square_subsequent_mask(
        sz: int, device: DeviceLike = None, dtype: DtypeLike = dtypes.float32
    ) -> Tensor:
        """A mask that hides what comes later."""
        return full((sz, sz), float("-inf"), dtype=dtype).triu(1)

    def _reset_parameters(self) -> None:
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)
