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
#include "tests/unit/pace.h"

#define DEADLINE_MS pace_ms(10000)
enum { MESSAGE_BYTES_MAX = 4 << 20 };

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
    assert_int_equal(bus_open(a, MESSAGE_BYTES_MAX), ERR_OK);
    assert_int_equal(bus_bind_any(*a, "127.0.0.1", port), ERR_OK);
    assert_int_equal(bus_open(b, MESSAGE_BYTES_MAX), ERR_OK);
    assert_int_equal(bus_connect(*b, "127.0.0.1", "127.0.0.1", *port), ERR_OK);
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
    assert_int_equal(bus_open(&s, 4096), ERR_OK);
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

static void an_address_of_another_host_is_a_conflict(void **state) {
    (void)state;
    int a;
    uint16_t port;
    assert_int_equal(bus_open(&a, 4096), ERR_OK);
    assert_int_not_equal(bus_bind_any(a, "192.0.2.1", &port), ERR_OK);
    assert_int_equal(bus_bind_any(a, "no address", &port), ERR_INVALID);
    bus_close(&a);
}

/* One address may connect, then nobody; what is connected stays. */
static void a_bound_socket_admits_whom_it_is_told(void **state) {
    (void)state;
    int a, b, stranger;
    uint16_t port;
    void *m;
    size_t n;
    assert_int_equal(bus_open(&a, 4096), ERR_OK);
    assert_int_equal(bus_bind_any(a, "127.0.0.1", &port), ERR_OK);
    assert_int_equal(bus_admit("127.0.0.1", port, "127.0.0.2"), ERR_OK);
    assert_int_equal(bus_admit("127.0.0.1", port, "no address"), ERR_INVALID);
    assert_int_equal(bus_admit("127.0.0.3", port, "127.0.0.2"), ERR_NOT_FOUND);
    assert_int_equal(bus_open(&stranger, 4096), ERR_OK);
    assert_int_equal(bus_connect(stranger, "127.0.0.1", "127.0.0.1", port), ERR_OK);
    assert_int_equal(bus_open(&b, 4096), ERR_OK);
    assert_int_equal(bus_connect(b, "127.0.0.2", "127.0.0.1", port), ERR_OK);
    assert_true(send_until(b, "b", 1));
    assert_true(recv_until(a, &m, &n, DEADLINE_MS));
    assert_memory_equal(m, "b", 1);
    bus_message_free(m);
    assert_int_equal(bus_n_connected(a), 1);
    bus_close(&stranger);
    assert_int_equal(bus_admit("127.0.0.1", port, NULL), ERR_OK);
    assert_int_equal(bus_open(&stranger, 4096), ERR_OK);
    assert_int_equal(bus_connect(stranger, "127.0.0.2", "127.0.0.1", port), ERR_OK);
    assert_true(send_until(a, "a", 1));
    assert_true(recv_until(b, &m, &n, DEADLINE_MS));
    bus_message_free(m);
    assert_int_equal(bus_n_connected(stranger), 0);
    assert_int_equal(bus_n_connected(a), 1);
    bus_close(&stranger);
    bus_close(&b);
    bus_close(&a);
    assert_int_equal(bus_admit("127.0.0.1", port, NULL), ERR_NOT_FOUND);
}

static void a_message_over_the_limit_never_arrives(void **state) {
    (void)state;
    int a, b;
    uint16_t port;
    static uint8_t big[5000];
    void *m = NULL;
    size_t n;
    assert_int_equal(bus_open(&a, 4096), ERR_OK);
    assert_int_equal(bus_bind_any(a, "127.0.0.1", &port), ERR_OK);
    assert_int_equal(bus_open(&b, 4096), ERR_OK);
    assert_int_equal(bus_connect(b, "127.0.0.1", "127.0.0.1", port), ERR_OK);
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
    assert_int_equal(bus_open(&stranger, 4096), ERR_OK);
    assert_int_equal(bus_connect(stranger, "127.0.0.1", "127.0.0.1", port), ERR_OK);
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

/* 512 sockets a process: the 513th is refused, and closing one makes room. */
static void running_out_of_sockets_is_an_answer(void **state) {
    (void)state;
    static int socks[600];
    int n = 0;
    while (n < 600 && bus_open(&socks[n], 4096) == ERR_OK) n++;
    assert_true(n > 100 && n < 600);
    int one = -2;
    enum err e = bus_open(&one, 4096);
    assert_true(e == ERR_BUSY || e == ERR_IO); /* sockets or descriptors, whichever is fewer */
    assert_int_equal(one, -1);
    bus_close(&socks[--n]);
    assert_int_equal(bus_open(&one, 4096), ERR_OK);
    bus_close(&one);
    while (n > 0) bus_close(&socks[--n]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_arrives_whole),
        cmocka_unit_test(nobody_there_is_busy_not_a_wait),
        cmocka_unit_test(an_address_of_another_host_is_a_conflict),
        cmocka_unit_test(a_bound_socket_admits_whom_it_is_told),
        cmocka_unit_test(a_message_over_the_limit_never_arrives),
        cmocka_unit_test(a_lost_connection_shows_on_both_sides),
        cmocka_unit_test(running_out_of_sockets_is_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
