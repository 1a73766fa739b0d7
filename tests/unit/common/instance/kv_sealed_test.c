/* Goal:   a sealed link comes up between holders of the right certificates and nobody else, both
 * sides say why it does not, and whatever is not the very next sealed frame ends it with nothing
 * decoded. Method: planes with certificates of several kinds against each other; a peer made by
 * hand with OpenSSL against a real decode side, for handshakes and frames no plane of ours would
 * send. */
#include <openssl/ssl.h>

#include "tests/unit/common/instance/kv_fixture.h"

enum { N = 4 };

static struct pki other_pki; /* of another cluster */
static struct tls *other_tls;

static int setup(void **state) {
    if (seal_links(state) != 0 || pki_make(&other_pki) != 0) return -1;
    const char *dir = link_pki.dir;
    if (pki_run("issue -f 20200101000000Z -t 20200201000000Z %s cluster expired peer", dir) != 0 ||
        pki_run("issue %s cluster revoked peer", dir) != 0 ||
        pki_run("revoke %s cluster revoked", dir) != 0 ||
        pki_run("issue -i 10.9.9.9 %s cluster elsewhere peer", dir) != 0 ||
        pki_run("issue %s cluster server server", dir) != 0 ||
        pki_run("issue -i '' -n kv.baton.svc %s cluster named peer", dir) != 0)
        return -1;
    tls_close(&link_tls); /* with the CRL that names the revoked one */
    link_tls = pki_open(&link_pki, "peer", dir, true);
    other_tls = pki_open(&other_pki, "peer", other_pki.dir, true);
    return link_tls != NULL && other_tls != NULL ? 0 : -1;
}
static int teardown(void **state) {
    tls_close(&other_tls);
    pki_remove(&other_pki);
    return unseal_links(state);
}

/* ---- two planes */

static void expect_no_link(struct loop *loop, struct tls *of_p, struct tls *of_d,
                           const char *p_says, const char *d_says, const char *word) {
    struct side p, d;
    side_init(&p, loop, 1);
    side_init(&d, loop, 2);
    p.o.tls = of_p;
    d.o.tls = of_d;
    side_open(&p);
    side_open(&d);
    struct role_node pn = node(P_ID, kv_plane_port(p.kp)), dn = node(D_ID, kv_plane_port(d.kp));
    assert_int_equal(kv_plane_want(d.kp, CAN_DECODE, D_ID, &pn, 1), ERR_OK);
    assert_int_equal(kv_plane_want(p.kp, CAN_PREFILL, P_ID, &dn, 1), ERR_OK);
    WAIT_FOR(loop, fact_failed, &p);
    WAIT_FOR(loop, fact_failed, &d);
    assert_string_equal(link_text(&p), p_says);
    assert_string_equal(link_text(&d), d_says);
    const char *full_p = kv_peer_text(kv_plane_find_id(p.kp, D_ID)),
               *full_d = kv_peer_text(kv_plane_find_id(d.kp, P_ID));
    if (strstr(full_p, word) == NULL || strstr(full_d, word) == NULL)
        fail_msg("no \"%s\" in \"%s\" and \"%s\"", word, full_p, full_d);
    assert_int_equal(p.n_ups + d.n_ups, 0);
    side_close(&p);
    side_close(&d);
}

static void a_plain_peer_and_a_sealed_one_do_not_link(void **state) {
    expect_no_link(*state, NULL, link_tls, "failed : 13", "failed : 13", "interCommTLSEnabled");
    expect_no_link(*state, link_tls, NULL, "failed : 13", "failed : 13", "interCommTLSEnabled");
}

static void certificates_that_do_not_fit(void **state) {
    static const char *const names[] = {"revoked", "elsewhere", "server"};
    for (size_t i = 0; i < 3; i++) {
        struct tls *bad = pki_open(&link_pki, names[i], link_pki.dir, true);
        assert_non_null(bad);
        bool is_server = i == 2; /* as one it is right, as a client it is not */
        expect_no_link(*state, bad, link_tls, "failed : 14", "failed : 14", "TLS");
        if (!is_server) expect_no_link(*state, link_tls, bad, "failed : 14", "failed : 14", "TLS");
        tls_close(&bad);
    }
    expect_no_link(*state, other_tls, link_tls, "failed : 14", "failed : 14", "certificate");
    expect_no_link(*state, link_tls, other_tls, "failed : 14", "failed : 14", "certificate");
}

