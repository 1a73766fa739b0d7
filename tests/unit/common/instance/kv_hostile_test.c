/* Goal:   nothing a peer or a stranger says makes a decode side accept KV that is not exactly what
 * was handed over, keeps the rightful peer out, or leaves a transfer behind. Method: a prefill peer
 * made by hand, frame by frame, against a real plane: every damage the network or a broken peer can
 * do. */
#include <fcntl.h>

#include "common/base/budget.h"
#include "common/instance/kv_link.h"
#include "tests/unit/common/instance/kv_fixture.h"

enum { N = 4 }; /* blocks of the request in most tests */

struct scene {
    struct side d;
    struct raw p;
    struct memory source;
    int32_t tp[N], td[N];
    struct kv_key key;
    struct ended rx_end;
};

static void want_by_hand(struct side *d) {
    struct role_node pn = node(P_ID, hand_port()); /* nobody listens there */
    assert_int_equal(kv_plane_want(d->kp, CAN_DECODE, D_ID, &pn, 1), ERR_OK);
}

static void scene_open(struct scene *s, struct loop *loop) {
    *s = (struct scene){0};
    side_init(&s->d, loop, 2);
    memory_fill(&s->source, 1);
    make_table(s->tp, N, 0, 3);
    make_table(s->td, N, 20, 5);
}

static void scene_start(struct scene *s) {
    side_open(&s->d);
    want_by_hand(&s->d);
    raw_link(&s->p, &s->d);
}

static void scene_grant(struct scene *s, const char *id, uint32_t epoch) {
    kv_key_set(&s->key, id, epoch, 0);
    memory_fill(&s->d.mem, 2);
    raw_granted(&s->p, &s->d, id, epoch, N, s->td, &s->rx_end);
}

static bool arrived(const struct scene *s) {
    struct side p = {.mem = s->source};
    return same_blocks(&p, s->tp, &s->d, s->td, 0, N);
}

static void send_blocks(struct scene *s, uint32_t layer, uint32_t first, uint32_t n) {
    raw_send_data(&s->p, &s->key, &s->source, s->tp, layer, first, n);
}

static void scene_close(struct scene *s) {
    if (s->d.rx != NULL && s->rx_end.done) kv_rx_free(&s->d.rx);
    raw_close(&s->p);
    side_close(&s->d);
    free(s->source.bytes);
}

/* Everything of the request, then the commit and the ACK: the request must come through whatever
 * was injected before. */
static void finish_well(struct scene *s) {
    for (uint32_t l = 0; l < LAYERS; l++) send_blocks(s, l, 0, N);
    raw_commit(&s->p, &s->key, N, LAYERS);
    raw_expect(&s->p, KV_ACK);
    WAIT_FOR(s->d.loop, fact_done, &s->rx_end);
    assert_int_equal(s->rx_end.e, ERR_OK);
    assert_true(arrived(s));
    kv_rx_free(&s->d.rx);
}

/* ---- frames of the wrong request, place or size */

