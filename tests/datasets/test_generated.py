"""Computed data sets: the same for the same seed, and what their names promise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import transforms as T
from evergrad.datasets import (
    CopySequences,
    DatasetFolder,
    FakeData,
    Image,
    ImageFolder,
    ReverseSequences,
    Shapes,
    SineSeries,
    Spirals,
    TwoMoons,
)
from evergrad.utils.data import DataLoader

ALL = [TwoMoons, Spirals, Shapes, SineSeries, CopySequences, ReverseSequences]


@pytest.mark.parametrize("make", ALL)
def test_seeds(make: Callable[..., Any]) -> None:
    def made(seed: int) -> Any:
        return make(30, generator=eg.Generator().manual_seed(seed))

    before = eg.get_rng_state()
    first, again, other = made(1), made(1), made(2)
    assert (eg.get_rng_state() == before).all()  # the default generator is left alone
    assert (first.data == again.data).all() and (first.targets == again.targets).all()
    assert (first.data != other.data).any()
    eg.manual_seed(1)
    assert (make(30).data == first.data).all()  # without a generator, the default one


@pytest.mark.parametrize("make", ALL)
def test_batches(make: Callable[..., Any]) -> None:
    data = make(10)
    assert len(data) == len(data.targets) == 10
    x, y = next(iter(DataLoader(data, batch_size=4)))
    assert x.tolist() == data.data[:4].tolist() and y.tolist() == data.targets[:4].tolist()
    with pytest.raises(ValueError, match="at least"):
        make(0)


def test_moons_are_half_circles() -> None:
    moons = TwoMoons(200, noise=0.0)
    upper, lower = (moons.data[moons.targets == k].numpy() for k in (0, 1))
    np.testing.assert_allclose(np.hypot(*upper.T), 1, rtol=1e-6)
    np.testing.assert_allclose(np.hypot(lower[:, 0] - 1, lower[:, 1] - 0.5), 1, rtol=1e-6)
    assert (upper[:, 1] >= 0).all() and (lower[:, 1] <= 0.5).all()


def test_arms_of_a_spiral_are_turned_copies() -> None:
    spirals = Spirals(300, arms=3, turns=1.0, noise=0.0)
    x, y = spirals.data.numpy().astype(float).T
    radius = np.hypot(x, y)
    turn = np.arctan2(y, x) / (2 * np.pi) - radius - spirals.targets.numpy() / 3
    np.testing.assert_allclose(turn, np.round(turn), atol=1e-5)


def test_shapes_fill_what_their_names_promise() -> None:
    shapes = Shapes(200, image_size=64, generator=eg.Generator().manual_seed(0))
    assert tuple(shapes.data.shape) == (200, 1, 64, 64)
    assert shapes.data.min().item() == -1 and shapes.data.max().item() <= 1
    assert set(shapes.targets.tolist()) == {0, 1, 2}
    # The share of its bounding box that a shape covers tells which it is.
    expected = {"circle": np.pi / 4, "square": 1.0, "triangle": 0.5}
    for image, target in zip(shapes.data.numpy()[:, 0], shapes.targets.tolist(), strict=True):
        lit = (image + 1) / (image.max() + 1)
        rows, columns = (lit.max(axis) >= 0.5 for axis in (1, 0))
        share = lit.sum() / (rows.sum() * columns.sum())
        assert share == pytest.approx(expected[Shapes.classes[target]], abs=0.09)
        assert lit[0].max() == lit[-1].max() == lit[:, 0].max() == lit[:, -1].max() == 0


def test_series_go_on() -> None:
    series = SineSeries(5, length=40, noise=0.0)
    assert tuple(series.data.shape) == (5, 40, 1) and tuple(series.targets.shape) == (5, 1)
    whole = np.concatenate([series.data.numpy()[:, :, 0], series.targets.numpy()], 1).astype(float)
    for row in whole:  # two waves obey one linear recurrence over four steps
        windows = np.lib.stride_tricks.sliding_window_view(row, 5)
        solution, *_ = np.linalg.lstsq(windows[:-1, :4], windows[:-1, 4], rcond=None)
        assert windows[-1, :4] @ solution == pytest.approx(windows[-1, 4], abs=1e-3)


def test_sequences() -> None:
    copy, reverse = CopySequences(9, length=6, symbols=4), ReverseSequences(9, length=6, symbols=4)
    assert set(copy.data.flatten().tolist()) == {1, 2, 3, 4}
    assert copy.targets.tolist() == copy.data.tolist()
    assert reverse.targets.tolist() == [row[::-1] for row in reverse.data.tolist()]


# -- noise in place of images ---------------------------------------------------------------------


def test_fake_data_is_torchvisions(torch: Any) -> None:
    """A generator seeded with the index draws the image, then the label."""
    fake = FakeData(5, (3, 6, 4), 10, transform=T.ToTensor(), random_offset=40)
    for index in range(5):
        torch.manual_seed(index + 40)
        pixels = torch.randn(3, 6, 4).mul(255).byte()
        label = torch.randint(0, 10, size=(1,)).item()
        image, found = fake[index]
        np.testing.assert_array_equal(image.numpy(), (pixels.float() / 255).numpy())
        assert found == label


def test_fake_data() -> None:
    fake = FakeData(3, (1, 6, 4), 2)
    image, _ = fake[0]
    assert image.mode == "L" and image.size == (4, 6)
    assert repr(fake) == "Dataset FakeData\n    Number of datapoints: 3"
    with pytest.raises(IndexError):
        fake[3]
    before = eg.get_rng_state()
    fake[1]
    assert (eg.get_rng_state() == before).all()


# -- folders --------------------------------------------------------------------------------------


def write_images(root: Path) -> None:
    for name, count in (("cat", 2), ("dog", 1)):
        (root / name / "more").mkdir(parents=True)
        for number in range(count):
            array = np.full((4, 5, 3), 10 * number + len(name), np.uint8)
            Image(array).save(root / name / "more" / f"{number}.png")
    (root / "dog" / "notes.doc").write_text("no image")


def test_image_folder(tmp_path: Path) -> None:
    write_images(tmp_path)
    folder = ImageFolder(tmp_path, transform=T.ToTensor())
    assert folder.classes == ["cat", "dog"] and folder.class_to_idx == {"cat": 0, "dog": 1}
    assert folder.targets == [0, 0, 1] and folder.imgs is folder.samples
    image, label = folder[1]
    assert tuple(image.shape) == (3, 4, 5) and label == 0
    np.testing.assert_allclose(image.numpy(), 13 / 255, rtol=1e-6)
    chosen = ImageFolder(tmp_path, is_valid_file=lambda path: path.endswith("0.png"))
    assert chosen.targets == [0, 1]


def test_folders_of_anything(tmp_path: Path) -> None:
    write_images(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"for the classes cat, empty.*: \.doc"):
        DatasetFolder(tmp_path, lambda path: path, (".doc",))
    found = DatasetFolder(tmp_path, lambda p: Path(p).read_text(), (".doc",), allow_empty=True)
    assert list(found) == [("no image", 1)]
    with pytest.raises(ValueError, match="cannot be None or not None"):
        DatasetFolder(tmp_path, str)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(FileNotFoundError, match="any class folder"):
        ImageFolder(tmp_path / "nothing")


def test_other_formats_need_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from evergrad.datasets import image

    monkeypatch.setattr(image, "_pillow", lambda: None)
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "a.jpg").write_bytes(b"\xff\xd8")
    with pytest.raises(ImportError, match="needs Pillow: pip install pillow"):
        ImageFolder(tmp_path)[0]
