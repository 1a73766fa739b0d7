/* Goal:   links come up in any order of events, refuse a peer that does not fit with both values
 * named, notice a dead or silent peer at every stage of a transfer, and heal by themselves. Method:
 * two planes of one process; for deaths this program starts itself again as the peer (posix_spawn,
 * since a forked nanomsg has no worker) and kills or stops it. All over plain and sealed links. */
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/common/instance/kv_fixture.h"

extern char **environ;

/* ---- hellos */

static void expect_refusal(struct loop *loop, struct side *p, struct side *d, const char *status,
                           const char *why_at_p) {
    side_open(p);
    side_open(d);
    struct role_node pn = node(P_ID, kv_plane_port(p->kp)), dn = node(D_ID, kv_plane_port(d->kp));
    assert_int_equal(kv_plane_want(d->kp, CAN_DECODE, D_ID, &pn, 1), ERR_OK);
    assert_int_equal(kv_plane_want(p->kp, CAN_PREFILL, P_ID, &dn, 1), ERR_OK);
    WAIT_FOR(loop, fact_failed, p);
    WAIT_FOR(loop, fact_failed, d);
    assert_string_equal(link_text(p), status);
    assert_string_equal(link_text(d), status);
    assert_non_null(strstr(kv_peer_text(kv_plane_find_id(p->kp, D_ID)), why_at_p));
    assert_int_equal(p->n_ups + d->n_ups, 0);
    side_close(p);
    side_close(d);
}

static void every_misfit_is_refused_with_both_values(void **state) {
    for (int i = 0; i < 8; i++) {
        struct side p, d;
        side_init(&p, *state, 1);
        side_init(&d, *state, 2);
        switch (i) {
        case 0:
            d.o.model_hash[0] = 0xee;
            expect_refusal(
                *state, &p, &d, "failed : 2",
                "model hash: instance 21 has ee01010101010101, instance 11 has 0101010101010101; "
                "allowMixedWeightDtype is off in both");
            break;
        case 1:
            d.o.n_layers = LAYERS - 1;
            expect_refusal(*state, &p, &d, "failed : 3",
                           "layers: instance 21 has 2, instance 11 has 3");
            break;
        case 2:
            d.o.n_kv_heads = 4;
            expect_refusal(*state, &p, &d, "failed : 3",
                           "KV heads: instance 21 has 4, instance 11 has 2");
            break;
        case 3:
            d.o.head_dim = 16;
            expect_refusal(*state, &p, &d, "failed : 3",
                           "head size: instance 21 has 16, instance 11 has 8");
            break;
        case 4:
            d.o.kv_dtype = DTYPE_INT8;
            expect_refusal(*state, &p, &d, "failed : 4",
                           "KV dtype: instance 21 has int8, instance 11 has bf16");
            break;
        case 5:
            d.o.weight_dtype = DTYPE_INT8;
            p.o.may_differ = KV_MAY_WEIGHTS; /* one side alone does not suffice */
            expect_refusal(*state, &p, &d, "failed : 4",
                           "weight dtype: instance 21 has int8, instance 11 has bf16; "
                           "allowMixedWeightDtype is off in instance 21");
            break;
        case 6:
            d.o.block_tokens = 8;
            expect_refusal(*state, &p, &d, "failed : 5",
                           "block tokens: instance 21 has 8, instance 11 has 4");
            break;
        default:
            d.o.tokenizer_hash[5] = 9;
            expect_refusal(*state, &p, &d, "failed : 6",
                           "tokenizer hash: instance 21 has 0202020202090202, instance 11 has "
                           "0202020202020202");
            break;
        }
    }
}

/* ---- how fast it is */

struct told {
    unsigned n;
    enum err e;
    struct kv_measured m;
};

static void on_told(void *arg, enum err e, const char *text, const struct kv_measured *m) {
    struct told *t = arg;
    (void)text;
    t->n++;
    t->e = e;
    t->m = *m;
}

static bool fact_told(void *arg) {
    return ((const struct told *)arg)->n > 0;
}

