/* log: one line per event, "time level area key=value ...". The sink (level, descriptor, ring) is
 * the one global of the project. Prompts, completions, keys and certificates never go into a
 * record.
 *
 * A program writes its lines itself until log_start(); from then on a thread does, from a ring of
 * LOG_RING_BYTES, so that nobody waits for a reader that has stopped (a pipe that is full, a
 * terminal on hold): lines that find no room are dropped and counted, and a line says so when there
 * is room again. What is in the ring at exit() is written within LOG_FLUSH_MS, or left. A child of
 * fork() writes its own lines itself. */
#ifndef BATON_BASE_LOG_H
#define BATON_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "proto/err.h"

enum { LOG_RING_BYTES = 256 * 1024, LOG_FLUSH_MS = 1000 };

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_NONE };

void log_init(enum log_level level, int fd); /* default: LOG_INFO to stderr */
int log_level_parse(const char *name); /* "debug", "INFO", "warning", "critical"...; -1 unknown */
void log_start(void);                  /* once a program; without memory for a thread: as before */
/* Waits until all lines so far are out; false: they are not, after so long. */
bool log_flush(unsigned ms);
uint64_t log_dropped(void); /* lines, since the program began */
/* For lines that are costly to make: whether one of any area would be written. */
bool log_shows(enum log_level level);

/* Another level for the lines of one area ("relay"), or of all, until a time: the areas that are
 * named go before all. */
enum { LOG_AREAS_MAX = 16, LOG_AREA_BYTES = 32 };
struct log_rule {
    char area[LOG_AREA_BYTES]; /* "": all */
    enum log_level level;
    uint64_t until_ms; /* clock_ms(); 0: as long as the process lives */
};
/* Takes the place of the rule of this area, if there is one. ERR_BUSY: LOG_AREAS_MAX others are
 * there. ERR_INVALID: the area is too long, or of other characters than a-z, 0-9 and _. Any thread,
 * as below. */
enum err log_rule_set(const struct log_rule *rule);
bool log_rule_drop(const char *area); /* false: there is none */
/* The rules that hold now, in the order of their making. */
size_t log_rules(struct log_rule out[LOG_AREAS_MAX]);
enum log_level log_level(void); /* of areas without a rule */
const char *log_level_name(enum log_level level);
/* Any thread, at most 1,024 bytes. Lines are never mixed, those of processes that share a
 * descriptor neither. */
void log_write(enum log_level level, const char *area, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#define log_debug(area, ...) log_write(LOG_DEBUG, area, __VA_ARGS__)
#define log_info(area, ...)  log_write(LOG_INFO, area, __VA_ARGS__)
#define log_warn(area, ...)  log_write(LOG_WARN, area, __VA_ARGS__)
#define log_error(area, ...) log_write(LOG_ERROR, area, __VA_ARGS__)

#endif
