"""TensorBoard's view of a run: curves, pictures and texts, whose failure ends no run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from evergrad.utils.tensorboard import EventFile


class EventLog:
    """Curves, pictures and texts of a run. The first failure to write ends it: ``problem``."""

    def __init__(self, folder: Path | None, first_step: int) -> None:
        """What former starts wrote for ``first_step`` and later is to be forgotten. Without a
        folder nothing is written."""
        self.problem: OSError | ImportError | None = None
        self._file: EventFile | None = None
        if folder is None:
            return
        try:
            folder.mkdir(exist_ok=True)
            self._file = EventFile(folder, first_step)
        except (OSError, ImportError) as error:
            self.problem = error

    def scalars(self, step: int, values: dict[str, float]) -> None:
        """Points of curves."""

        def write(file: EventFile) -> None:
            for name, value in values.items():
                file.add_scalar(name, value, step)

        self._attempt(write)

    def text(self, step: int, name: str, text: str) -> None:
        """A text, shown as it is."""
        indented = "".join(f"    {line}\n" for line in text.splitlines())  # Markdown for "as it is"
        self._attempt(lambda file: file.add_text(name, indented, step))

    def image(self, step: int, name: str, image: object) -> None:
        """A picture, (height, width, 3) of uint8."""
        self._attempt(lambda file: file.add_image(name, image, step))

    def flush(self) -> None:
        """Hand everything so far to the system."""
        self._attempt(lambda file: file.flush())

    def close(self) -> None:
        """End the file."""
        if self._file is None:
            return
        try:
            self._file.close()
        except OSError as error:
            self.problem = self.problem or error

    def _attempt(self, write: Callable[[EventFile], None]) -> None:
        if self._file is None or self.problem is not None:
            return
        try:
            write(self._file)
        except OSError as error:
            self.problem = error
