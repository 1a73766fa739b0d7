"""The fable network in PyTorch: Llama with tied embeddings and grouped-query attention.

Parameter names and shapes are those of HuggingFace's LlamaForCausalLM (rotate_half rotary
embedding, no biases), so a state dict is exported as it is.
"""

import dataclasses

import torch
from torch import nn
from torch.nn import functional as F


@dataclasses.dataclass
class Shape:
    vocab: int = 4096
    hidden: int = 256
    layers: int = 6
    heads: int = 8
    kv_heads: int = 4
    head_dim: int = 32
    inter: int = 704
    context: int = 1024
    rope_theta: float = 10000.0
    eps: float = 1e-5


class RmsNorm(nn.Module):
    def __init__(self, n, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


def rope_tables(shape):
    """cos and sin, each f32 [context][head_dim], halves repeated as rotate_half wants them."""
    freq = shape.rope_theta ** (-torch.arange(0, shape.head_dim, 2).float() / shape.head_dim)
    angle = torch.outer(torch.arange(shape.context).float(), freq)
    angle = torch.cat([angle, angle], -1)
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


def causal_attention(q, k, v, block=128):
    """softmax(q k^T / sqrt(d)) v with a causal mask; q, k, v: f32 [batch*heads][time][head_dim].

    Block by block of queries, each against the keys up to its own end: half of the work of the
    full square, and scores that stay in the cache.
    """
    n, time, dim = q.shape
    out = []
    k = k.transpose(1, 2)
    mask = torch.full((block, block), float("-inf"), device=q.device).triu(1)
    for begin in range(0, time, block):
        end = min(begin + block, time)
        size = end - begin
        scores = torch.bmm(q[:, begin:end] * dim ** -0.5, k[:, :, :end])
        scores[:, :, begin:] += mask[:size, :size]
        out.append(torch.bmm(scores.softmax(-1), v[:, :end]))
    return torch.cat(out, 1)


class Attention(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.q_proj = nn.Linear(s.hidden, s.heads * s.head_dim, bias=False)
        self.k_proj = nn.Linear(s.hidden, s.kv_heads * s.head_dim, bias=False)
        self.v_proj = nn.Linear(s.hidden, s.kv_heads * s.head_dim, bias=False)
        self.o_proj = nn.Linear(s.heads * s.head_dim, s.hidden, bias=False)

    def forward(self, x, cos, sin):
        s, (batch, time, _) = self.s, x.shape

        def split(y, heads):
            return y.view(batch, time, heads, s.head_dim).transpose(1, 2)

        def spread(y):          # each key/value head serves heads / kv_heads query heads in a row
            y = y.unsqueeze(2).expand(-1, -1, s.heads // s.kv_heads, -1, -1)
            return y.reshape(batch * s.heads, time, s.head_dim)

        q = rotate(split(self.q_proj(x), s.heads), cos, sin)
        k = rotate(split(self.k_proj(x), s.kv_heads), cos, sin)
        v = split(self.v_proj(x), s.kv_heads)
        y = causal_attention(q.reshape(batch * s.heads, time, s.head_dim), spread(k), spread(v))
        y = y.view(batch, s.heads, time, s.head_dim).transpose(1, 2)
        return self.o_proj(y.reshape(batch, time, s.heads * s.head_dim))


class Mlp(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.gate_proj = nn.Linear(s.hidden, s.inter, bias=False)
        self.up_proj = nn.Linear(s.hidden, s.inter, bias=False)
        self.down_proj = nn.Linear(s.inter, s.hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.self_attn = Attention(s)
        self.mlp = Mlp(s)
        self.input_layernorm = RmsNorm(s.hidden, s.eps)
        self.post_attention_layernorm = RmsNorm(s.hidden, s.eps)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Trunk(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.embed_tokens = nn.Embedding(s.vocab, s.hidden)
        self.layers = nn.ModuleList(Layer(s) for _ in range(s.layers))
        self.norm = RmsNorm(s.hidden, s.eps)


class Fable(nn.Module):
    """ids int64 [batch][time] to logits f32 [batch][time][vocab]."""

    def __init__(self, shape=None):
        super().__init__()
        self.shape = s = shape or Shape()
        self.model = Trunk(s)
        for name, table in zip(("cos", "sin"), rope_tables(s)):
            self.register_buffer(name, table, persistent=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                into_residual = name.endswith(("o_proj.weight", "down_proj.weight"))
                std = 0.02 / (2 * s.layers) ** 0.5 if into_residual else 0.02
                nn.init.normal_(p, 0.0, std)

    def forward(self, ids):
        time = ids.shape[1]
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x, self.cos[:time], self.sin[:time])
        return F.linear(self.model.norm(x), self.model.embed_tokens.weight)

    def loss(self, ids):
        """Mean nats per token of ids[:, 1:], given what stands before each."""
        logits = self(ids[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
