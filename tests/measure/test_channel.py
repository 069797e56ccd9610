"""Lines over pipes and sockets."""

from __future__ import annotations

import os
import socket
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from harness.measure.channel import LONGEST_LINE_BYTES, Channel, ChannelError, Listener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def make_channel() -> tuple[Channel, int]:
    """Return a channel whose other end is written to by the test."""
    read_fd, write_fd = os.pipe()
    return Channel(read_fd, os.open(os.devnull, os.O_WRONLY)), write_fd


def test_a_line_that_has_not_arrived_whole_waits():
    channel, far = make_channel()
    os.write(far, b'{"a": 1}\n{"b"')
    assert [{"a": 1}] == channel.receive()
    os.write(far, b": 2}\n")
    assert [{"b": 2}] == channel.receive()


def test_what_is_no_json_object_is_refused():
    channel, far = make_channel()
    os.write(far, b"[1]\n")
    with pytest.raises(ChannelError, match="no message"):
        channel.receive()


def test_a_line_without_end_is_refused():
    read_fd, write_fd = os.pipe()
    channel = Channel(read_fd, write_fd)
    channel._buffer = b"x" * (LONGEST_LINE_BYTES + 1)
    with pytest.raises(ChannelError, match="more than"):
        channel.receive()


def test_the_end_of_the_stream_is_seen():
    channel, far = make_channel()
    os.close(far)
    assert ([], True) == (channel.receive(), channel.closed)


def test_sending_to_nobody_is_an_error():
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    with pytest.raises(ChannelError, match="could not be reached"):
        Channel(os.open(os.devnull, os.O_RDONLY), write_fd).send({})


@contextmanager
def called(first_line: Callable[[str], bytes]) -> Iterator[tuple[Listener, socket.socket]]:
    """Yield a listener and a caller that has sent `first_line(token)` to it."""
    listener = Listener("TOKEN")
    with closing(listener), socket.create_connection(("127.0.0.1", int(listener.arguments[2]))) as caller:
        caller.sendall(first_line(listener.env["TOKEN"]))
        yield listener, caller


def test_a_caller_with_the_token_gets_the_channel():
    with called(lambda token: f'{{"token": "{token}"}}\n{{"type": "hello"}}\n'.encode()) as (listener, caller):
        channel = listener.accept()
        until = time.monotonic() + 5
        while not (messages := channel.receive()) and time.monotonic() < until:
            time.sleep(0.01)
        assert [{"type": "hello"}] == messages
        channel.send({"cmd": "x"})
        assert b'{"cmd": "x"}\n' == caller.recv(100)
        channel.close()


@pytest.mark.parametrize("line", [b'{"token": "guess"}\n', b'{"token": 5}\n', b"[]\n", b"\xff\n", b"\n"])
def test_a_stranger_does_not(line: bytes):
    with called(lambda token: line) as (listener, _):
        assert None is listener.accept(patience_s=0.5)


def test_a_caller_who_says_nothing_is_not_waited_for():
    with called(lambda token: b"") as (listener, _):
        assert None is listener.accept(patience_s=0.1)
