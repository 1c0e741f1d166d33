"""Logs that TensorBoard shows, written by the package tensorboardX: the one place that uses it.

:class:`SummaryWriter` has PyTorch's interface and writes from a thread of its own.
:class:`EventFile` writes where it is called, so that a failing disk raises there.
"""

from __future__ import annotations

import os
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from evergrad.core.tensor import Tensor
from evergrad.core.tree import tree_map_only

if TYPE_CHECKING:
    from types import ModuleType


def _package(module: str = "") -> ModuleType:
    """The package, or a module of it."""
    try:
        return import_module("tensorboardX" + module)
    except ImportError:
        raise ImportError(
            "evergrad.utils.tensorboard writes with the package tensorboardX, which is not "
            "installed: pip install evergrad[app]"
        ) from None


def _plain(values: object) -> object:
    """Tensors as arrays, also inside lists and dicts."""
    return tree_map_only(Tensor, lambda t: t.detach().cpu().numpy(), values)


def _number(value: object) -> object:
    return value.item() if isinstance(value, Tensor) else value


class SummaryWriter:
    """Writes numbers, histograms, images and texts to an event file in a folder."""

    def __init__(
        self, log_dir: object = None, comment: str = "", purge_step: int | None = None,
        max_queue: int = 10, flush_secs: int = 120, filename_suffix: str = "",
    ) -> None:  # fmt: skip
        self._writer = _package().SummaryWriter(
            log_dir=None if log_dir is None else str(log_dir), comment=comment,
            purge_step=purge_step, max_queue=max_queue, flush_secs=flush_secs,
            filename_suffix=filename_suffix,
        )  # fmt: skip
        self.log_dir: object = self._writer.logdir

    def get_logdir(self) -> str:
        """The folder of the event file."""
        return str(self.log_dir)

    def add_scalar(
        self, tag: str, scalar_value: object, global_step: object = None,
        walltime: float | None = None, new_style: bool = False, double_precision: bool = False,
    ) -> None:  # fmt: skip
        """A number of a curve."""
        self._writer.add_scalar(tag, _number(scalar_value), _number(global_step), walltime)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: dict[str, object], global_step: object = None,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Numbers of several curves in one chart."""
        numbers = {tag: _number(value) for tag, value in tag_scalar_dict.items()}
        self._writer.add_scalars(main_tag, numbers, _number(global_step), walltime)

    def add_histogram(
        self, tag: str, values: object, global_step: object = None, bins: object = "tensorflow",
        walltime: float | None = None, max_bins: int | None = None,
    ) -> None:  # fmt: skip
        """How numbers are distributed."""
        self._writer.add_histogram(
            tag, _plain(values), _number(global_step), bins, walltime, max_bins
        )

    def add_image(
        self, tag: str, img_tensor: object, global_step: object = None,
        walltime: float | None = None, dataformats: str = "CHW",
    ) -> None:  # fmt: skip
        """An image: numbers in [0, 1], or bytes."""
        self._writer.add_image(tag, _plain(img_tensor), _number(global_step), walltime, dataformats)

    def add_images(
        self, tag: str, img_tensor: object, global_step: object = None,
        walltime: float | None = None, dataformats: str = "NCHW",
    ) -> None:  # fmt: skip
        """A batch of images side by side."""
        self._writer.add_images(
            tag, _plain(img_tensor), _number(global_step), walltime, dataformats
        )

    def add_figure(
        self, tag: str, figure: object, global_step: object = None, close: bool = True,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """A figure of matplotlib."""
        self._writer.add_figure(tag, figure, _number(global_step), close, walltime)

    def add_text(
        self, tag: str, text_string: str, global_step: object = None, walltime: float | None = None
    ) -> None:
        """A text, in Markdown."""
        self._writer.add_text(tag, text_string, _number(global_step), walltime)

    def add_pr_curve(
        self, tag: str, labels: object, predictions: object, global_step: object = None,
        num_thresholds: int = 127, weights: object = None, walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Precision against recall."""
        self._writer.add_pr_curve(
            tag, _plain(labels), _plain(predictions), _number(global_step), num_thresholds,
            _plain(weights), walltime,
        )  # fmt: skip

    def add_hparams(
        self, hparam_dict: dict[str, object], metric_dict: dict[str, object],
        hparam_domain_discrete: object = None, run_name: str | None = None,
        global_step: object = None,
    ) -> None:  # fmt: skip
        """The settings of a run and what came of it."""
        settings = {name: _number(value) for name, value in hparam_dict.items()}
        metrics = {name: _number(value) for name, value in metric_dict.items()}
        self._writer.add_hparams(settings, metrics, run_name, _number(global_step))

    def add_graph(
        self, model: object, input_to_model: object = None, verbose: bool = False,
        use_strict_trace: bool = True,
    ) -> NoReturn:  # fmt: skip
        """Refused: the drawing is made of PyTorch's own graph."""
        raise NotImplementedError(
            "evergrad does not draw models for TensorBoard; leave add_graph out, or write "
            "str(model) with add_text"
        )

    def flush(self) -> None:
        """Have everything so far on disk."""
        self._writer.flush()

    def close(self) -> None:
        """End the event file."""
        self._writer.close()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class EventFile:
    """Events of one start of a program; ``OSError`` where they cannot be written."""

    def __init__(self, folder: Path, first_step: int) -> None:
        """Events of former starts from ``first_step`` on are void; a session event says so."""
        suffix = f".{time.time_ns()}.{os.getpid()}"
        writer = _package(".event_file_writer").EventsWriter
        self._summary = _package(".summary")
        self._proto = _package(".proto.event_pb2")
        self._writer = writer(str(folder / "events"), suffix)
        started = self._proto.SessionLog(status=self._proto.SessionLog.START)
        self._write(first_step, session_log=started)

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        """A number of a curve."""
        self._write(step, summary=self._summary.scalar(tag, value))

    def add_text(self, tag: str, text: str, step: int) -> None:
        """A text, in Markdown."""
        self._write(step, summary=self._summary.text(tag, text))

    def add_image(self, tag: str, image: object, step: int) -> None:
        """An image, (height, width, 3) of uint8."""
        self._write(step, summary=self._summary.image(tag, image, dataformats="HWC"))

    def flush(self) -> None:
        """Have everything so far on disk."""
        self._writer.flush()

    def close(self) -> None:
        """End the event file."""
        self._writer.close()

    def _write(self, step: int, **content: object) -> None:
        self._writer.write_event(self._proto.Event(wall_time=time.time(), step=step, **content))


__all__ = ["EventFile", "SummaryWriter"]
