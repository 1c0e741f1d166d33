"""Lookup tables, and a softmax for very many classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from evergrad.core import dtypes
from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.core.tracing import is_known
from evergrad.core.types import Kwargs
from evergrad.nn import functional as F
from evergrad.nn import init
from evergrad.nn.containers import ModuleList, Sequential
from evergrad.nn.linear import Linear
from evergrad.nn.module import Module, TensorModule
from evergrad.nn.parameter import Parameter
from evergrad.ops.rows.check import require
from evergrad.ops.rows.creation.constants import empty, zeros
from evergrad.ops.rows.elementwise.basic import where
from evergrad.ops.rows.movement.joining import cat

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike, DtypeLike


class _Table(TensorModule):
    """The weight of a lookup table and the padding row."""

    def _make_weight(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None,
        given: Tensor | None, device: DeviceLike, dtype: DtypeLike,
    ) -> None:  # fmt: skip
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise AssertionError("Padding_idx must be within num_embeddings")
            padding_idx %= num_embeddings
        self.padding_idx = padding_idx
        if given is None:
            self.weight = Parameter(
                empty(num_embeddings, embedding_dim, device=device, dtype=dtype)
            )
            self.reset_parameters()
            return
        if list(given.shape) != [num_embeddings, embedding_dim]:
            raise AssertionError("Shape of weight does not match num_embeddings and embedding_dim")
        self.weight = Parameter(given)

    def reset_parameters(self) -> None:
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with using(grad=False):
                self.weight[self.padding_idx].fill_(0)


class Embedding(_Table):
    """A row of a table for each index."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
        max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
        sparse: bool = False, _weight: Tensor | None = None, _freeze: bool = False,
        device: DeviceLike = None, dtype: DtypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        self._make_weight(num_embeddings, embedding_dim, padding_idx, _weight, device, dtype)
        if _freeze:
            self.weight.requires_grad_(False)

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type,
            self.scale_grad_by_freq, self.sparse,
        )  # fmt: skip

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None,
        max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:  # fmt: skip
        """A table with given rows."""
        if embeddings.ndim != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        rows, columns = embeddings.shape
        return cls(
            rows, columns, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse,
            _weight=embeddings, _freeze=freeze,
        )  # fmt: skip

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.padding_idx is not None:
            text += f", padding_idx={self.padding_idx}"
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            text += f", norm_type={self.norm_type}"
        if self.scale_grad_by_freq:
            text += f", scale_grad_by_freq={self.scale_grad_by_freq}"
        if self.sparse:
            text += ", sparse=True"
        return text


