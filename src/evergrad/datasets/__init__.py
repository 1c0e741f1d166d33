"""Data sets: images with torchvision's names and files, text, and sets that are computed."""

from evergrad.datasets import text
from evergrad.datasets.cifar import CIFAR10, CIFAR100
from evergrad.datasets.fake import FakeData
from evergrad.datasets.folder import DatasetFolder, ImageFolder
from evergrad.datasets.generated import (
    CopySequences,
    GeneratedDataset,
    ReverseSequences,
    Shapes,
    SineSeries,
    Spirals,
    TwoMoons,
)
from evergrad.datasets.image import Image
from evergrad.datasets.images import make_grid, read_image, save_image
from evergrad.datasets.mnist import KMNIST, MNIST, FashionMNIST
from evergrad.datasets.text import CharCorpus, TextFile, pydoc_topics
from evergrad.datasets.vision import StandardTransform, VisionDataset

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "KMNIST",
    "MNIST",
    "CharCorpus",
    "CopySequences",
    "DatasetFolder",
    "FakeData",
    "FashionMNIST",
    "GeneratedDataset",
    "Image",
    "ImageFolder",
    "ReverseSequences",
    "Shapes",
    "SineSeries",
    "Spirals",
    "StandardTransform",
    "TextFile",
    "TwoMoons",
    "VisionDataset",
    "make_grid",
    "pydoc_topics",
    "read_image",
    "save_image",
    "text",
]