static void a_link_is_measured_from_both_ends(void **state) {
    struct side p, d;
    side_init(&p, *state, 1);
    side_init(&d, *state, 2);
    side_open(&p);
    side_open(&d);
    link_sides(&p, &d);
    struct side *sides[] = {&p, &d};
    const uint32_t peers[] = {D_ID, P_ID};
    struct told told[2] = {{0}};
    for (int i = 0; i < 2; i++) { /* both at once, and each one at a time */
        struct kv_peer *peer = kv_plane_find_id(sides[i]->kp, peers[i]);
        assert_int_equal(kv_plane_measure(sides[i]->kp, peer, on_told, &told[i]), ERR_OK);
        assert_int_equal(kv_plane_measure(sides[i]->kp, peer, on_told, &told[i]), ERR_BUSY);
    }
    for (int i = 0; i < 2; i++) {
        WAIT_FOR(*state, fact_told, &told[i]);
        assert_int_equal(told[i].n, 1);
        assert_int_equal(told[i].e, ERR_OK);
        assert_true(told[i].m.bytes > 1 << 20 && told[i].m.seconds > 0);
        assert_true(told[i].m.rtt_s > 0 && told[i].m.rtt_s < told[i].m.seconds + 1);
        struct kv_plane_stats st;
        kv_plane_stats(sides[i]->kp, &st);
        assert_int_equal(st.n_protocol, 0);
    }
    side_close(&d);
    side_close(&p);
}

static uint64_t rtt_of(const struct side *s, uint64_t *bytes_per_s) {
    struct link_status *links;
    const size_t n = kv_plane_links(s->kp, &links);
    const uint64_t rtt_us = n > 0 ? links[0].rtt_us : 0;
    *bytes_per_s = n > 0 ? links[0].idle_bytes_per_s : 0;
    assert_true(n == 0 || links[0].bytes_per_s == 0);
    free(links);
    return rtt_us;
}

static bool fact_rtt(void *arg) {
    uint64_t bytes_per_s;
    return rtt_of(arg, &bytes_per_s) > 0;
}

static bool fact_bandwidth(void *arg) {
    uint64_t bytes_per_s;
    return rtt_of(arg, &bytes_per_s) > 0 && bytes_per_s > 0;
}

/* And who asks for more is answered while that goes on. */
static void an_idle_link_is_measured_by_who_prefills(void **state) {
    struct side p, d;
    struct told told[5] = {{0}};
    struct kv_plane_stats st;
    uint64_t none;
    side_init(&p, *state, 1);
    side_init(&d, *state, 2);
    p.o.idle_ms = d.o.idle_ms = 10;
    side_open(&p);
    side_open(&d);
    link_sides(&p, &d);
    WAIT_FOR(*state, fact_rtt, &p);
    struct kv_peer *peer = kv_plane_find_id(p.kp, D_ID);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(kv_plane_measure(p.kp, peer, on_told, &told[i]), ERR_OK);
        WAIT_FOR(*state, fact_told, &told[i]);
        assert_int_equal(told[i].e, ERR_OK);
        assert_true(told[i].m.bytes > 4 << 20);
    }
    WAIT_FOR(*state, fact_bandwidth, &p);
    assert_int_equal(rtt_of(&d, &none), 0);
    kv_plane_stats(p.kp, &st);
    assert_int_equal(st.n_protocol, 0);
    side_close(&d);
    side_close(&p);
}

static void a_measurement_ends_with_its_link(void **state) {
    struct side p, d;
    struct told told = {0};
    side_init(&p, *state, 1);
    side_init(&d, *state, 2);
    side_open(&p);
    side_open(&d);
    link_sides(&p, &d);
    struct kv_peer *peer = kv_plane_find_id(p.kp, D_ID);
    assert_int_equal(kv_plane_measure(p.kp, peer, on_told, &told), ERR_OK);
    assert_int_equal(kv_plane_want(p.kp, CAN_PREFILL, P_ID, NULL, 0), ERR_OK);
    WAIT_FOR(*state, fact_told, &told);
    assert_true(told.e == ERR_PEER_LOST || told.e == ERR_OK); /* it may have been over by then */
    assert_int_equal(kv_plane_measure(p.kp, peer, on_told, &told), ERR_PEER_LOST);
    assert_int_equal(told.n, 1);
    side_close(&d);
    side_close(&p);
}

