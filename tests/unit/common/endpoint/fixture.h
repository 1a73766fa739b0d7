/* fixture: an endpoint without files or engine, for the tests and fuzz targets of this floor. A
 * byte-level tokenizer of 320 odd tokens is written here; the stub engine of inference-api 18 emits
 * the ids of a script. Everything is static, so that a test is one file. */
#ifndef BATON_TESTS_ENDPOINT_FIXTURE_H
#define BATON_TESTS_ENDPOINT_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "common/endpoint/endpoint.h"

/* Ids of the vectors of inference-api 18, and a few tokens with a purpose. */
enum {
    TOK_B = 41,    /* " b" */
    TOK_C = 77,    /* " c" */
    TOK_EOS = 300, /* special */
    TOK_BOS = 301, /* special, before every encoded text when the fixture wants one */
    TOK_IM_START = 302,
    TOK_IM_END = 303,
    TOK_A = 320,          /* " a" */
    TOK_CONTROL = 321,    /* "\x01x\x7f" */
    TOK_TOOL_CALLS = 322, /* special: a tag of tool calls */
    FIXTURE_VOCAB = 330,
};

struct fixture {
    struct tokenizer *tok;
    struct model_info model;
    struct endpoint_conf conf;
    struct endpoint *ep;
    char dir[64];
    char json_bytes[24]; /* of the next bodies: endpoint_meta.json_bytes */
};

/* The code point that stands for a byte in a byte-level vocabulary. */
static unsigned fixture_byte_char(unsigned byte) {
    unsigned n = 0;
    for (unsigned b = 0; b < 256; b++) {
        bool plain = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        if (b == byte) return plain ? b : 256 + n;
        if (!plain) n++;
    }
    return 0;
}

static void fixture_put_bytes(struct buf *b, const char *bytes, size_t n) {
    char s[64];
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned c = fixture_byte_char((unsigned char)bytes[i]);
        if (c < 0x80) {
            s[len++] = (char)c;
        } else {
            s[len++] = (char)(0xC0 | c >> 6);
            s[len++] = (char)(0x80 | (c & 0x3F));
        }
    }
    buf_json_str(b, s, len);
}

/* Byte tokens take the ids from 0 on, but 41 and 77 belong to the vectors. */
static int fixture_byte_id(unsigned byte) {
    int id = (int)byte;
    if (id >= TOK_B) id++;
    if (id >= TOK_C) id++;
    return id;
}