static void foreign_stale_and_misplaced_frames_change_nothing(void **state) {
    struct scene s;
    scene_open(&s, *state);
    scene_start(&s);
    scene_grant(&s, "a1", 5);
    const struct {
        const char *id;
        uint32_t epoch, layer, first, n;
        size_t counted_at;
    } cases[] = {
        {"a2", 5, 0, 0, 1, offsetof(struct kv_plane_stats, n_unknown)}, /* another request */
        {"a1", 4, 0, 0, 1, offsetof(struct kv_plane_stats, n_stale)},   /* an older attempt */
        {"a1", 6, 0, 0, 1,
         offsetof(struct kv_plane_stats, n_stale)}, /* a newer one that was never offered */
        {"a1", 5, LAYERS, 0, 1,
         offsetof(struct kv_plane_stats, n_out_of_range)}, /* past the last layer */
        {"a1", 5, 0, N, 1,
         offsetof(struct kv_plane_stats, n_out_of_range)}, /* past the last block */
        {"a1", 5, 0, N - 1, 2,
         offsetof(struct kv_plane_stats, n_out_of_range)}, /* across the end */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct kv_key k;
        int32_t t[N + 2] = {5, 6, 7, 8, 9, 10};
        struct kv_plane_stats before = stats_of(&s.d), after;
        kv_key_set(&k, cases[i].id, cases[i].epoch, 0);
        raw_send_data(&s.p, &k, &s.source, t, cases[i].layer, cases[i].first, cases[i].n);
        const uint64_t *was = (const uint64_t *)((const char *)&before + cases[i].counted_at);
        const uint64_t *is = (const uint64_t *)((const char *)&after + cases[i].counted_at);
        uint64_t until = clock_ms() + DEADLINE_MS;
        while ((after = stats_of(&s.d), *is == *was) && clock_ms() < until) poll(NULL, 0, 1);
        assert_int_equal(*is, *was + 1);
    }
    finish_well(&s);
    scene_close(&s);
}

static void a_length_that_does_not_fit_is_refused(void **state) {
    struct scene s;
    scene_open(&s, *state);
    scene_start(&s);
    scene_grant(&s, "a3", 0);
    for (int delta = -1; delta <= 1; delta += 2) {
        size_t n_bytes = (size_t)(2 * BLOCK_BYTES + delta),
               n_frame = kv_data_bytes(&s.key, n_bytes);
        uint8_t *frame = calloc(1, n_frame);
        assert_non_null(frame);
        kv_data_begin(frame, &s.key, 0, 0, 2, n_bytes);
        wr_clear(&s.p.w);
        wr_bytes(&s.p.w, frame, n_frame);
        free(frame);
        raw_seal(&s.p);
        raw_put(s.p.pair, s.p.w.data, s.p.w.len);
    }
    finish_well(&s);
    assert_int_equal(stats_of(&s.d).n_out_of_range, 2);
    scene_close(&s);
}

static void what_is_verified_is_never_written_over(void **state) {
    struct scene s;
    scene_open(&s, *state);
    scene_start(&s);
    scene_grant(&s, "a4", 0);
    send_blocks(&s, 0, 0, N);
    struct memory other = {0};
    memory_fill(&other, 77);
    raw_send_data(&s.p, &s.key, &other, s.tp, 0, 1,
                  2); /* the same blocks again, other bytes, right CRC */
    for (uint32_t l = 1; l < LAYERS; l++) send_blocks(&s, l, 0, N);
    raw_commit(&s.p, &s.key, N, LAYERS);
    raw_expect(&s.p, KV_ACK);
    WAIT_FOR(s.d.loop, fact_done, &s.rx_end);
    assert_int_equal(s.rx_end.e, ERR_OK);
    assert_true(arrived(&s));
    assert_int_equal(stats_of(&s.d).n_repeated, 2);
    free(other.bytes);
    scene_close(&s);
}

static void data_before_the_grant_is_not_taken(void **state) {
    struct scene s;
    scene_open(&s, *state);
    scene_start(&s);
    kv_key_set(&s.key, "a5", 0, 0);
    raw_offer(&s.p, "a5", 0, N * BLOCK_TOKENS);
    WAIT_FOR(s.d.loop, fact_offered, &s.d);
    send_blocks(&s, 0, 0, N);
    raw_commit(&s.p, &s.key, N, LAYERS);
    WAIT_COUNT(&s.d, n_protocol, 2);
    assert_int_equal(kv_rx_grant(s.d.rx, s.td, N, 0, on_rx_end, &s.rx_end), ERR_OK);
    raw_expect(&s.p, KV_GRANT);
    finish_well(&s);
    scene_close(&s);
}

/* ---- damage and its repair */

enum damage { FLIP_BLOCK, FLIP_HEAD_OF_PAYLOAD, TRUNCATE, DAMAGE_COUNT };

