/* lfs_pointer: what stands in for a large file that Git LFS has not fetched
 * (github.com/git-lfs/git-lfs docs/spec.md). */
#ifndef BATON_BASE_LFS_POINTER_H
#define BATON_BASE_LFS_POINTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LFS_POINTER_TEXT "is a git-lfs pointer, not the file itself: git lfs pull fetches it"

static inline bool is_lfs_pointer(const uint8_t *p, size_t n) {
    static const char head[] = "version https://git-lfs.github.com/";
    return n >= sizeof(head) - 1 && memcmp(p, head, sizeof(head) - 1) == 0;
}

#endif