/* Certificates that know no address: what counts is the name that both are set to ask for. */
static void a_common_name_in_place_of_addresses(void **state) {
    static const char *const ours[] = {"kv.baton.svc", "other.baton.svc", ""};
    for (size_t i = 0; i < 3; i++) {
        struct tls *named = pki_open_named(&link_pki, "named", link_pki.dir, true, "kv.baton.svc"),
                   *asks = pki_open_named(&link_pki, "named", link_pki.dir, true, ours[i]);
        assert_true(named != NULL && asks != NULL);
        if (i > 0) {
            const char *says = i == 1
                                   ? "must name other.baton.svc (peerName), but names kv.baton.svc"
                                   : "must name 127.0.0.1, but names kv.baton.svc";
            expect_no_link(*state, asks, named, "failed : 14", "failed : 14", says);
            expect_no_link(*state, named, asks, "failed : 14", "failed : 14", says);
        } else {
            struct side p, d;
            side_init(&p, *state, 1);
            side_init(&d, *state, 2);
            p.o.tls = named;
            d.o.tls = asks;
            side_open(&p);
            side_open(&d);
            struct role_node pn = node(P_ID, kv_plane_port(p.kp)),
                             dn = node(D_ID, kv_plane_port(d.kp));
            assert_int_equal(kv_plane_want(d.kp, CAN_DECODE, D_ID, &pn, 1), ERR_OK);
            assert_int_equal(kv_plane_want(p.kp, CAN_PREFILL, P_ID, &dn, 1), ERR_OK);
            WAIT_FOR(p.loop, fact_up, &p);
            WAIT_FOR(d.loop, fact_up, &d);
            side_close(&p);
            side_close(&d);
        }
        tls_close(&named);
        tls_close(&asks);
    }
}

/* A link heals when the reason has gone, without a restart of the other side. */
static void the_right_certificate_heals_the_link(void **state) {
    struct side p, d;
    side_init(&p, *state, 1);
    side_init(&d, *state, 2);
    p.o.tls = other_tls;
    side_open(&p);
    side_open(&d);
    uint16_t port = kv_plane_port(p.kp);
    struct role_node pn = node(P_ID, port), dn = node(D_ID, kv_plane_port(d.kp));
    assert_int_equal(kv_plane_want(d.kp, CAN_DECODE, D_ID, &pn, 1), ERR_OK);
    assert_int_equal(kv_plane_want(p.kp, CAN_PREFILL, P_ID, &dn, 1), ERR_OK);
    WAIT_FOR(d.loop, fact_failed, &d);
    kv_plane_close(&p.kp);
    p.o.tls = link_tls;
    p.o.port = port;
    side_open(&p);
    assert_int_equal(kv_plane_want(p.kp, CAN_PREFILL, P_ID, &dn, 1), ERR_OK);
    WAIT_FOR(p.loop, fact_up, &p);
    WAIT_FOR(d.loop, fact_up, &d);
    side_close(&p);
    side_close(&d);
}

/* ---- handshakes by hand */

struct hand {
    SSL_CTX *ctx;
    SSL *ssl;
    BIO *in, *out;
};

static int give_password(char *buf, int size, int rw, void *arg) {
    (void)rw;
    FILE *f = fopen(arg, "r");
    if (f == NULL || fgets(buf, size, f) == NULL) buf[0] = 0;
    if (f != NULL) fclose(f);
    buf[strcspn(buf, "\n")] = 0;
    return (int)strlen(buf);
}

/* A client that verifies nothing. name NULL: it has no certificate. */
static void hand_open(struct hand *h, const struct pki *pki, const char *name, int version_max) {
    char cert[128], key[128], pass[128];
    h->ctx = SSL_CTX_new(TLS_client_method());
    assert_non_null(h->ctx);
    if (version_max != 0) SSL_CTX_set_max_proto_version(h->ctx, version_max);
    if (name != NULL) {
        snprintf(cert, sizeof(cert), "%s/cluster/%s.pem", pki->dir, name);
        snprintf(key, sizeof(key), "%s/cluster/%s.key", pki->dir, name);
        snprintf(pass, sizeof(pass), "%s/cluster/%s.pass", pki->dir, name);
        SSL_CTX_set_default_passwd_cb(h->ctx, give_password);
        SSL_CTX_set_default_passwd_cb_userdata(h->ctx, pass);
        assert_int_equal(SSL_CTX_use_certificate_file(h->ctx, cert, SSL_FILETYPE_PEM), 1);
        assert_int_equal(SSL_CTX_use_PrivateKey_file(h->ctx, key, SSL_FILETYPE_PEM), 1);
    }
    h->ssl = SSL_new(h->ctx);
    h->in = BIO_new(BIO_s_mem());
    h->out = BIO_new(BIO_s_mem());
    BIO_set_mem_eof_return(h->in, -1);
    SSL_set_bio(h->ssl, h->in, h->out);
    SSL_set_connect_state(h->ssl);
}
static void hand_close(struct hand *h) {
    SSL_free(h->ssl);
    SSL_CTX_free(h->ctx);
}

