"""Images without Pillow: pixels, PNG files, grids."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.datasets import Image, make_grid, png, read_image, save_image


def pixels(*shape: int, kind: Any = np.uint8) -> Any:
    return np.random.default_rng(0).integers(0, np.iinfo(kind).max, shape, kind)


# -- PNG ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (5, 7, 2), (5, 7, 3), (5, 7, 4)])
def test_png_there_and_back(shape: tuple[int, ...], kind: Any) -> None:
    array = pixels(*shape, kind=kind)
    found = png.decode(png.encode(array))
    assert found.dtype == kind
    np.testing.assert_array_equal(found, array)


def _filtered(rows: Any, step: int, number: int) -> bytes:
    """Rows under one of the five filters, written down from the format's definition."""
    out = b""
    above = [0] * rows.shape[1]
    for row in rows.tolist():
        left = [0] * step + row[:-step]
        corner = [0] * step + above[:-step]
        guesses = {
            0: [0] * len(row),
            1: left,
            2: above,
            3: [(a + b) // 2 for a, b in zip(left, above, strict=True)],
            4: [_paeth(*near) for near in zip(left, above, corner, strict=True)],
        }[number]
        out += bytes([number, *((v - g) % 256 for v, g in zip(row, guesses, strict=True))])
        above = row
    return out


def _paeth(a: int, b: int, c: int) -> int:
    p = a + b - c
    pa, pb, pc = abs(p - a), abs(p - b), abs(p - c)
    if pa <= pb and pa <= pc:
        return a
    return b if pb <= pc else c


def _file(header: bytes, data: bytes) -> bytes:
    def chunk(kind: bytes, part: bytes) -> bytes:
        return (
            struct.pack(">I", len(part)) + kind + part + struct.pack(">I", zlib.crc32(kind + part))
        )

    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize(("channels", "colour"), [(1, 0), (3, 2), (4, 6)])
def test_every_filter_is_undone(number: int, channels: int, colour: int) -> None:
    array = pixels(6, 5, channels)
    header = struct.pack(">IIBBBBB", 5, 6, 8, colour, 0, 0, 0)
    content = _file(header, _filtered(array.reshape(6, -1), channels, number))
    np.testing.assert_array_equal(png.decode(content).reshape(6, 5, channels), array)


def test_damaged_png_files_are_named() -> None:
    whole = png.encode(pixels(4, 4))
    with pytest.raises(ValueError, match=r"a\.png is not a PNG file"):
        png.decode(b"GIF89a", "a.png")
    with pytest.raises(ValueError, match=r"a\.png is damaged: it ends before"):
        png.decode(whole[:-8], "a.png")
    spoilt = bytearray(whole)
    spoilt[45] ^= 1
    with pytest.raises(ValueError, match=r"a\.png is damaged: the sum of its chunk"):
        png.decode(bytes(spoilt), "a.png")
    short = _file(struct.pack(">IIBBBBB", 4, 4, 8, 0, 0, 0, 0), b"\0" * 7)
    with pytest.raises(ValueError, match="it holds 7 bytes of pixels"):
        png.decode(short)
    palette = _file(struct.pack(">IIBBBBB", 4, 4, 8, 3, 0, 0, 0), b"")
    with pytest.raises(ValueError, match="needs Pillow"):
        png.decode(palette)
    unknown = _file(struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0), b"\x07\0")
    with pytest.raises(ValueError, match="no filter 7"):
        png.decode(unknown)


@pytest.mark.parametrize("array", [np.zeros((2, 2)), pixels(2, 2, 5), pixels(0, 2), pixels(2)])
def test_what_is_no_png_is_not_written(array: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="a PNG file"):
        png.encode(array)


def test_pillow_reads_what_is_written() -> None:
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install pillow")
    for shape in ((5, 7), (5, 7, 3), (5, 7, 4)):
        array = pixels(*shape)
        np.testing.assert_array_equal(np.asarray(pillow.open(io.BytesIO(png.encode(array)))), array)
        packed = io.BytesIO()
        pillow.fromarray(array).save(packed, "png")
        np.testing.assert_array_equal(png.decode(packed.getvalue()), array)


# -- images ---------------------------------------------------------------------------------------


def test_image_answers_as_pillows_does() -> None:
    array = pixels(4, 6, 3)
    image = Image(array)
    assert (image.mode, image.size, image.width, image.height) == ("RGB", (6, 4), 6, 4)
    assert image.getbands() == ("R", "G", "B")
    assert image.getpixel((5, 1)) == tuple(array[1, 5].tolist())
    assert image.tobytes() == array.tobytes()
    assert repr(image) == "<evergrad.datasets.Image mode=RGB size=6x4>"
    np.testing.assert_array_equal(np.array(image), array)
    copy = np.array(image)
    copy[:] = 0
    assert image == Image(array)
    assert Image(array[:, :, 0]).getpixel((2, 3)) == array[3, 2, 0]
    assert Image(array[:, :, :1]).mode == "L"


