/* alloc_fault: a program that includes this owns malloc, calloc, realloc and free, counts what they
 * give and can make the n-th one fail. Included by one file of a program. The sanitizers own malloc
 * themselves: there OWN_MALLOC is 0, nothing else is declared, and tests that need it are left out.
 */
#ifndef BATON_TESTS_ALLOC_FAULT_H
#define BATON_TESTS_ALLOC_FAULT_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWN_MALLOC 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define OWN_MALLOC 0
#endif
#endif
#ifndef OWN_MALLOC
#define OWN_MALLOC 1
#endif

#if OWN_MALLOC
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void __libc_free(void *p);

/* Of the calling thread; other threads' allocations never fail. */
static _Thread_local struct {
    bool armed, hit, once;
    int left;  /* allocations that still succeed once it is armed */
    long live; /* given minus freed by this thread */
} alloc_fault;
static atomic_long allocs_taken; /* by all threads, failed ones too */
/* The next calloc of items of this size fails, on whatever thread; then it is 0 again. */
static atomic_size_t alloc_fault_item;

/* From now on this thread's allocations fail, but for the first n. */
static inline void alloc_fault_after(int n) {
    alloc_fault.left = n;
    alloc_fault.hit = alloc_fault.once = false;
    alloc_fault.armed = true;
}
/* Only the one behind the first n fails. */
static inline void alloc_fault_once(int n) {
    alloc_fault_after(n);
    alloc_fault.once = true;
}
/* None fails any more. True: one did. */
static inline bool alloc_fault_end(void) {
    alloc_fault.armed = false;
    return alloc_fault.hit;
}

static void *alloc_given(void *p) {
    alloc_fault.live += p != NULL;
    return p;
}
static bool alloc_fails(void) {
    allocs_taken++;
    if (!alloc_fault.armed || alloc_fault.left-- > 0) return false;
    alloc_fault.hit = true;
    if (alloc_fault.once) alloc_fault.armed = false;
    return true;
}
void *malloc(size_t n) {
    return alloc_fails() ? NULL : alloc_given(__libc_malloc(n));
}
void *calloc(size_t n, size_t size) {
    size_t item = size;
    if (size != 0 && atomic_compare_exchange_strong(&alloc_fault_item, &item, 0)) return NULL;
    return alloc_fails() ? NULL : alloc_given(__libc_calloc(n, size));
}
void *realloc(void *p, size_t n) {
    if (p == NULL) return malloc(n);
    return alloc_fails() ? NULL : __libc_realloc(p, n);
}
void free(void *p) {
    alloc_fault.live -= p != NULL;
    __libc_free(p);
}
#endif
#endif