static void fixture_tokenizer_json(struct buf *b, bool bos) {
    static const struct {
        int id;
        const char *text;
    } words[] = {{TOK_B, " b"}, {TOK_C, " c"}, {TOK_A, " a"}},
      specials[] = {{TOK_EOS, "</s>"},
                    {TOK_BOS, "<s>"},
                    {TOK_IM_START, "<|im_start|>"},
                    {TOK_IM_END, "<|im_end|>"},
                    {TOK_TOOL_CALLS, "[TOOL_CALLS]"}};
    buf_puts(b, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[");
    for (size_t i = 0; i < sizeof(specials) / sizeof(specials[0]); i++) {
        buf_printf(b,
                   "%s{\"id\":%d,\"content\":\"%s\",\"single_word\":false,\"lstrip\":false,"
                   "\"rstrip\":false,\"normalized\":false,\"special\":true}",
                   i > 0 ? "," : "", specials[i].id, specials[i].text);
    }
    buf_puts(b, "],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_"
                "space\":false,\"trim_offsets\":true,\"use_regex\":true},");
    if (bos)
        buf_printf(
            b,
            "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{"
            "\"id\":\"<s>\",\"type_id\":0}},"
            "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[{\"Sequence\":{\"id\":\"A\","
            "\"type_id\":0}},{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}],"
            "\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[%d],\"tokens\":[\"<s>\"]}}},",
            TOK_BOS);
    else
        buf_puts(b, "\"post_processor\":null,");
    buf_puts(b,
             "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,"
             "\"use_regex\":true},"
             "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_"
             "prefix\":null,"
             "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,\"vocab\":{");
    for (unsigned byte = 0; byte < 256; byte++) {
        char c = (char)byte;
        fixture_put_bytes(b, &c, 1);
        buf_printf(b, ":%d,", fixture_byte_id(byte));
    }
    for (size_t i = 0; i < 3; i++) {
        fixture_put_bytes(b, words[i].text, 2);
        buf_printf(b, ":%d,", words[i].id);
    }
    fixture_put_bytes(b, "\x01x\x7f", 3);
    buf_printf(b, ":%d},\"merges\":[\"\xC4\xA0 a\",\"\xC4\xA0 b\",\"\xC4\xA0 c\"]}}", TOK_CONTROL);
}

static const char fixture_template[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\\n{{ m.content }}<|im_end|>\\n{% endfor %}"
    "{% if tools %}[{{ tools[0].function.name }}]{% endif %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\\n{% endif %}";

static void fixture_write_dir(struct fixture *f) {
    char path[128];
    strcpy(f->dir, "/tmp/baton_ep_XXXXXX");
    if (mkdtemp(f->dir) == NULL) abort();
    snprintf(path, sizeof(path), "%s/tokenizer_config.json", f->dir);
    FILE *out = fopen(path, "w");
    if (out == NULL) abort();
    fprintf(out, "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"chat_template\":\"%s\"}",
            fixture_template);
    fclose(out);
}

/* Defaults of the vectors; a test changes f->conf or f->model and then calls fixture_open(). */
static void fixture_init(struct fixture *f, bool bos) {
    struct errbuf eb = {0};
    struct buf json = BUF_INIT;
    memset(f, 0, sizeof(*f));
    fixture_tokenizer_json(&json, bos);
    if (tokenizer_parse(&f->tok, json.data, json.len, "fixture", &eb) != ERR_OK) {
        fprintf(stderr, "fixture: %s\n", eb.text);
        abort();
    }
    buf_free(&json);
    fixture_write_dir(f);
    f->model = (struct model_info){.family = "llama",
                                   .vocab_size = FIXTURE_VOCAB,
                                   .context_max = 4096,
                                   .bos_id = TOK_BOS,
                                   .eos_ids = {TOK_EOS},
                                   .n_eos = 1,
                                   .weight_dtype = DTYPE_BF16};
    f->conf = (struct endpoint_conf){.model_name = "qwen",
                                     .model_dir = f->dir,
                                     .max_seq_len = 2560,
                                     .max_input_token_len = 2048,
                                     .max_iter_times = 512,
                                     .max_batch_size = 200,
                                     .max_prefill_batch_size = 50,
                                     .max_prefill_tokens = 8192,
                                     .max_n = 128,
                                     .max_request_bytes = 40u << 20,
                                     .npu_mem_gb = -1,
                                     .cpu_mem_gb = 5,
                                     .world_size = 1,
                                     .openai_vllm_mode = true,
                                     .strict_ranges = true,
                                     .vllm_legacy_space = true,
                                     .loaded_unix_s = 1770000000};
}

static void fixture_open(struct fixture *f) {
    struct errbuf eb = {0};
    endpoint_destroy(&f->ep);
    if (endpoint_create(&f->ep, &f->conf, f->tok, &f->model, &eb) != ERR_OK) {
        fprintf(stderr, "fixture: %s\n", eb.text);
        abort();
    }
}

static void fixture_close(struct fixture *f) {
    char path[128];
    endpoint_destroy(&f->ep);
    tokenizer_free(&f->tok);
    snprintf(path, sizeof(path), "%s/tokenizer_config.json", f->dir);
    unlink(path);
    rmdir(f->dir);
}

/* ---- requests */

/* The row of a concrete path; *model gets what stands for {m}. */
static const struct api_path *fixture_path(const char *path, char model[257]) {
    model[0] = '\0';
    for (const struct api_path *p = api_paths; p->path != NULL; p++) {
        const char *m = strstr(p->path, "{m}");
        if (m == NULL) {
            if (strcmp(p->path, path) == 0) return p;
            continue;
        }
        size_t head = (size_t)(m - p->path);
        if (strncmp(p->path, path, head) != 0) continue;
        size_t n = strcspn(path + head, "/");
        if (n > 256 || strcmp(m + 3, path + head + n) != 0) continue;
        memcpy(model, path + head, n);
        model[n] = '\0';
        return p;
    }
    return NULL;
}

static bool fixture_read_bytes(struct fixture *f, const char *path, const char *body, size_t n,
                               bool recompute, struct infer_req **req, struct api_answer *err) {
    char model[257];
    const struct api_path *p = fixture_path(path, model);
    if (p == NULL) abort();
    struct endpoint_in in = {.path = p,
                             .path_model = model,
                             .req_id = "endpoint_common_17",
                             .body = body,
                             .body_len = n,
                             .is_recompute = recompute,
                             .arrival_us = 5,
                             .random_seed = 7};
    memcpy(in.meta.json_bytes, f->json_bytes, sizeof(in.meta.json_bytes));
    return endpoint_read(f->ep, &in, req, err);
}

static inline bool fixture_read(struct fixture *f, const char *path, const char *body,
                                struct infer_req **req, struct api_answer *err) {
    return fixture_read_bytes(f, path, body, strlen(body), false, req, err);
}

/* ---- the stub engine */

/* Token i of a script: its id, fixed times and log-probabilities. It stops as the real engine does:
 * EOS, stop token ids, length. */
static struct token_event fixture_event(const struct infer_req *req, const int32_t *script,
                                        size_t n_script, size_t i) {
    struct token_event ev = {.id = script[i % n_script],
                             .index = (int32_t)i,
                             .logprob = -0.5f,
                             .batch_size = 1,
                             .queue_wait_us = i == 0 ? 5012 : 30,
                             .step_us = i == 0 ? 31416 : 9051};
    const struct sampling *s = &req->sampling;
    for (int32_t t = 0; t < s->top_logprobs; t++)
        ev.top[ev.n_top++] = (struct top_logprob){t == 0 ? ev.id : t, -0.5f - (float)t};
    bool min_reached = (int32_t)i >= s->new_tokens_min;
    if (ev.id == TOK_EOS && !s->ignore_eos && min_reached) ev.finish = FINISH_EOS;
    for (size_t k = 0; k < s->n_stop_token_ids; k++)
        if (s->stop_token_ids[k] == ev.id && min_reached && ev.finish == FINISH_NONE)
            ev.finish = FINISH_STOP_TOKEN;
    if (ev.finish == FINISH_NONE && (int32_t)i + 1 >= s->new_tokens_max) ev.finish = FINISH_LENGTH;
    return ev;
}

/* Runs the request to its end; the output is appended to out. */
static inline enum finish fixture_run(struct fixture *f, const struct infer_req *req,
                                      const int32_t *script, size_t n_script, struct buf *out) {
    struct answer *a = NULL;
    enum finish fin = FINISH_NONE;
    if (answer_create(&a, f->ep, req) != ERR_OK) abort();
    for (size_t i = req->n_ids - req->n_prompt; fin == FINISH_NONE; i++) {
        struct token_event ev = fixture_event(req, script, n_script, i);
        fin = answer_token(a, 0, &ev, out);
    }
    answer_destroy(&a);
    return fin;
}

/* A body to its whole answer or error, with the script " a", " b", " c" when script is NULL.
 * Returns the status. */
static inline int fixture_ask(struct fixture *f, const char *path, const char *body,
                              const int32_t *script, size_t n_script, struct buf *out) {
    static const int32_t abc[] = {TOK_A, TOK_B, TOK_C};
    struct infer_req *req = NULL;
    struct api_answer err;
    buf_clear(out);
    if (!fixture_read(f, path, body, &req, &err)) {
        int status = err.status;
        buf_append(out, err.body.data != NULL ? err.body.data : "", err.body.len);
        buf_free(&err.body);
        return status;
    }
    req->head.created_unix_s = 1770000000;
    fixture_run(f, req, script != NULL ? script : abc, script != NULL ? n_script : 3, out);
    infer_req_destroy(&req);
    buf_putc(out, '\0'); /* terminated even where it holds zeros */
    out->len--;
    return 200;
}

#endif
