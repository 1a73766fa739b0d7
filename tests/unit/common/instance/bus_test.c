/* Goal:   the few calls around nanomsg keep their word: nothing blocks, full and empty are answers,
 * ownership of messages is as said, a long message from the wire cannot hurt, a lost connection
 * shows. Method: sockets on loopback with ports the kernel picks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <poll.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/instance/bus.h"

enum { DEADLINE_MS = 10000, MESSAGE_BYTES_MAX = 4 << 20 };

static bool send_until(int sock, const void *bytes, size_t n) {
    uint64_t until = clock_ms() + DEADLINE_MS;
    void *m = bus_message_alloc(n);
    assert_non_null(m);
    memcpy(m, bytes, n);
    while (bus_send(sock, &m) != ERR_OK && clock_ms() < until) {
        assert_non_null(m); /* still ours */
        struct pollfd p = {.fd = bus_send_fd(sock), .events = POLLIN};
        poll(&p, 1, 20);
    }
    bool sent = m == NULL;
    bus_message_free(m);
    return sent;
}

static bool recv_until(int sock, void **m, size_t *n, unsigned ms) {
    uint64_t until = clock_ms() + ms;
    while (bus_recv(sock, m, n) != ERR_OK) {
        if (clock_ms() >= until) return false;
        struct pollfd p = {.fd = bus_recv_fd(sock), .events = POLLIN};
        poll(&p, 1, 20);
    }
    return true;
}

static void open_pair(int *a, int *b, uint16_t *port) {
    assert_int_equal(bus_open(a, BUS_PAIR, MESSAGE_BYTES_MAX), ERR_OK);
    assert_int_equal(bus_bind_any(*a, "127.0.0.1", port), ERR_OK);
    assert_int_equal(bus_open(b, BUS_PAIR, MESSAGE_BYTES_MAX), ERR_OK);
    assert_int_equal(bus_connect(*b, "127.0.0.1", *port), ERR_OK);
}

static void a_message_arrives_whole(void **state) {
    (void)state;
    int a, b;
    uint16_t port;
    static uint8_t sent[MESSAGE_BYTES_MAX];
    open_pair(&a, &b, &port);
    for (size_t i = 0; i < sizeof(sent); i++) sent[i] = (uint8_t)(i * 31 >> 3);
    const size_t sizes[] = {1, 16, 4096, 1 << 20, MESSAGE_BYTES_MAX};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        void *m = NULL;
        size_t n = 0;
        assert_int_equal(bus_recv(a, &m, &n), ERR_BUSY);
        assert_true(send_until(b, sent, sizes[i]));
        assert_true(recv_until(a, &m, &n, DEADLINE_MS));
        assert_int_equal(n, sizes[i]);
        assert_memory_equal(m, sent, n);
        bus_message_free(m);
    }
    bus_close(&a);
    bus_close(&b);
    assert_int_equal(a, -1);
    bus_close(&a); /* closing twice is fine */
}

static void nobody_there_is_busy_not_a_wait(void **state) {
    (void)state;
    int s;
    uint16_t port;
    assert_int_equal(bus_open(&s, BUS_PAIR, 4096), ERR_OK);
    assert_int_equal(bus_bind_any(s, "127.0.0.1", &port), ERR_OK);
    assert_true(port > 0);
    void *m = bus_message_alloc(8);
    assert_non_null(m);
    uint64_t before = clock_ms();
    assert_int_equal(bus_send(s, &m), ERR_BUSY);
    assert_non_null(m);
    assert_true(clock_ms() - before < 1000);
    bus_message_free(m);
    bus_message_free(NULL);
    bus_close(&s);
}

static void a_taken_port_is_a_conflict(void **state) {
    (void)state;
    int a, b;
    uint16_t port;
    assert_int_equal(bus_open(&a, BUS_REP, 4096), ERR_OK);
    assert_int_equal(bus_bind_any(a, "127.0.0.1", &port), ERR_OK);
    assert_int_equal(bus_open(&b, BUS_REP, 4096), ERR_OK);
    assert_int_equal(bus_bind(b, "127.0.0.1", port), ERR_CONFLICT);
    assert_int_equal(bus_bind_any(b, "no address", &port), ERR_INVALID);
    bus_close(&a);
    bus_close(&b);
}

