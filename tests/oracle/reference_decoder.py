"""The forward pass of the decoder families beyond reference.py's, a second time: float64, numpy, whole sequences, no cache. Each family is
written down here from its published definition, with HuggingFace's names; no code is shared with the engine."""
import math

import numpy as np

import reference


def silu(x):
    return x / (1 + np.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def text_config(config):
    """Of a model that sees: its text part, with the ids and flags that stand beside it."""
    inner = config.get("text_config")
    return {**{k: config[k] for k in ("tie_word_embeddings",) if k in config}, **inner} if inner else config


def root_of(w):
    for root in ("model.language_model.", "language_model.model.", "model.", "transformer.", ""):
        if any(root + name + ".weight" in w for name in ("embed_tokens", "tok_embeddings", "wte")):
            return root
    raise KeyError("no embedding")


def periodic(c, period):
    """True: the layer has the window."""
    n = c["num_hidden_layers"]
    if c.get("layer_types"):
        return [t == "sliding_attention" for t in c["layer_types"]]
    if c.get("sliding_window", 4096) is None:
        return [False] * n
    pattern = c.get("sliding_window_pattern", period)
    if isinstance(pattern, str):
        return [pattern[i % len(pattern)] == "L" for i in range(n)]
    return [(i + 1) % pattern != 0 for i in range(n)]


def frequencies(c, dim, n_tokens):
    """(angles per position of half of dim, what cos and sin are multiplied with) of layers without a kind of their own."""
    scaling = c.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    theta = c.get("rope_theta", {"gemma3_text": 1e6, "smollm3": 2e6}.get(c["model_type"], 10000.0))
    plain = theta ** -(np.arange(0, dim, 2) / dim)
    if "mrope_section" in scaling:
        return plain, 1.0
    if kind == "dynamic":
        most, s = c["max_position_embeddings"], scaling["factor"]
        n = max(n_tokens, most)
        base = theta * ((s * n / most) - (s - 1)) ** (dim / (dim - 2))
        return base ** -(np.arange(0, dim, 2) / dim), 1.0
    if kind in ("longrope", "su"):
        old = c["original_max_position_embeddings"]
        ratio = c["max_position_embeddings"] / old
        factor = scaling.get("attention_factor") or (1.0 if ratio <= 1 else math.sqrt(1 + math.log(ratio) / math.log(old)))
        return plain / np.array(scaling["long_factor" if n_tokens > old else "short_factor"]), factor
    return reference.rope_frequencies({**c, "rope_theta": theta}, dim)


class Family:
    """What a Llama layer is, which the families below change."""
    eps_key, eps, act = "rms_norm_eps", 1e-6, staticmethod(silu)
    place = "before"        # before, around, behind, one
    layer_norm, plus_one, pairs, tied = False, 0.0, False, False
    partial, score_cap, logit_cap = 1.0, None, None
    names = dict(layers="layers.%d.", n1="input_layernorm", n2="post_attention_layernorm", b1=None, b2=None, q="self_attn.q_proj", k="self_attn.k_proj",
                 v="self_attn.v_proj", o="self_attn.o_proj", gate="mlp.gate_proj", up="mlp.up_proj", down="mlp.down_proj", embed="embed_tokens",
                 norm="norm", head="lm_head", q_norm="self_attn.q_norm", k_norm="self_attn.k_norm")

    def __init__(self, config, w):
        self.c, self.w, self.root = text_config(config), w, root_of(w)
        c = self.c
        self.hidden, self.layers, self.heads = c["hidden_size"], c.get("num_hidden_layers", c.get("num_layers")), c.get("num_attention_heads", 8)
        self.kv_heads = c.get("num_key_value_heads") or self.heads
        self.dim = c.get("head_dim") or self.hidden // self.heads
        self.eps = c.get(self.eps_key, self.eps)
        self.turning = int(self.dim * c.get("partial_rotary_factor", self.partial))
        self.scale = self.dim ** -0.5
        self.embed_scale = self.residual_scale = self.logit_scale = 1.0
        self.windows, self.turns = [None] * self.layers, [True] * self.layers
        self.local_theta, self.slopes = None, None
        self.setup()

    def setup(self):
        pass

    def tensor(self, layer, key, kind="weight"):
        at = "" if layer is None else self.names["layers"] % layer
        return self.w.get(f"{self.root}{at}{self.names[key]}.{kind}")

    def linear(self, x, layer, key):
        y = x @ self.tensor(layer, key).T
        bias = self.tensor(layer, key, "bias")
        return y if bias is None else y + bias

    def qkv(self, x, i):
        return tuple(self.linear(x, i, key) for key in "qkv")

    def gate_up(self, x, i):
        return self.linear(x, i, "gate"), self.linear(x, i, "up")

    def norm(self, x, weight):
        if self.layer_norm:
            x = x - x.mean(axis=-1, keepdims=True)
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.eps) * (weight + self.plus_one)

    def normed(self, x, layer, key):
        return self.norm(x, self.tensor(layer, key))

    def qk_norm(self, x, i, key):
        """x: [n][heads][dim]."""
        weight = self.tensor(i, key)
        if weight is None:
            return x
        if weight.ndim == 2 or weight.shape[0] == self.dim:
            return self.norm(x, weight)
        return self.norm(x.reshape(len(x), -1), weight).reshape(x.shape)

    def rotate(self, x, cos, sin):
        r = self.turning
        if self.pairs:
            a, b = x[..., 0:r:2], x[..., 1:r:2]
        else:
            a, b = x[..., :r // 2], x[..., r // 2:r]
        y = np.empty_like(x)
        y[..., r:] = x[..., r:]
        turned = a * cos - b * sin, b * cos + a * sin
        if self.pairs:
            y[..., 0:r:2], y[..., 1:r:2] = turned
        else:
            y[..., :r // 2], y[..., r // 2:r] = turned
        return y

    def attention(self, h, i, angles, kept):
        n = len(h)
        q, k, v = self.qkv(h, i)
        q, k, v = q.reshape(n, self.heads, -1), k.reshape(n, self.kv_heads, -1), v.reshape(n, self.kv_heads, -1)
        q, k = self.qk_norm(q, i, "q_norm"), self.qk_norm(k, i, "k_norm")
        if self.turns[i]:
            freq, factor = angles[1 if self.windows[i] and len(angles) > 1 else 0]
            angle = np.arange(n)[:, None, None] * freq
            q, k = (self.rotate(x, factor * np.cos(angle), factor * np.sin(angle)) for x in (q, k))
        k, v = kept(k), kept(v)
        k, v = (np.repeat(x, self.heads // self.kv_heads, axis=1) for x in (k, v))
        score = np.einsum("ihd,jhd->hij", q, k) * self.scale
        if self.score_cap:
            score = self.score_cap * np.tanh(score / self.score_cap)
        row, col = np.arange(n)[:, None], np.arange(n)[None, :]
        if self.slopes is not None:
            score = score + self.slopes[:, None, None] * (col - row)[None]
        seen = col <= row
        if self.windows[i]:
            seen = seen & (row - col < self.windows[i])
        score = np.where(seen[None], score, -np.inf)
        if self.sinks(i) is not None:  # a key without a value
            score = np.concatenate([score, np.broadcast_to(self.sinks(i)[:, None, None], (self.heads, n, 1))], axis=-1)
        weight = np.exp(score - score.max(axis=-1, keepdims=True))
        weight = (weight / weight.sum(axis=-1, keepdims=True))[:, :, :n]
        return self.linear(np.einsum("hij,jhd->ihd", weight, v).reshape(n, -1), i, "o")

    def sinks(self, i):
        return None

    def mlp(self, h, i):
        gate, up = self.gate_up(h, i)
        return self.linear(self.act(gate) * up, i, "down")

    def head(self):
        if self.c.get("tie_word_embeddings", self.tied):
            return self.tensor(None, "embed")
        root = "language_model." if self.root.startswith("language_model.") else ""
        return self.w[f"{root}{self.names['head']}.weight"]

    def logits(self, ids, n_tokens, kept):
        angles = [frequencies(self.c, self.turning, n_tokens)]
        if self.local_theta:
            angles.append((self.local_theta ** -(np.arange(0, self.turning, 2) / self.turning), 1.0))
        x = self.tensor(None, "embed")[np.asarray(ids)] * self.embed_scale
        for i in range(self.layers):
            if self.place == "one":
                h = self.normed(x, i, "n1")
                x = x + self.attention(h, i, angles, kept) + self.mlp(h, i)
                continue
            for half, before, behind in ((self.attention, "n1", "b1"), (self.mlp, "n2", "b2")):
                h = x if self.place == "behind" else self.normed(x, i, before)
                a = half(h, i, angles, kept) if half == self.attention else half(h, i)
                if self.place != "before":
                    a = self.normed(a, i, behind)
                x = x + self.residual_scale * a
        y = self.normed(x, None, "norm") @ self.head().T * self.logit_scale
        return self.logit_cap * np.tanh(y / self.logit_cap) if self.logit_cap else y


def named(**other):
    return {**Family.names, **other}


class Phi3(Family):
    eps = 1e-5
    names = named(qkv="self_attn.qkv_proj", gate_up="mlp.gate_up_proj")

    def setup(self):
        self.windows = [self.c.get("sliding_window")] * self.layers

    def qkv(self, x, i):
        a, b = self.heads * self.dim, self.kv_heads * self.dim
        y = self.linear(x, i, "qkv")
        return y[:, :a], y[:, a:a + b], y[:, a + b:]

    def gate_up(self, x, i):
        return np.split(self.linear(x, i, "gate_up"), 2, axis=1)


class Gemma(Family):
    act, place, plus_one, tied = staticmethod(gelu_tanh), "around", 1.0, True
    names = named(b1="post_attention_layernorm", n2="pre_feedforward_layernorm", b2="post_feedforward_layernorm")
    period, score_cap, logit_cap = 2, 50.0, 30.0

    def setup(self):
        c = self.c
        self.embed_scale = math.sqrt(self.hidden)
        self.scale = c.get("query_pre_attn_scalar", 256) ** -0.5
        self.windows = [c.get("sliding_window", 4096) if w else None for w in periodic(c, self.period)]
        self.score_cap, self.logit_cap = c.get("attn_logit_softcapping", self.score_cap), c.get("final_logit_softcapping", self.logit_cap)


class Gemma3(Gemma):
    period, score_cap, logit_cap = 6, None, None

    def setup(self):
        super().setup()
        self.local_theta = self.c.get("rope_local_base_freq", 10000.0)


class Granite(Family):
    def setup(self):
        c = self.c
        self.embed_scale, self.residual_scale = c.get("embedding_multiplier", 1.0), c.get("residual_multiplier", 1.0)
        self.scale, self.logit_scale = c.get("attention_multiplier", 1.0), 1 / c.get("logits_scaling", 1.0)
        if c.get("position_embedding_type") == "nope":
            self.turns = [False] * self.layers


class Granite4(Granite):
    names = named(gate_up="shared_mlp.input_linear", down="shared_mlp.output_linear")
    gate_up = Phi3.gate_up


class SmolLM3(Family):
    tied = True

    def setup(self):
        every = self.c.get("no_rope_layer_interval", 4)
        listed = self.c.get("no_rope_layers") or [int((i + 1) % every != 0) for i in range(self.layers)]
        self.turns = [bool(x) for x in listed]


class Behind(Family):
    """OLMo 2, OLMo 3, EXAONE 4."""
    place, eps = "behind", 1e-5
    names = named(b1="post_attention_layernorm", b2="post_feedforward_layernorm")

    def setup(self):
        c = self.c
        if c["model_type"] == "olmo2":
            return
        self.windows = [c.get("sliding_window", 4096) if w else None for w in periodic(c, 4)]
        if c["model_type"] == "olmo3":
            self.local_theta = c["rope_theta"]
        elif c.get("sliding_window", 4096) is not None:
            self.turns = [w is not None for w in self.windows]


class Glm4(Family):
    place, pairs, partial, eps = "around", True, 0.5, 1.5625e-7
    names = named(b1="post_self_attn_layernorm", b2="post_mlp_layernorm", gate_up="mlp.gate_up_proj")
    gate_up = Phi3.gate_up


class Cohere(Family):
    place, layer_norm, pairs, tied, eps_key, eps = "one", True, True, True, "layer_norm_eps", 1e-5

    def setup(self):
        c = self.c
        self.logit_scale = c.get("logit_scale", 0.0625)
        if c["model_type"] == "cohere2":
            self.windows = [c.get("sliding_window", 4096) if w else None for w in periodic(c, 4)]
            self.turns = [w is not None for w in self.windows]


class InternLM2(Family):
    names = named(embed="tok_embeddings", n1="attention_norm", n2="ffn_norm", qkv="attention.wqkv", o="attention.wo", gate="feed_forward.w1",
                  up="feed_forward.w3", down="feed_forward.w2", head="output")

    def qkv(self, x, i):
        n, g = len(x), self.heads // self.kv_heads
        y = self.linear(x, i, "qkv").reshape(n, self.kv_heads, g + 2, self.dim)
        return y[:, :, :g], y[:, :, g], y[:, :, g + 1]


class Exaone(Family):
    eps_key, eps = "layer_norm_epsilon", 1e-5
    names = dict(layers="h.%d.", embed="wte", n1="ln_1", n2="ln_2", q="attn.attention.q_proj", k="attn.attention.k_proj", v="attn.attention.v_proj",
                 o="attn.attention.out_proj", gate="mlp.c_fc_0", up="mlp.c_fc_1", down="mlp.c_proj", norm="ln_f", head="lm_head", q_norm="none", k_norm="none")


class Baichuan(Family):
    names = named(qkv="self_attn.W_pack")
    qkv = Phi3.qkv

    def setup(self):
        if self.layers == 40:
            self.turns = [False] * 40
            n = 2 ** int(math.log2(self.heads))
            self.slopes = np.array([2.0 ** (-8 * (h + 1) / n) for h in range(n)] + [2.0 ** (-4 * (2 * j + 1) / n) for j in range(self.heads - n)])

    def head(self):
        y = super().head()
        return y / np.linalg.norm(y, axis=1, keepdims=True) if self.c["vocab_size"] == 125696 else y


class Mistral(Family):
    def setup(self):
        self.windows = [self.c.get("sliding_window", 4096)] * self.layers


class Qwen2(Family):
    pass


class Experts(Family):
    """Mixtral, Qwen2-MoE, Qwen3-MoE, OLMoE: one row at a time, each expert by itself."""
    at, expert_names, normalise = "mlp", ("gate_proj", "up_proj", "down_proj"), None

    def setup(self):
        if self.c["model_type"] == "mixtral":
            self.at, self.expert_names, self.normalise = "block_sparse_moe", ("w1", "w3", "w2"), True
            self.windows = [self.c.get("sliding_window")] * self.layers
        else:
            self.normalise = self.c.get("norm_topk_prob", False)

    def swiglu(self, x, layer, prefix):
        gate, up, down = (self.part(layer, f"{prefix}.{name}") for name in self.expert_names)
        return down @ (silu(gate @ x) * (up @ x))

    def part(self, layer, name):
        stack = self.w.get(f"{self.root}layers.{layer}.mlp.experts." + ("down_proj" if name.endswith("down_proj") else "gate_up_proj"))
        if stack is None or not name.startswith("experts."):
            return self.w[f"{self.root}layers.{layer}.{self.at}.{name}.weight"]
        _, e, which = name.split(".")
        rows = stack[int(e)]
        return rows if which == "down_proj" else rows[:len(rows) // 2] if which == "gate_proj" else rows[len(rows) // 2:]

    def mlp(self, h, i):
        if f"{self.root}layers.{i}.{self.at}.gate.weight" not in self.w:
            return super().mlp(h, i)
        out = np.zeros_like(h)
        for row, x in enumerate(h):
            score = self.part(i, "gate") @ x
            share = np.exp(score - score.max())
            share /= share.sum()
            chosen = sorted(range(len(share)), key=lambda e: (-share[e], e))[:self.c["num_experts_per_tok"]]
            whole = share[chosen].sum() if self.normalise else 1.0
            for e in chosen:
                out[row] += share[e] / whole * self.swiglu(x, i, f"experts.{e}")
            if self.c.get("shared_expert_intermediate_size"):
                out[row] += self.swiglu(x, i, "shared_expert") / (1 + np.exp(-(self.part(i, "shared_expert_gate") @ x)))
        return out


def shares_of(logits, used):
    """{expert: share}: a softmax over the largest alone."""
    chosen = sorted(range(len(logits)), key=lambda e: (-logits[e], e))[:used]
    share = np.exp(logits[chosen] - logits[chosen[0]])
    return dict(zip(chosen, share / share.sum()))


class GraniteExperts(Granite4):
    """granitemoe, granitemoeshared, granitemoehybrid."""

    def mlp(self, h, i):
        at = f"{self.root}layers.{i}."
        if at + "block_sparse_moe.router.layer.weight" not in self.w:
            return super().mlp(h, i)
        router, fused, down = (self.w[f"{at}block_sparse_moe.{name}.weight"] for name in ("router.layer", "input_linear", "output_linear"))
        out = super().mlp(h, i) if self.c.get("shared_intermediate_size") else np.zeros_like(h)
        for row, x in enumerate(h):
            for e, share in shares_of(router @ x, self.c["num_experts_per_tok"]).items():
                gate, up = np.split(fused[e] @ x, 2)
                out[row] += share * (down[e] @ (silu(gate) * up))
        return out


class Glm4Moe(Family):
    """Scores by themselves; a bias and groups for the choice alone; a shared expert without a gate."""
    partial, eps = 0.5, 1e-5

    def mlp(self, h, i):
        at, c, out = f"{self.root}layers.{i}.mlp.", self.c, np.zeros_like(h)
        if at + "gate.weight" not in self.w:
            return super().mlp(h, i)

        def swiglu(x, name):
            gate, up, down = (self.w[f"{at}{name}.{part}_proj.weight"] for part in ("gate", "up", "down"))
            return down @ (silu(gate @ x) * (up @ x))

        groups, used = c.get("n_group", 1), c.get("topk_group", 1)
        for row, x in enumerate(h):
            score = 1 / (1 + np.exp(-(self.w[at + "gate.weight"] @ x)))
            choice = score + self.w[at + "gate.e_score_correction_bias"]
            best = np.sort(choice.reshape(groups, -1), axis=1)[:, -2:].sum(axis=1)
            kept = sorted(range(groups), key=lambda g: (-best[g], g))[:used]
            choice = [v if e // (len(score) // groups) in kept else -np.inf for e, v in enumerate(choice)]
            chosen = sorted(range(len(score)), key=lambda e: (-choice[e], e))[:c["num_experts_per_tok"]]
            whole = score[chosen].sum() if c.get("norm_topk_prob", True) else 1.0
            for e in chosen:
                out[row] += score[e] / whole * c.get("routed_scaling_factor", 1.0) * swiglu(x, f"experts.{e}")
            if c.get("n_shared_experts"):
                out[row] += swiglu(x, "shared_experts")
        return out


class DeepSeek(Family):
    """Latent attention, expanded: keys and values of every head from what is kept of a position."""
    pairs = True

    def setup(self):
        c = self.c
        self.still, self.turning, self.rank, self.value = (c[k] for k in ("qk_nope_head_dim", "qk_rope_head_dim", "kv_lora_rank", "v_head_dim"))
        scaling, m = c.get("rope_scaling") or {}, 1.0
        if scaling.get("mscale_all_dim"):
            m = 0.1 * scaling["mscale_all_dim"] * math.log(scaling["factor"]) + 1
        self.scale = m * m / math.sqrt(self.still + self.turning)

    def part(self, i, name):
        return self.w.get(f"{self.root}layers.{i}.{name}.weight")

    def attention(self, h, i, angles, kept):
        n, at = len(h), "self_attn."
        if self.c.get("q_lora_rank"):
            q = self.norm(h @ self.part(i, at + "q_a_proj").T, self.part(i, at + "q_a_layernorm")) @ self.part(i, at + "q_b_proj").T
        else:
            q = h @ self.part(i, at + "q_proj").T
        q = q.reshape(n, self.heads, self.still + self.turning)
        made = h @ self.part(i, at + "kv_a_proj_with_mqa").T
        latent = self.norm(made[:, :self.rank], self.part(i, at + "kv_a_layernorm"))
        freq, factor = angles[0]
        angle = np.arange(n)[:, None, None] * freq
        cos, sin = factor * np.cos(angle), factor * np.sin(angle)
        turned = self.rotate(made[:, None, self.rank:], cos, sin)[:, 0]
        row = kept(np.concatenate([latent, turned], axis=1))
        both = (row[:, :self.rank] @ self.part(i, at + "kv_b_proj").T).reshape(n, self.heads, self.still + self.value)
        score = np.einsum("ihd,jhd->hij", q[..., :self.still], both[..., :self.still])
        score = (score + np.einsum("ihd,jd->hij", self.rotate(q[..., self.still:], cos, sin), row[:, self.rank:])) * self.scale
        score = np.where(np.tri(n, dtype=bool)[None], score, -np.inf)
        weight = np.exp(score - score.max(axis=-1, keepdims=True))
        weight /= weight.sum(axis=-1, keepdims=True)
        return np.einsum("hij,jhd->ihd", weight, both[..., self.still:]).reshape(n, -1) @ self.part(i, at + "o_proj").T

    def mlp(self, h, i):
        c, out, at = self.c, np.zeros_like(h), "mlp."
        if self.part(i, at + "gate") is None:
            return super().mlp(h, i)

        def swiglu(x, name):
            gate, up, down = (self.part(i, f"{at}{name}.{part}_proj") for part in ("gate", "up", "down"))
            if gate is None:  # one tensor for all experts
                stacks = f"{self.root}layers.{i}.mlp.experts.", int(name.split(".")[1])
                gate, up = np.split(self.w[stacks[0] + "gate_up_proj"][stacks[1]], 2)
                down = self.w[stacks[0] + "down_proj"][stacks[1]]
            return down @ (silu(gate @ x) * (up @ x))

        v3 = c["model_type"] == "deepseek_v3"
        method = c.get("topk_method", "noaux_tc" if v3 else "greedy")
        groups, used = (1, 1) if method == "greedy" else (c["n_group"], c["topk_group"])
        for row, x in enumerate(h):
            logits = self.part(i, at + "gate") @ x
            score = 1 / (1 + np.exp(-logits)) if c.get("scoring_func", "sigmoid" if v3 else "softmax") == "sigmoid" else np.exp(logits) / np.exp(logits).sum()
            choice = score
            if method == "noaux_tc":
                choice = score + self.w[f"{self.root}layers.{i}.mlp.gate.e_score_correction_bias"]
            best = np.sort(choice.reshape(groups, -1), axis=1)[:, -2 if method == "noaux_tc" else -1:].sum(axis=1)
            kept = sorted(range(groups), key=lambda g: (-best[g], g))[:used]
            choice = [v if e // (len(score) // groups) in kept else -np.inf for e, v in enumerate(choice)]
            chosen = sorted(range(len(score)), key=lambda e: (-choice[e], e))[:c["num_experts_per_tok"]]
            whole = score[chosen].sum() if c.get("norm_topk_prob", v3) else 1.0
            for e in chosen:
                out[row] += score[e] / whole * c.get("routed_scaling_factor", 1.0) * swiglu(x, f"experts.{e}")
            if c.get("n_shared_experts"):
                out[row] += swiglu(x, "shared_experts")
        return out


class GptOss(Family):
    eps = 1e-5

    def setup(self):
        c = self.c
        self.windows = [c.get("sliding_window", 128) if w else None for w in periodic(c, 2)]

    def sinks(self, i):
        return self.w.get(f"{self.root}layers.{i}.self_attn.sinks")

    def mlp(self, h, i):
        at, out = f"{self.root}layers.{i}.mlp.", np.zeros_like(h)
        limit, alpha = self.c.get("swiglu_limit", 7.0), self.c.get("swiglu_alpha", 1.702)
        for row, x in enumerate(h):
            logits = self.w[at + "router.weight"] @ x + self.w[at + "router.bias"]
            for e, share in shares_of(logits, self.c["num_experts_per_tok"]).items():
                y = x @ self.w[at + "experts.gate_up_proj"][e] + self.w[at + "experts.gate_up_proj_bias"][e]
                gate, up = np.minimum(y[0::2], limit), np.clip(y[1::2], -limit, limit)
                a = (up + 1) * gate / (1 + np.exp(-alpha * gate))
                out[row] += share * (a @ self.w[at + "experts.down_proj"][e] + self.w[at + "experts.down_proj_bias"][e])
        return out


class Llama4(Family):
    """Chunks, q and k of length sqrt(dim) behind RoPE; layers without RoPE see all, and sharpen their queries with the position."""
    pairs, eps = True, 1e-5
    names = named(gate="feed_forward.gate_proj", up="feed_forward.up_proj", down="feed_forward.down_proj")

    def setup(self):
        c, n = self.c, self.layers
        every = c.get("no_rope_layer_interval", 4)
        self.turns = [bool(x) for x in c.get("no_rope_layers") or [(i + 1) % every != 0 for i in range(n)]]
        kinds = c.get("layer_types") or ["chunked_attention" if turns else "full_attention" for turns in self.turns]
        chunk = c.get("attention_chunk_size", 8192)
        self.chunks = [chunk if kind == "chunked_attention" and chunk else 10 ** 9 for kind in kinds]

    def attention(self, h, i, angles, kept):
        n, c = len(h), self.c
        q, k, v = (x.reshape(n, -1, self.dim) for x in self.qkv(h, i))
        position = np.arange(n)
        if self.turns[i]:
            angle = position[:, None, None] * angles[0][0]
            q, k = (self.rotate(x, np.cos(angle), np.sin(angle)) for x in (q, k))
            if c.get("use_qk_norm", True):
                q, k = (x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.eps) for x in (q, k))
        elif c.get("attn_temperature_tuning", True):
            q = q * (1 + c.get("attn_scale", 0.1) * np.log(1 + np.floor((position + 1.0) / c.get("floor_scale", 8192))))[:, None, None]
        k, v = (np.repeat(kept(x), self.heads // self.kv_heads, axis=1) for x in (k, v))
        out = np.zeros_like(q)
        for at in range(n):
            seen = slice(at // self.chunks[i] * self.chunks[i], at + 1)
            score = np.einsum("hd,jhd->hj", q[at], k[seen]) * self.scale
            weight = np.exp(score - score.max(axis=-1, keepdims=True))
            out[at] = np.einsum("hj,jhd->hd", weight / weight.sum(axis=-1, keepdims=True), v[seen])
        return self.linear(out.reshape(n, -1), i, "o")

    def expert(self, i, e):
        """gate, up, down, each to be multiplied with from the left: alone, or columns of one tensor for all."""
        at = f"{self.root}layers.{i}.feed_forward.experts."
        if at + "gate_up_proj" in self.w:
            return (*np.split(self.w[at + "gate_up_proj"][e].T, 2), self.w[at + "down_proj"][e].T)
        return tuple(self.w[f"{at}{e}.{part}_proj.weight"] for part in ("gate", "up", "down"))

    def mlp(self, h, i):
        c, at = self.c, f"{self.root}layers.{i}.feed_forward."
        layers = c.get("moe_layers")
        if not (i in layers if layers is not None else (i + 1) % c.get("interleave_moe_layer_step", 1) == 0):
            return super().mlp(h, i)
        gate, up, down = (self.w[f"{at}shared_expert.{part}_proj.weight"] for part in ("gate", "up", "down"))
        out = (silu(h @ gate.T) * (h @ up.T)) @ down.T
        for row, x in enumerate(h):
            logits = self.w[at + "router.weight"] @ x
            for e in sorted(range(len(logits)), key=lambda e: (-logits[e], e))[:c.get("num_experts_per_tok", 1)]:
                gate, up, down = self.expert(i, e)
                y = x / (1 + np.exp(-logits[e]))
                out[row] += down @ (silu(gate @ y) * (up @ y))
        return out


CLASSES = {"llama4_text": Llama4, "llama4": Llama4, "granitemoe": GraniteExperts, "granitemoeshared": GraniteExperts, "gpt_oss": GptOss, "glm4_moe": Glm4Moe, "deepseek_v2": DeepSeek, "deepseek_v3": DeepSeek, "mixtral": Experts, "qwen2_moe": Experts, "qwen3_moe": Experts, "olmoe": Experts,
           "phi3": Phi3, "gemma2": Gemma, "gemma3_text": Gemma3, "gemma3": Gemma3, "granite": Granite, "granitemoehybrid": GraniteExperts, "smollm3": SmolLM3,
           "olmo2": Behind, "olmo3": Behind, "exaone4": Behind, "glm4": Glm4, "cohere": Cohere, "cohere2": Cohere, "internlm2": InternLM2, "exaone": Exaone,
           "baichuan": Baichuan, "mistral3": Mistral, "qwen2_vl": Qwen2, "qwen2_5_vl": Qwen2, "llama": Family}


def logits(config, w, ids, n_tokens=0, kept=lambda rows: rows):
    """float64 [len(ids)][vocab_size]. n_tokens: how long the sequence may become, where RoPE asks for it."""
    return CLASSES[config["model_type"]](config, w).logits(ids, n_tokens, kept)
