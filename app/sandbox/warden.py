"""The warden of a jail: gets a program from the service, asks it one call after the other, and returns the answers.

It starts before the process that forks programs, and forks nothing itself: so what it holds (the calls that are still
to be asked, tokens, answers) is in the memory of no program. It trusts nothing that a program sends, and the service
trusts nothing that it sends. Standard library only."""

import os
import socket
import struct
import time
from collections.abc import Sequence
from typing import Final

from app.sandbox.frames import HEAD, STARTED, build_frame
from app.sandbox.runner import LOADED, MEMORY, NO_FUNCTION, NO_JSON, RAISED, TOO_MUCH, VALUE

ORDER: Final = struct.Struct(">IQQII")
"""Seconds of CPU time, bytes of additional memory, bytes of files, bytes of answers, number of messages. Their lengths
follow, and then they themselves: the program, and the arguments of each call."""
LIMITS: Final = struct.Struct(">IQQ")
"""The first three of these, for the process that forks. The program's channel is sent with them."""
REPORT: Final = struct.Struct(">iI")
"""The status from `wait`; CPU time in milliseconds, as the kernel counts it against the limit."""
LENGTH: Final = struct.Struct(">I")
MESSAGE: Final = struct.Struct(">cI")
"""Kind and length of a message to the service."""
WALLS, BEGUN, ANSWERS, ENDED, EXITED = b"W", b"B", b"A", b"E", b"X"
"""Protections in JSON; the process is confined; some answers; the last of them, after how the dialogue ended; how the
process ended."""
FINISHED, DIED = b"F", b"D"
"""Endings besides those that a program can report itself."""
CLAIMS: Final = (NO_FUNCTION, MEMORY, TOO_MUCH)
ANSWERED: Final = (VALUE, RAISED, NO_JSON)
TOKEN_BYTES: Final = 16
PART_BYTES: Final = 1 << 16
HOLD_SECONDS: Final = 0.01
"""Answers are held back for this long, since the service is woken by each message. It may kill a program at any time,
and then has what it was sent."""


WAIT: Final = struct.pack("ll", 0, int(HOLD_SECONDS * 1e6))
"""HOLD_SECONDS for the kernel, which saves a call before each that reads."""


class _Broken(Exception):
    """The program sent an invalid message."""


class _Stopped(Exception):
    """The program ends here, by its own message or by the limit on output."""

    def __init__(self, ending: bytes) -> None:
        self.ending = ending


def build_order(limits: tuple[int, int, int, int], messages: Sequence[bytes]) -> bytes:
    lengths = struct.pack(f">{len(messages)}I", *map(len, messages))
    return b"".join([ORDER.pack(*limits, len(messages)), lengths, *messages])


def send_message(service: socket.socket, kind: bytes, body: bytes = b"") -> None:
    service.sendall(MESSAGE.pack(kind, len(body)) + body)


def serve_orders(service: socket.socket, forker: socket.socket) -> None:
    """Runs programs until the service or the process that forks is gone."""
    while True:
        *limits, output_bytes, count = ORDER.unpack(_receive_exactly(service, ORDER.size))
        lengths = struct.unpack(f">{count}I", _receive_exactly(service, LENGTH.size * count))
        everything = _receive_exactly(service, sum(lengths))
        channel, its = socket.socketpair()
        with channel:
            with its:
                socket.send_fds(forker, [LIMITS.pack(*limits)], [its.fileno()])
            dialogue = _Dialogue(channel, output_bytes, service)
            dialogue.await_start()
            send_message(service, BEGUN)
            ending = dialogue.run(_split(everything, lengths))
            send_message(service, ENDED, ending + dialogue.take_answers())
        send_message(service, EXITED, _receive_exactly(forker, REPORT.size))


class _Dialogue:
    """The exchange with a program, which is untrusted from its first line."""

    def __init__(self, channel: socket.socket, output_bytes: int, service: socket.socket) -> None:
        self._channel = channel
        self._service = service
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, WAIT)
        self._left = output_bytes
        self._unread = bytearray()
        self._held: list[bytes] = []
        self._sent_at = time.monotonic()

    def await_start(self) -> None:
        """Waits until the process is confined, before the program is loaded. Raises EOFError if it is not."""
        try:
            self._receive_answer(STARTED)
        except (OSError, _Broken) as error:
            raise EOFError from error

    def run(self, messages: Sequence[bytes]) -> bytes:
        """How it ended."""
        try:
            self._exchange(messages)
        except _Stopped as stopped:
            return stopped.ending
        except (OSError, EOFError, _Broken):
            return DIED
        return FINISHED

    def _exchange(self, messages: Sequence[bytes]) -> None:
        """Each message under a token that the program has not seen before."""
        program, *calls = messages
        if self._ask(program) != LOADED:
            raise _Broken
        for arguments in calls:
            answer = self._ask(arguments)
            if answer[:1] not in ANSWERED:
                raise _Broken
            self._held.append(answer)
            if time.monotonic() - self._sent_at > HOLD_SECONDS:
                self._send_answers()
        self._channel.sendall(build_frame(os.urandom(TOKEN_BYTES), b"null"))
        self._receive_part()

    def _ask(self, message: bytes) -> bytes:
        token = os.urandom(TOKEN_BYTES)
        self._channel.sendall(build_frame(token, message))
        return self._receive_answer(token)

    def _receive_answer(self, token: bytes) -> bytes:
        size, answered = HEAD.unpack(self._receive(HEAD.size))
        if answered != token:
            raise _Broken
        self._left -= max(size - 1, 0)
        if self._left < 0:
            raise _Stopped(TOO_MUCH)
        answer = self._receive(size)
        if answer in CLAIMS:
            raise _Stopped(answer)
        return answer

    def take_answers(self) -> bytes:
        """The answers that the service has not been sent yet, each after its length."""
        held, self._held = self._held, []
        return b"".join(LENGTH.pack(len(answer)) + answer for answer in held)

    def _send_answers(self) -> None:
        if self._held:
            send_message(self._service, ANSWERS, self.take_answers())
        self._sent_at = time.monotonic()

    def _receive(self, size: int) -> bytes:
        while len(self._unread) < size:
            part = self._receive_part()
            if not part:
                raise EOFError
            self._unread += part
        taken = bytes(self._unread[:size])
        del self._unread[:size]
        return taken

    def _receive_part(self) -> bytes:
        while True:
            try:
                return self._channel.recv(PART_BYTES)
            except BlockingIOError:  # after HOLD_SECONDS
                self._send_answers()


def _split(everything: bytes, lengths: Sequence[int]) -> list[bytes]:
    parts, start = [], 0
    for length in lengths:
        parts.append(everything[start : start + length])
        start += length
    return parts


def _receive_exactly(sender: socket.socket, size: int) -> bytes:
    message = b""
    while len(message) < size:
        part = sender.recv(size - len(message), socket.MSG_WAITALL)
        if not part:
            raise EOFError
        message += part
    return message
