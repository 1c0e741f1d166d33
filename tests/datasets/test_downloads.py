"""Downloads over HTTP, from a server of the test's own: whole files or none."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from evergrad.datasets import files

CONTENT = bytes(range(256)) * 4096  # more than one block
MD5 = hashlib.md5(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/missing":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT if self.path == "/whole" else CONTENT[:1000])

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()
        thread.join()


def test_second_address_is_tried(server: str, tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    files.download([f"{server}/missing", f"{server}/half", f"{server}/whole"], path, MD5)
    assert path.read_bytes() == CONTENT
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


def test_connection_that_ends_early(server: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"half: .*(1,000 of 1,048,576|IncompleteRead)"):
        files.download([f"{server}/half"], tmp_path / "file")
    assert not list(tmp_path.iterdir())


def test_file_with_another_sum_is_refused_and_a_former_one_kept(
    server: str, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"former")
    with pytest.raises(RuntimeError, match="MD5 sum"):
        files.download([f"{server}/whole"], path, "0" * 32)
    assert path.read_bytes() == b"former"
    assert len(list(tmp_path.iterdir())) == 1


def test_right_file_is_not_fetched(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    files.download(["http://nowhere.invalid/file"], path, MD5)
    assert files.check_integrity(path, MD5)
    assert not files.check_integrity(path, "0" * 32)
    assert not files.check_integrity(tmp_path / "other")


def test_interrupted_writing_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(KeyboardInterrupt), files.written_beside(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())
