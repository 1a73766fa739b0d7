/* log: formats a record on the stack; writes it with one write(2), or puts it into the ring, from
 * which the writer takes whole lines, at most PIPE_BUF bytes a write(2), which a pipe does not
 * split. It never fails its caller, whose errno stays as it was. */
#include "common/base/log.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>
#include "common/base/clock.h"

enum { LOG_LINE_BYTES_MAX = 1024 };

static atomic_int sink_level = LOG_INFO;
static atomic_int sink_fd = STDERR_FILENO;

/* Bytes from tail to head, modulo its size, wait for the writer. */
static struct {
    pthread_mutex_t lock; /* held for a copy of a line, or of a few */
    pthread_cond_t more, less;
    uint64_t head, tail, untold; /* untold: lines dropped that no line tells of yet */
    bool writing;                /* the writer has bytes that are not in the ring any more */
    char data[LOG_RING_BYTES];
} ring = {.lock = PTHREAD_MUTEX_INITIALIZER};
static atomic_bool started;
static _Atomic uint64_t n_dropped;

static const struct {
    const char *name;
    enum log_level level;
} level_names[] = {
    {"debug", LOG_DEBUG},  {"verbose", LOG_DEBUG}, {"info", LOG_INFO},      {"warn", LOG_WARN},
    {"warning", LOG_WARN}, {"error", LOG_ERROR},   {"critical", LOG_ERROR}, {"fatal", LOG_ERROR},
    {"none", LOG_NONE},    {"null", LOG_NONE},     {"off", LOG_NONE},
};

void log_init(enum log_level level, int fd) {
    atomic_store(&sink_level, (int)level);
    atomic_store(&sink_fd, fd);
}

int log_level_parse(const char *name) {
    for (size_t i = 0; i < sizeof(level_names) / sizeof(level_names[0]); i++)
        if (strcasecmp(name, level_names[i].name) == 0) return (int)level_names[i].level;
    return -1;
}

/* ---- rules. `lowest` lets most lines pass, or fall, without the lock. */

static struct {
    pthread_mutex_t lock;
    struct log_rule rule[LOG_AREAS_MAX];
    size_t n;
    atomic_int lowest, highest; /* of the rules that are there; LOG_NONE and LOG_DEBUG: none is */
    atomic_bool any;
} rules = {.lock = PTHREAD_MUTEX_INITIALIZER, .lowest = LOG_NONE, .highest = LOG_DEBUG};

/* Locked. */
static void sum_up_rules(void) {
    int lowest = LOG_NONE, highest = LOG_DEBUG;
    for (size_t i = 0; i < rules.n; i++) {
        if ((int)rules.rule[i].level < lowest) lowest = (int)rules.rule[i].level;
        if ((int)rules.rule[i].level > highest) highest = (int)rules.rule[i].level;
    }
    atomic_store(&rules.lowest, lowest);
    atomic_store(&rules.highest, highest);
    atomic_store(&rules.any, rules.n > 0);
}

static void drop_rule(size_t i) {
    rules.n--;
    memmove(&rules.rule[i], &rules.rule[i + 1], (rules.n - i) * sizeof(rules.rule[0]));
    sum_up_rules();
}

static void drop_old_rules(void) {
    const uint64_t now = clock_ms();
    for (size_t i = 0; i < rules.n;) {
        if (rules.rule[i].until_ms != 0 && rules.rule[i].until_ms <= now)
            drop_rule(i);
        else
            i++;
    }
}

static const struct log_rule *rule_of(const char *area) {
    for (size_t i = 0; i < rules.n; i++)
        if (strcmp(rules.rule[i].area, area) == 0) return &rules.rule[i];
    return NULL;
}

static bool area_ok(const struct log_rule *r) {
    const size_t n = strnlen(r->area, sizeof(r->area));
    return n < sizeof(r->area) && strspn(r->area, "abcdefghijklmnopqrstuvwxyz0123456789_") == n;
}