static void send_damaged(struct scene *s, enum damage how, uint32_t layer) {
    raw_data(&s->p, &s->key, &s->source, s->tp, layer, 0, N);
    size_t n = s->p.w.len;
    if (how == FLIP_BLOCK) s->p.w.data[n - 1000] ^= 0x10;
    if (how == FLIP_HEAD_OF_PAYLOAD)
        s->p.w.data[KV_HEAD_BYTES + 4 + 2 + 4 + 4] ^= 1; /* the number of the first block */
    if (how == TRUNCATE) n -= 777;
    raw_put(s->p.pair, s->p.w.data, n);
}

static void damaged_blocks_are_asked_for_again(void **state) {
    struct scene s;
    scene_open(&s, *state);
    scene_start(&s);
    for (int how = 0; how < DAMAGE_COUNT; how++) {
        char id[16];
        snprintf(id, sizeof(id), "b%d", how);
        scene_grant(&s, id, 0);
        send_blocks(&s, 0, 0, N);
        send_damaged(&s, (enum damage)how, 1);
        send_blocks(&s, 2, 0, 1);
        send_blocks(&s, 2, 2, 2); /* block 1 never comes */
        raw_commit(&s.p, &s.key, N, LAYERS);
        raw_expect(&s.p, KV_PULL);
        struct kv_pull pull;
        assert_int_equal(kv_pull_unpack(&s.p.f.payload, &pull), ERR_OK);
        assert_true(kv_key_equal(&pull.key, &s.key));
        assert_int_equal(pull.n_ranges, 2);
        assert_true(pull.ranges[0].layer == 1 && pull.ranges[0].first == 0 &&
                    pull.ranges[0].n == N);
        assert_true(pull.ranges[1].layer == 2 && pull.ranges[1].first == 1 &&
                    pull.ranges[1].n == 1);
        kv_pull_free(&pull);
        assert_false(s.rx_end.done);
        send_blocks(&s, 1, 0, N);
        send_blocks(&s, 2, 1, 1);
        raw_commit(&s.p, &s.key, N, LAYERS);
        raw_expect(&s.p, KV_ACK);
        WAIT_FOR(s.d.loop, fact_done, &s.rx_end);
        assert_int_equal(s.rx_end.e, ERR_OK);
        assert_true(arrived(&s));
        kv_rx_free(&s.d.rx);
        assert_int_equal(stats_of(&s.d).n_corrupt, how + 1);
        assert_int_equal(stats_of(&s.d).n_pulls, how + 1);
    }
    assert_true(fact_up(&s.d));
    scene_close(&s);
}

static void a_second_damage_is_irreversible(void **state) {
    struct scene s;
    scene_open(&s, *state);
    scene_start(&s);
    scene_grant(&s, "b9", 0);
    send_blocks(&s, 0, 0, N);
    send_blocks(&s, 2, 0, N);
    send_damaged(&s, FLIP_BLOCK, 1);
    raw_commit(&s.p, &s.key, N, LAYERS);
    raw_expect(&s.p, KV_PULL);
    send_damaged(&s, FLIP_BLOCK, 1);
    raw_commit(&s.p, &s.key, N, LAYERS);
    raw_expect(&s.p, KV_RELEASE);
    struct kv_release m;
    assert_int_equal(kv_release_unpack(&s.p.f.payload, &m), ERR_OK);
    assert_int_equal(m.reason, KV_RELEASE_FAILED);
    assert_string_equal(m.text, "Pull kv failed irreversibly.");
    WAIT_FOR(s.d.loop, fact_done, &s.rx_end);
    assert_int_equal(s.rx_end.e, ERR_IO);
    assert_string_equal(s.rx_end.text, "Pull kv failed irreversibly.");
    WAIT_FOR(s.d.loop, fact_failed, &s.d);
    assert_string_equal(link_text(&s.d), "failed : pull kv failed.");
    scene_close(&s);
}

