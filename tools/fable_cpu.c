/* fable_cpu: loss and gradient of the fable network for one row of tokens, on one CPU thread.
 *
 * The fast twin of fable_model.py: matrix products by BLAS, all else fused into plain loops over
 * buffers that stay warm in the cache. Two workers, each with its own workspace and gradient, use
 * two cores without ever waiting for each other inside a row. fable_cpu.py builds and calls it, and
 * compares it with fable_model.py.
 *
 * Parameters are one flat f32 array in the order of fable_model.py's named_parameters():
 * embedding [V][H]; per layer q [A][H], k [C][H], v [C][H], o [H][A], gate [F][H], up [F][H],
 * down [H][F], gain [H], gain [H]; gain [H]. A = heads * D, C = kv_heads * D, F = inter; the
 * gradient has the same layout. Does no allocation after open and keeps no global state. */
#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { QUERY_BLOCK = 64 };

struct shape {
    int vocab, hidden, layers, heads, kv_heads, head_dim, inter, context;
    float rope_theta, eps;
};

/* What the backward pass of one layer needs of its forward pass; T rows each. */
struct layer_acts {
    float *x1;      /* [T][H] input of the layer */
    float *n1;      /* [T][H] normalised, times gain */
    float *q;       /* [T][A] rotated */
    float *k;       /* [T][C] rotated */
    float *v;       /* [T][C] */
    float *att;     /* [T][A] */
    float *x2;      /* [T][H] after attention */
    float *n2;      /* [T][H] */
    float *gate;    /* [T][F] */
    float *up;      /* [T][F] */
    float *r1, *r2; /* [T] reciprocal root mean square */
    float *lse;     /* [heads][T] log of the softmax denominator */
};

struct layer_weights {
    float *q, *k, *v, *o, *gate, *up, *down, *gain1, *gain2;
};

struct work {
    struct shape s;
    struct layer_acts *acts;
    float *x, *n, *r;            /* [T][H], [T][H], [T]: last layer's output and final norm */
    float *act, *d_act, *d_gate; /* [T][F] */
    float *dx, *dn;              /* [T][H] */
    float *dq, *dk, *dv, *d_att; /* [T][A], [T][C], [T][C], [T][A] */
    float *scores, *d_scores;    /* [QUERY_BLOCK][T] */
    float *logits;               /* [T][V] */
    float *cos, *sin;            /* [T][D / 2] */
};

static float *floats(size_t n) {
    float *p = aligned_alloc(64, (n * sizeof(float) + 63) / 64 * 64);
    if (p == NULL) abort();
    memset(p, 0, n * sizeof(float));
    return p;
}

/* A workspace for rows of up to s->context tokens. It lives as long as the process. */
struct work *fable_cpu_open(const struct shape *s) {
    struct work *w = calloc(1, sizeof(*w));
    if (w == NULL) abort();
    w->s = *s;
    size_t T = s->context, H = s->hidden, F = s->inter;
    size_t A = (size_t)s->heads * s->head_dim, C = (size_t)s->kv_heads * s->head_dim;
    w->acts = calloc(s->layers, sizeof(*w->acts));
    if (w->acts == NULL) abort();
    for (int l = 0; l < s->layers; l++) {
        struct layer_acts *a = &w->acts[l];
        a->x1 = floats(T * H), a->n1 = floats(T * H), a->x2 = floats(T * H), a->n2 = floats(T * H);
        a->q = floats(T * A), a->att = floats(T * A), a->k = floats(T * C), a->v = floats(T * C);
        a->gate = floats(T * F), a->up = floats(T * F);
        a->r1 = floats(T), a->r2 = floats(T), a->lse = floats(T * s->heads);
    }
    w->x = floats(T * H), w->n = floats(T * H), w->r = floats(T);
    w->act = floats(T * F), w->d_act = floats(T * F), w->d_gate = floats(T * F);
    w->dx = floats(T * H), w->dn = floats(T * H);
    w->dq = floats(T * A), w->d_att = floats(T * A), w->dk = floats(T * C), w->dv = floats(T * C);
    w->scores = floats(QUERY_BLOCK * T), w->d_scores = floats(QUERY_BLOCK * T);
    w->logits = floats(T * s->vocab);
    int half = s->head_dim / 2;
    w->cos = floats(T * half), w->sin = floats(T * half);
    for (size_t t = 0; t < T; t++) {
        for (int i = 0; i < half; i++) {
            double angle = (double)t * pow(s->rope_theta, -2.0 * i / s->head_dim);
            w->cos[t * half + i] = (float)cos(angle), w->sin[t * half + i] = (float)sin(angle);
        }
    }
    return w;
}

