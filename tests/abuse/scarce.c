/* scarce: a library that a test puts before a daemon's own (LD_PRELOAD). As the control file named
 * by SCARCE says, which the test may write at any time, allocations fail (the n-th from now, or one
 * of so many, by a sequence that the seed decides) and the n-th thread is not made. What is asked
 * for by the libraries listed in `spared` never fails: nanomsg and the loader end the process when
 * it does, libcurl (7.88) divides by the size of a table that it could not make. Nor does nanomsg
 * lack threads. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The control file; scarce.py has the same. */
struct control {
    _Atomic uint64_t nth, one_in, seed; /* 0: none; nth counts down */
    _Atomic uint64_t thread;            /* 0: none; counts down */
    _Atomic uint64_t n_calls, n_failed, n_threads;
};
enum { SPARED_MAX = 8 };

static struct control none, *control = &none;
static const char *const spared[] = {"libnanomsg", "libcurl", "ld-linux"};
static struct { uintptr_t first, end; } ranges[SPARED_MAX];
static int n_ranges;

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

static int look(struct dl_phdr_info *info, size_t size, void *arg) {
    (void)size, (void)arg;
    for (size_t i = 0; i < sizeof(spared) / sizeof(spared[0]); i++) {
        if (strstr(info->dlpi_name, spared[i]) == NULL || n_ranges == SPARED_MAX) continue;
        uintptr_t first = UINTPTR_MAX, end = 0;
        for (int h = 0; h < info->dlpi_phnum; h++) {
            const ElfW(Phdr) *p = &info->dlpi_phdr[h];
            if (p->p_type != PT_LOAD) continue;
            uintptr_t at = info->dlpi_addr + p->p_vaddr;
            if (at < first) first = at;
            if (at + p->p_memsz > end) end = at + p->p_memsz;
        }
        ranges[n_ranges].first = first;
        ranges[n_ranges++].end = end;
    }
    return 0;
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("SCARCE");
    int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *at = (void *)syscall(SYS_mmap, NULL, sizeof(struct control), PROT_READ | PROT_WRITE,
                               MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED) return;
    dl_iterate_phdr(look, NULL);
    control = at;
}

static uint64_t mix(uint64_t v) {
    v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9u;
    v = (v ^ (v >> 27)) * 0x94d049bb133111ebu;
    return v ^ (v >> 31);
}

static bool is_spared(const void *caller) {
    for (int i = 0; i < n_ranges; i++)
        if ((uintptr_t)caller - ranges[i].first < ranges[i].end - ranges[i].first) return true;
    return false;
}

static bool fails(const void *caller) {
    struct control *c = control;
    uint64_t call = atomic_fetch_add(&c->n_calls, 1), nth = atomic_load(&c->nth),
             one_in = atomic_load(&c->one_in);
    if ((nth == 0 && one_in == 0) || is_spared(caller)) return false;
    bool hit = nth > 0 && atomic_fetch_sub(&c->nth, 1) == 1;
    if (one_in > 0 && mix(call + (atomic_load(&c->seed) << 32)) % one_in == 0) hit = true;
    if (!hit) return false;
    atomic_fetch_add(&c->n_failed, 1);
    errno = ENOMEM;
    return true;
}
#define FAILS() fails(__builtin_return_address(0))

void *malloc(size_t n) {
    return FAILS() ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size) {
    return FAILS() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n) {
    return n > 0 && FAILS() ? NULL : __libc_realloc(p, n);
}

/* Memory of its own, not a file's: as heap_take() asks for it. */
void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset) {
    if ((flags & MAP_ANONYMOUS) != 0 && FAILS()) return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, n, prot, flags, fd, offset);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg) {
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    atomic_fetch_add(&control->n_threads, 1);
    if (!is_spared(__builtin_return_address(0)) && atomic_load(&control->thread) > 0 &&
        atomic_fetch_sub(&control->thread, 1) == 1)
        return EAGAIN;
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    return real(thread, attr, fn, arg);
}
