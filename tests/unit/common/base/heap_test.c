/* Goal: what malloc's heap grows by is told to the kernel as memory for large pages. Method: grow
 * it piece by piece, and read the flags of the mapping that the last piece lies in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/base/heap.h"

/* Whether the mapping around p has the flag that MADV_HUGEPAGE sets. */
static bool is_advised(const void *p) {
    FILE *f = fopen("/proc/self/smaps", "r");
    char line[512];
    bool here = false, is = false;
    assert_non_null(f);
    while (fgets(line, sizeof(line), f) != NULL) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            here = (uintptr_t)p >= from && (uintptr_t)p < to;
        if (here && strncmp(line, "VmFlags:", 8) == 0) is = strstr(line, " hg") != NULL;
    }
    fclose(f);
    return is;
}

static void the_heap_is_told_of(void **state) {
    (void)state;
    enum { PIECE = 60000, PIECES = 1000 };
    struct heap_pages h = {0};
    void *pieces[PIECES];
    heap_pages_follow(&h); /* not opened: nothing */
    heap_pages_open(&h);
    const char *begin = sbrk(0);
    for (int i = 0; i < PIECES; i++) {
        assert_non_null(pieces[i] = malloc(PIECE));
        heap_pages_follow(&h);
    }
    const char *end = sbrk(0);
    if (access("/sys/kernel/mm/transparent_hugepage", F_OK) != 0 || end == begin)
        print_message("skipped: no large pages, or another malloc\n");
    else
        assert_true(is_advised(end - 1));
    for (int i = 0; i < PIECES; i++) free(pieces[i]);
    heap_pages_follow(&h);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_heap_is_told_of)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