/* The tensors of one layer inside a flat array of parameters or of their gradient. */
static struct layer_weights layer_of(const struct shape *s, float *flat, int l) {
    size_t H = s->hidden, F = s->inter;
    size_t A = (size_t)s->heads * s->head_dim, C = (size_t)s->kv_heads * s->head_dim;
    struct layer_weights y;
    float *p = flat + s->vocab * H + l * (2 * A * H + 2 * C * H + 3 * F * H + 2 * H);
    y.q = p, p += A * H, y.k = p, p += C * H, y.v = p, p += C * H, y.o = p, p += H * A;
    y.gate = p, p += F * H, y.up = p, p += F * H, y.down = p, p += H * F;
    y.gain1 = p, p += H, y.gain2 = p;
    return y;
}

/* y [n][out] = beta y + x [n][in] W [out][in]^T */
static void linear(float *y, const float *x, const float *W, int n, int in, int out, float beta) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, out, in, 1, x, in, W, in, beta, y, out);
}

/* dx [n][in] = beta dx + dy [n][out] W [out][in];  dW [out][in] += dy^T x */
static void linear_back(float *dx, float *dW, const float *dy, const float *x, const float *W,
                        int n, int in, int out, float beta) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, in, out, 1, dy, out, W, in, beta, dx,
                in);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, out, in, n, 1, dy, out, x, in, 1, dW, in);
}

/* y = gain x / rms(x), row by row; r keeps 1 / rms. x, y: [n][H] */
static void norm(float *y, float *r, const float *x, const float *gain, int n, int H, float eps) {
    for (int t = 0; t < n; t++, x += H, y += H) {
        float sum = 0;
        for (int i = 0; i < H; i++) sum += x[i] * x[i];
        r[t] = 1 / sqrtf(sum / H + eps);
        for (int i = 0; i < H; i++) y[i] = x[i] * r[t] * gain[i];
    }
}

/* dx += the gradient through norm(); d_gain += that of the gain. dy, x, dx: [n][H] */
static void norm_back(float *dx, float *d_gain, const float *dy, const float *x, const float *r,
                      const float *gain, int n, int H) {
    for (int t = 0; t < n; t++, x += H, dy += H, dx += H) {
        float dot = 0, rt = r[t];
        for (int i = 0; i < H; i++) dot += dy[i] * gain[i] * x[i];
        float pull = dot * rt * rt * rt / H;
        for (int i = 0; i < H; i++) {
            dx[i] += dy[i] * gain[i] * rt - x[i] * pull;
            d_gain[i] += dy[i] * x[i] * rt;
        }
    }
}

/* Rotates each head of x [n][heads * D] by its position (rotate_half); sign -1 undoes it. */
static void rope(const struct work *w, float *x, int n, int heads, float sign) {
    int D = w->s.head_dim, half = D / 2;
    for (int t = 0; t < n; t++) {
        const float *c = w->cos + t * half, *s = w->sin + t * half;
        for (int h = 0; h < heads; h++, x += D) {
            for (int i = 0; i < half; i++) {
                float a = x[i], b = x[i + half];
                x[i] = a * c[i] - sign * b * s[i];
                x[i + half] = b * c[i] + sign * a * s[i];
            }
        }
    }
}

/* Causal attention of all heads: a->q, a->k, a->v to a->att, keeping a->lse. */
static void attention(struct work *w, struct layer_acts *a, int n) {
    const struct shape *s = &w->s;
    int D = s->head_dim, A = s->heads * D, C = s->kv_heads * D;
    float scale = 1 / sqrtf((float)D);
    for (int h = 0; h < s->heads; h++) {
        int g = h / (s->heads / s->kv_heads) * D;
        for (int b = 0; b < n; b += QUERY_BLOCK) {
            int m = n - b < QUERY_BLOCK ? n - b : QUERY_BLOCK, e = b + m;
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, e, D, scale,
                        a->q + (size_t)b * A + h * D, A, a->k + g, C, 0, w->scores, e);
            for (int i = 0; i < m; i++) {
                float *row = w->scores + (size_t)i * e, top = row[0], sum = 0;
                int seen = b + i + 1;
                for (int j = 1; j < seen; j++) top = row[j] > top ? row[j] : top;
                for (int j = 0; j < seen; j++) sum += row[j] = expf(row[j] - top);
                float inv = 1 / sum;
                for (int j = 0; j < seen; j++) row[j] *= inv;
                for (int j = seen; j < e; j++) row[j] = 0;
                a->lse[(size_t)h * n + b + i] = top + logf(sum);
            }
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, D, e, 1, w->scores, e,
                        a->v + g, C, 0, a->att + (size_t)b * A + h * D, A);
        }
    }
}