static void a_repair_that_never_comes_runs_out_of_time(void **state) {
    struct scene s;
    scene_open(&s, *state);
    s.d.o.trans_ms = 150;
    scene_start(&s);
    scene_grant(&s, "ba", 0);
    send_blocks(&s, 0, 0, N);
    raw_commit(&s.p, &s.key, N, LAYERS);
    raw_expect(&s.p, KV_PULL);
    WAIT_FOR(s.d.loop, fact_done, &s.rx_end);
    assert_int_equal(s.rx_end.e, ERR_IO);
    scene_close(&s);
}

static void a_commit_that_contradicts_the_offer_fails(void **state) {
    const struct {
        uint32_t n_blocks, n_layers;
    } cases[] = {{N - 1, LAYERS}, {N + 1, LAYERS}, {N, LAYERS - 1}, {N, LAYERS + 1}};
    for (size_t i = 0; i < 4; i++) {
        struct scene s;
        scene_open(&s, *state);
        scene_start(&s);
        scene_grant(&s, "bb", 0);
        for (uint32_t l = 0; l < LAYERS; l++) send_blocks(&s, l, 0, N);
        raw_commit(&s.p, &s.key, cases[i].n_blocks, cases[i].n_layers);
        WAIT_FOR(s.d.loop, fact_done, &s.rx_end);
        assert_int_equal(s.rx_end.e, ERR_IO);
        scene_close(&s);
    }
}

/* ---- the order of frames */

static void a_repeated_frame_is_dropped(void **state) {
    struct scene s;
    scene_open(&s, *state);
    scene_start(&s);
    scene_grant(&s, "c1", 0);
    send_blocks(&s, 0, 0, N);
    raw_put(s.p.pair, s.p.w.data, s.p.w.len); /* the very same bytes */
    finish_well(&s);
    struct kv_plane_stats st = stats_of(&s.d);
    assert_int_equal(st.n_repeated,
                     1 + N); /* the frame, and layer 0 which finish_well() sends once more */
    scene_close(&s);
}

static void swapped_frames_end_the_link(void **state) {
    struct scene s;
    scene_open(&s, *state);
    scene_start(&s);
    scene_grant(&s, "c2", 0);
    struct wr first = WR_INIT;
    raw_data(&s.p, &s.key, &s.source, s.tp, 0, 0, N);
    wr_bytes(&first, s.p.w.data, s.p.w.len);
    raw_data(&s.p, &s.key, &s.source, s.tp, 1, 0, N);
    raw_put(s.p.pair, s.p.w.data, s.p.w.len);
    raw_put(s.p.pair, first.data, first.len);
    wr_free(&first);
    WAIT_FOR(s.d.loop, fact_done, &s.rx_end);
    assert_int_equal(s.rx_end.e, ERR_PEER_LOST);
    WAIT_FOR(s.d.loop, fact_failed, &s.d);
    assert_string_equal(link_text(&s.d), "failed : 12");
    assert_int_equal(stats_of(&s.d).n_lost, 1);
    scene_close(&s);
}

static void a_damaged_control_frame_ends_the_link(void **state) {
    struct scene s;
    scene_open(&s, *state);
    scene_start(&s);
    scene_grant(&s, "c3", 0);
    kv_cancel_pack(&s.p.w, &s.key);
    kv_frame_end(&s.p.w, ++s.p.seq_out);
    s.p.w.data[KV_HEAD_BYTES + 5] ^= 1;
    raw_put(s.p.pair, s.p.w.data, s.p.w.len);
    WAIT_FOR(s.d.loop, fact_done, &s.rx_end);
    assert_int_equal(s.rx_end.e, ERR_PEER_LOST);
    WAIT_FOR(s.d.loop, fact_failed, &s.d);
    assert_string_equal(link_text(&s.d), "failed : 12");
    scene_close(&s);
}

