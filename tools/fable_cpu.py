"""Builds fable_cpu.c with the C compiler and spreads the rows of a batch over CPU threads.

Run as a script it compares loss and gradient with fable_model.py on random rows:

    tools/fable_cpu.py BUILD_DIR
"""

import concurrent.futures
import ctypes
import pathlib
import queue
import subprocess
import sys

import torch

import fable_model

SOURCE = pathlib.Path(__file__).with_name("fable_cpu.c")
FLAGS = ["-O3", "-march=native", "-ffast-math", "-std=gnu11", "-Wall", "-Wextra", "-shared",
         "-fPIC"]


class CShape(ctypes.Structure):
    _fields_ = [(n, ctypes.c_int) for n in ("vocab", "hidden", "layers", "heads", "kv_heads",
                                            "head_dim", "inter", "context")]
    _fields_ += [("rope_theta", ctypes.c_float), ("eps", ctypes.c_float)]


class CpuTrainer:
    """Loss and gradient of a Fable on the CPU.

    Moves the model's parameters into one flat tensor; they stay ordinary parameters, as views of
    it. BLAS must be single-threaded (OPENBLAS_NUM_THREADS=1): the threads here are the parallelism.
    """

    def __init__(self, model, build_dir, n_threads):
        library = build_dir / "fable_cpu.so"
        subprocess.run(["cc", *FLAGS, str(SOURCE), "-o", str(library), "-lopenblas", "-lm"],
                       check=True)
        self.lib = ctypes.CDLL(str(library.resolve()))
        self.lib.fable_cpu_open.restype = ctypes.c_void_p
        self.lib.fable_cpu_row.restype = ctypes.c_double
        self.lib.fable_cpu_row.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int]
        parameters = list(model.parameters())
        self.flat = torch.cat([p.detach().flatten() for p in parameters])
        self.grads = [torch.zeros_like(self.flat) for _ in range(n_threads)]
        shape = CShape(*(getattr(model.shape, n) for n, _ in CShape._fields_))
        self.works = [self.lib.fable_cpu_open(ctypes.byref(shape)) for _ in range(n_threads)]
        self.pool = concurrent.futures.ThreadPoolExecutor(n_threads)
        at = 0
        for p in parameters:
            p.data = self.flat[at:at + p.numel()].view_as(p)
            p.grad = self.grads[0][at:at + p.numel()].view_as(p)
            at += p.numel()

    def run(self, ids, with_gradient=True):
        """Mean loss over ids int64 [rows][tokens + 1]; sets the grad of every parameter."""
        ids = ids.contiguous()
        rows = queue.SimpleQueue()
        for row in ids:
            rows.put(row)

        def work(i):
            total = 0.0
            grad = self.grads[i].zero_().data_ptr() if with_gradient else None
            while True:
                try:
                    row = rows.get_nowait()
                except queue.Empty:
                    return total
                total += self.lib.fable_cpu_row(self.works[i], self.flat.data_ptr(), grad,
                                                row.data_ptr(), len(row) - 1)

        total = sum(self.pool.map(work, range(len(self.works))))
        if with_gradient:
            for other in self.grads[1:]:
                self.grads[0].add_(other)
            self.grads[0].div_(len(ids))
        return total / len(ids)


def compare(build_dir):
    torch.manual_seed(1)
    model = fable_model.Fable()
    with torch.no_grad():
        for p in model.parameters():        # larger than at the start, so that attention has edges
            p.mul_(3.0) if p.dim() == 2 else p.add_(0.1 * torch.randn_like(p))
    ids = torch.randint(0, model.shape.vocab, (3, 201))
    loss = model.loss(ids)
    loss.backward()
    wanted = [p.grad for p in model.parameters()]
    got_loss = CpuTrainer(model, build_dir, 2).run(ids)
    worst = max(float((p.grad - w).norm() / w.norm()) for p, w in zip(model.parameters(), wanted))
    print("loss %.6f and %.6f; worst relative difference of a gradient %.1e" %
          (float(loss), got_loss, worst))
    return abs(float(loss) - got_loss) < 1e-4 and worst < 1e-3


if __name__ == "__main__":
    sys.exit(0 if compare(pathlib.Path(sys.argv[1])) else 1)
