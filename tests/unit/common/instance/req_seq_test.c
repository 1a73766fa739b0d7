/* Goal: a sequence goes through its states as the table says and in no other way, whoever gives it
 * up at any of them gets everything back and hears no more; the limits of a request's time are
 * those of inference-api 4.8, and the requests of an instance are found, counted and ended each
 * once. Method: every state with every event against what is written out here; a real worker around
 * the engine without a model, held so that each state is reached; times are handed in. */
#include "tests/unit/fakes/role_fixture.h"

#include "common/instance/req_set.h"

/* ---- the table */

static void every_state_times_every_event(void **state) {
    static const struct {
        enum req_seq_state from;
        enum req_seq_event ev;
        enum req_seq_state to;
    } rows[] = {
        {RSEQ_OUT, RSEQ_EV_ADDED, RSEQ_QUEUED},
        {RSEQ_OUT, RSEQ_EV_UNLINKED, RSEQ_OUT},
        {RSEQ_OUT, RSEQ_EV_DROPPED, RSEQ_LEAVING},
        {RSEQ_OUT, RSEQ_EV_DROPPED_LATE, RSEQ_DETACHING},
        {RSEQ_QUEUED, RSEQ_EV_REFUSED, RSEQ_OUT},
        {RSEQ_QUEUED, RSEQ_EV_ADMITTED, RSEQ_PREFILLING},
        {RSEQ_QUEUED, RSEQ_EV_RESERVED, RSEQ_IMPORTING},
        {RSEQ_QUEUED, RSEQ_EV_LENT, RSEQ_HELD},
        {RSEQ_QUEUED, RSEQ_EV_FAILED, RSEQ_OUT},
        {RSEQ_QUEUED, RSEQ_EV_FAILED_HELD, RSEQ_HELD},
        {RSEQ_QUEUED, RSEQ_EV_UNLINKED, RSEQ_QUEUED},
        {RSEQ_QUEUED, RSEQ_EV_DROPPED, RSEQ_LEAVING},
        {RSEQ_QUEUED, RSEQ_EV_DROPPED_LATE, RSEQ_DETACHING},
        {RSEQ_PREFILLING, RSEQ_EV_TOKEN, RSEQ_DECODING},
        {RSEQ_PREFILLING, RSEQ_EV_COMPUTED, RSEQ_HELD},
        {RSEQ_PREFILLING, RSEQ_EV_FAILED, RSEQ_OUT},
        {RSEQ_PREFILLING, RSEQ_EV_FAILED_HELD, RSEQ_HELD},
        {RSEQ_PREFILLING, RSEQ_EV_UNLINKED, RSEQ_PREFILLING},
        {RSEQ_PREFILLING, RSEQ_EV_DROPPED, RSEQ_LEAVING},
        {RSEQ_PREFILLING, RSEQ_EV_DROPPED_LATE, RSEQ_DETACHING},
        {RSEQ_IMPORTING, RSEQ_EV_STARTED, RSEQ_DECODING},
        {RSEQ_IMPORTING, RSEQ_EV_FAILED, RSEQ_OUT},
        {RSEQ_IMPORTING, RSEQ_EV_UNLINKED, RSEQ_IMPORTING},
        {RSEQ_IMPORTING, RSEQ_EV_DROPPED, RSEQ_LEAVING},
        {RSEQ_IMPORTING, RSEQ_EV_DROPPED_LATE, RSEQ_DETACHING},
        {RSEQ_HELD, RSEQ_EV_COMPUTED, RSEQ_HELD},
        {RSEQ_HELD, RSEQ_EV_STARTED, RSEQ_DECODING},
        {RSEQ_HELD, RSEQ_EV_FAILED, RSEQ_OUT},
        {RSEQ_HELD, RSEQ_EV_FAILED_HELD, RSEQ_HELD},
        {RSEQ_HELD, RSEQ_EV_UNLINKED, RSEQ_HELD},
        {RSEQ_HELD, RSEQ_EV_DROPPED, RSEQ_LEAVING},
        {RSEQ_HELD, RSEQ_EV_DROPPED_LATE, RSEQ_DETACHING},
        {RSEQ_DECODING, RSEQ_EV_TOKEN, RSEQ_DECODING},
        {RSEQ_DECODING, RSEQ_EV_FAILED, RSEQ_OUT},
        {RSEQ_DECODING, RSEQ_EV_DROPPED, RSEQ_LEAVING},
        {RSEQ_DETACHING, RSEQ_EV_REFUSED, RSEQ_DETACHING},
        {RSEQ_DETACHING, RSEQ_EV_ADMITTED, RSEQ_DETACHING},
        {RSEQ_DETACHING, RSEQ_EV_RESERVED, RSEQ_DETACHING},
        {RSEQ_DETACHING, RSEQ_EV_LENT, RSEQ_DETACHING},
        {RSEQ_DETACHING, RSEQ_EV_COMPUTED, RSEQ_DETACHING},
        {RSEQ_DETACHING, RSEQ_EV_FAILED, RSEQ_DETACHING},
        {RSEQ_DETACHING, RSEQ_EV_FAILED_HELD, RSEQ_DETACHING},
        {RSEQ_DETACHING, RSEQ_EV_UNLINKED, RSEQ_LEAVING},
        {RSEQ_LEAVING, RSEQ_EV_LEFT, RSEQ_GONE},
    };
    (void)state;
    for (enum req_seq_state s = RSEQ_OUT; s < RSEQ_STATES; s++) {
        for (enum req_seq_event e = RSEQ_EV_ADDED; e < RSEQ_EVENTS; e++) {
            enum req_seq_state want = RSEQ_STATES; /* refused */
            for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
                if (rows[i].from == s && rows[i].ev == e) want = rows[i].to;
            if (req_seq_next(s, e) != want)
                fail_msg("%s on %s", req_seq_state_name(s), req_seq_event_name(e));
        }
    }
}