static void an_attempt_offered_twice_runs_once(void **state) {
    struct scene s;
    scene_open(&s, *state);
    scene_start(&s);
    scene_grant(&s, "c4", 3);
    raw_offer(&s.p, "c4", 3, N * BLOCK_TOKENS);
    raw_expect(&s.p, KV_REFUSE);
    finish_well(&s);
    assert_int_equal(s.d.n_offers, 1);
    scene_close(&s);
}

static void an_offer_that_contradicts_itself_is_refused(void **state) {
    struct scene s;
    scene_open(&s, *state);
    scene_start(&s);
    struct infer_req *req = request("c5", 1, 9);
    const struct {
        const char *id;
        uint32_t epoch, n_blocks;
    } cases[] = {{"c6", 1, 3}, {"c5", 2, 3}, {"c5", 1, 2}, {"c5", 1, 4}};
    for (size_t i = 0; i < 4; i++) {
        struct kv_key k;
        kv_key_set(&k, cases[i].id, cases[i].epoch, 0);
        kv_offer_pack(&s.p.w, &k, cases[i].n_blocks, 1000, req);
        raw_send(&s.p);
        raw_expect(&s.p, KV_REFUSE);
    }
    infer_req_destroy(&req);
    assert_int_equal(s.d.n_offers, 0);
    scene_close(&s);
}

/* Frames that only the other direction may carry, and frames of no sense: counted, nothing else. */
static void frames_of_the_wrong_direction_are_counted(void **state) {
    struct scene s;
    scene_open(&s, *state);
    scene_start(&s);
    scene_grant(&s, "c7", 0);
    kv_ack_pack(&s.p.w, &s.key);
    raw_send(&s.p);
    kv_grant_pack(&s.p.w, &(struct kv_grant){.key = s.key, .n_held = 1});
    raw_send(&s.p);
    kv_pull_pack(&s.p.w, &(struct kv_pull){
                             .key = s.key, .ranges = &(struct kv_range){0, 0, 1}, .n_ranges = 1});
    raw_send(&s.p);
    kv_ok_pack(&s.p.w);
    raw_send(&s.p);
    finish_well(&s);
    assert_true(stats_of(&s.d).n_unknown >= 3);
    assert_true(stats_of(&s.d).n_protocol >= 1);
    scene_close(&s);
}

/* ---- silence */

static void a_silent_peer_loses_its_link(void **state) {
    struct scene s;
    scene_open(&s, *state);
    s.d.o.heartbeat_ms = 30;
    s.d.o.misses_max = 3;
    scene_start(&s);
    raw_offer(&s.p, "d1", 0, N * BLOCK_TOKENS);
    WAIT_FOR(s.d.loop, fact_failed, &s.d);
    assert_string_equal(link_text(&s.d), "failed : 10");
    if (s.d.rx != NULL) { /* the offer may have come before the end */
        assert_int_equal(kv_rx_grant(s.d.rx, s.td, N, 0, on_rx_end, &s.rx_end), ERR_OK);
        WAIT_FOR(s.d.loop, fact_done, &s.rx_end);
        assert_int_equal(s.rx_end.e, ERR_PEER_LOST);
    }
    scene_close(&s);
}

/* Heartbeats go on, but do not name the request: the lease ends it, not the link. */
static void a_request_nobody_names_loses_its_lease(void **state) {
    struct scene s;
    scene_open(&s, *state);
    s.d.o.lease_ms = 200;
    scene_start(&s);
    scene_grant(&s, "d2", 0);
    uint64_t until = clock_ms() + DEADLINE_MS, named_until = clock_ms() + 600;
    unsigned n_named = 0;
    while (clock_ms() < named_until) { /* named: it lives well beyond the lease */
        raw_beat(&s.p, P_ID, &s.key, 1);
        n_named++;
        assert_false(wait_for_ms(s.d.loop, fact_done, &s.rx_end, 40));
    }
    assert_true(n_named > 5);
    while (!s.rx_end.done && clock_ms() < until) {
        raw_beat(&s.p, P_ID, NULL, 0);
        wait_for_ms(s.d.loop, fact_done, &s.rx_end, 20);
    }
    assert_true(s.rx_end.done);
    assert_int_equal(s.rx_end.e, ERR_TIMEOUT);
    assert_int_equal(stats_of(&s.d).n_leases_expired, 1);
    assert_true(fact_up(&s.d));
    scene_close(&s);
}