/* What both allow to differ is said of the link that stands. */
static void weights_differ_by_leave_of_both(void **state) {
    struct side p, d;
    side_init(&p, *state, 1);
    side_init(&d, *state, 2);
    d.o.weight_dtype = DTYPE_INT8;
    p.o.may_differ = d.o.may_differ = KV_MAY_WEIGHTS;
    side_open(&p);
    side_open(&d);
    link_sides(&p, &d);
    const struct side *sides[] = {&p, &d};
    for (int i = 0; i < 2; i++) {
        struct link_status *links;
        assert_int_equal(kv_plane_links(sides[i]->kp, &links), 1);
        assert_true(links[0].ok);
        assert_string_equal(links[0].text, "ok");
        assert_non_null(strstr(links[0].detail, "weight dtype: instance "));
        assert_non_null(strstr(links[0].detail, "instance 11 has bf16"));
        assert_non_null(strstr(links[0].detail, "instance 21 has int8"));
        free(links);
    }
    side_close(&p);
    side_close(&d);
}

static void two_of_one_role_do_not_link(void **state) {
    struct side a, b;
    side_init(&a, *state, 1);
    side_init(&b, *state, 2);
    a.o.settle_ms = b.o.settle_ms = 300;
    side_open(&a);
    side_open(&b);
    struct role_node an = node(P_ID, kv_plane_port(a.kp)), bn = node(D_ID, kv_plane_port(b.kp));
    assert_int_equal(kv_plane_want(a.kp, CAN_PREFILL, P_ID, &bn, 1), ERR_OK);
    assert_int_equal(kv_plane_want(b.kp, CAN_PREFILL, D_ID, &an, 1), ERR_OK);
    WAIT_FOR(*state, fact_failed, &a);
    assert_string_equal(link_text(&a), "failed : 7");
    assert_non_null(strstr(kv_peer_text(kv_plane_find_id(a.kp, D_ID)), "has prefill, instance"));
    side_close(&a);
    side_close(&b);
}

/* The listener answers for another instance than the one the role body named: an address was given
 * twice. */
static void a_wrong_id_is_refused(void **state) {
    struct side p, d;
    side_init(&p, *state, 1);
    side_init(&d, *state, 2);
    p.o.settle_ms = d.o.settle_ms = 300;
    side_open(&p);
    side_open(&d);
    struct role_node pn = node(P_ID, kv_plane_port(p.kp)), dn = node(D_ID + 1, kv_plane_port(d.kp));
    assert_int_equal(kv_plane_want(d.kp, CAN_DECODE, D_ID, &pn, 1), ERR_OK);
    assert_int_equal(kv_plane_want(p.kp, CAN_PREFILL, P_ID, &dn, 1), ERR_OK);
    WAIT_FOR(*state, fact_failed, &p);
    assert_string_equal(link_text(&p), "failed : 8");
    side_close(&p);
    side_close(&d);
}

/* ---- order of events, settling, finding */

static bool fact_settled(void *arg) {
    return ((struct side *)arg)->n_settled > 0;
}

static void prefill_may_come_long_before_decode(void **state) {
    struct side p, d;
    side_init(&p, *state, 1);
    side_init(&d, *state, 2);
    side_open(&p);
    side_open(&d);
    struct role_node pn = node(P_ID, kv_plane_port(p.kp)), dn = node(D_ID, kv_plane_port(d.kp));
    assert_int_equal(kv_plane_want(p.kp, CAN_PREFILL, P_ID, &dn, 1), ERR_OK);
    assert_false(wait_for_ms(*state, fact_settled, &p,
                             350)); /* several refusals: still linking, nothing shown */
    assert_string_equal(link_text(&p), "");
    assert_int_equal(kv_plane_want(d.kp, CAN_DECODE, D_ID, &pn, 1), ERR_OK);
    WAIT_FOR(*state, fact_up, &p);
    WAIT_FOR(*state, fact_up, &d);
    assert_true(p.n_settled > 0 && p.n_ok == 1 && p.n_wanted == 1);
    assert_string_equal(link_text(&p), "ok");
    /* the same body again changes nothing, and says again how things stand */
    p.n_settled = 0;
    assert_int_equal(kv_plane_want(p.kp, CAN_PREFILL, P_ID, &dn, 1), ERR_OK);
    WAIT_FOR(*state, fact_settled, &p);
    assert_int_equal(p.n_downs, 0);
    assert_int_equal(p.n_ups, 1);
    side_close(&p);
    side_close(&d);
}