/* From wherever it is given up it comes to its end, and nothing leads back from there. */
static void every_drop_leads_to_the_end(void **state) {
    (void)state;
    for (enum req_seq_state s = RSEQ_OUT; s <= RSEQ_DECODING; s++) {
        assert_int_equal(req_seq_next(s, RSEQ_EV_DROPPED), RSEQ_LEAVING);
        enum req_seq_state late = req_seq_next(s, RSEQ_EV_DROPPED_LATE);
        assert_true(late == RSEQ_DETACHING || (s == RSEQ_DECODING && late == RSEQ_STATES));
    }
    for (enum req_seq_event e = RSEQ_EV_ADDED; e < RSEQ_EVENTS; e++) {
        enum req_seq_state d = req_seq_next(RSEQ_DETACHING, e), l = req_seq_next(RSEQ_LEAVING, e);
        assert_true(d == RSEQ_DETACHING || d == RSEQ_LEAVING || d == RSEQ_STATES);
        assert_true(l == RSEQ_GONE || l == RSEQ_STATES);
        assert_int_equal(req_seq_next(RSEQ_GONE, e), RSEQ_STATES);
    }
}

/* ---- one in the engine */

struct heard {
    struct req_seq *seq;
    unsigned n_admitted, n_refused, n_tokens, n_failed;
    enum err e;
};
static void on_admitted(void *arg, const int32_t *table, int n_blocks, int n_held, int n_cached) {
    (void)table, (void)n_blocks, (void)n_held, (void)n_cached;
    ((struct heard *)arg)->n_admitted++;
}
static void on_refused(void *arg, enum err e, const char *text) {
    (void)text;
    ((struct heard *)arg)->n_refused++;
    ((struct heard *)arg)->e = e;
}
static void on_token(void *arg, const struct token_event *ev) {
    (void)ev;
    ((struct heard *)arg)->n_tokens++;
}
static void on_failed(void *arg, enum err e) {
    ((struct heard *)arg)->n_failed++;
    ((struct heard *)arg)->e = e;
}
static const struct req_seq_owner owner = {.on_admitted = on_admitted,
                                           .on_refused = on_refused,
                                           .on_token = on_token,
                                           .on_failed = on_failed};

static void solo_up(struct cluster *c, const struct fake_engine_opts *o) {
    memset(c, 0, sizeof(*c));
    log_init(LOG_NONE, 2);
    assert_int_equal(loop_create(&c->loop), ERR_OK);
    fake_instance_open(&c->p, c->loop, &prefill_role, P_ID, o);
}