def test_crop_reaches_outside() -> None:
    image = Image(np.full((2, 2), 9, np.uint8))
    np.testing.assert_array_equal(
        np.asarray(image.crop((-1, 1, 2, 4))), [[0, 9, 9], [0, 0, 0], [0, 0, 0]]
    )


def test_conversions() -> None:
    grey = Image(pixels(3, 3))
    assert np.asarray(grey.convert("RGB")).shape == (3, 3, 3)
    assert grey.convert("RGB").convert("L") == grey
    rgba = np.asarray(grey.convert("RGBA"))
    assert (rgba[:, :, 3] == 255).all()
    with_alpha = Image(pixels(3, 3, 2))
    np.testing.assert_array_equal(
        np.asarray(with_alpha.convert("RGBA"))[:, :, 3], np.asarray(with_alpha)[:, :, 1]
    )
    with pytest.raises(ValueError, match="to CMYK; install Pillow"):
        grey.convert("CMYK")


def test_images_of_odd_arrays_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(H, W\)"):
        Image(pixels(2))
    with pytest.raises(TypeError, match="5 channels of uint8"):
        Image(pixels(2, 2, 5))
    with pytest.raises(TypeError, match="float64"):
        Image(np.zeros((2, 2)))


def test_saving_an_image(tmp_path: Path) -> None:
    image = Image(pixels(3, 4, 3))
    image.save(tmp_path / "a.png")
    np.testing.assert_array_equal(png.read(tmp_path / "a.png"), np.asarray(image))
    with pytest.raises(ValueError, match="PNG, not 'jpg'"):
        image.save(tmp_path / "a.jpg")
    assert [file.name for file in tmp_path.iterdir()] == ["a.png"]


# -- grids ----------------------------------------------------------------------------------------


def test_grid_by_hand() -> None:
    images = eg.arange(3.0).reshape(3, 1, 1, 1).expand(3, 1, 1, 2)
    grid = make_grid(images, nrow=2, padding=1, pad_value=9.0)
    assert tuple(grid.shape) == (3, 5, 7)
    expected = [
        [9, 9, 9, 9, 9, 9, 9],
        [9, 0, 0, 9, 1, 1, 9],
        [9, 9, 9, 9, 9, 9, 9],
        [9, 2, 2, 9, 9, 9, 9],
        [9, 9, 9, 9, 9, 9, 9],
    ]
    for channel in grid.numpy():
        np.testing.assert_array_equal(channel, expected)


@pytest.mark.parametrize("shape", [(4, 4), (1, 4, 4), (3, 4, 4), (1, 1, 4, 4)])
def test_one_image_is_its_own_grid(shape: tuple[int, ...]) -> None:
    image = eg.rand(*shape)
    grid = make_grid(image)
    assert tuple(grid.shape) == (3, 4, 4)
    np.testing.assert_array_equal(
        grid.numpy(), np.broadcast_to(image.numpy().reshape(-1, 4, 4), (3, 4, 4))
    )


def test_normalised_grids() -> None:
    images = [eg.tensor([[[1.0, 3.0]]]), eg.tensor([[[2.0, 10.0]]])]

    def row(**options: Any) -> list[float]:
        return make_grid(images, padding=0, normalize=True, **options)[0, 0].tolist()  # type: ignore[no-any-return]

    np.testing.assert_allclose(row(), [0, 2 / 9, 1 / 9, 1], rtol=1e-6)
    np.testing.assert_allclose(row(scale_each=True), [0, 1, 0, 1])
    np.testing.assert_allclose(row(value_range=(2, 3)), [0, 1, 0, 1])
    assert images[0].tolist() == [[[1.0, 3.0]]]


def test_grids_refuse_what_is_no_image() -> None:
    with pytest.raises(TypeError, match="tensor or list of tensors expected"):
        make_grid("image")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a list containing"):
        make_grid([eg.zeros(1, 2, 2), 3])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="has to be a tuple"):
        make_grid(eg.zeros(2, 1, 2, 2), normalize=True, value_range=[0, 1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="images"):
        make_grid(eg.zeros(1, 2, 1, 2, 2))


def test_save_image_rounds_and_clamps(tmp_path: Path) -> None:
    image = eg.tensor([[[-0.5, 0.0, 0.5, 1.0, 2.0]]], requires_grad=True)
    save_image(image, tmp_path / "a.png")
    found = read_image(tmp_path / "a.png")
    assert found.dtype is eg.uint8 and tuple(found.shape) == (3, 1, 5)
    assert found[0, 0].tolist() == [0, 0, 128, 255, 255]
    stream = io.BytesIO()
    save_image(image, stream, format="png")
    assert stream.getvalue() == (tmp_path / "a.png").read_bytes()
    with pytest.raises(ValueError, match=r"use name\.png"):
        save_image(image, tmp_path / "a.jpg")


def test_pixels_of_an_image_cannot_be_written() -> None:
    """They may be those of a data set; a copy is one's own."""
    image = Image(pixels(2, 2))
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(image)[0, 0] = 1
    assert np.array(image).flags.writeable
    assert np.asarray(image, np.float32).dtype == np.float32