class EmbeddingBag(_Table):
    """The sum, mean or maximum of the rows of a table for each bag of indices."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, mode: str = "mean",
        sparse: bool = False, _weight: Tensor | None = None, include_last_offset: bool = False,
        padding_idx: int | None = None, device: DeviceLike = None, dtype: DtypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset
        self._make_weight(num_embeddings, embedding_dim, padding_idx, _weight, device, dtype)

    def forward(
        self, input: Tensor, offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        return F.embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq,
            self.mode, self.sparse, per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            text += f", norm_type={self.norm_type}"
        if self.scale_grad_by_freq:
            text += f", scale_grad_by_freq={self.scale_grad_by_freq}"
        text += f", mode={self.mode!r}"
        if self.padding_idx is not None:
            text += f", padding_idx={self.padding_idx}"
        return text


class _ASMoutput(NamedTuple):
    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """A softmax in two levels: frequent classes in the head, rare ones in clusters.

    Args:
        in_features: features of the input
        n_classes: number of classes, the most frequent first
        cutoffs: where head and clusters end
        div_value: by what the features of each cluster are divided; default 4.0
        head_bias: whether the head has a bias; default ``False``

    Called with input (N, in_features) and targets (N), it gives ``output`` (the log probability of
    each target) and ``loss``.

    >>> layer = nn.AdaptiveLogSoftmaxWithLoss(16, 100, cutoffs=[10, 50])
    >>> output, loss = layer(eg.ones(3, 16), eg.tensor([0, 20, 99]))
    >>> output.shape, loss.shape, layer.log_prob(eg.ones(3, 16)).shape
    (evergrad.Size([3]), evergrad.Size([]), evergrad.Size([3, 100]))
    """

    def __init__(
        self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0,
        head_bias: bool = False, device: DeviceLike = None, dtype: DtypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__()
        bounds = list(cutoffs)
        if (
            not bounds
            or bounds != sorted(set(bounds))
            or bounds[0] <= 0
            or (bounds[-1] > n_classes - 1)
        ):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing "
                "order, where each value is between 1 and n_classes-1"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs: list[int] = [*bounds, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size: int = bounds[0]
        self.n_clusters: int = len(bounds)
        self.head_size: int = self.shortlist_size + self.n_clusters
        factory: Kwargs = {"device": device, "dtype": dtype}
        self.head: Linear = Linear(in_features, self.head_size, bias=head_bias, **factory)
        self.tail: ModuleList = ModuleList()
        for i in range(self.n_clusters):
            width = int(in_features // div_value ** (i + 1))
            size = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(
                Sequential(
                    Linear(in_features, width, bias=False, **factory),
                    Linear(width, size, bias=False, **factory),
                )
            )

    def reset_parameters(self) -> None:
        """Draw the parameters anew, as the constructor does."""
        self.head.reset_parameters()
        for cluster in self.tail:
            for layer in cluster.children():
                layer.reset_parameters()

    def log_prob(self, input: Tensor) -> Tensor:
        """The log-probabilities of all classes."""
        head = F.log_softmax(self.head(input), 1)
        parts = [head[:, : self.shortlist_size]]
        for i, cluster in enumerate(self.tail):
            column = head[:, self.shortlist_size + i].unsqueeze(1)
            parts.append(F.log_softmax(cluster(input), 1) + column)
        return cat(parts, 1)

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        input, target = input_, target_
        single = target.ndim == 0
        if single:
            input, target = input.unsqueeze(0), target.unsqueeze(0)
        if input.shape[0] != target.shape[0]:
            raise RuntimeError("Input and target should have the same size in the batch dimension.")
        labels = target.to(dtypes.int64)
        require(
            (labels >= 0) & (labels < self.n_classes), RuntimeError,
            lambda: f"Target values should be in [0, {self.n_classes - 1}], but values in range "
            f"[{labels.min()}, {labels.max()}] were found. ",
        )  # fmt: skip
        output = zeros(target.shape[0], dtype=input.dtype)
        head_index = labels.clone()
        for i, cluster in enumerate(self.tail):
            low, high = self.cutoffs[i], self.cutoffs[i + 1]
            if not is_known(labels):  # which rows there are is not: the cluster scores all of them
                there = (labels >= low) & (labels < high)
                own = where(there, labels - low, 0).unsqueeze(1)
                scores = F.log_softmax(cluster(input), 1).gather(1, own).squeeze(1)
                output = where(there, scores, output)
                head_index = where(there, self.shortlist_size + i, head_index)
                continue
            rows = ((labels >= low) & (labels < high)).nonzero().squeeze(1)
            if not rows.numel():
                continue
            scores = F.log_softmax(cluster(input.index_select(0, rows)), 1)
            picked = scores.gather(1, (labels.index_select(0, rows) - low).unsqueeze(1))
            output = output.index_copy(0, rows, picked.squeeze(1))
            head_index = head_index.index_fill(0, rows, self.shortlist_size + i)
        head = F.log_softmax(self.head(input), 1)
        output = output + head.gather(1, head_index.unsqueeze(1)).squeeze(1)
        loss = (-output).mean()
        return _ASMoutput(output.squeeze(0) if single else output, loss)

    def predict(self, input: Tensor) -> Tensor:
        """The most probable class."""
        return self.log_prob(input).argmax(1)