static void one_missing_peer_does_not_hide_the_other(void **state) {
    struct side p, d;
    side_init(&p, *state, 1);
    side_init(&d, *state, 2);
    p.o.settle_ms = 300;
    p.o.connect_ms = 150;
    side_open(&p);
    side_open(&d);
    struct role_node pn = node(P_ID, kv_plane_port(p.kp)),
                     dn[2] = {node(D_ID, kv_plane_port(d.kp)), node(D_ID + 1, 1)};
    snprintf(dn[1].host_ip, sizeof(dn[1].host_ip), "10.1.2.3");
    assert_int_equal(kv_plane_want(d.kp, CAN_DECODE, D_ID, &pn, 1), ERR_OK);
    assert_int_equal(kv_plane_want(p.kp, CAN_PREFILL, P_ID, dn, 2), ERR_OK);
    WAIT_FOR(*state, fact_settled, &p);
    while (p.n_ok + 1 != p.n_wanted) {
        p.n_settled = 0;
        WAIT_FOR(*state, fact_settled, &p);
    }
    unsigned wanted, ok, failed, linking;
    kv_plane_counts(p.kp, &wanted, &ok, &failed, &linking);
    assert_true(wanted == 2 && ok == 1 && failed == 1 && linking == 0);
    struct link_status *links;
    assert_int_equal(kv_plane_links(p.kp, &links), 2);
    assert_true(links[0].target == D_ID && links[0].ok && strcmp(links[0].text, "ok") == 0);
    assert_true(links[1].target == D_ID + 1 && !links[1].ok &&
                strcmp(links[1].text, "failed : 11") == 0);
    free(links);
    char target[40];
    snprintf(target, sizeof(target), "127.0.0.1;%u", kv_plane_port(d.kp));
    assert_int_equal(kv_peer_id(kv_plane_find(p.kp, target)), D_ID);
    assert_int_equal(kv_peer_id(kv_plane_find(p.kp, "127.0.0.1")), D_ID); /* the linked one */
    assert_int_equal(kv_peer_id(kv_plane_find(p.kp, "127.0.0.1;1")), D_ID + 1);
    assert_int_equal(kv_peer_id(kv_plane_find(p.kp, "10.1.2.3")), D_ID + 1);
    assert_null(kv_plane_find(p.kp, "127.0.0.1;2"));
    assert_null(kv_plane_find(p.kp, "127.0.0.2"));
    assert_null(kv_plane_find(p.kp, "127.0.0.11"));
    struct infer_req *r = request("a", 0, 4);
    struct kv_tx *tx;
    struct ended x;
    assert_int_equal(
        kv_tx_open(&tx, kv_plane_find_id(p.kp, D_ID + 1),
                   &(struct kv_tx_opts){.req = r, .n_blocks = 1, .on_end = on_tx_end, .arg = &x}),
        ERR_PEER_LOST);
    infer_req_destroy(&r);
    side_close(&p);
    side_close(&d);
}

static void a_taken_port_is_named(void **state) {
    struct side a, b;
    struct errbuf eb = {0};
    char port[16];
    side_init(&a, *state, 1);
    side_init(&b, *state, 2);
    side_open(&a);
    b.o.port = kv_plane_port(a.kp);
    assert_int_equal(kv_plane_open(&b.kp, &b.o, &eb), ERR_CONFLICT);
    assert_null(b.kp);
    snprintf(port, sizeof(port), "127.0.0.1:%u", kv_plane_port(a.kp));
    assert_non_null(strstr(eb.text, port));
    side_close(&a);
    side_close(&b);
}

/* ---- healing, change of roles */

static bool fact_down_seen(void *arg) {
    return ((struct side *)arg)->n_downs > 0;
}

static void a_link_heals_when_its_peer_comes_back(void **state) {
    struct side p, d;
    side_init(&p, *state, 1);
    side_init(&d, *state, 2);
    side_open(&p);
    side_open(&d);
    link_sides(&p, &d);
    uint16_t port = kv_plane_port(d.kp);
    side_close(&d);
    WAIT_FOR(*state, fact_down_seen, &p);
    assert_true(fact_failed(&p));
    side_init(&d, *state, 2);
    d.o.port = port;
    side_open(&d);
    struct role_node pn = node(P_ID, kv_plane_port(p.kp));
    assert_int_equal(kv_plane_want(d.kp, CAN_DECODE, D_ID, &pn, 1), ERR_OK);
    WAIT_FOR(*state, fact_up, &p);
    WAIT_FOR(*state, fact_up, &d);
    assert_int_equal(p.n_ups, 2);
    side_close(&p);
    side_close(&d);
}