/* What it has to send now. */
static size_t hand_flight(struct hand *h, uint8_t *bytes, size_t cap) {
    SSL_do_handshake(h->ssl);
    int n = BIO_read(h->out, bytes, (int)cap);
    return n > 0 ? (size_t)n : 0;
}

static void send_tls(struct raw *r, const void *bytes, size_t n) {
    kv_tls_pack(&r->w, bytes, n);
    raw_send(r);
}

static void decode_side(struct side *d, struct loop *loop) {
    side_init(d, loop, 2);
    side_open(d);
    struct role_node pn = node(P_ID, hand_port());
    assert_int_equal(kv_plane_want(d->kp, CAN_DECODE, D_ID, &pn, 1), ERR_OK);
}

/* Runs the handshake as far as D goes with it, then expects the refusal. */
static void expect_refused(struct side *d, struct hand *h, const char *word) {
    struct raw r;
    uint8_t bytes[16384];
    raw_pair(&r, d);
    for (int i = 0; i < 4; i++) {
        size_t n = hand_flight(h, bytes, sizeof(bytes));
        if (n > 0) send_tls(&r, bytes, n);
        if (!raw_recv_any(&r, DEADLINE_MS)) fail_msg("no answer");
        if (r.f.type != KV_TLS) break;
        const uint8_t *theirs;
        assert_int_equal(kv_tls_unpack(&r.f.payload, &theirs, &n), ERR_OK);
        BIO_write(h->in, theirs, (int)n);
    }
    struct kv_refuse_link m = {0};
    assert_int_equal(r.f.type, KV_REFUSE_LINK);
    assert_int_equal(kv_refuse_link_unpack(&r.f.payload, &m), ERR_OK);
    assert_int_equal(m.code, KV_LINK_TLS);
    if (strstr(m.text, word) == NULL) fail_msg("no \"%s\" in \"%s\"", word, m.text);
    WAIT_FOR(d->loop, fact_failed, d);
    assert_string_equal(link_text(d), "failed : 14");
    raw_close(&r);
}