/* ---- strangers */

static void a_stranger_cannot_occupy_a_pair(void **state) {
    struct scene s;
    scene_open(&s, *state);
    s.d.o.connect_ms = 300;
    side_open(&s.d);
    want_by_hand(&s.d);
    int stranger;
    struct wr w = WR_INIT;

    /* one that comes first and is silent: the pair is given up, the next ask gets another */
    struct kv_link_answer a = raw_ask(&s.d, P_ID, D_ID);
    assert_int_equal(bus_open(&stranger, 4096), ERR_OK);
    assert_int_equal(bus_connect(stranger, "127.0.0.1", "127.0.0.1", a.port), ERR_OK);
    WAIT_COUNT(&s.d, n_strangers, 1);
    bus_close(&stranger);

    /* one with a wrong ticket, one with none, one that speaks something else */
    for (int how = 0; how < 3; how++) {
        a = raw_ask(&s.d, P_ID, D_ID);
        assert_int_equal(bus_open(&stranger, 4096), ERR_OK);
        assert_int_equal(bus_connect(stranger, "127.0.0.1", "127.0.0.1", a.port), ERR_OK);
        struct kv_hello h = raw_hello(&s.d, ROLE_PREFILL, P_ID, how == 0 ? a.ticket + 1 : 0);
        kv_hello_pack(&w, &h);
        kv_frame_end(&w, 1);
        if (how == 2) memset(w.data, 'x', w.len);
        raw_put(stranger, w.data, w.len);
        WAIT_COUNT(&s.d, n_strangers, (uint64_t)how + 2);
        bus_close(&stranger);
    }
    wr_free(&w);

    /* the rightful one still gets in, and a stranger beside it changes nothing */
    raw_link(&s.p, &s.d);
    assert_int_equal(bus_open(&stranger, 4096), ERR_OK);
    a = raw_ask(&s.d, P_ID, D_ID); /* an ask alone does not touch the link that is up */
    assert_int_equal(bus_connect(stranger, "127.0.0.1", "127.0.0.1", a.port), ERR_OK);
    scene_grant(&s, "e1", 0);
    finish_well(&s);
    assert_true(fact_up(&s.d));
    bus_close(&stranger);
    scene_close(&s);
}

