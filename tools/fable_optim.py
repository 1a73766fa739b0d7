"""Muon: momentum whose update of a weight matrix is made orthogonal before it is applied.

From Keller Jordan, "Muon: an optimizer for hidden layers in neural networks" (2024), which gives
the quintic below and its coefficients. On this model and budget a matrix learns in far fewer tokens
than under AdamW. Embeddings and gains stay with AdamW.
"""

import concurrent.futures

import torch


def orthogonal(g, n_steps=5):
    """About U V^T for g = U S V^T, by Newton-Schulz; g: f32 [rows][cols]."""
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = g.shape[0] > g.shape[1]
    x = g.T if tall else g
    x = x / (x.norm() + 1e-7)
    for _ in range(n_steps):
        s = x @ x.T
        x = torch.addmm(x, torch.addmm(s, s, s, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.95, weight_decay=0.02, n_threads=1):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self.pool = concurrent.futures.ThreadPoolExecutor(n_threads)

    def step(self):
        for group in self.param_groups:
            by_size = sorted(group["params"], key=lambda p: -p.numel())
            list(self.pool.map(lambda p, g=group: self.step_one(g, p), by_size))

    @torch.no_grad()
    def step_one(self, group, p):
        state = self.state[p]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(p)
        m = state["momentum"].lerp_(p.grad, 1 - group["momentum"])
        update = orthogonal(p.grad.lerp(m, group["momentum"]))
        p.mul_(1 - group["lr"] * group["weight_decay"])
        p.add_(update, alpha=-group["lr"] * max(1.0, p.shape[0] / p.shape[1]) ** 0.5)
