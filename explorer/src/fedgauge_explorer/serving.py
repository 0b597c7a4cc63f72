"""Serve the page to this machine's browsers only, until Ctrl-C."""

from __future__ import annotations

import errno
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from fedgauge.base.errors import InputError

HOST = "127.0.0.1"


class _Handler(BaseHTTPRequestHandler):
    """Answer with the page, and with nothing else."""

    server: PageServer

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, body: bool) -> None:
        # Another name for this machine is a foreign site's trick to read the page.
        port = self.server.server_address[1]
        known = self.headers.get("Host", "") in (f"{HOST}:{port}", f"localhost:{port}")
        found = known and self.path.partition("?")[0] in ("/", "/index.html")
        content = self.server.page if found else b"There is only one page here, at /.\n"
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", f"text/{'html' if found else 'plain'}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing: the terminal belongs to the address."""


class PageServer(ThreadingHTTPServer):
    """A server of one page on the loopback address.

    >>> with PageServer("<!doctype html>") as server:
    ...     server.address.startswith("http://127.0.0.1:")
    True
    """

    daemon_threads = True

    def __init__(self, page: str, port: int = 0) -> None:
        self.page = page.encode()
        if not 0 <= port <= 65535:
            raise InputError(f"port must be from 0 (any that is free) to 65535, not {port}.")
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            why = "is in use" if error.errno == errno.EADDRINUSE else "needs more rights than you have"
            raise InputError(f"Port {port} {why}; name another, or leave --port out to get a free one.") from None

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing if a browser went away before it had the whole page."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self.server_address[1]}/"
