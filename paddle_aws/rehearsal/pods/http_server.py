"""An HTTP server for pods, which may end, or be killed, while it answers them."""

import sys
import threading
from http.server import ThreadingHTTPServer
from typing import Any


class HTTPServer(ThreadingHTTPServer):
    """Says nothing of a connection that the other side has closed, and waits for none."""

    daemon_threads = True

    def start(self) -> None:
        """Serves in a thread, until `stop`."""
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Prints any other error."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)