enum err log_rule_set(const struct log_rule *rule) {
    if (!area_ok(rule) || rule->level < LOG_DEBUG || rule->level > LOG_NONE) return ERR_INVALID;
    enum err e = ERR_OK;
    pthread_mutex_lock(&rules.lock);
    drop_old_rules();
    const struct log_rule *old = rule_of(rule->area);
    if (old != NULL) drop_rule((size_t)(old - rules.rule));
    if (rules.n == LOG_AREAS_MAX)
        e = ERR_BUSY;
    else
        rules.rule[rules.n++] = *rule;
    sum_up_rules();
    pthread_mutex_unlock(&rules.lock);
    return e;
}

bool log_rule_drop(const char *area) {
    pthread_mutex_lock(&rules.lock);
    drop_old_rules();
    const struct log_rule *old = rule_of(area);
    if (old != NULL) drop_rule((size_t)(old - rules.rule));
    pthread_mutex_unlock(&rules.lock);
    return old != NULL;
}

size_t log_rules(struct log_rule out[LOG_AREAS_MAX]) {
    pthread_mutex_lock(&rules.lock);
    drop_old_rules();
    const size_t n = rules.n;
    memcpy(out, rules.rule, n * sizeof(out[0]));
    pthread_mutex_unlock(&rules.lock);
    return n;
}

/* The level of an area's lines; the rules say it. */
static int ruled_level(const char *area) {
    pthread_mutex_lock(&rules.lock);
    drop_old_rules();
    const struct log_rule *r = rule_of(area);
    if (r == NULL) r = rule_of("");
    const int level = r != NULL ? (int)r->level : atomic_load(&sink_level);
    pthread_mutex_unlock(&rules.lock);
    return level;
}

static bool area_shows(enum log_level level, const char *area) {
    const int base = atomic_load(&sink_level);
    if (!atomic_load(&rules.any)) return (int)level >= base;
    if ((int)level < base && (int)level < atomic_load(&rules.lowest)) return false;
    if ((int)level >= base && (int)level >= atomic_load(&rules.highest)) return true;
    return (int)level >= ruled_level(area);
}

enum log_level log_level(void) {
    return (enum log_level)atomic_load(&sink_level);
}

const char *log_level_name(enum log_level level) {
    static const char *const names[] = {"debug", "info", "warn", "error", "none"};
    return names[level];
}

uint64_t log_dropped(void) {
    return atomic_load(&n_dropped);
}

/* ---- the ring */

/* The whole of it, however long that takes. What cannot be written at all is gone. */
static void write_out(const char *p, size_t n) {
    while (n > 0) {
        int fd = atomic_load(&sink_fd);
        ssize_t done = write(fd, p, n);
        if (done < 0 && errno == EAGAIN) {
            struct pollfd wait = {.fd = fd, .events = POLLOUT};
            poll(&wait, 1, 1000);
        } else if (done < 0 && errno != EINTR) {
            return;
        } else if (done > 0) {
            p += done;
            n -= (size_t)done;
        }
    }
}

/* Takes whole lines of the ring, at most dst_bytes (a line or more); how many bytes. Locked. */
static size_t take_lines(char *dst, size_t dst_bytes) {
    size_t n = 0, whole = 0;
    while (n < dst_bytes && ring.tail + n < ring.head) {
        dst[n] = ring.data[(ring.tail + n) % LOG_RING_BYTES];
        if (dst[n++] == '\n') whole = n;
    }
    ring.tail += whole;
    return whole;
}

static void *writer(void *arg) {
    char lines[PIPE_BUF];
    (void)arg;
    pthread_mutex_lock(&ring.lock);
    for (;;) {
        while (ring.head == ring.tail) pthread_cond_wait(&ring.more, &ring.lock);
        size_t n = take_lines(lines, sizeof(lines));
        ring.writing = true;
        pthread_mutex_unlock(&ring.lock);
        write_out(lines, n);
        pthread_mutex_lock(&ring.lock);
        ring.writing = false;
        uint64_t untold = ring.head == ring.tail ? ring.untold : 0;
        ring.untold -= untold;
        pthread_cond_broadcast(&ring.less);
        if (untold == 0) continue;
        pthread_mutex_unlock(&ring.lock);
        log_warn("log", "event=lines_dropped n=%llu", (unsigned long long)untold);
        pthread_mutex_lock(&ring.lock);
    }
    return NULL;
}

