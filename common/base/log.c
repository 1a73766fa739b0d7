/* log: formats a record on the stack and writes it with one write(2), so that lines of threads and
 * of processes that share a descriptor never mix. It buffers nothing and never fails its caller. */
#include "common/base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

enum { LOG_LINE_BYTES_MAX = 1024 };

static atomic_int sink_level = LOG_INFO;
static atomic_int sink_fd = STDERR_FILENO;

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

void log_write(enum log_level level, const char *area, const char *fmt, ...) {
    static const char *const names[] = {"debug", "info", "warn", "error"};
    char line[LOG_LINE_BYTES_MAX];
    struct timespec ts;
    struct tm tm;
    int saved = errno;

    if (level < LOG_DEBUG || level > LOG_ERROR || (int)level < atomic_load(&sink_level)) return;
    clock_gettime(CLOCK_REALTIME, &ts);
    gmtime_r(&ts.tv_sec, &tm);
    int head = snprintf(line, sizeof(line), "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ %s %.32s ",
                        tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min,
                        tm.tm_sec, (int)(ts.tv_nsec / 1000000), names[level], area);
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
    ssize_t n;
    do {
        n = write(atomic_load(&sink_fd), line, len);
    } while (n < 0 && errno == EINTR);
    errno = saved;
}
