"""Starts the program under test as a copy of a process that has loaded LibTorch: warm_start.hpp, for tests in Python."""
import os
import select
import signal
import socket
import struct
import subprocess
import tempfile
import threading
from pathlib import Path


class Program:
    def __init__(self, path):
        self.path, self.lock, self.socket = Path(path).resolve(), threading.Lock(), None
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        library = self.path.parents[1] / "tests/program/libwarm_library.so"
        if "GPUTRAIN_COLD_STARTS" not in os.environ and library.exists():
            self.socket, other = socket.socketpair()
            with other:
                subprocess.Popen([self.path], stdin=other, env={**self.environment, "LD_PRELOAD": str(library),
                                                               "GOMP_SPINCOUNT": "2000"})
            if self._answer() != 0:
                self.socket = None

    def _answer(self):
        answer = self.socket.recv(4)
        return struct.unpack("i", answer)[0] if len(answer) == 4 else -1

    def _start(self, words, streams):
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        with os.fdopen(os.memfd_create("request"), "wb") as request, self.lock:
            text = "\0".join([str(len(words)), os.getcwd(), *words, *variables, ""])
            request.write(os.fsencode(text))
            request.flush()
            socket.send_fds(self.socket, [b"\0"], [file.fileno() for file in (request, *streams)])
            return self._answer()

    def run(self, *words, timeout=300):
        """Runs it with these arguments until it ends."""
        words = [str(self.path), *map(str, words)]
        pid = -1
        with open(os.devnull, "rb") as nothing, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            if self.socket and "launch" not in words:
                pid = self._start(words, (nothing, out, err))
            if pid < 0:
                return subprocess.run(words, capture_output=True, text=True, env=self.environment, timeout=timeout)
            ended = os.pidfd_open(pid)
            if not select.select([ended], [], [], timeout)[0]:
                os.kill(pid, signal.SIGKILL)
            os.close(ended)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode())
        return subprocess.CompletedProcess(words, code, *texts)