/* w->d_att to w->dq, w->dk, w->dv; the softmax is made again from a->lse. */
static void attention_back(struct work *w, const struct layer_acts *a, int n) {
    const struct shape *s = &w->s;
    int D = s->head_dim, A = s->heads * D, C = s->kv_heads * D;
    float scale = 1 / sqrtf((float)D);
    memset(w->dk, 0, sizeof(float) * n * C);
    memset(w->dv, 0, sizeof(float) * n * C);
    for (int h = 0; h < s->heads; h++) {
        int g = h / (s->heads / s->kv_heads) * D;
        for (int b = 0; b < n; b += QUERY_BLOCK) {
            int m = n - b < QUERY_BLOCK ? n - b : QUERY_BLOCK, e = b + m;
            size_t at = (size_t)b * A + h * D;
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, e, D, scale, a->q + at, A,
                        a->k + g, C, 0, w->scores, e);
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, e, D, 1, w->d_att + at, A,
                        a->v + g, C, 0, w->d_scores, e);
            for (int i = 0; i < m; i++) {
                float *p = w->scores + (size_t)i * e, *d = w->d_scores + (size_t)i * e, dot = 0;
                const float *o = a->att + at + (size_t)i * A, *d_o = w->d_att + at + (size_t)i * A;
                float lse = a->lse[(size_t)h * n + b + i];
                int seen = b + i + 1;
                for (int j = 0; j < D; j++) dot += o[j] * d_o[j];
                for (int j = 0; j < seen; j++) {
                    p[j] = expf(p[j] - lse);
                    d[j] = p[j] * (d[j] - dot) * scale;
                }
                for (int j = seen; j < e; j++) p[j] = d[j] = 0;
            }
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, D, e, 1, w->d_scores, e,
                        a->k + g, C, 0, w->dq + at, A);
            cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, e, D, m, 1, w->d_scores, e,
                        a->q + at, A, 1, w->dk + g, C);
            cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, e, D, m, 1, w->scores, e,
                        w->d_att + at, A, 1, w->dv + g, C);
        }
    }
}

static void forward(struct work *w, float *params, const long long *ids, int n) {
    const struct shape *s = &w->s;
    int H = s->hidden, F = s->inter, A = s->heads * s->head_dim, C = s->kv_heads * s->head_dim;
    float *x = s->layers > 0 ? w->acts[0].x1 : w->x;
    for (int t = 0; t < n; t++) {
        memcpy(x + (size_t)t * H, params + ids[t] * H, sizeof(float) * H);
    }
    for (int l = 0; l < s->layers; l++) {
        struct layer_acts *a = &w->acts[l];
        struct layer_weights p = layer_of(s, params, l);
        float *next = l + 1 < s->layers ? w->acts[l + 1].x1 : w->x;
        norm(a->n1, a->r1, a->x1, p.gain1, n, H, s->eps);
        linear(a->q, a->n1, p.q, n, H, A, 0);
        linear(a->k, a->n1, p.k, n, H, C, 0);
        linear(a->v, a->n1, p.v, n, H, C, 0);
        rope(w, a->q, n, s->heads, 1);
        rope(w, a->k, n, s->kv_heads, 1);
        attention(w, a, n);
        memcpy(a->x2, a->x1, sizeof(float) * n * H);
        linear(a->x2, a->att, p.o, n, A, H, 1);
        norm(a->n2, a->r2, a->x2, p.gain2, n, H, s->eps);
        linear(a->gate, a->n2, p.gate, n, H, F, 0);
        linear(a->up, a->n2, p.up, n, H, F, 0);
        for (size_t i = 0; i < (size_t)n * F; i++) {
            w->act[i] = a->gate[i] / (1 + expf(-a->gate[i])) * a->up[i];
        }
        memcpy(next, a->x2, sizeof(float) * n * H);
        linear(next, w->act, p.down, n, F, H, 1);
    }
    float *gain = layer_of(s, params, s->layers).q; /* what follows the last layer */
    norm(w->n, w->r, w->x, gain, n, H, s->eps);
    linear(w->logits, w->n, params, n, H, s->vocab, 0);
}