/* True: the line is in the ring, or counted. */
static bool put(const char *line, size_t n) {
    bool full;
    pthread_mutex_lock(&ring.lock);
    if (!atomic_load(&started)) { /* forked meanwhile */
        pthread_mutex_unlock(&ring.lock);
        return false;
    }
    full = LOG_RING_BYTES - (ring.head - ring.tail) < n;
    if (full) {
        ring.untold++;
        atomic_fetch_add(&n_dropped, 1);
    } else {
        size_t at = ring.head % LOG_RING_BYTES,
               first = n < LOG_RING_BYTES - at ? n : LOG_RING_BYTES - at;
        memcpy(ring.data + at, line, first);
        memcpy(ring.data, line + first, n - first);
        ring.head += n;
        pthread_cond_signal(&ring.more);
    }
    pthread_mutex_unlock(&ring.lock);
    return true;
}

static void before_fork(void) {
    pthread_mutex_lock(&rules.lock);
    pthread_mutex_lock(&ring.lock);
}

static void after_fork(void) {
    pthread_mutex_unlock(&ring.lock);
    pthread_mutex_unlock(&rules.lock);
}

/* The child has no writer; the lines are its parent's. */
static void in_child(void) {
    atomic_store(&started, false);
    ring.head = ring.tail = ring.untold = 0;
    after_fork();
}

static void at_exit(void) {
    log_flush(LOG_FLUSH_MS);
}

void log_start(void) {
    pthread_condattr_t clock;
    pthread_attr_t detached;
    pthread_t thread;
    sigset_t all, was;
    if (atomic_load(&started)) return;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&ring.more, &clock);
    pthread_cond_init(&ring.less, &clock);
    pthread_condattr_destroy(&clock);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigfillset(&all); /* signals are for threads that look after them */
    pthread_sigmask(SIG_SETMASK, &all, &was);
    bool ok = pthread_create(&thread, &detached, writer, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    pthread_attr_destroy(&detached);
    if (!ok) {
        log_warn("log",
                 "event=no_thread why=\"a reader that has stopped will hold up the program\"");
        return;
    }
    static bool once;
    if (!once) {
        atexit(at_exit);
        pthread_atfork(before_fork, after_fork, in_child);
    }
    once = true;
    atomic_store(&started, true);
}

bool log_flush(unsigned ms) {
    struct timespec until;
    if (!atomic_load(&started)) return true;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_mutex_lock(&ring.lock);
    uint64_t all = ring.head;
    bool in_time = true;
    while (in_time && (ring.tail < all || ring.writing))
        in_time = pthread_cond_timedwait(&ring.less, &ring.lock, &until) == 0;
    pthread_mutex_unlock(&ring.lock);
    return in_time;
}

/* ---- one line */

bool log_shows(enum log_level level) {
    return level >= LOG_DEBUG && level <= LOG_ERROR &&
           ((int)level >= atomic_load(&sink_level) || (int)level >= atomic_load(&rules.lowest));
}

void log_write(enum log_level level, const char *area, const char *fmt, ...) {
    char line[LOG_LINE_BYTES_MAX];
    struct timespec ts;
    struct tm tm;
    int saved = errno;

    if (!log_shows(level) || !area_shows(level, area)) return;
    clock_gettime(CLOCK_REALTIME, &ts);
    gmtime_r(&ts.tv_sec, &tm);
    int head = snprintf(line, sizeof(line), "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ %s %.32s ",
                        tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min,
                        tm.tm_sec, (int)(ts.tv_nsec / 1000000), log_level_name(level), area);
    size_t len = (size_t)head, room = sizeof(line) - len;
    va_list ap;
    va_start(ap, fmt);
    int body = vsnprintf(line + len, room, fmt, ap);
    va_end(ap);
    if (body > 0) len += (size_t)body < room ? (size_t)body : room - 1;

    /* A value from outside must not be able to forge a second record. */
    for (size_t i = (size_t)head; i < len; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7F) line[i] = ' ';
    line[len++] = '\n'; /* takes the place of the terminator, so a cut line ends in a newline too */
    if (!atomic_load(&started) || !put(line, len)) {
        ssize_t n;
        do {
            n = write(atomic_load(&sink_fd), line, len);
        } while (n < 0 && errno == EINTR);
    }
    errno = saved;
}
