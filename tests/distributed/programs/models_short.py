"""Checks of whole models that are quick enough to run on more ranks."""

from .models import (
    check_dit_with_given_noise,
    check_gpt_eager,
    check_mlp,
    check_resnet_with_synchronized_norms,
    check_sync_batch_norm_is_batch_norm_of_the_whole_batch,
)

__all__ = [
    "check_dit_with_given_noise",
    "check_gpt_eager",
    "check_mlp",
    "check_resnet_with_synchronized_norms",
    "check_sync_batch_norm_is_batch_norm_of_the_whole_batch",
]