static void noise_at_the_listener_is_ignored(void **state) {
    struct scene s;
    struct wr w = WR_INIT;
    struct kv_link_answer a;
    scene_open(&s, *state);
    side_open(&s.d);
    want_by_hand(&s.d);
    /* what a nanomsg socket says first, with a length that asks for all memory */
    const uint8_t sp[] = {0,    'S',  'P',  0,    0,    0x30, 0,    0,
                          0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    assert_false(raw_dial_says(raw_dial_from(&s.d, 0), sp, sizeof(sp), &a));
    WAIT_COUNT(&s.d, n_strangers, 1);
    /* frames of other kinds, damaged frames, frames that are too long, from the peer's port too */
    kv_ok_pack(&w);
    kv_frame_end(&w, 0);
    assert_false(raw_dial_says(raw_dial_from(&s.d, hand_port()), w.data, w.len, &a));
    WAIT_COUNT(&s.d, n_strangers, 2);
    kv_tls_pack(&w, sp, sizeof(sp));
    while (w.len < 2048) wr_u8(&w, 1);
    kv_frame_end(&w, 0);
    assert_false(raw_dial_says(raw_dial_from(&s.d, 0), w.data, w.len, &a));
    WAIT_COUNT(&s.d, n_strangers, 3);
    kv_link_ask_pack(&w, &(struct kv_link_ask){.from_id = P_ID, .to_id = D_ID});
    kv_frame_end(&w, 0);
    w.data[KV_HEAD_BYTES] ^= 1;
    assert_false(raw_dial_says(raw_dial_from(&s.d, 0), w.data, w.len, &a));
    WAIT_COUNT(&s.d, n_strangers, 4);
    /* another version is told why */
    w.data[KV_HEAD_BYTES] ^= 1;
    w.data[4] = KV_VERSION + 1;
    assert_true(raw_dial_says(raw_dial_from(&s.d, 0), w.data, w.len, &a));
    assert_int_equal(a.code, KV_LINK_VERSION);
    assert_string_equal(a.text, "protocol version: mine 7, theirs 8");
    wr_free(&w);
    /* who is not wanted is told so, and the wanted one gets in */
    a = raw_ask(&s.d, 99, D_ID);
    assert_int_equal(a.code, KV_LINK_NOT_WANTED);
    a = raw_ask(&s.d, P_ID, 98);
    assert_int_equal(a.code, KV_LINK_NOT_WANTED);
    raw_link(&s.p, &s.d);
    scene_close(&s);
}

/* The right words from elsewhere than the peer's address and port: whatever id is claimed, nothing
 * of the peer's handshake is touched. */
static void an_ask_from_another_port_ends_no_handshake(void **state) {
    struct scene s;
    scene_open(&s, *state);
    side_open(&s.d);
    want_by_hand(&s.d);
    const uint64_t ticket = raw_pair(&s.p, &s.d); /* in progress */
    for (uint32_t i = 0; i < 64; i++) {
        struct kv_link_answer a = raw_ask_from(&s.d, 0, i % 2 == 0 ? 0 : P_ID, D_ID);
        assert_int_equal(a.code, KV_LINK_NOT_WANTED);
        assert_non_null(strstr(a.text, "is not the address and interCommPort of a peer"));
        assert_int_equal(a.port, 0);
    }
    raw_finish(&s.p, &s.d, ticket); /* on the pair of the first question */
    scene_close(&s);
}

static size_t n_open_fds(void) {
    size_t n = 0;
    for (int fd = 0; fd < 4096; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* Connections that say nothing, or half a question, cost a bounded number of descriptors and keep
 * nobody out. */
static void a_crowd_at_the_listener_is_bounded(void **state) {
    enum { CROWD = 300 };
    struct scene s;
    struct budget b;
    static int fds[CROWD];
    scene_open(&s, *state);
    budget_init(&b);
    s.d.o.budget = &b;
    side_open(&s.d);
    want_by_hand(&s.d);
    const size_t before = n_open_fds();
    for (int i = 0; i < CROWD; i++) {
        fds[i] = raw_dial_from(&s.d, 0);
        if (i % 2 == 0) assert_int_equal(send(fds[i], "BVK1\4\1", 6, MSG_NOSIGNAL), 6);
    }
    raw_link(&s.p, &s.d); /* the peer in their midst */
    uint64_t until = clock_ms() + DEADLINE_MS;
    while (budget_refusals(&b, BUDGET_KV_LISTENER) < CROWD - KV_STRANGERS_PER_IP_MAX &&
           clock_ms() < until)
        poll(NULL, 0, 1);
    assert_true(budget_refusals(&b, BUDGET_KV_LISTENER) >= CROWD - KV_STRANGERS_PER_IP_MAX);
    assert_true(budget_used(&b, BUDGET_KV_LISTENER) <= KV_STRANGERS_PER_IP_MAX);
    /* the crowd's own ends, the places at the listener, and the link's: three sockets and their
     * events
     */
    assert_true(n_open_fds() <= before + CROWD + KV_STRANGERS_PER_IP_MAX + 12);
    /* a second later the last of them are gone */
    while (budget_used(&b, BUDGET_KV_LISTENER) > 0 && clock_ms() < until) poll(NULL, 0, 5);
    assert_int_equal(budget_used(&b, BUDGET_KV_LISTENER), 0);
    for (int i = 0; i < CROWD; i++) close(fds[i]);
    scene_grant(&s, "g1", 0);
    finish_well(&s);
    scene_close(&s);
}

/* Once the peer is in, the pair's port takes nobody any more. */
static void a_pair_that_is_up_takes_no_connection(void **state) {
    struct scene s;
    scene_open(&s, *state);
    side_open(&s.d);
    want_by_hand(&s.d);
    struct kv_link_answer a = {.ticket = raw_pair(&s.p, &s.d)};
    struct sockaddr_in sa = {.sin_family = AF_INET}, *at = &sa;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    inet_pton(AF_INET, "127.0.0.1", &sa.sin_addr);
    sa.sin_port = htons(s.p.pair_port);
    assert_true(fd >= 0);
    raw_finish(&s.p, &s.d, a.ticket);
    connect(fd, (struct sockaddr *)at, sizeof(sa));
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    assert_int_equal(poll(&p, 1, 300), 0); /* its SYN is dropped: neither taken in nor refused */
    close(fd);
    scene_grant(&s, "h1", 0);
    finish_well(&s);
    scene_close(&s);
}

/* A peer that links anew (it restarted, we have not noticed) replaces its old link; what was on
 * that is lost. */
static void a_new_hello_replaces_the_old_link(void **state) {
    struct scene s;
    struct raw old;
    scene_open(&s, *state);
    scene_start(&s);
    scene_grant(&s, "f1", 0);
    old = s.p;
    unsigned n_before = s.d.n_ups + s.d.n_downs;
    raw_link(&s.p, &s.d);
    WAIT_FOR(s.d.loop, fact_done, &s.rx_end);
    assert_int_equal(s.rx_end.e, ERR_PEER_LOST);
    kv_rx_free(&s.d.rx);
    assert_true(fact_up(&s.d));
    assert_int_equal(s.d.n_ups + s.d.n_downs, n_before); /* it was up all the time */
    raw_close(&old);
    scene_grant(&s, "f1", 1);
    finish_well(&s);
    scene_close(&s);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, loop_setup, loop_teardown)
    /* On a sealed link damage and disorder are no accidents: kv_sealed_test.c has those. */
    const struct CMUnitTest of_plain_links[] = {
        TEST(damaged_blocks_are_asked_for_again),    TEST(a_second_damage_is_irreversible),
        TEST(a_repeated_frame_is_dropped),           TEST(swapped_frames_end_the_link),
        TEST(a_damaged_control_frame_ends_the_link),
    };
    const struct CMUnitTest of_both[] = {
        TEST(foreign_stale_and_misplaced_frames_change_nothing),
        TEST(a_length_that_does_not_fit_is_refused),
        TEST(what_is_verified_is_never_written_over),
        TEST(data_before_the_grant_is_not_taken),
        TEST(a_repair_that_never_comes_runs_out_of_time),
        TEST(a_commit_that_contradicts_the_offer_fails),
        TEST(an_attempt_offered_twice_runs_once),
        TEST(an_offer_that_contradicts_itself_is_refused),
        TEST(frames_of_the_wrong_direction_are_counted),
        TEST(a_silent_peer_loses_its_link),
        TEST(a_request_nobody_names_loses_its_lease),
        TEST(a_stranger_cannot_occupy_a_pair),
        TEST(noise_at_the_listener_is_ignored),
        TEST(an_ask_from_another_port_ends_no_handshake),
        TEST(a_crowd_at_the_listener_is_bounded),
        TEST(a_pair_that_is_up_takes_no_connection),
        TEST(a_new_hello_replaces_the_old_link),
    };
    return cmocka_run_group_tests_name("plain only", of_plain_links, NULL, NULL) +
           cmocka_run_group_tests_name("plain", of_both, NULL, NULL) +
           cmocka_run_group_tests_name("sealed", of_both, seal_links, unseal_links);
}