static void posting_the_role_again_tries_at_once(void **state) {
    struct side p, d;
    side_init(&p, *state, 1);
    side_init(&d, *state, 2);
    p.o.settle_ms = 100;
    p.o.backoff_ms = p.o.backoff_ms_max =
        3600 * 1000; /* by itself it would not try again in this test */
    side_open(&p);
    side_open(&d);
    struct role_node pn = node(P_ID, kv_plane_port(p.kp)), dn = node(D_ID, kv_plane_port(d.kp));
    assert_int_equal(kv_plane_want(p.kp, CAN_PREFILL, P_ID, &dn, 1), ERR_OK);
    WAIT_FOR(*state, fact_failed, &p);
    assert_int_equal(kv_plane_want(d.kp, CAN_DECODE, D_ID, &pn, 1), ERR_OK);
    assert_int_equal(kv_plane_want(p.kp, CAN_PREFILL, P_ID, &dn, 1), ERR_OK);
    WAIT_FOR(*state, fact_up, &p);
    side_close(&p);
    side_close(&d);
}

static void two_instances_swap_their_roles(void **state) {
    struct side a, b;
    side_init(&a, *state, 1);
    side_init(&b, *state, 2);
    side_open(&a);
    side_open(&b);
    link_sides(&a, &b);
    struct role_node an = node(P_ID, kv_plane_port(a.kp)), bn = node(D_ID, kv_plane_port(b.kp));
    for (int i = 0; i < 3; i++) {
        const unsigned ra = i % 2 == 0 ? CAN_DECODE : CAN_PREFILL,
                       rb = i % 2 == 0 ? CAN_PREFILL : CAN_DECODE;
        assert_int_equal(kv_plane_want(a.kp, ra, P_ID, &bn, 1), ERR_OK);
        assert_int_equal(kv_plane_want(b.kp, rb, D_ID, &an, 1), ERR_OK);
        assert_false(fact_up(&a)); /* the old link is not taken for the new one */
        WAIT_FOR(*state, fact_up, &a);
        WAIT_FOR(*state, fact_up, &b);
    }
    /* and a request flows the other way round: b offers to a */
    struct kv_tx *tx = NULL;
    struct ended tx_end = {0}, rx_end = {0};
    int32_t t[1] = {3}, u[1] = {7};
    struct infer_req *r = request("abc", 0, 3);
    const struct kv_tx_opts o = {.req = r, .n_blocks = 1, .on_end = on_tx_end, .arg = &tx_end};
    assert_int_equal(kv_tx_open(&tx, kv_plane_find_id(b.kp, P_ID), &o), ERR_OK);
    kv_tx_offer(tx);
    infer_req_destroy(&r);
    WAIT_FOR(*state, fact_offered, &a);
    assert_int_equal(kv_rx_grant(a.rx, t, 1, 0, on_rx_end, &rx_end), ERR_OK);
    for (int l = 0; l < LAYERS; l++) kv_tx_ready(tx, u, l, 0, 1);
    struct kv_commit c = commit_of(5);
    kv_tx_commit(tx, &c);
    WAIT_FOR(*state, fact_done, &tx_end);
    WAIT_FOR(*state, fact_done, &rx_end);
    assert_int_equal(rx_end.e, ERR_OK);
    assert_true(same_blocks(&b, u, &a, t, 0, 1));
    kv_tx_free(&tx);
    kv_rx_free(&a.rx);
    side_close(&a);
    side_close(&b);
}

/* ---- deaths: the peer is another process */

struct child {
    pid_t pid;
    int out; /* its standard output */
};

