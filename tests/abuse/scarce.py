"""Daemons to which memory or threads are refused, by scarce.c: with Scarce() as s: s.take(daemon) before its start; then s.set(daemon, ...) at
any time, and s.count(daemon)."""
import mmap
import os
import shutil
import struct
import subprocess
import tempfile

import pytest
from harness import SLOW

FIELDS = ("nth", "one_in", "seed", "thread", "n_calls", "n_failed", "n_threads")  # struct control
CONTROL = struct.Struct(f"={len(FIELDS)}Q")
# They have allocators of their own, which come first.
not_with_sanitizers = pytest.mark.skipif(SLOW > 1, reason="a sanitizer owns malloc and pthread_create")


class Scarce:
    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="baton-scarce-")
        self.library = os.path.join(self.folder, "scarce.so")
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "scarce.c")
        subprocess.run(["gcc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-fno-builtin", "-o", self.library, source, "-ldl"],
                       check=True)
        self.controls = {}
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)

    def take(self, daemon, **fields):
        path = os.path.join(self.folder, daemon.name)
        with open(path, "wb+") as f:
            f.write(bytes(CONTROL.size))
            f.flush()
            self.controls[daemon.name] = mmap.mmap(f.fileno(), CONTROL.size)
        daemon.env = {**(daemon.env or {}), "LD_PRELOAD": self.library, "SCARCE": path}
        self.set(daemon, **fields)

    def set(self, daemon, **fields):
        for name, value in fields.items():
            struct.pack_into("=Q", self.controls[daemon.name], 8 * FIELDS.index(name), value)

    def count(self, daemon, name):
        return struct.unpack_from("=Q", self.controls[daemon.name], 8 * FIELDS.index(name))[0]
