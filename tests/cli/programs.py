"""Real programs for the tests of the command line: one server and worker for most cases, in a folder of its own.

The first argument of a test is the folder with the programs; what follows is unittest's.
"""

import json
import os
import pathlib
import queue
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
CLI = str(BIN / "gpulayer")
PATIENCE = 60


class Home:
    """A user's own folders, and the environment that points to them."""

    def __init__(self) -> None:
        self.temporary = tempfile.TemporaryDirectory(prefix="gpulayer-cli-")
        self.path = pathlib.Path(self.temporary.name)
        self.cwd = self.path / "cwd"
        self.cwd.mkdir()
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("GPULAYER_")}
        self.env |= {
            "GPULAYER_DATA_DIR": str(self.path / "data"),
            "GPULAYER_CONFIG_DIR": str(self.path / "config"),
            "XDG_CACHE_HOME": str(self.path / "cache"),
        }

    def run(self, *args: "str | bytes", **kwargs: object) -> "subprocess.CompletedProcess[bytes]":
        options: dict = {"cwd": self.cwd, "env": self.env, "stdin": subprocess.DEVNULL, "timeout": PATIENCE}
        options |= kwargs
        return subprocess.run([CLI, *args], capture_output=True, **options)

    def start(self, *args: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([CLI, *args], cwd=self.cwd, env=self.env, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def close(self) -> None:
        self.run("down")
        self.temporary.cleanup()


def eventually(condition, what: str):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"not in time: {what}")


class SlowRelay:
    """Passes bytes on to a server, each piece so much later, in both directions."""

    def __init__(self, to: "tuple[str, int]", delay: float) -> None:
        self.to = to
        self.delay = delay
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.sockets: "list[socket.socket]" = []

    def __enter__(self) -> "SlowRelay":
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for s in (self.listener, *self.sockets):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            s.close()

    def serve(self) -> None:
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection(self.to)
            self.sockets += [near, far]
            for source, sink in ((near, far), (far, near)):
                pieces: "queue.Queue[tuple[float, bytes]]" = queue.Queue()
                threading.Thread(target=self.read, args=(source, pieces), daemon=True).start()
                threading.Thread(target=self.write, args=(sink, pieces), daemon=True).start()

    def read(self, source: socket.socket, pieces: "queue.Queue[tuple[float, bytes]]") -> None:
        data = b"x"
        while data:
            try:
                data = source.recv(65536)
            except OSError:
                data = b""
            pieces.put((time.monotonic() + self.delay, data))

    @staticmethod
    def write(sink: socket.socket, pieces: "queue.Queue[tuple[float, bytes]]") -> None:
        try:
            while True:
                due, data = pieces.get()
                time.sleep(max(0.0, due - time.monotonic()))
                if not data:
                    return sink.shutdown(socket.SHUT_WR)
                sink.sendall(data)
        except OSError:
            pass


class Up(unittest.TestCase):
    """Shares one `up` among the cases."""

    home: Home
    up: str

    @classmethod
    def setUpClass(cls) -> None:
        cls.home = Home()
        done = cls.home.run("up", "--listen", "127.0.0.1:0", "--slots", "4")
        assert done.returncode == 0, done
        cls.up = done.stdout.decode()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.home.close()

    def gpulayer(self, *args: "str | bytes", code: int = 0, **kwargs: object) -> "subprocess.CompletedProcess[bytes]":
        done = self.home.run(*args, **kwargs)
        self.assertEqual(done.returncode, code, done)
        return done

    def address(self) -> str:
        return json.loads(self.gpulayer("status", "--target", "here", "--json").stdout)["addresses"][0]

    def token(self, role: str, *args: str) -> str:
        return self.gpulayer("token", "create", "--role", role, *args).stdout.decode().strip()