/* w->logits to the gradient of their mean loss; returns that mean, in nats. */
static double cross_entropy(struct work *w, const long long *targets, int n) {
    int V = w->s.vocab;
    double loss = 0;
    for (int t = 0; t < n; t++) {
        float *row = w->logits + (size_t)t * V, top = row[0], sum = 0;
        for (int i = 1; i < V; i++) top = row[i] > top ? row[i] : top;
        loss += top - row[targets[t]];
        for (int i = 0; i < V; i++) sum += row[i] = expf(row[i] - top);
        loss += logf(sum);
        float inv = 1 / (sum * n);
        for (int i = 0; i < V; i++) row[i] *= inv;
        row[targets[t]] -= 1.0f / n;
    }
    return loss / n;
}

static void backward(struct work *w, float *params, float *grad, const long long *ids, int n) {
    const struct shape *s = &w->s;
    int H = s->hidden, F = s->inter, A = s->heads * s->head_dim, C = s->kv_heads * s->head_dim;
    float *gain = layer_of(s, params, s->layers).q, *d_gain = layer_of(s, grad, s->layers).q;
    linear_back(w->dn, grad, w->logits, w->n, params, n, H, s->vocab, 0);
    memset(w->dx, 0, sizeof(float) * n * H);
    norm_back(w->dx, d_gain, w->dn, w->x, w->r, gain, n, H);
    for (int l = s->layers - 1; l >= 0; l--) {
        struct layer_acts *a = &w->acts[l];
        struct layer_weights p = layer_of(s, params, l), g = layer_of(s, grad, l);
        for (size_t i = 0; i < (size_t)n * F; i++) {
            w->act[i] = a->gate[i] / (1 + expf(-a->gate[i])) * a->up[i];
        }
        linear_back(w->d_act, g.down, w->dx, w->act, p.down, n, F, H, 0);
        for (size_t i = 0; i < (size_t)n * F; i++) {
            float sig = 1 / (1 + expf(-a->gate[i])), d = w->d_act[i];
            w->d_gate[i] = d * a->up[i] * sig * (1 + a->gate[i] * (1 - sig));
            w->d_act[i] = d * a->gate[i] * sig; /* the gradient of up from here on */
        }
        linear_back(w->dn, g.gate, w->d_gate, a->n2, p.gate, n, H, F, 0);
        linear_back(w->dn, g.up, w->d_act, a->n2, p.up, n, H, F, 1);
        norm_back(w->dx, g.gain2, w->dn, a->x2, a->r2, p.gain2, n, H);
        linear_back(w->d_att, g.o, w->dx, a->att, p.o, n, A, H, 0);
        attention_back(w, a, n);
        rope(w, w->dq, n, s->heads, -1);
        rope(w, w->dk, n, s->kv_heads, -1);
        linear_back(w->dn, g.q, w->dq, a->n1, p.q, n, H, A, 0);
        linear_back(w->dn, g.k, w->dk, a->n1, p.k, n, H, C, 1);
        linear_back(w->dn, g.v, w->dv, a->n1, p.v, n, H, C, 1);
        norm_back(w->dx, g.gain1, w->dn, a->x1, a->r1, p.gain1, n, H);
    }
    for (int t = 0; t < n; t++) {
        float *to = grad + ids[t] * H, *from = w->dx + (size_t)t * H;
        for (int i = 0; i < H; i++) to[i] += from[i];
    }
}

/* Mean nats per token of ids[1..n] given what stands before each; adds its gradient to grad unless
 * that is NULL. ids: [n + 1], each below vocab; n is at most the context. */
double fable_cpu_row(struct work *w, float *params, float *grad, const long long *ids, int n) {
    forward(w, params, ids, n);
    double loss = cross_entropy(w, ids + 1, n);
    if (grad != NULL) backward(w, params, grad, ids, n);
    return loss;
}
