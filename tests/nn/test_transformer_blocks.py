"""Transformer layers as PyTorch's programs change and evaluate them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

import evergrad
from twins import agree


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_evaluation_without_gradients_gives_zeros_where_padding_was(
    torch: ModuleType, activation: str
) -> None:
    """PyTorch takes padding out of the batch there, if it comes last and there is no mask."""

    def run(library: ModuleType) -> Any:
        nn = library.nn
        library.manual_seed(0)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation=activation)
        encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(8)).eval()
        x = library.randn(2, 5, 8)
        padding = library.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]]).bool()
        recorded = encoder(x, src_key_padding_mask=padding).detach()
        with library.no_grad():
            return [
                encoder(x, src_key_padding_mask=padding), recorded,
                encoder(x, src_key_padding_mask=padding.flip(1)),
                encoder(x, mask=library.zeros(5, 5).bool(), src_key_padding_mask=padding),
                encoder(x),
            ]  # fmt: skip

    agree(run, torch, 1e-5)


def test_blocks_that_a_subclass_replaces_are_called(torch: ModuleType) -> None:
    def run(library: ModuleType) -> Any:
        nn = library.nn
        library.manual_seed(0)

        class Encoder(nn.TransformerEncoderLayer):  # type: ignore[misc,name-defined]
            def _sa_block(self, x: Any, *args: Any, **kwargs: Any) -> Any:
                return 2 * super()._sa_block(x, *args, **kwargs)

            def _ff_block(self, x: Any) -> Any:
                return super()._ff_block(x).tanh()

        class Decoder(nn.TransformerDecoderLayer):  # type: ignore[misc,name-defined]
            def _mha_block(self, x: Any, mem: Any, *args: Any, **kwargs: Any) -> Any:
                return 3 * super()._mha_block(x, mem, *args, **kwargs)

        encode, decode = Encoder(8, 2, 16, dropout=0.0), Decoder(8, 2, 16, dropout=0.0)
        x = library.randn(4, 2, 8)
        memory = encode(x)
        return [memory.detach(), decode(x, memory).detach()]

    agree(run, torch, 1e-5)


def test_a_schedule_says_when_a_program_asks_for_its_rates() -> None:
    """Subclasses that were written for PyTorch read the flag in ``get_lr``."""
    optim = evergrad.optim
    seen: list[bool] = []

    class Constant(optim.lr_scheduler.LRScheduler):
        def get_lr(self) -> list[float]:
            seen.append(self._get_lr_called_within_step)
            return self.base_lrs

    optimizer = optim.SGD([evergrad.ones(1, requires_grad=True)], lr=0.1)
    schedule = Constant(optimizer)
    schedule.get_lr()
    optimizer.step()
    schedule.step()
    assert seen == [True, False, True]
    assert schedule.state_dict()["_get_lr_called_within_step"] is False
