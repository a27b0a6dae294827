"""Readers that die in every way, loaded into a worker by the pool's `readers` seam. Chosen by suffix."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from pensieve_mcp.corpus.types import Block, Extractor, Facts, FileHint, Limits, Piece, Unreadable

FACTS = Facts("text/x-test")


class Plain:
    """The file's bytes as UTF-8, one block a line."""

    name = "plain"
    version = 1

    def extract(self, file: BinaryIO, hint: FileHint, limits: Limits) -> Iterator[Piece | Facts]:
        text = file.read().decode("utf-8", "replace")
        blocks, at = [], 0
        for line in text.splitlines(keepends=True):
            blocks.append(Block(at, at + len(line.rstrip("\r\n"))))
            at += len(line)
        yield Piece(text, blocks=tuple(blocks))
        yield FACTS


class Acting:
    """Yields `good` pages, then acts."""

    version = 1

    def __init__(self, name: str, act: Callable[[], object], good: int = 0) -> None:
        self.name = name
        self._act = act
        self._good = good

    def extract(self, file: BinaryIO, hint: FileHint, limits: Limits) -> Iterator[Piece | Facts]:
        yield FACTS
        for number in range(1, self._good + 1):
            yield Piece(f"page {number}\n", "page", number, str(number))
        time.sleep(0.25)  # longer than a worker holds pieces back
        yield FACTS
        self._act()
        yield Piece("after the act\n")


class Trickle:
    """A piece every twentieth of a second, for ever."""

    name = "trickle"
    version = 1
    native = True

    def extract(self, file: BinaryIO, hint: FileHint, limits: Limits) -> Iterator[Piece | Facts]:
        yield FACTS
        while True:
            time.sleep(0.05)
            yield Piece("drop\n")


class Pages:
    """A thousand pages by native code: page 900 kills the worker, and page 950 too if the name says `twice`."""

    name = "pages"
    version = 1
    native = True

    def extract(self, file: BinaryIO, hint: FileHint, limits: Limits) -> Iterator[Piece | Facts]:
        return self.extract_from(file, hint, limits, 1)

    def extract_from(
        self, file: BinaryIO, hint: FileHint, limits: Limits, first: int
    ) -> Iterator[Piece | Facts]:
        yield FACTS
        for number in range(first, 1001):
            if number == 900 or (number == 950 and "twice" in hint.name):
                os.kill(os.getpid(), signal.SIGKILL)
            yield Piece("" if number == 3 else f"page {number}\n", "page", number, str(number))


def _garbage() -> None:
    for descriptor in range(3, 64):
        try:
            socket.socket(fileno=os.dup(descriptor)).send(b"\x00\x00\x00\x05hello, is this JSON?" * 3)
        except OSError:
            continue
    time.sleep(60)


def _swallow() -> None:
    kept = []
    while True:
        kept.append(bytearray(8 * 2**20))


def _touch_memory() -> None:
    kept = []
    while True:
        block = bytearray(4 * 2**20)
        block[::4096] = b"x" * len(block[::4096])
        kept.append(block)
        time.sleep(0.005)


def _spin() -> None:
    while True:
        pass


def _recurse() -> None:
    _recurse()


def _refuse() -> None:
    raise Unreadable("encrypted", "needs a password")


def _write_a_file() -> None:
    descriptor = os.open("/tmp/pensieve-worker-must-not-write", os.O_WRONLY | os.O_CREAT)
    try:
        os.write(descriptor, b"x")
    finally:
        os.close(descriptor)
        Path("/tmp/pensieve-worker-must-not-write").unlink()


def _environment() -> None:
    raise Unreadable("corrupt", ",".join(sorted(os.environ)))


def readers() -> dict[str, Extractor]:
    return {
        ".plain": Plain(),
        ".pages": Pages(),
        ".trickle": Trickle(),
        ".stop": Acting("stop", lambda: os.kill(os.getpid(), signal.SIGSTOP)),
        ".stop-late": Acting("stop-late", lambda: os.kill(os.getpid(), signal.SIGSTOP), good=5),
        ".spin": Acting("spin", _spin),
        ".exit": Acting("exit", lambda: os._exit(3)),
        ".abort": Acting("abort", os.abort),
        ".segv": Acting("segv", lambda: os.kill(os.getpid(), signal.SIGSEGV)),
        ".garbage": Acting("garbage", _garbage),
        ".swallow": Acting("swallow", _swallow),
        ".touch": Acting("touch", _touch_memory),
        ".recurse": Acting("recurse", _recurse),
        ".bug": Acting("bug", lambda: {}["nothing here"], good=2),
        ".refuse": Acting("refuse", _refuse, good=2),
        ".write": Acting("write", _write_a_file),
        ".environment": Acting("environment", _environment),
        ".stdout": Acting("stdout", lambda: os.write(1, b"printed by a library")),
        ".chatty": Acting("chatty", lambda: [os.write(2, b"y" * 1024) for _ in range(32)], good=1),
    }
