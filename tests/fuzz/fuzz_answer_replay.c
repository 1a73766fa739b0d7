/* Tokens of a hostile record to answers of every family. Byte 0 chooses the request; then for each
 * choice: finish, how many tokens, and two bytes for each. Property: what cannot be of the request
 * is refused with a text; behind what is taken the answer goes on to its end, says nothing of the
 * tokens taken a second time, and tells every one that follows. */
#include "tests/unit/common/endpoint/fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CHOICES = 4, IDS = 64 };

static struct fixture fixture; /* one for the process: opening it costs more than an input */

static void close_fixture(void) {
    fixture_close(&fixture);
}

static struct fixture *open_fixture(void) {
    if (fixture.ep != NULL) return &fixture;
    fixture_init(&fixture, true);
    fixture.conf.tool_call_parser = "hermes";
    fixture_open(&fixture);
    atexit(close_fixture);
    return &fixture;
}

static const struct {
    const char *path, *body;
} asks[] = {
    {"/v1/chat/completions",
     "{\"model\":\"qwen\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"stream\":true,"
     "\"temperature\":1,\"n\":2,\"max_tokens\":40,\"stop\":[\"ab\",\"b \"]}"},
    {"/v1/chat/completions",
     "{\"model\":\"qwen\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"stream\":true,"
     "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],\"logprobs\":true}"},
    {"/v1/completions",
     "{\"model\":\"qwen\",\"prompt\":[\"x\",\"yz\"],\"stream\":true,\"temperature\":1,\"n\":2,"
     "\"echo\":true,\"logprobs\":1,\"max_tokens\":20}"},
    {"/generate_stream", "{\"inputs\":\"x\",\"parameters\":{\"details\":true}}"},
    {"/generate", "{\"prompt\":\"x\",\"temperature\":1,\"n\":3,\"stream\":true,\"stop\":\"b\"}"},
    {"/v1/messages",
     "{\"model\":\"qwen\",\"max_tokens\":40,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
     "\"stream\":true,\"tools\":[{\"name\":\"f\",\"input_schema\":{}}]}"},
    {"/v1/responses",
     "{\"input\":\"x\",\"max_output_tokens\":40,\"stream\":true,\"tools\":[{\"type\":\"function\","
     "\"name\":\"f\"}]}"},
    {"/infer", "{\"inputs\":\"x\",\"stream\":true}"},
    {"/v2/models/qwen/generate_stream", "{\"text_input\":\"x\"}"},
    {"/v1/completions", "{\"model\":\"qwen\",\"prompt\":\"x\"}"},
};

struct told {
    size_t n[CHOICES];
    bool ended[CHOICES];
};

static void on_sent(void *arg, uint32_t choice, int32_t id, enum finish finish) {
    struct told *t = arg;
    if (choice >= CHOICES || id < 0 || id >= FIXTURE_VOCAB || t->ended[choice]) abort();
    t->n[choice]++;
    t->ended[choice] = finish != FINISH_NONE;
}

/* All choices, from the bytes. False: refused. */
static bool take(struct answer *a, size_t n_choices, const uint8_t **p, const uint8_t *end,
                 struct told *t, size_t *n_taken) {
    for (uint32_t c = 0; c < n_choices; c++) {
        int32_t ids[IDS];
        struct errbuf eb = {0};
        struct sent_tokens sent = {.ids = ids};
        if (end - *p >= 2) {
            sent.finish = (enum finish)(**p);
            size_t n = (*p)[1] % IDS;
            *p += 2;
            for (; sent.n_ids < n && end - *p >= 2; *p += 2)
                ids[sent.n_ids++] = (int16_t)((*p)[0] | (*p)[1] << 8);
        }
        enum err e = answer_replay(a, c, &sent, &eb);
        if (e != ERR_OK && (e != ERR_INVALID || eb.text[0] == '\0')) abort();
        if (e != ERR_OK) return false;
        t->ended[c] = sent.finish != FINISH_NONE;
        *n_taken += sent.n_ids;
    }
    return true;
}

/* To the end, with the order of an engine. */
static void go_on(struct answer *a, const struct infer_req *req, struct told *t, struct buf *out) {
    bool over[CHOICES];
    size_t n_choices = (size_t)req->sampling.n_choices, n_fed = 0, n_told = 0;
    memcpy(over, t->ended, sizeof(over));
    for (int step = 0; !answer_done(a); step++) {
        if (step > 600) abort();
        for (const struct infer_req *r = req; r != NULL; r = r->next_part)
            for (size_t c = 0; c < n_choices; c++) {
                size_t lane = r->head.part * n_choices + c;
                if (over[lane]) continue;
                struct token_event ev = {.id = step < 5 ? TOK_A : TOK_EOS,
                                         .choice = (int32_t)c,
                                         .finish = step < 5 ? FINISH_NONE : FINISH_EOS};
                over[lane] = answer_token(a, r->head.part, &ev, out) != FINISH_NONE;
                n_fed++;
                answer_sent(a, on_sent, t);
            }
    }
    for (size_t i = 0; i < CHOICES; i++) n_told += t->n[i];
    /* one token that was sent for the role alone is not told again, all others are told once */
    if (n_told != n_fed || out->failed || out->len == 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1 || size > 4096) return 0;
    struct fixture *f = open_fixture();
    size_t k = data[0] % (sizeof(asks) / sizeof(asks[0]));
    struct infer_req *req = NULL;
    struct api_answer err;
    struct answer *a;
    struct told t = {{0}, {false}};
    struct buf out = BUF_INIT;
    const uint8_t *p = data + 1;
    size_t n_taken = 0;
    if (!fixture_read(f, asks[k].path, asks[k].body, &req, &err)) abort();
    if (answer_create(&a, f->ep, req) != ERR_OK) abort();
    size_t n = (size_t)req->sampling.n_choices * req->head.n_parts;
    if (take(a, n, &p, data + size, &t, &n_taken)) {
        if (answer_n_tokens(a) != (int)n_taken) abort();
        go_on(a, req, &t, &out);
    }
    answer_destroy(&a);
    infer_req_destroy(&req);
    buf_free(&out);
    return 0;
}
