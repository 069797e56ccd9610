"""The parent's end of a worker's channel: JSON lines over an inherited pipe pair, or over a loopback socket that the worker opens back.

It knows bytes and lines, not what they mean. Reading never blocks: whoever waits does so with a selector on `read_fd`.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import socket
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST_LINE_BYTES = 8 << 20
"""No honest message comes near this, not even the answer of a job with tens of thousands of events; what does is refused before it fills the parent's
memory."""
LONGEST_TOKEN_LINE_BYTES = 256


class ChannelError(Exception):
    """What came over the channel is not the protocol, or the channel is gone."""


class Channel:
    """Lines of JSON objects in both directions. `closed` is true once the worker's end is gone."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        os.set_blocking(read_fd, False)
        self.read_fd = read_fd
        self._write_fd = write_fd
        self._buffer = b""
        self.closed = False

    def send(self, message: Mapping[str, Any]) -> None:
        """Write one line; raises ChannelError if the worker no longer listens."""
        data = (json.dumps(message, allow_nan=False) + "\n").encode()
        try:
            while data:
                data = data[os.write(self._write_fd, data) :]
        except OSError as error:
            raise ChannelError(f"could not be reached: {error.strerror}") from error

    def receive(self) -> list[dict[str, Any]]:
        """Return the messages that have arrived whole, without waiting; raises ChannelError for what is no JSON object."""
        self._fill()
        *lines, self._buffer = self._buffer.split(b"\n")
        if len(self._buffer) > LONGEST_LINE_BYTES:
            raise ChannelError(f"sent a line of more than {LONGEST_LINE_BYTES} bytes")
        return [_message(line) for line in lines]

    def _fill(self) -> None:
        while not self.closed and len(self._buffer) <= LONGEST_LINE_BYTES:
            try:
                chunk = os.read(self.read_fd, 1 << 16)
            except BlockingIOError:
                return
            except OSError:  # a reset socket is a closed one
                chunk = b""
            self._buffer += chunk
            self.closed = not chunk

    def close(self) -> None:
        """Give back both descriptors."""
        for fd in {self.read_fd, self._write_fd}:
            with contextlib.suppress(OSError):  # already closed: nothing left to give back
                os.close(fd)


def _message(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except ValueError as error:
        raise ChannelError(f"sent something that is no JSON: {line[:80]!r}") from error
    if not isinstance(message, dict):
        raise ChannelError(f"sent something that is no message: {line[:80]!r}")
    return message


class PipePair:
    """Two pipes, made before the worker is started; `arguments` and `child_fds` go to it, `open` gives the parent's end."""

    def __init__(self) -> None:
        self._read_fd, child_write = os.pipe()
        child_read, self._write_fd = os.pipe()
        self.child_fds = (child_read, child_write)
        self.arguments = ("pipe", str(child_read), str(child_write))
        self.env: dict[str, str] = {}

    def started(self) -> None:
        """Close the child's ends here, so that the worker's death is seen as the end of the stream."""
        for fd in self.child_fds:
            os.close(fd)

    def accept(self) -> Channel | None:
        """Return the channel at once: pipes need nobody to call."""
        return Channel(self._read_fd, self._write_fd)

    def fileno(self) -> int:
        """What to watch for the first message."""
        return self._read_fd

    def close(self) -> None:
        """Nothing of its own is left once the channel is open."""


class Listener:
    """A loopback socket to which exactly one worker, the one that knows the token, may connect."""

    def __init__(self, token_variable: str, host: str = "127.0.0.1") -> None:
        self._token = secrets.token_hex(16)
        self._server = socket.create_server((host, 0))
        self._server.setblocking(False)
        self.child_fds: tuple[int, ...] = ()
        self.arguments = ("connect", host, str(self._server.getsockname()[1]))
        self.env = {token_variable: self._token}

    def started(self) -> None:
        """The worker inherits nothing, so there is nothing to close."""

    def fileno(self) -> int:
        """What to watch for a caller; -1 once closed."""
        return self._server.fileno()

    def accept(self, patience_s: float = 1.0) -> Channel | None:
        """Return the channel of a caller whose first line is the token, None if nobody called or a stranger did."""
        try:
            connection, _ = self._server.accept()
        except BlockingIOError:
            return None
        connection.settimeout(patience_s)
        if not self._knows_token(connection, time.monotonic() + patience_s):
            connection.close()
            return None
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        read_fd = os.dup(connection.fileno())
        write_fd = connection.detach()
        os.set_blocking(write_fd, True)
        return _SocketChannel(read_fd, write_fd)

    def _knows_token(self, connection: socket.socket, until: float) -> bool:
        """Read the first line byte by byte, so that nothing behind it is lost, and compare it in constant time."""
        line = b""
        try:
            while not line.endswith(b"\n") and len(line) < LONGEST_TOKEN_LINE_BYTES and time.monotonic() < until:
                byte = connection.recv(1)
                if not byte:
                    return False
                line += byte
            given = json.loads(line).get("token")
        except (OSError, ValueError, AttributeError):
            return False
        return isinstance(given, str) and hmac.compare_digest(given.encode(), self._token.encode())

    def close(self) -> None:
        """Stop listening; a channel that was opened stays."""
        self._server.close()


class _SocketChannel(Channel):
    """A duplicated descriptor shares its blocking mode with the original, so both directions are non-blocking and sending waits for room."""

    def send(self, message: Mapping[str, Any]) -> None:
        os.set_blocking(self.read_fd, True)
        try:
            super().send(message)
        finally:
            os.set_blocking(self.read_fd, False)