static void a_message_over_the_limit_never_arrives(void **state) {
    (void)state;
    int a, b;
    uint16_t port;
    static uint8_t big[5000];
    void *m = NULL;
    size_t n;
    assert_int_equal(bus_open(&a, BUS_PAIR, 4096), ERR_OK);
    assert_int_equal(bus_bind_any(a, "127.0.0.1", &port), ERR_OK);
    assert_int_equal(bus_open(&b, BUS_PAIR, 4096), ERR_OK);
    assert_int_equal(bus_connect(b, "127.0.0.1", port), ERR_OK);
    assert_true(send_until(b, big, 4096));
    assert_true(recv_until(a, &m, &n, DEADLINE_MS));
    bus_message_free(m);
    assert_true(send_until(b, big, 4097)); /* accepted here, refused there */
    uint64_t until = clock_ms() + DEADLINE_MS;
    while (bus_n_broken(b) == 0 && clock_ms() < until) poll(NULL, 0, 2);
    assert_true(bus_n_broken(b) > 0); /* which is how the sender finds out */
    assert_int_equal(bus_recv(a, &m, &n), ERR_BUSY);
    bus_close(&a);
    bus_close(&b);
}

static void a_lost_connection_shows_on_both_sides(void **state) {
    (void)state;
    int a, b;
    uint16_t port;
    void *m = NULL;
    size_t n;
    open_pair(&a, &b, &port);
    assert_true(send_until(b, "x", 1));
    assert_true(recv_until(a, &m, &n, DEADLINE_MS));
    bus_message_free(m);
    assert_int_equal(bus_n_connected(a), 1);
    assert_int_equal(bus_n_broken(b), 0);

    int stranger;
    assert_int_equal(bus_open(&stranger, BUS_PAIR, 4096), ERR_OK);
    assert_int_equal(bus_connect(stranger, "127.0.0.1", port), ERR_OK);
    uint64_t until = clock_ms() + DEADLINE_MS;
    while (bus_n_broken(stranger) == 0 && clock_ms() < until) poll(NULL, 0, 2);
    assert_true(bus_n_broken(stranger) > 0); /* turned away */
    assert_int_equal(bus_n_broken(b), 0);
    assert_true(send_until(b, "y", 1)); /* and the first still talks */
    assert_true(recv_until(a, &m, &n, DEADLINE_MS));
    bus_message_free(m);
    bus_close(&stranger);

    bus_close(&b);
    while (bus_n_connected(a) > 0 && clock_ms() < until) poll(NULL, 0, 2);
    assert_int_equal(bus_n_connected(a), 0);
    bus_close(&a);
}

static void a_question_has_one_answer(void **state) {
    (void)state;
    int door, ask;
    uint16_t port;
    void *m = NULL;
    size_t n;
    assert_int_equal(bus_open(&door, BUS_REP, 4096), ERR_OK);
    assert_int_equal(bus_bind_any(door, "127.0.0.1", &port), ERR_OK);
    assert_int_equal(bus_open(&ask, BUS_REQ, 4096), ERR_OK);
    assert_int_equal(bus_connect(ask, "127.0.0.1", port), ERR_OK);
    assert_int_equal(bus_recv(ask, &m, &n), ERR_BUSY); /* nothing asked yet */
    m = bus_message_alloc(1);
    assert_int_not_equal(bus_send(door, &m), ERR_OK); /* nor to be answered */
    bus_message_free(m);
    assert_true(send_until(ask, "?", 1));
    assert_true(recv_until(door, &m, &n, DEADLINE_MS));
    bus_message_free(m);
    assert_true(send_until(door, "!", 1));
    assert_true(recv_until(ask, &m, &n, DEADLINE_MS));
    assert_memory_equal(m, "!", 1);
    bus_message_free(m);
    bus_close(&door);
    bus_close(&ask);
}

/* 512 sockets a process: the 513th is refused, and closing one makes room. */
static void running_out_of_sockets_is_an_answer(void **state) {
    (void)state;
    static int socks[600];
    int n = 0;
    while (n < 600 && bus_open(&socks[n], BUS_PAIR, 4096) == ERR_OK) n++;
    assert_true(n > 100 && n < 600);
    int one = -2;
    enum err e = bus_open(&one, BUS_PAIR, 4096);
    assert_true(e == ERR_BUSY || e == ERR_IO); /* sockets or descriptors, whichever is fewer */
    assert_int_equal(one, -1);
    bus_close(&socks[--n]);
    assert_int_equal(bus_open(&one, BUS_PAIR, 4096), ERR_OK);
    bus_close(&one);
    while (n > 0) bus_close(&socks[--n]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_arrives_whole),
        cmocka_unit_test(nobody_there_is_busy_not_a_wait),
        cmocka_unit_test(a_taken_port_is_a_conflict),
        cmocka_unit_test(a_message_over_the_limit_never_arrives),
        cmocka_unit_test(a_lost_connection_shows_on_both_sides),
        cmocka_unit_test(a_question_has_one_answer),
        cmocka_unit_test(running_out_of_sockets_is_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