static struct child child_start(const char *role, const char *stage, uint16_t peer_port) {
    struct child c;
    int fd[2];
    char port[16];
    posix_spawn_file_actions_t fa;
    assert_int_equal(pipe(fd), 0);
    snprintf(port, sizeof(port), "%u", peer_port);
    char *argv[] = {"kv_link_test", (char *)role, (char *)stage, port, NULL};
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_adddup2(&fa, fd[1], 1);
    posix_spawn_file_actions_addclose(&fa, fd[0]);
    assert_int_equal(posix_spawn(&c.pid, pace_self(), &fa, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&fa);
    close(fd[1]);
    c.out = fd[0];
    return c;
}

static uint16_t child_port(const struct child *c) {
    char line[32] = "";
    size_t n = 0;
    while (n + 1 < sizeof(line) && read(c->out, line + n, 1) == 1 && line[n] != '\n') n++;
    return (uint16_t)strtoul(line, NULL, 10);
}

static void child_kill(struct child *c) {
    kill(c->pid, SIGKILL);
    waitpid(c->pid, NULL, 0);
    close(c->out);
}

enum { CHILD_BLOCKS = 4 };

/* The peer's own main: links to the parent at peer_port, or waits for it, and stops at its stage
 * for ever. */
/* Children of the sealed group use its certificates. */
#define PKI_ENV "BATON_TEST_KV_PKI"

static int sealed_setup(void **state) {
    return seal_links(state) == 0 ? setenv(PKI_ENV, link_pki.dir, 1) : -1;
}
static int sealed_teardown(void **state) {
    unsetenv(PKI_ENV);
    return unseal_links(state);
}

static int child_main(const char *role, int stage, uint16_t peer_port) {
    struct loop *loop = NULL;
    struct side s;
    struct ended x;
    static int32_t t[CHILD_BLOCKS] = {1, 2, 3, 4};
    log_init(LOG_NONE, 2);
    alarm(60); /* should the parent die */
    const char *pki = getenv(PKI_ENV);
    if (pki != NULL) {
        snprintf(link_pki.dir, sizeof(link_pki.dir), "%s", pki);
        if ((link_tls = pki_open(&link_pki, "peer", pki, true)) == NULL) return 1;
    }
    if (loop_create(&loop) != ERR_OK) return 1;
    side_init(&s, loop, 7);
    side_open(&s);
    printf("%u\n", kv_plane_port(s.kp));
    fflush(stdout);
    if (strcmp(role, "decode") == 0) {
        struct role_node pn = node(P_ID, peer_port);
        kv_plane_want(s.kp, CAN_DECODE, D_ID, &pn, 1);
        WAIT_FOR(loop, fact_offered, &s);
        if (stage > 0) kv_rx_grant(s.rx, t, CHILD_BLOCKS, 0, on_rx_end, &x);
    } else {
        struct role_node dn = node(D_ID, peer_port);
        kv_plane_want(s.kp, CAN_PREFILL, P_ID, &dn, 1);
        WAIT_FOR(loop, fact_up, &s);
        struct kv_tx *tx = offer(&s, "cafe", 0, CHILD_BLOCKS * BLOCK_TOKENS, &x);
        WAIT_FOR(loop, fact_granted, &x);
        for (int l = 0; l < LAYERS; l++) {
            if (stage > 0) kv_tx_ready(tx, t, l, 0, stage == 1 ? 1 : CHILD_BLOCKS);
        }
    }
    loop_run(loop);
    return 0;
}

static bool fact_bytes_came(void *arg) {
    return stats_of(arg).bytes_in > 3 * BLOCK_BYTES;
}

static void decode_survives_the_death_of_prefill(void **state) {
    static const char *const stages[] = {"0", "1", "2"};
    struct side d;
    side_init(&d, *state, 2);
    side_open(&d);
    for (int i = 0; i < 3; i++) {
        struct ended rx_end = {0};
        int32_t t[CHILD_BLOCKS] = {5, 6, 7, 8};
        d.n_offers = 0;
        struct child c = child_start("prefill", stages[i], kv_plane_port(d.kp));
        struct role_node pn = node(P_ID, child_port(&c));
        assert_int_equal(kv_plane_want(d.kp, CAN_DECODE, D_ID, &pn, 1), ERR_OK);
        WAIT_FOR(*state, fact_offered, &d);
        assert_int_equal(kv_rx_grant(d.rx, t, CHILD_BLOCKS, 0, on_rx_end, &rx_end), ERR_OK);
        if (i > 0) WAIT_FOR(*state, fact_bytes_came, &d);
        child_kill(&c);
        WAIT_FOR(*state, fact_done, &rx_end);
        assert_int_equal(rx_end.e, ERR_PEER_LOST);
        assert_int_equal(rx_end.n, 1);
        kv_rx_free(&d.rx);
        WAIT_FOR(*state, fact_failed, &d);
    }
    side_close(&d);
}

static void prefill_survives_the_death_of_decode(void **state) {
    struct side p;
    int32_t t[CHILD_BLOCKS] = {5, 6, 7, 8};
    side_init(&p, *state, 1);
    side_open(&p);
    for (int i = 0; i < 4; i++) { /* offered; granted; some blocks out; all blocks out */
        struct ended x;
        struct child c = child_start("decode", i == 0 ? "0" : "1", kv_plane_port(p.kp));
        struct role_node dn = node(D_ID, child_port(&c));
        assert_int_equal(kv_plane_want(p.kp, CAN_PREFILL, P_ID, &dn, 1), ERR_OK);
        WAIT_FOR(*state, fact_up, &p);
        struct kv_tx *tx = offer(&p, "cafe", (uint32_t)i, CHILD_BLOCKS * BLOCK_TOKENS, &x);
        if (i > 0) WAIT_FOR(*state, fact_granted, &x);
        for (int l = 0; l < LAYERS && i > 1; l++)
            kv_tx_ready(tx, t, l, 0, i == 2 ? 1 : CHILD_BLOCKS);
        child_kill(&c);
        WAIT_FOR(*state, fact_done, &x);
        assert_int_equal(x.e, ERR_PEER_LOST);
        assert_int_equal(x.n, 1);
        kv_tx_free(&tx);
    }
    side_close(&p);
}

/* A stopped process keeps its connections: only the missing heartbeats tell. */
static void a_peer_that_stands_still_is_noticed(void **state) {
    struct side d;
    struct ended rx_end = {0};
    int32_t t[CHILD_BLOCKS] = {5, 6, 7, 8};
    side_init(&d, *state, 2);
    d.o.heartbeat_ms = 100;
    d.o.misses_max = 5;
    side_open(&d);
    struct child c = child_start("prefill", "2", kv_plane_port(d.kp));
    struct role_node pn = node(P_ID, child_port(&c));
    assert_int_equal(kv_plane_want(d.kp, CAN_DECODE, D_ID, &pn, 1), ERR_OK);
    WAIT_FOR(*state, fact_offered, &d);
    assert_int_equal(kv_rx_grant(d.rx, t, CHILD_BLOCKS, 0, on_rx_end, &rx_end), ERR_OK);
    kill(c.pid, SIGSTOP);
    WAIT_FOR(*state, fact_done, &rx_end);
    assert_int_equal(rx_end.e, ERR_PEER_LOST);
    WAIT_FOR(*state, fact_failed, &d);
    assert_string_equal(link_text(&d), "failed : 10");
    kv_rx_free(&d.rx);
    child_kill(&c);
    side_close(&d);
}

int main(int argc, char **argv) {
    if (argc == 4) return child_main(argv[1], atoi(argv[2]), (uint16_t)atoi(argv[3]));
#define TEST(f) cmocka_unit_test_setup_teardown(f, loop_setup, loop_teardown)
    const struct CMUnitTest tests[] = {
        TEST(every_misfit_is_refused_with_both_values),
        TEST(weights_differ_by_leave_of_both),
        TEST(a_link_is_measured_from_both_ends),
        TEST(an_idle_link_is_measured_by_who_prefills),
        TEST(a_measurement_ends_with_its_link),
        TEST(two_of_one_role_do_not_link),
        TEST(a_wrong_id_is_refused),
        TEST(prefill_may_come_long_before_decode),
        TEST(one_missing_peer_does_not_hide_the_other),
        TEST(a_taken_port_is_named),
        TEST(a_link_heals_when_its_peer_comes_back),
        TEST(posting_the_role_again_tries_at_once),
        TEST(two_instances_swap_their_roles),
        TEST(decode_survives_the_death_of_prefill),
        TEST(prefill_survives_the_death_of_decode),
        TEST(a_peer_that_stands_still_is_noticed),
    };
    return cmocka_run_group_tests_name("plain", tests, NULL, NULL) +
           cmocka_run_group_tests_name("sealed", tests, sealed_setup, sealed_teardown);
}
