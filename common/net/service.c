/* service: datagrams of KEY=VALUE lines to the socket that the manager names. */
#include "common/net/service.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "common/base/clock.h"

enum { LOOK_MS = 250 };

struct service {
    struct loop_timer *timer;
    service_look_fn *look;
    void *arg;
    int fd;
    struct sockaddr_un to;
    socklen_t to_len;
    uint64_t watchdog_ms, next_watchdog_ms; /* 0: it is not watched */
    enum service_state told;                /* READY or STOPPING, once it got through */
    char text[SERVICE_TEXT_BYTES];          /* as told last */
};

static bool tell(const struct service *s, const char *text) {
    const size_t n = strlen(text);
    return sendto(s->fd, text, n, MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)&s->to,
                  s->to_len) == (ssize_t)n;
}

static void tell_text(struct service *s, const char *text) {
    char line[SERVICE_TEXT_BYTES + 16];
    if (text[0] == '\0' || strcmp(text, s->text) == 0) return;
    snprintf(line, sizeof(line), "STATUS=%s", text);
    if (tell(s, line)) snprintf(s->text, sizeof(s->text), "%s", text);
}

static void on_look(void *arg) {
    struct service *s = arg;
    char text[SERVICE_TEXT_BYTES] = "", line[64];
    const enum service_state now = s->look(s->arg, text);
    for (char *p = text; *p != '\0'; p++) /* a line of its own would be another message */
        if (*p == '\n') *p = ' ';
    tell_text(s, text);
    if (now != s->told && now == SERVICE_READY && tell(s, "READY=1")) s->told = now;
    if (now != s->told && now == SERVICE_STOPPING && tell(s, "STOPPING=1")) s->told = now;
    if (now != SERVICE_READY) {
        snprintf(line, sizeof(line), "EXTEND_TIMEOUT_USEC=%d000000", SERVICE_EXTEND_S);
        (void)tell(s, line);
    }
    const uint64_t ms = clock_ms();
    if (s->watchdog_ms == 0 || ms < s->next_watchdog_ms) return;
    if (tell(s, "WATCHDOG=1")) s->next_watchdog_ms = ms + s->watchdog_ms / 2;
}

/* A path, or "@name" of the abstract space, whose length counts. */
static bool read_socket(struct service *s, const char *name) {
    const size_t n = strlen(name);
    if (n < 2 || n >= sizeof(s->to.sun_path) || (name[0] != '/' && name[0] != '@')) return false;
    s->to.sun_family = AF_UNIX;
    memcpy(s->to.sun_path, name, n);
    if (name[0] == '@') s->to.sun_path[0] = '\0';
    s->to_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + (name[0] == '/'));
    return true;
}

/* What the manager allows between two signs of life, when it is us that it watches. */
static uint64_t watchdog_ms(void) {
    const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    if (usec == NULL || (pid != NULL && strtoll(pid, NULL, 10) != (long long)getpid())) return 0;
    char *end;
    const unsigned long long us = strtoull(usec, &end, 10);
    return *end == '\0' && end != usec && us >= 2000 ? us / 1000 : 0;
}

enum err service_start(struct service **out, struct loop *loop, service_look_fn *look, void *arg,
                       struct errbuf *eb) {
    const char *name = getenv("NOTIFY_SOCKET");
    *out = NULL;
    if (name == NULL || name[0] == '\0') return ERR_OK;
    struct service *s = calloc(1, sizeof(*s));
    if (s == NULL) return err_set(eb, ERR_NO_MEMORY, "out of memory");
    s->fd = -1;
    s->look = look;
    s->arg = arg;
    enum err e = ERR_OK;
    if (!read_socket(s, name))
        e = err_set(eb, ERR_INVALID,
                    "environment NOTIFY_SOCKET must be a path or @name of less than %zu bytes, got "
                    "\"%.120s\"",
                    sizeof(s->to.sun_path), name);
    else if ((s->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) < 0)
        e = err_set(eb, ERR_IO, "a socket for NOTIFY_SOCKET: %s", strerror(errno));
    s->watchdog_ms = watchdog_ms();
    (void)unsetenv("NOTIFY_SOCKET");
    (void)unsetenv("WATCHDOG_USEC");
    (void)unsetenv("WATCHDOG_PID");
    const uint64_t half = s->watchdog_ms / 2;
    if (e == ERR_OK &&
        (e = loop_timer_start(&s->timer, loop, 1, half > 0 && half < LOOK_MS ? half : LOOK_MS,
                              on_look, s)) != ERR_OK)
        err_set(eb, e, "no timer for NOTIFY_SOCKET: %s", err_text(e));
    *out = s;
    if (e != ERR_OK) service_stop(out);
    return e;
}

void service_look(struct service *s) {
    if (s != NULL) on_look(s);
}

void service_reloaded(struct service *s) {
    char line[64];
    if (s == NULL || s->told != SERVICE_READY) return;
    snprintf(line, sizeof(line), "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, clock_us());
    if (tell(s, line)) (void)tell(s, "READY=1");
}

void service_stop(struct service **s) {
    if (*s == NULL) return;
    loop_timer_stop(&(*s)->timer);
    if ((*s)->fd >= 0) close((*s)->fd);
    free(*s);
    *s = NULL;
}
