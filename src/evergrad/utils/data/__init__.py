"""Data sets, samplers and the loader, with PyTorch's names."""

from typing import TYPE_CHECKING

from evergrad.keywords import suggest_keywords
from evergrad.lazy import known_names
from evergrad.utils.data._utils.worker import WorkerInfo
from evergrad.utils.data.dataloader import (
    DataLoader,
    default_collate,
    default_convert,
    get_worker_info,
)
from evergrad.utils.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from evergrad.utils.data.distributed import DistributedSampler
from evergrad.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "WorkerInfo",
    "default_collate",
    "default_convert",
    "get_worker_info",
    "random_split",
]

suggest_keywords(DataLoader)

if not TYPE_CHECKING:
    __getattr__ = known_names(__name__)
