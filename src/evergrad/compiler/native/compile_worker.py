"""Compile worker: a process that compiles IR modules to object code for another one.

Started by :mod:`.native.compile_pool`, with the folders of llvmlite and of this module on the path:
nothing else of this package is imported, nor anything of the user's. A request is the length of the
IR and the IR; a reply is a status (1, or 0 if LLVM rejected the IR), a length and the object code.
"""

from __future__ import annotations

import importlib
import os
import signal
import struct
import sys
from typing import BinaryIO

LENGTH = struct.Struct("<q")
REPLY = struct.Struct("<bq")
# A worker without requests for so many seconds exits by itself.
_IDLE_TIMEOUT = 600


def serve(requests: BinaryIO, replies: BinaryIO, level: str = "") -> None:
    """Reply to requests until the pipe is closed, with code for this CPU or a level of x86-64."""
    backend = importlib.import_module("llvm_backend")
    backend.use_level(level)
    while True:
        signal.alarm(_IDLE_TIMEOUT)
        head = requests.read(LENGTH.size)
        if len(head) < LENGTH.size:
            return
        ir = requests.read(*LENGTH.unpack(head)).decode()
        signal.alarm(0)
        try:
            reply = 1, backend.object_code(ir)
        except RuntimeError:
            reply = 0, b""
        replies.write(REPLY.pack(reply[0], len(reply[1])) + reply[1])
        replies.flush()


def main(level: str) -> None:
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keeps what libraries print out of the replies
    serve(sys.stdin.buffer, replies, level)
