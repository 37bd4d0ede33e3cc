"""An HTTP server for pods, which may end, or be killed, while it answers them."""

import sys
from http.server import ThreadingHTTPServer
from typing import Any


class HTTPServer(ThreadingHTTPServer):
    """Says nothing of a connection that the other side has closed, and waits for none."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Prints any other error."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)
