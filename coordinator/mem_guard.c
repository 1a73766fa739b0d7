/* mem_guard: the limit and the use of memory from the files of the kernel, and the two marks. */
#include "coordinator/mem_guard.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REFUSE_PERCENT = 80, ADMIT_PERCENT = 60, PATH_BYTES = 1024 };

/* The number in a file of the kernel; 0: none, "max", or one that stands for no limit (version 1
 * has the largest there is, rounded to pages). */
static uint64_t limit_in(const char *root, const char *folder, const char *group,
                         const char *file) {
    char path[PATH_BYTES], text[32];
    int n = snprintf(path, sizeof(path), "%s/sys/fs/cgroup%s%s/%s", root, folder, group, file);
    if (n < 0 || (size_t)n >= sizeof(path)) return 0;
    FILE *f = fopen(path, "re");
    if (f == NULL) return 0;
    char *line = fgets(text, sizeof(text), f), *end;
    fclose(f);
    if (line == NULL) return 0;
    errno = 0;
    unsigned long long v = strtoull(line, &end, 10);
    return end == line || errno != 0 || v >= 1ULL << 62 ? 0 : v;
}

static void keep_least(uint64_t *least, uint64_t v) {
    if (v > 0 && (*least == 0 || v < *least)) *least = v;
}

/* A program in a container may see its own group as the root. */
static void look_at(uint64_t *least, const char *root, const char *folder, const char *group,
                    const char *file) {
    keep_least(least, limit_in(root, folder, group, file));
    keep_least(least, limit_in(root, folder, "", file));
}

uint64_t mem_limit_bytes(const char *root) {
    char path[PATH_BYTES], line[PATH_BYTES];
    uint64_t least = 0;
    int n = snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *f = n > 0 && (size_t)n < sizeof(path) ? fopen(path, "re") : NULL;
    if (f == NULL) return 0;
    while (fgets(line, sizeof(line), f) != NULL) { /* <number>:<controllers>:<group> */
        line[strcspn(line, "\n")] = '\0';
        char *kinds = strchr(line, ':');
        char *group = kinds != NULL ? strchr(kinds + 1, ':') : NULL;
        if (group == NULL) continue;
        *group++ = '\0';
        if (strcmp(kinds, ":") == 0)
            look_at(&least, root, "", group, "memory.max");
        else if (strcmp(kinds, ":memory") == 0)
            look_at(&least, root, "/memory", group, "memory.limit_in_bytes");
    }
    fclose(f);
    return least;
}

uint64_t mem_used_bytes(const char *root) {
    char path[PATH_BYTES];
    unsigned long long all, resident;
    int n = snprintf(path, sizeof(path), "%s/proc/self/statm", root);
    FILE *f = n > 0 && (size_t)n < sizeof(path) ? fopen(path, "re") : NULL;
    if (f == NULL) return 0;
    bool good = fscanf(f, "%llu %llu", &all, &resident) == 2;
    fclose(f);
    return good ? resident * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

bool mem_guard_look(struct mem_guard *g, uint64_t used_bytes) {
    uint64_t percent = g->full ? ADMIT_PERCENT : REFUSE_PERCENT;
    g->full = g->limit_bytes > 0 && used_bytes >= g->limit_bytes / 100 * percent;
    return g->full;
}
