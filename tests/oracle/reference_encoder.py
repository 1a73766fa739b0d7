"""An independent forward pass of the encoders in float64 with numpy, beside reference.py: whole sequences, full score
matrices, each family as its published code has it. Shares no code with the engine and none with make_encoder.py."""
import math

import numpy as np

erf = np.vectorize(math.erf)


def gelu(x):
    return x * 0.5 * (1 + erf(x / math.sqrt(2)))


def silu(x):
    return x / (1 + np.exp(-x))


def layer_norm(x, weight, bias, eps):
    mean = x.mean(axis=-1, keepdims=True)
    var = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(var + eps) * weight + bias


def attention(q, k, v, heads, reach=None, rope=None):
    """q, k, v: [n][heads * dim]. reach: how far a row sees to a side. rope: (cos, sin), each [n][dim / 2]."""
    n, width = q.shape
    dim = width // heads
    q, k, v = (x.reshape(n, heads, dim) for x in (q, k, v))
    if rope is not None:
        c, s = (x[:, None, :] for x in rope)

        def turn(x):
            a, b = x[..., :dim // 2], x[..., dim // 2:]
            return np.concatenate([a * c - b * s, b * c + a * s], axis=-1)

        q, k = turn(q), turn(k)
    q, k, v = (x.transpose(1, 0, 2) for x in (q, k, v))
    score = q @ k.transpose(0, 2, 1) / math.sqrt(dim)
    if reach is not None:
        far = np.abs(np.arange(n)[:, None] - np.arange(n)[None, :]) > reach
        score = np.where(far[None], -np.inf, score)
    weight = np.exp(score - score.max(axis=-1, keepdims=True))
    weight /= weight.sum(axis=-1, keepdims=True)
    return (weight @ v).transpose(1, 0, 2).reshape(n, width)


def rope_table(theta, dim, n):
    angle = np.arange(n)[:, None] / theta ** (np.arange(0, dim, 2) / dim)[None, :]
    return np.cos(angle), np.sin(angle)


def bert(c, w, ids, first):
    w = {k.removeprefix("bert.").removeprefix("roberta."): v for k, v in w.items()}
    n, eps = len(ids), c["layer_norm_eps"]
    position = np.arange(n) + (0 if c["model_type"] == "bert" else c["pad_token_id"] + 1)
    kind = np.where(np.arange(n) < (first or n), 0, min(1, c["type_vocab_size"] - 1))

    def linear(x, name):
        return x @ w[name + ".weight"].T + w[name + ".bias"]

    def norm(x, name):
        return layer_norm(x, w[name + ".weight"], w[name + ".bias"], eps)

    x = (w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][position] +
         w["embeddings.token_type_embeddings.weight"][kind])
    x = norm(x, "embeddings.LayerNorm")
    for i in range(c["num_hidden_layers"]):
        p = f"encoder.layer.{i}."
        q, k, v = (linear(x, p + "attention.self." + m) for m in ("query", "key", "value"))
        a = linear(attention(q, k, v, c["num_attention_heads"]), p + "attention.output.dense")
        x = norm(x + a, p + "attention.output.LayerNorm")
        x = norm(x + linear(gelu(linear(x, p + "intermediate.dense")), p + "output.dense"), p + "output.LayerNorm")
    return x


def nomic(c, w, ids, first):
    n, heads = len(ids), c["n_head"]
    dim = c["n_embd"] // heads
    theta, trained = c["rotary_emb_base"], c["max_trained_positions"]
    scale = c.get("rotary_scaling_factor")
    if scale and n > trained:
        theta *= (scale * n / trained - (scale - 1)) ** (dim / (dim - 2))
    rope = rope_table(theta, dim, n)
    kind = np.where(np.arange(n) < (first or n), 0, 1)

    def norm(x, name):
        return layer_norm(x, w[name + ".weight"], w[name + ".bias"], c["layer_norm_epsilon"])

    x = norm(w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][kind], "emb_ln")
    for i in range(c["n_layer"]):
        p = f"encoder.layers.{i}."
        q, k, v = np.split(x @ w[p + "attn.Wqkv.weight"].T, 3, axis=1)
        x = norm(x + attention(q, k, v, heads, rope=rope) @ w[p + "attn.out_proj.weight"].T, p + "norm1")
        y = (x @ w[p + "mlp.fc11.weight"].T) * silu(x @ w[p + "mlp.fc12.weight"].T)
        x = norm(x + y @ w[p + "mlp.fc2.weight"].T, p + "norm2")
    return x


def modern(c, w, ids, first):
    n, heads, eps = len(ids), c["num_attention_heads"], c["norm_eps"]
    dim = c["hidden_size"] // heads
    act = {"gelu": gelu, "silu": silu}[c["hidden_activation"]]
    wide = rope_table(c["global_rope_theta"], dim, n)
    near = rope_table(c["local_rope_theta"] or c["global_rope_theta"], dim, n)

    def norm(x, name):
        return layer_norm(x, w[name], 0.0, eps)

    x = norm(w["model.embeddings.tok_embeddings.weight"][ids], "model.embeddings.norm.weight")
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h = x if i == 0 else norm(x, p + "attn_norm.weight")
        q, k, v = np.split(h @ w[p + "attn.Wqkv.weight"].T, 3, axis=1)
        whole = i % c["global_attn_every_n_layers"] == 0
        a = attention(q, k, v, heads, None if whole else c["local_attention"] // 2, wide if whole else near)
        x = x + a @ w[p + "attn.Wo.weight"].T
        a, b = np.split(norm(x, p + "mlp_norm.weight") @ w[p + "mlp.Wi.weight"].T, 2, axis=1)
        x = x + (act(a) * b) @ w[p + "mlp.Wo.weight"].T
    return norm(x, "model.final_norm.weight")


FORWARD = {"bert": bert, "roberta": bert, "xlm-roberta": bert, "nomic_bert": nomic, "modernbert": modern}


def rows(config, w, ids, first=None):
    """float64 [len(ids)][hidden]: the last hidden states."""
    return FORWARD[config["model_type"]](config, w, np.asarray(ids), first)


def pool(x, how):
    return {"mean": lambda: x.mean(axis=0), "cls": lambda: x[0], "last": lambda: x[-1]}[how]()


def score(config, w, x):
    """What the head makes of the last hidden states."""
    def linear(v, name):
        y = v @ w[name + ".weight"].T
        return y + w[name + ".bias"] if name + ".bias" in w else y

    kind = config["model_type"]
    if kind == "modernbert":
        v = gelu(linear(pool(x, config["classifier_pooling"]), "head.dense"))
        return linear(layer_norm(v, w["head.norm.weight"], 0.0, config["norm_eps"]), "classifier")
    if kind == "bert":
        name = "bert.pooler.dense" if "bert.pooler.dense.weight" in w else "pooler.dense"
        return linear(np.tanh(linear(x[0], name)), "classifier")
    return linear(np.tanh(linear(x[0], "classifier.dense")), "classifier.out_proj")
