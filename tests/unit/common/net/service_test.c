/* Goal: a service manager hears of a process when it is ready, what it does, that it is alive and
 * that it ends; a process that nobody listens to does nothing.
 * Method: a datagram socket of the test's own, by path and by abstract name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/net/service.h"

struct manager {
    int fd;
    char name[64]; /* as NOTIFY_SOCKET */
    struct loop *loop;
    struct service *service;
    enum service_state state;
    const char *text;
    char got[4096]; /* every message, with a ';' behind it */
};

static void listen_at(struct manager *m, bool abstract) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const struct timeval patience = {.tv_sec = 30};
    memset(m, 0, sizeof(*m));
    snprintf(m->name, sizeof(m->name), "%cbaton-notify-%d", abstract ? '@' : '/', (int)getpid());
    if (!abstract) snprintf(m->name, sizeof(m->name), "/tmp/baton-notify-%d", (int)getpid());
    memcpy(at.sun_path, m->name, strlen(m->name));
    if (abstract) at.sun_path[0] = '\0';
    m->fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    assert_true(m->fd >= 0);
    assert_int_equal(setsockopt(m->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    assert_int_equal(
        bind(m->fd, (struct sockaddr *)&at,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(m->name) + !abstract)),
        0);
    assert_int_equal(loop_create(&m->loop), ERR_OK);
}

static void leave(struct manager *m) {
    service_stop(&m->service);
    loop_destroy(&m->loop);
    close(m->fd);
    if (m->name[0] == '/') unlink(m->name);
}

static enum service_state look(void *arg, char text[SERVICE_TEXT_BYTES]) {
    struct manager *m = arg;
    snprintf(text, SERVICE_TEXT_BYTES, "%s", m->text);
    return m->state;
}

static void stop(void *arg) {
    loop_stop(((struct manager *)arg)->loop);
}

/* Lets the loop turn for a while, and takes what came. */
static void turn(struct manager *m, unsigned ms) {
    struct loop_alarm end = {0};
    char one[512];
    loop_alarm_set(m->loop, &end, ms, stop, m);
    loop_run(m->loop);
    for (ssize_t n; (n = recv(m->fd, one, sizeof(one) - 1, MSG_DONTWAIT)) > 0;) {
        one[n] = '\0';
        if (strlen(m->got) + (size_t)n + 2 > sizeof(m->got)) continue;
        strcat(m->got, one);
        strcat(m->got, ";");
    }
}

static bool heard(const struct manager *m, const char *what) {
    return strstr(m->got, what) != NULL;
}

/* Until it is heard; then what came before is forgotten. */
static void hear(struct manager *m, const char *what) {
    for (int i = 0; !heard(m, what); i++) {
        if (i == 1000) fail_msg("no \"%s\" in \"%s\"", what, m->got);
        turn(m, 30);
    }
}

static void forget(struct manager *m) {
    m->got[0] = '\0';
}

static void a_life(bool abstract) {
    struct manager m;
    struct errbuf eb = {0};
    listen_at(&m, abstract);
    setenv("NOTIFY_SOCKET", m.name, 1);
    m.text = "loading\nweights: 4%";
    assert_int_equal(service_start(&m.service, m.loop, look, &m, &eb), ERR_OK);
    assert_non_null(m.service);
    assert_null(getenv("NOTIFY_SOCKET")); /* it is not for our children */
    service_reloaded(m.service);          /* not before it is ready */
    hear(&m, "STATUS=loading weights: 4%;");
    hear(&m, "EXTEND_TIMEOUT_USEC=30000000;");
    assert_false(heard(&m, "READY") || heard(&m, "RELOADING") || heard(&m, "WATCHDOG"));
    forget(&m);
    m.state = SERVICE_READY;
    m.text = "serves";
    hear(&m, "STATUS=serves;READY=1;");
    turn(&m, 600);
    assert_null(strstr(strstr(m.got, "READY=1;") + 1, "READY=1;")); /* once */
    forget(&m);
    service_reloaded(m.service);
    hear(&m, "RELOADING=1\nMONOTONIC_USEC=");
    assert_true(heard(&m, ";READY=1;"));
    forget(&m);
    m.state = SERVICE_STOPPING;
    service_look(m.service); /* the process may not live until the next look */
    service_look(NULL);
    turn(&m, 1);
    assert_true(heard(&m, "STOPPING=1;"));
    hear(&m, "EXTEND_TIMEOUT_USEC=");
    leave(&m);
}

static void by_path(void **state) {
    (void)state;
    a_life(false);
}

static void by_abstract_name(void **state) {
    (void)state;
    a_life(true);
}

static void watched(void **state) {
    struct manager m;
    struct errbuf eb = {0};
    char pid[16];
    (void)state;
    for (int ours = 0; ours < 2; ours++) {
        listen_at(&m, true);
        m.state = SERVICE_READY;
        m.text = "";
        snprintf(pid, sizeof(pid), "%d", (int)getpid() + !ours);
        setenv("NOTIFY_SOCKET", m.name, 1);
        setenv("WATCHDOG_USEC", "100000", 1);
        setenv("WATCHDOG_PID", pid, 1);
        assert_int_equal(service_start(&m.service, m.loop, look, &m, &eb), ERR_OK);
        if (ours) hear(&m, "WATCHDOG=1;WATCHDOG=1;");
        if (!ours) turn(&m, 400);
        assert_int_equal(heard(&m, "WATCHDOG"), ours);
        assert_null(getenv("WATCHDOG_USEC"));
        assert_false(heard(&m, "STATUS"));
        leave(&m);
    }
}

static void nobody_listens(void **state) {
    struct manager m;
    struct errbuf eb = {0};
    (void)state;
    listen_at(&m, true);
    unsetenv("NOTIFY_SOCKET");
    assert_int_equal(service_start(&m.service, m.loop, look, &m, &eb), ERR_OK);
    assert_null(m.service);
    service_reloaded(m.service);
    static const char *const wrong[] = {"relative", "vsock:2:3", "/"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        setenv("NOTIFY_SOCKET", wrong[i], 1);
        assert_int_equal(service_start(&m.service, m.loop, look, &m, &eb), ERR_INVALID);
        assert_null(m.service);
        assert_non_null(strstr(eb.text, wrong[i]));
    }
    setenv("NOTIFY_SOCKET", "/nowhere/at/all", 1); /* a manager that is gone ends nobody */
    m.text = "x";
    assert_int_equal(service_start(&m.service, m.loop, look, &m, &eb), ERR_OK);
    turn(&m, 20);
    leave(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_path),
        cmocka_unit_test(by_abstract_name),
        cmocka_unit_test(watched),
        cmocka_unit_test(nobody_listens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