static bool all_back(void *arg) {
    struct cluster *c = arg;
    struct engine_stats st;
    struct role_load load = load_of(&c->p);
    engine_stats(worker_engine(c->p.worker), &st);
    return load.running + load.leases == 0 && st.blocks_free == st.blocks_total &&
           st.slots_free == st.slots_total && st.waiting + st.held + st.importing == 0;
}

static void solo_down(struct cluster *c) {
    WAIT_FOR(c, all_back, c);
    fake_instance_close(&c->p);
    loop_destroy(&c->loop);
}

static struct infer_req *request(int n_ids, int n_new) {
    struct infer_req *req = infer_req_create();
    assert_non_null(req);
    req->head.req_id = strdup("r1");
    req->ids = calloc((size_t)n_ids, sizeof(*req->ids));
    assert_true(req->head.req_id != NULL && req->ids != NULL);
    for (int i = 0; i < n_ids; i++) req->ids[i] = i + 11;
    req->n_ids = req->n_prompt = (size_t)n_ids;
    req->sampling.new_tokens_max = n_new;
    req->sampling.ignore_eos = true;
    return req;
}

static void begin(struct cluster *c, struct heard *h, enum seq_kind kind, int n_ids) {
    struct infer_req *req = request(n_ids, 100);
    *h = (struct heard){0};
    h->seq = req_seq_open(req_set_seqs(c->p.reqs), c->p.worker, NULL, &owner, h);
    assert_non_null(h->seq);
    assert_int_equal(req_seq_state(h->seq), RSEQ_OUT);
    assert_int_equal(req_seq_add(h->seq, kind, req, NULL), ERR_OK);
    assert_int_equal(req_seq_state(h->seq), RSEQ_QUEUED);
    infer_req_destroy(&req); /* all was copied */
}

struct reached {
    struct heard *h;
    enum req_seq_state state;
};
static bool is_there(void *arg) {
    struct reached *r = arg;
    return req_seq_state(r->h->seq) == r->state;
}

