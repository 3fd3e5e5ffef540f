"""What stands outside every store: files to which effects are appended, and a target that acts for its clients.

A line is written with one `write` in append mode. Whoever is killed in it may leave half a line, so each begins with a
line end of its own, and one that does not end with a stop is absent.
The target is a process of its own. What it was asked to do it does, also when its client has died.
"""

import asyncio
import os
import socket
import time
import uuid
from pathlib import Path

NAMES = ("effects", "starts", "answers")


class Ground:
    """The folder of one trial.

    Args:
        folder: where the files lie.

    Attributes:
        target: path of the target's socket.
    """

    def __init__(self, folder):
        self.folder = Path(folder)
        self.target = str(self.folder / "target")
        self._files = {}

    def note(self, name, *fields):
        """Append one line to one of the files."""
        file = self._files.get(name)
        if file is None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            file = self._files[name] = os.open(self.folder / name, flags, 0o600)
        os.write(file, f"\n{' '.join(map(str, fields))} .\n".encode())

    def lines(self, name):
        """Yield the fields of every line of one of the files."""
        path = self.folder / name
        if not path.exists():
            return
        with path.open() as file:
            for line in file:
                if line.endswith(" .\n"):
                    yield line.split()[:-1]

    def found(self, n):
        """Return the receipt of an effect that was written here, or None: how a local target is asked."""
        path = self.folder / "effects"
        start = f"\n{n} ".encode()
        parts = path.read_bytes().split(start) if path.exists() else []
        whole = [line for part in parts[1:] if (line := part.split(b"\n", 1)[0]).endswith(b" .")]
        return whole[0].split()[0].decode() if whole else None


def receipt_of(n):
    """Make the receipt of one effect; no two are equal.

    Letters only: of many thousand numbers some look like that of a card, and a store without a key keeps none of those.
    """
    return f"{n}-{uuid.uuid4().hex[:12].translate(_LETTERS)}"


_LETTERS = str.maketrans("0123456789", "ghijklmnop")


def serve(ground, *, dedupes):
    """Be the target, until killed: `do N KEY MEMO SECONDS` acts after that time, `ask KEY` tells what it knows.

    Args:
        ground: where effects are written.
        dedupes: True drops repeats of a key, in the same breath in which it acts.
    """
    known = {}

    async def do(n, key, memo, seconds):
        await asyncio.sleep(float(seconds))
        if dedupes and key in known:
            return known[key]
        receipt = receipt_of(n)
        ground.note("effects", n, receipt, memo)
        known[key] = receipt
        return receipt

    async def client(reader, writer):
        try:
            verb, *words = (await reader.readline()).decode().split()
            # A task of its own: a client that hangs up does not stop what it has asked for.
            answer = await asyncio.ensure_future(do(*words)) if verb == "do" else known.get(words[0], "-")
            writer.write(f"{answer}\n".encode())
            await writer.drain()
        except (OSError, ValueError):
            pass  # the client was killed while it asked or waited
        finally:
            writer.close()

    async def main():
        server = await asyncio.start_unix_server(client, ground.target, backlog=1_000)
        await server.serve_forever()

    asyncio.run(main())


def ask(ground, *words):
    """Send one request to the target and return its answer."""
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(ground.target)
        link.sendall((" ".join(map(str, words)) + "\n").encode())
        answer = b""
        while not answer.endswith(b"\n"):
            part = link.recv(1_000)
            if not part:
                raise ConnectionError("the target hung up")
            answer += part
    return answer.decode().strip()


def reachable(ground, patience=10.0):
    """Wait until the target listens."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return ask(ground, "ask", "nothing")
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
