"""The program of a process that compiles for another one: texts come in, object code goes out.

Started by :mod:`.native.compile_pool`, with the folders of llvmlite and of this module on the path:
nothing else of this package is imported, nor anything of the user's. A request is the length of a
text and the text; a reply is one (or zero, if LLVM refused), a length and the object code (or
nothing).
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
# Who is not asked anything for so many seconds ends, even if nobody tells it to.
_LONGEST_SILENCE = 600


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer until nobody asks any more."""
    emission = importlib.import_module("llvm_backend")
    while True:
        signal.alarm(_LONGEST_SILENCE)
        head = requests.read(LENGTH.size)
        if len(head) < LENGTH.size:
            return
        text = requests.read(*LENGTH.unpack(head)).decode()
        signal.alarm(0)
        try:
            reply = 1, emission.object_code(text)
        except RuntimeError:
            reply = 0, b""
        replies.write(REPLY.pack(reply[0], len(reply[1])) + reply[1])
        replies.flush()


def main() -> None:
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print does not belong to replies
    serve(sys.stdin.buffer, replies)
