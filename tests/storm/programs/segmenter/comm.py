import os
import socket
import time

import numpy as np


class Communicator:
    def __init__(self, timeout=150.0):
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        end = time.monotonic() + timeout
        if self.rank == 0:
            with socket.create_server(address) as server:
                server.settimeout(timeout)
                self.sockets = [server.accept()[0] for _ in range(self.size - 1)]
        else:
            while True:
                try:
                    self.sockets = [socket.create_connection(address, 10)]
                    break
                except OSError:
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.1)
        for s in self.sockets:
            s.settimeout(timeout)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def _read(self, s, like):
        out = np.empty(like.shape, "float64")
        view = memoryview(out.reshape(-1)).cast("B")
        at = 0
        while at < len(view):
            n = s.recv_into(view[at:])
            if n == 0:
                raise ConnectionError("lost the connection to a peer")
            at += n
        return out

    def mean(self, x):
        x = np.ascontiguousarray(x, dtype="float64")
        if self.rank:
            self.sockets[0].sendall(x.tobytes())
            return self._read(self.sockets[0], x)
        total = x.copy()
        for s in self.sockets:
            total += self._read(s, x)
        total /= self.size
        for s in self.sockets:
            s.sendall(total.tobytes())
        return total

    def from_first(self, x):
        return self.mean(x if self.rank == 0 else np.zeros_like(x)) * self.size