static void peers_without_a_right_certificate_are_refused(void **state) {
    const struct {
        const struct pki *pki;
        const char *name;
        int version_max;
        const char *word;
    } rows[] = {
        {&link_pki, NULL, 0, "certificate"},    {&link_pki, "expired", 0, "expired"},
        {&link_pki, "revoked", 0, "revoked"},   {&link_pki, "elsewhere", 0, "mismatch"},
        {&other_pki, "peer", 0, "certificate"}, {&link_pki, "peer", TLS1_2_VERSION, "protocol"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct side d;
        struct hand h;
        decode_side(&d, *state);
        hand_open(&h, rows[i].pki, rows[i].name, rows[i].version_max);
        expect_refused(&d, &h, rows[i].word);
        hand_close(&h);
        assert_int_equal(stats_of(&d).n_strangers, 1);
        assert_int_equal(d.n_ups, 0);
        side_close(&d);
    }
}

static void garbage_is_refused(void **state) {
    struct side d;
    struct raw r;
    uint8_t bytes[16384];
    decode_side(&d, *state);
    for (int how = 0; how < 3; how++) {
        struct hand h;
        hand_open(&h, &link_pki, "peer", 0);
        raw_pair(&r, &d);
        size_t n = hand_flight(&h, bytes, sizeof(bytes));
        if (how == 0) memset(bytes, 'x', n);       /* no TLS at all */
        if (how == 1) memset(bytes + 5, 0xff, 40); /* a record, but no client hello */
        if (how == 2) n = 0;
        send_tls(&r, bytes, n);
        raw_expect(&r, KV_REFUSE_LINK);
        WAIT_FOR(d.loop, fact_failed, &d);
        assert_string_equal(link_text(&d), "failed : 14");
        raw_close(&r);
        hand_close(&h);
    }
    assert_int_equal(stats_of(&d).n_strangers, 3);
    raw_link(&r, &d); /* and the rightful one gets in */
    raw_close(&r);
    side_close(&d);
}

static void a_truncated_handshake_loses_the_pair(void **state) {
    struct side d;
    struct raw r;
    struct hand h;
    uint8_t bytes[16384];
    side_init(&d, *state, 2);
    d.o.connect_ms = 200;
    side_open(&d);
    struct role_node pn = node(P_ID, hand_port());
    assert_int_equal(kv_plane_want(d.kp, CAN_DECODE, D_ID, &pn, 1), ERR_OK);
    hand_open(&h, &link_pki, "peer", 0);
    raw_pair(&r, &d);
    size_t n = hand_flight(&h, bytes, sizeof(bytes));
    send_tls(&r, bytes, n / 2);
    WAIT_COUNT(&d, n_strangers, 1);
    assert_int_equal(d.n_ups, 0);
    raw_close(&r);
    hand_close(&h);
    side_close(&d);
}

/* Where a flight is cut into frames is of no concern. */
static void a_flight_may_come_in_pieces(void **state) {
    struct side d;
    struct raw r;
    struct tls_session *t;
    uint8_t bytes[16384], secrets[2][KV_SEAL_SECRET_BYTES];
    decode_side(&d, *state);
    uint64_t ticket = raw_pair(&r, &d);
    assert_int_equal(tls_session_create(&t, link_tls, TLS_CLIENT, "127.0.0.1"), ERR_OK);
    while (tls_session_pending(t) > 0 || tls_session_state(t) != TLS_UP) {
        size_t n;
        while ((n = tls_session_drain(t, bytes, 100)) > 0) send_tls(&r, bytes, n);
        if (tls_session_state(t) == TLS_UP) break;
        raw_expect(&r, KV_TLS);
        const uint8_t *theirs;
        assert_int_equal(kv_tls_unpack(&r.f.payload, &theirs, &n), ERR_OK);
        assert_int_equal(tls_session_feed(t, theirs, n), ERR_OK);
    }
    assert_int_equal(tls_session_export(t, "EXPORTER-Baton-KV-link-1", secrets, sizeof(secrets)),
                     ERR_OK);
    tls_session_free(&t);
    assert_int_equal(kv_seal_create(&r.seal_out, KV_SEALS, secrets[0]), ERR_OK);
    assert_int_equal(kv_seal_create(&r.seal_in, KV_UNSEALS, secrets[1]), ERR_OK);
    struct kv_hello hello = raw_hello(&d, ROLE_PREFILL, P_ID, ticket);
    kv_hello_pack(&r.w, &hello);
    raw_send(&r);
    raw_expect(&r, KV_HELLO);
    raw_expect(&r, KV_OK);
    kv_ok_pack(&r.w);
    raw_send(&r);
    WAIT_FOR(d.loop, fact_up, &d);
    raw_close(&r);
    side_close(&d);
}

/* After a good handshake: a hello in the clear, one with a wrong ticket, one with a wrong seal. */
static void a_hello_must_be_sealed_and_right(void **state) {
    struct side d;
    struct raw r;
    decode_side(&d, *state);
    for (int how = 0; how < 3; how++) {
        uint64_t ticket = raw_pair(&r, &d);
        raw_handshake(&r);
        struct kv_hello hello = raw_hello(&d, ROLE_PREFILL, P_ID, how == 1 ? ticket + 1 : ticket);
        kv_hello_pack(&r.w, &hello);
        kv_frame_end(&r.w, 0);
        if (how == 0)
            kv_frame_reseal(r.w.data, r.w.len, ++r.seq_out);
        else
            raw_seal(&r);
        if (how == 2) r.w.data[r.w.len - 1] ^= 1;
        raw_put(r.pair, r.w.data, r.w.len);
        WAIT_COUNT(&d, n_strangers, (uint64_t)how + 1);
        raw_close(&r);
    }
    assert_int_equal(d.n_ups, 0);
    raw_link(&r, &d);
    raw_close(&r);
    side_close(&d);
}

/* ---- frames of a link that is up */

enum tamper {
    FLIP_HEAD_TYPE,
    FLIP_HEAD_SEQ,
    FLIP_PAYLOAD,
    FLIP_TAG,
    CUT,
    REPEAT,
    SKIP,
    WRONG_KEY,
    PLAIN,
    TAMPER_COUNT
};

static void send_tampered(struct raw *r, enum tamper how, const struct kv_key *k,
                          const struct memory *from, const int32_t *table) {
    static const uint8_t wrong[KV_SEAL_SECRET_BYTES] = {9};
    struct kv_seal *right = r->seal_out;
    if (how == WRONG_KEY) assert_int_equal(kv_seal_create(&r->seal_out, KV_SEALS, wrong), ERR_OK);
    if (how == PLAIN) r->seal_out = NULL;
    raw_data(r, k, from, table, 0, 0, N);
    size_t n = r->w.len;
    if (how == FLIP_HEAD_TYPE) r->w.data[5] ^= KV_DATA ^ KV_COMMIT;
    if (how == FLIP_HEAD_SEQ) r->w.data[12] ^= 1;
    if (how == FLIP_PAYLOAD) r->w.data[KV_HEAD_BYTES + 1000] ^= 1;
    if (how == FLIP_TAG) r->w.data[n - 1] ^= 0x80;
    if (how == CUT) n -= 16;
    if (how == SKIP) raw_data(r, k, from, table, 0, 0, N);
    raw_put(r->pair, r->w.data, n);
    if (how == REPEAT) raw_put(r->pair, r->w.data, n);
    if (how == WRONG_KEY) kv_seal_destroy(&r->seal_out);
    r->seal_out = right;
}

static void any_tampering_ends_the_link(void **state) {
    for (int how = 0; how < TAMPER_COUNT; how++) {
        struct side d;
        struct raw r;
        struct memory source = {0}, before = {0};
        struct ended end = {0};
        struct kv_key key;
        int32_t tp[N], td[N];
        decode_side(&d, *state);
        raw_link(&r, &d);
        memory_fill(&source, 1);
        memory_fill(&before, 2); /* as D's */
        make_table(tp, N, 0, 3);
        make_table(td, N, 20, 5);
        kv_key_set(&key, "s1", 0, 0);
        raw_granted(&r, &d, "s1", 0, N, td, &end);
        send_tampered(&r, (enum tamper)how, &key, &source, tp);
        WAIT_FOR(d.loop, fact_done, &end);
        assert_int_equal(end.e, ERR_PEER_LOST);
        WAIT_FOR(d.loop, fact_failed, &d);
        assert_string_equal(link_text(&d), "failed : 12");
        assert_int_equal(stats_of(&d).n_corrupt, 1);
        size_t n = (size_t)LAYERS * POOL_BLOCKS * BLOCK_BYTES;
        if (how != REPEAT) assert_memory_equal(d.mem.bytes, before.bytes, n);
        kv_rx_free(&d.rx);
        free(source.bytes);
        free(before.bytes);
        raw_close(&r);
        side_close(&d);
    }
}

/* The other way round: a plain link does not take a sealed frame for a damaged one to be asked for
 * again. */
static void a_sealed_frame_on_a_plain_link_ends_it(void **state) {
    static const uint8_t secret[KV_SEAL_SECRET_BYTES] = {9};
    struct side d;
    struct raw r;
    struct memory source = {0};
    struct kv_key key;
    int32_t tp[N];
    struct tls *kept = link_tls;
    link_tls = NULL;
    decode_side(&d, *state);
    link_tls = kept;
    raw_link(&r, &d);
    memory_fill(&source, 1);
    make_table(tp, N, 0, 3);
    kv_key_set(&key, "s2", 0, 0);
    assert_int_equal(kv_seal_create(&r.seal_out, KV_SEALS, secret), ERR_OK);
    raw_send_data(&r, &key, &source, tp, 0, 0, N);
    WAIT_FOR(d.loop, fact_failed, &d);
    assert_string_equal(link_text(&d), "failed : 12");
    free(source.bytes);
    raw_close(&r);
    side_close(&d);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, loop_setup, loop_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_plain_peer_and_a_sealed_one_do_not_link),
        TEST(certificates_that_do_not_fit),
        TEST(a_common_name_in_place_of_addresses),
        TEST(the_right_certificate_heals_the_link),
        TEST(peers_without_a_right_certificate_are_refused),
        TEST(garbage_is_refused),
        TEST(a_truncated_handshake_loses_the_pair),
        TEST(a_flight_may_come_in_pieces),
        TEST(a_hello_must_be_sealed_and_right),
        TEST(any_tampering_ends_the_link),
        TEST(a_sealed_frame_on_a_plain_link_ends_it),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
