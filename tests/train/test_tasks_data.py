"""What tasks train on: text and its parts, generated pictures, files of MNIST and CIFAR-10."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from evergrad.datasets import pydoc_topics
from evergrad.train.config import ConfigError
from evergrad.train.tasks import pictures as sources
from evergrad.train.tasks.augmentation import mirrored, shifted, varied
from evergrad.train.tasks.corpus import Corpus, load_text
from evergrad.train.tasks.draws import draw
from evergrad.train.tasks.glyphs import digit_pictures
from evergrad.train.tasks.grid import framed, grid
from evergrad.train.tasks.pictures import CIFAR_RECORD, Part, PictureSet, load_pictures
from evergrad.train.tasks.shapes import CLASSES, COLOURS, shape_pictures

UINT8 = np.dtype(np.uint8)


def numbers(*name: object) -> list[int]:
    return draw(*name).randint(0, 1 << 20, (8,), np.dtype(np.int64)).tolist()  # type: ignore[arg-type]


def test_draws_have_names() -> None:
    assert numbers(1, "a", 2) == numbers(1, "a", 2)
    others = [(1, "a", 3), (2, "a", 2), (1, "b", 2), (1, "a"), (11, "a", 2), (1, "a", 22)]
    assert len({tuple(numbers(*name)) for name in [(1, "a", 2), *others]}) == 7


# -- text -----------------------------------------------------------------------------------------


def test_text_comes_with_python_or_from_files(tmp_path: Path) -> None:
    assert load_text("") == load_text("pydoc") == pydoc_topics()
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b.txt").write_text("two")
    assert load_text(str(tmp_path / "a.txt")) == "one"
    assert load_text(str(tmp_path)) == "one\ntwo"


@pytest.mark.parametrize("filler", [3, 100_000])
def test_a_file_that_is_no_text_is_named_with_the_place(tmp_path: Path, filler: int) -> None:
    (tmp_path / "good.txt").write_text("fine")
    bad = tmp_path / "zbad.txt"
    bad.write_bytes(b"a" * filler + b"\xff\xfe")
    with pytest.raises(ConfigError, match=rf"zbad\.txt is not utf-8 text: byte {filler} is 0xff"):
        load_text(str(tmp_path))


def test_missing_and_empty_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no file or folder .*nothing; give --data a text file"):
        load_text(str(tmp_path / "nothing"))
    (tmp_path / "empty.txt").touch()
    with pytest.raises(ConfigError, match="is empty: there is nothing to learn from"):
        load_text(str(tmp_path / "empty.txt"))


def test_windows_never_cross_into_the_other_part() -> None:
    corpus = Corpus(np.arange(1000), context=16, held_out=0.2)
    seen = {
        token
        for n in range(200)
        for part in corpus.batch(0, n, 8)
        for token in part.unique().tolist()
    }
    kept = {
        token
        for n in range(9)
        for part in corpus.held_out_batch(n, 9, 8)
        for token in part.unique().tolist()
    }
    assert seen == set(range(800)) and kept == set(range(800, 1000))


def test_targets_are_one_token_ahead() -> None:
    corpus = Corpus(np.arange(1000), context=16, held_out=0.2)
    for tokens, following in (corpus.batch(0, 3, 4), corpus.held_out_batch(1, 2, 4)):
        assert tuple(tokens.shape) == (4, 16)
        assert (following == tokens + 1).all()


def test_too_little_text_tells_which_part_and_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"the held-out text has 10 tokens.*at least 17"):
        Corpus(np.arange(100), context=16, held_out=0.1)
    with pytest.raises(ConfigError, match="the text to train with has 10 tokens"):
        Corpus(np.arange(100), context=16, held_out=0.9)


# -- generated pictures ---------------------------------------------------------------------------


def test_digits_are_always_the_same_and_parts_differ() -> None:
    images, labels = digit_pictures(50, "train")
    again, _ = digit_pictures(50, "train")
    others, _ = digit_pictures(50, "held out")
    assert images.shape == (50, 1, 28, 28) and images.dtype == UINT8
    assert set(labels.tolist()) == set(range(10))
    assert np.array_equal(images, again)
    assert not {image.tobytes() for image in images} & {image.tobytes() for image in others}


def test_digits_of_a_kind_are_nearer_to_each_other() -> None:
    """Most are recognised by the mean picture they are nearest to; by chance one in ten is."""
    images, labels = digit_pictures(600, "train")
    held_out, answers = digit_pictures(200, "held out")
    means = np.stack([images[labels == digit].mean(0).ravel() for digit in range(10)])
    distances = ((held_out.reshape(200, 1, -1) - means) ** 2).sum(2)
    assert (distances.argmin(1) == answers).mean() > 0.7


def test_shapes_have_the_colour_of_their_class() -> None:
    images, labels = shape_pictures(200, 16, "train")
    assert images.shape == (200, 3, 16, 16) and images.dtype == UINT8
    assert set(labels.tolist()) == set(range(16)) and CLASSES[5] == "green square"
    colours = np.array(list(COLOURS.values()), np.float32)
    brightest = images.reshape(200, 3, -1).max(2).astype(np.float32)  # the colour on dark ground
    nearest = ((brightest[:, None] - colours) ** 2).sum(2).argmin(1)
    assert (nearest == labels % 4).all()


def test_shapes_cover_as_much_as_they_should() -> None:
    images, labels = shape_pictures(800, 16, "train")
    covered = (images.max(1) > 100).mean((1, 2))
    circle, square, triangle, cross = (covered[labels // 4 == shape].mean() for shape in range(4))
    assert circle > square > cross > triangle > 0.05


@pytest.mark.parametrize("source", ["digits", "shapes"])
def test_generated_sets_hold_out_their_part(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "GENERATED", 500)
    found = load_pictures(source, 0.2, 16)
    assert (len(found.train), len(found.held_out)) == (400, 100)
    seen = {image.tobytes() for image in found.train.pictures}
    assert not seen & {image.tobytes() for image in found.held_out.pictures}
    mean, deviation = found.mean_and_deviation()
    scaled = found.train.pictures / 255
    assert mean == pytest.approx(scaled.mean()) and deviation == pytest.approx(scaled.std())


# -- files ----------------------------------------------------------------------------------------


def write_idx(path: Path, array: np.ndarray) -> None:
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    path.write_bytes(head + array.astype(np.uint8).tobytes())


def write_mnist(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, count in (("train", 30), ("t10k", 10)):
        images = np.arange(count)[:, None, None] * np.ones((28, 28), int)
        write_idx(folder / f"{name}-images-idx3-ubyte", images)
        write_idx(folder / f"{name}-labels-idx1-ubyte", np.arange(count) % 10)


def write_cifar(folder: Path) -> None:
    folder.mkdir(parents=True)
    for number, name in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]):
        records = np.full((4, CIFAR_RECORD), number, np.uint8)
        records[:, 0] = range(4)
        (folder / f"{name}.bin").write_bytes(records.tobytes())


def test_mnist_in_a_folder(tmp_path: Path) -> None:
    write_mnist(tmp_path / "MNIST" / "raw")
    found = load_pictures(str(tmp_path), 0.5, 16)
    assert found.train.pictures.shape == (30, 1, 28, 28) and len(found.held_out) == 10
    assert found.train.pictures[7].max() == 7 and found.train.labels[17] == 7
    assert len(found.classes) == 10 and not found.flip


def test_mnist_in_a_usual_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MNIST_FOLDERS", (str(tmp_path / "no"), str(tmp_path / "yes")))
    with pytest.raises(ConfigError, match=r"in none of the folders .*no, .*yes.*--data digits"):
        load_pictures("mnist", 0.1, 16)
    write_mnist(tmp_path / "yes" / "MNIST" / "raw")
    assert len(load_pictures("mnist", 0.1, 16).train) == 30


def test_damaged_mnist_is_named(tmp_path: Path) -> None:
    write_mnist(tmp_path / "MNIST" / "raw")
    labels = tmp_path / "MNIST" / "raw" / "t10k-labels-idx1-ubyte"
    labels.write_bytes(labels.read_bytes()[:-3])
    with pytest.raises(ConfigError, match=r"MNIST in .* cannot be used: .*t10k-labels.*damaged"):
        load_pictures(str(tmp_path), 0.1, 16)


@pytest.mark.parametrize("inner", ["", "cifar-10-batches-bin"])
def test_binary_cifar(tmp_path: Path, inner: str) -> None:
    write_cifar(tmp_path / "set" / inner)
    found = load_pictures(str(tmp_path / "set"), 0.1, 16)
    assert found.train.pictures.shape == (20, 3, 32, 32) and found.held_out.pictures.max() == 5
    assert found.train.labels[:5].tolist() == [0, 1, 2, 3, 0]
    assert found.train.pictures[4].min() == found.train.pictures[4].max() == 1
    assert found.flip and found.shift == 4


def test_damaged_cifar_is_named(tmp_path: Path) -> None:
    write_cifar(tmp_path / "set")
    batch = tmp_path / "set" / "data_batch_3.bin"
    whole = batch.read_bytes()
    batch.write_bytes(whole[:-1])
    with pytest.raises(ConfigError, match=r"data_batch_3\.bin is damaged: 12,291 bytes"):
        load_pictures(str(tmp_path / "set"), 0.1, 16)
    batch.write_bytes(b"\x0a" + whole[1:])
    with pytest.raises(ConfigError, match=r"data_batch_3\.bin is damaged: it has a label above 9"):
        load_pictures(str(tmp_path / "set"), 0.1, 16)
    batch.unlink()
    with pytest.raises(ConfigError, match=r"CIFAR-10 is not whole: .*data_batch_3\.bin"):
        load_pictures(str(tmp_path / "set"), 0.1, 16)


def test_sources_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="set of pictures 'digit'; did you mean 'digits'"):
        load_pictures("digit", 0.1, 16)
    with pytest.raises(ConfigError, match="neither the files of MNIST"):
        load_pictures(str(tmp_path), 0.1, 16)


# -- variation and show ---------------------------------------------------------------------------


def test_shifts_move_whole_pictures() -> None:
    batch = np.zeros((40, 2, 8, 8), np.uint8)
    batch[:, :, 4, 4] = 200
    moved = shifted(batch, 2, draw(0, "shift"))
    assert moved.shape == batch.shape
    places = {tuple(np.argwhere(picture[0])[0].tolist()) for picture in moved}
    assert places <= {(y, x) for y in range(2, 7) for x in range(2, 7)} and len(places) > 10
    assert (moved[:, 0] == moved[:, 1]).all()


def test_half_of_the_pictures_are_mirrored() -> None:
    batch = np.broadcast_to(np.arange(8, dtype=np.uint8), (400, 1, 3, 8))
    found = mirrored(batch, draw(0, "mirror"))
    turned = (found == batch[..., ::-1]).all((1, 2, 3))
    assert (turned | (found == batch).all((1, 2, 3))).all()
    assert 150 < turned.sum() < 250


def test_pictures_vary_as_far_as_their_set_allows() -> None:
    digits, labels = digit_pictures(20, "train")
    part, chosen = Part(digits, labels), np.arange(5, 15)
    fixed = varied(PictureSet(part, part, []), chosen, draw(0, "batch", 1))
    assert np.array_equal(fixed, digits[5:15])
    free = PictureSet(part, part, [], shift=2, flip=True)
    first, again, other = (varied(free, chosen, draw(0, "batch", n)) for n in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, fixed) and not np.array_equal(first, other)


def test_a_grid_is_a_picture_in_colour() -> None:
    images = np.zeros((6, 1, 10, 10), np.float32)
    images[4] = 2.0  # too bright, and so white
    found = grid(images)
    assert found.dtype == UINT8 and found.shape[2] == 3
    scale = found.shape[1] // 34  # three pictures of 10 and four edges of 1
    assert found.shape[:2] == (23 * scale, 34 * scale)
    assert found[17 * scale, 17 * scale].tolist() == [255, 255, 255]
    assert found[6 * scale, 17 * scale].tolist() == [0, 0, 0]
    assert grid(images, across=6).shape[1] > 5 * grid(images, across=6).shape[0]


def test_frames_have_their_colour() -> None:
    found = framed(np.full((2, 1, 4, 4), 255, np.uint8), [(1, 0, 0), (0, 1, 0)])
    assert found.shape == (2, 3, 6, 6)
    assert (
        found[:, :, 0, 0].tolist() == [[1, 0, 0], [0, 1, 0]] and (found[:, :, 1:5, 1:5] == 1).all()
    )