/* Given up in each state, with each kind: nothing is told any more, and everything comes back. */
static void given_up_in_every_state(void **state) {
    (void)state;
    static const struct {
        enum seq_kind kind;
        enum req_seq_state at;
        int n_steps;
    } rows[] = {
        {SEQ_WHOLE, RSEQ_QUEUED, 0},       {SEQ_WHOLE, RSEQ_PREFILLING, 1},
        {SEQ_WHOLE, RSEQ_DECODING, 6},     {SEQ_PREFILL, RSEQ_QUEUED, 0},
        {SEQ_PREFILL, RSEQ_PREFILLING, 1}, {SEQ_PREFILL, RSEQ_HELD, 6},
        {SEQ_IMPORT, RSEQ_IMPORTING, 0},   {SEQ_IMPORT, RSEQ_DECODING, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct cluster c;
        struct heard h;
        solo_up(&c, &roomy);
        hold(&c.p, true);
        begin(&c, &h, rows[i].kind, 17);
        struct reached r = {&h, rows[i].kind == SEQ_IMPORT ? RSEQ_IMPORTING : rows[i].at};
        for (int k = 0; k < rows[i].n_steps; k++) {
            allow(&c.p, 1);
            if (wait_ms(c.loop, is_there, &r, 20)) break;
        }
        WAIT_FOR(&c, is_there, &r);
        if (rows[i].kind == SEQ_IMPORT && rows[i].at == RSEQ_DECODING) {
            const int32_t first = 5;
            const struct first_ids ids = {&first, 1};
            assert_int_equal(req_seq_start(h.seq, &ids, 1), ERR_OK);
        }
        assert_int_equal(req_seq_state(h.seq), rows[i].at);
        const struct heard before = h;
        req_seq_drop(&h.seq, ERR_CANCELLED, "");
        assert_null(h.seq);
        const struct role_load load = load_of(&c.p);
        assert_int_equal(load.leases, rows[i].kind == SEQ_PREFILL);
        assert_int_equal(load.running, rows[i].kind != SEQ_PREFILL);
        hold(&c.p, false);
        WAIT_FOR(&c, all_back, &c);
        assert_true(h.n_tokens == before.n_tokens && h.n_admitted == before.n_admitted &&
                    h.n_refused == 0 && h.n_failed == 0);
        solo_down(&c);
    }
}

static bool was_refused(void *arg) {
    return ((struct heard *)arg)->n_refused > 0;
}
static bool has_failed(void *arg) {
    return ((struct heard *)arg)->n_failed > 0;
}

/* What the engine refuses or fails is out of it, and may be dropped or added again. */
static void refused_and_failed(void **state) {
    (void)state;
    struct cluster c;
    struct heard h;
    solo_up(&c, &roomy);
    begin(&c, &h, SEQ_PREFILL, 4 * BT * 256); /* more than the pool has */
    WAIT_FOR(&c, was_refused, &h);
    assert_int_equal(h.e, ERR_TOO_LARGE);
    assert_int_equal(req_seq_state(h.seq), RSEQ_OUT);
    req_seq_drop(&h.seq, ERR_CANCELLED, "");
    WAIT_FOR(&c, all_back, &c);
    for (enum seq_kind kind = SEQ_WHOLE; kind <= SEQ_PREFILL; kind++) {
        fake_engine_fail_next(c.p.engine);
        begin(&c, &h, kind, 9);
        WAIT_FOR(&c, has_failed, &h);
        assert_int_equal(req_seq_state(h.seq), kind == SEQ_WHOLE ? RSEQ_OUT : RSEQ_HELD);
        req_seq_drop(&h.seq, ERR_CANCELLED, "");
        WAIT_FOR(&c, all_back, &c);
    }
    solo_down(&c);
}

/* ---- requests */

static struct req_meters *no_meters;

static unsigned n_failed, n_stopped, n_looks;
static enum cause last_cause;
static int last_status;
static char last_text[128];

static void on_req_fail(struct inst_req *r, enum cause cause, int status, const char *text) {
    n_failed++;
    last_cause = cause;
    last_status = status;
    snprintf(last_text, sizeof(last_text), "%s", text);
    req_end(r, req_end_of(status), "failed", "status=%d", status);
}
static void on_req_stop(struct inst_req *r) {
    n_stopped++;
    req_end(r, REQ_CANCELLED, "stopped", "tokens=%d", 0);
}
static enum req_phase req_phase(const struct inst_req *r) {
    return r->epoch == 0 ? REQ_WAITING : REQ_RUNNING;
}
static void req_look(struct inst_req *r, uint64_t now_ms) {
    (void)r, (void)now_ms;
    n_looks++;
}
static const struct req_kind p_kind = {.area = "p",
                                       .role = ROLE_PREFILL,
                                       .stopping = CAUSE_P_NOT_SERVING,
                                       .ended = CAUSE_P_FAILED,
                                       .late_status = 424,
                                       .late_text = "late",
                                       .fail = on_req_fail,
                                       .stop = on_req_stop,
                                       .phase = req_phase};
static const struct req_kind d_kind = {.area = "d",
                                       .role = ROLE_DECODE,
                                       .stopping = CAUSE_D_STOPPING,
                                       .ended = CAUSE_D_FAILED,
                                       .late_status = 500,
                                       .fail = on_req_fail,
                                       .stop = on_req_stop,
                                       .phase = req_phase,
                                       .look = req_look};

static void time_limits(void **state) {
    (void)state;
    enum { T = 10, E2E = 30 };
    static const struct {
        bool read, stream;
        int timeout_s;
        uint64_t arrival_s, token_s, now_s;
        enum req_limit want;
    } rows[] = {
        {false, false, 0, 100, 100, 109, LIMIT_NONE}, /* its body is not read yet */
        {false, false, 0, 100, 100, 110, LIMIT_TOKEN},
        {true, false, 0, 100, 109, 110, LIMIT_TOKEN}, /* no stream: since its arrival */
        {true, true, 0, 100, 109, 110, LIMIT_NONE},   /* a stream: since its last token */
        {true, true, 0, 100, 109, 119, LIMIT_TOKEN},
        {true, true, 0, 100, 129, 130, LIMIT_E2E}, /* the whole */
        {true, true, 5, 100, 109, 113, LIMIT_NONE},
        {true, true, 5, 100, 109, 114, LIMIT_CLIENT},
        {true, false, 5, 100, 104, 105, LIMIT_CLIENT},
        {true, false, 5, 100, 104, 104, LIMIT_NONE},
        {true, true, 0, 100, 109, 108, LIMIT_NONE}, /* a token after the look began */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct infer_req *req = request(3, 5);
        req->answer.stream = rows[i].stream;
        req->head.timeout_s = rows[i].timeout_s;
        const struct inst_req r = {.req = rows[i].read ? req : NULL,
                                   .arrival_ms = rows[i].arrival_s * 1000,
                                   .last_token_ms = rows[i].token_s * 1000};
        if (req_limit_over(&r, T, E2E, rows[i].now_s * 1000) != rows[i].want)
            fail_msg("row %zu: %d", i, req_limit_over(&r, T, E2E, rows[i].now_s * 1000));
        infer_req_destroy(&req);
    }
}

static bool some_failed(void *arg) {
    return n_failed >= *(unsigned *)arg;
}

static void put(struct cluster *c, struct inst_req *r, const struct req_kind *kind, const char *id,
                const char *tenant, uint32_t epoch) {
    *r = (struct inst_req){.kind = kind, .id = id, .tenant = tenant, .epoch = epoch};
    req_begin(c->p.reqs, r);
    req_meter_begin(&r->meter, no_meters, 1);
}

/* Found, stopped, counted, given up by their names, kinds, tenants and epochs; each ends once. */
static void requests_of_an_instance(void **state) {
    (void)state;
    struct cluster c;
    struct inst_req a, b, d, e;
    struct role_load load;
    solo_up(&c, &roomy);
    n_failed = n_stopped = n_looks = 0;
    put(&c, &a, &p_kind, "a", "key-1", 0);
    put(&c, &b, &d_kind, "a", "key-1", 1); /* the same request in another role */
    put(&c, &d, &d_kind, "d", "key-2", 2);
    put(&c, &e, &p_kind, "e", "key-2", 3);
    assert_ptr_equal(req_set_find(c.p.reqs, &d_kind, "a"), &b);
    assert_null(req_set_find(c.p.reqs, &p_kind, "d"));
    assert_ptr_equal(req_set_next(c.p.reqs, &p_kind, NULL), &e);
    assert_ptr_equal(req_set_next(c.p.reqs, &p_kind, &e), &a);
    assert_null(req_set_next(c.p.reqs, &p_kind, &a));
    req_set_load(c.p.reqs, ROLE_NONE, &load);
    assert_true(load.waiting == 1 && load.running == 3 && load.leases == 0);
    req_set_load(c.p.reqs, ROLE_PREFILL, &load);
    assert_true(load.waiting == 1 && load.running == 1);

    assert_false(req_set_stop(c.p.reqs, "a", "key-2", UINT32_MAX)); /* another tenant's */
    assert_false(req_set_stop(c.p.reqs, "d", NULL, 1));             /* a later attempt */
    assert_true(req_set_stop(c.p.reqs, "a", "key-1", UINT32_MAX));
    assert_int_equal(n_stopped, 2); /* in both roles */
    assert_true(a.set == NULL && b.set == NULL);
    req_end(&a, REQ_ANSWERED, "finished", "tokens=%d", 1); /* the second time: nothing */

    req_set_abort(c.p.reqs, ROLE_DECODE, ERR_STOPPING);
    assert_true(n_failed == 1 && d.set == NULL && e.set != NULL);
    assert_true(last_cause == CAUSE_D_STOPPING && last_status == 503);
    req_set_abort(c.p.reqs, ROLE_NONE, ERR_INTERNAL);
    assert_true(n_failed == 2 && e.set == NULL);
    assert_true(last_cause == CAUSE_P_FAILED && last_status == 500);

    /* one timer looks at all: what is late ends once, with its kind's words, others are looked at
     */
    unsigned want = 4;
    c.p.conf.token_timeout_s = 1;
    put(&c, &a, &p_kind, "a", "", 0);
    put(&c, &d, &d_kind, "d", "", 0);
    WAIT_FOR(&c, some_failed, &want);
    assert_true(n_failed == 4 && n_looks > 0 && a.set == NULL && d.set == NULL);
    assert_int_equal(last_cause, CAUSE_REQUEST_TIMEOUT);
    assert_true(strcmp(last_text, "late") == 0 ||
                strcmp(last_text, "Engine callback timeout: server tokenTimeout") == 0);
    solo_down(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_state_times_every_event),
        cmocka_unit_test(every_drop_leads_to_the_end),
        cmocka_unit_test(given_up_in_every_state),
        cmocka_unit_test(refused_and_failed),
        cmocka_unit_test(time_limits),
        cmocka_unit_test(requests_of_an_instance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
