"""A TCP proxy that cuts, delays or swallows, where a test says so."""

import contextlib
import socket
import threading
import time
from urllib.parse import urlsplit


class Proxy:
    """Stands between a client and `host:port`; closes everything when left.

    Attributes:
        url: the server's URL with the proxy's address; `server` is the server's own.
        connections: connections accepted so far.
        delay: seconds each chunk of the server is held back.
        stalled: True swallows both directions while the sockets stay open, as a black hole does.
        trickles: True hands on what the server says byte by byte.
        refuses: True closes every new connection at once.
        send_on: hands bytes to where the chunk that `cut` is shown would go.
        cut: called with (direction, chunk), direction `>` to the server or `<` to the client; True drops
            the chunk and cuts the connection. A `<` chunk was sent by the server: what it tells has happened.
    """

    def __init__(self, url):
        at = urlsplit(url)
        self._target = (at.hostname, at.port or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = url.replace(f"{at.hostname}:{at.port}", f"127.0.0.1:{self.port}", 1)
        self.server = url
        self.connections = 0
        self.delay, self.stalled, self.refuses, self.trickles = 0.0, False, False, False
        self.cut = lambda direction, chunk: False
        self.send_on = lambda chunk: None
        self._open = []
        self._ended = False

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._ended = True
        _close(self._listener)
        self.cut_all()

    def cut_all(self):
        """Cut every open connection."""
        for one in list(self._open):
            _close(one)

    def _accept(self):
        while not self._ended:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            if self.refuses:
                _close(client)
                continue
            try:
                server = socket.create_connection(self._target)
            except OSError:
                _close(client)
                continue
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open += [client, server]
            for direction, source, target in ((">", client, server), ("<", server, client)):
                threading.Thread(target=self._pump, args=(direction, source, target), daemon=True).start()

    def _pump(self, direction, source, target):
        with contextlib.suppress(OSError):
            while chunk := source.recv(65_536):
                while self.stalled and not self._ended:
                    time.sleep(0.01)
                if direction == "<" and self.delay:
                    time.sleep(self.delay)
                self.send_on = target.sendall
                if self.cut(direction, chunk):
                    break
                for part in [bytes([byte]) for byte in chunk] if self.trickles and direction == "<" else [chunk]:
                    target.sendall(part)
                    if self.trickles:
                        time.sleep(0.05)
        _close(source)
        _close(target)


def once(direction, text, times=1):
    """A `cut` that cuts the first chunks (one, or `times`) of a direction with `text` in them."""
    left = [times]

    def cut(seen, chunk):
        if seen != direction or text not in chunk or left[0] == 0:
            return False
        left[0] -= 1
        return True

    return cut


def _close(one):
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
