/* line_file: lines appended to a file by a thread of its own, so that nobody waits for a disk. A
 * file that was moved away or removed is made anew within LINE_FILE_LOOK_MS, so that logs can be
 * rotated by renaming.
 *
 * Bounds: LINE_FILE_WAITING_MAX bytes wait; lines beyond are dropped and counted, as are those that
 * cannot be written; one line in the log says so, and one that it is over.
 * Thread: one writes lines; a thread of its own writes them to the file. A NULL file is fine
 * everywhere but in line_file_open(). */
#ifndef BATON_BASE_LINE_FILE_H
#define BATON_BASE_LINE_FILE_H

#include <stddef.h>
#include <stdint.h>
#include "proto/err.h"

enum { LINE_FILE_WAITING_MAX = 4 << 20, LINE_FILE_LOOK_MS = 1000 };

struct line_file;

/* The file is made with mode 0640 where there is none, and appended to. ERR_BAD_CONFIG: it cannot
 * be opened; eb begins with its path. */
enum err line_file_open(struct line_file **out, const char *path, struct errbuf *eb);
/* Writes what waits. */
void line_file_close(struct line_file **f);
/* p[0..n) with its line end; copied. */
void line_file_put(struct line_file *f, const char *p, size_t n);
uint64_t line_file_dropped(const struct line_file *f);

#endif
