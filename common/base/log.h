/* log: one line per event, "time level area key=value ...". The sink (level and descriptor) is the
 * one global of the project. Prompts, completions, keys and certificates never go into a record. */
#ifndef BATON_BASE_LOG_H
#define BATON_BASE_LOG_H

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_NONE };

void log_init(enum log_level level, int fd); /* default: LOG_INFO to stderr */
int log_level_parse(const char *name); /* "debug", "INFO", "warning", "critical"...; -1 unknown */
/* Any thread; one write(2) a line, at most 1,024 bytes. */
void log_write(enum log_level level, const char *area, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#define log_debug(area, ...) log_write(LOG_DEBUG, area, __VA_ARGS__)
#define log_info(area, ...)  log_write(LOG_INFO, area, __VA_ARGS__)
#define log_warn(area, ...)  log_write(LOG_WARN, area, __VA_ARGS__)
#define log_error(area, ...) log_write(LOG_ERROR, area, __VA_ARGS__)

#endif
