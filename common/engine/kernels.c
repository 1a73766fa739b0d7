/* kernels: which sets there are and which of them this processor runs. */
#include "common/engine/kernels.h"

#include <stdio.h>
#include <string.h>
#include "common/base/log.h"

#if defined(__x86_64__)
/* __builtin_cpu_supports asks the system too: the upper register halves must be saved on a switch
 * (XGETBV). */
static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
static bool has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("bmi2");
}
static bool has_avx512vnni(void) {
    return has_avx512() && __builtin_cpu_supports("avx512vnni");
}
static bool has_avx512bf16(void) {
    return has_avx512vnni() && __builtin_cpu_supports("avx512bf16");
}
#else
static bool has_avx2(void) {
    return false;
}
static bool has_avx512(void) {
    return false;
}
static bool has_avx512vnni(void) {
    return false;
}
static bool has_avx512bf16(void) {
    return false;
}
#endif

static bool always(void) {
    return true;
}

/* Slowest first; the automatic choice takes the last that runs. */
static const struct set {
    const char *name;
    const struct kernels *(*get)(void);
    bool (*runs)(void);
} sets[] = {
    {"ref", kernels_ref, always},
    {"avx2", kernels_avx2, has_avx2},
    {"avx512", kernels_avx512, has_avx512},
    {"avx512vnni", kernels_avx512vnni, has_avx512vnni},
    {"avx512bf16", kernels_avx512bf16, has_avx512bf16},
};
enum { N_SETS = sizeof(sets) / sizeof(sets[0]) };

static bool usable(int i) {
    return sets[i].runs() && sets[i].get() != NULL;
}

bool kernels_at(struct kernels *out, int idx) {
    for (int i = 0; i < N_SETS; i++) {
        if (!usable(i)) continue;
        *out = *sets[i].get();
        if (idx-- == 0) return true;
    }
    if (idx != 0) return false;
    kernels_openblas(out);
    return true;
}

/* OpenBLAS breaks the promise about rows, so it is taken by name only. */
enum err kernels_find(struct kernels *out, const char *name, struct errbuf *eb) {
    const char *want = name != NULL ? name : "auto";
    bool any = strcmp(want, "auto") == 0 || strcmp(want, "openblas") == 0, found = false;
    char list[128] = "auto, openblas";
    for (int i = 0; i < N_SETS; i++) {
        if (!usable(i)) continue;
        size_t at = strlen(list);
        snprintf(list + at, sizeof(list) - at, ", %s", sets[i].name);
        if (!any && strcmp(want, sets[i].name) != 0) continue;
        *out = *sets[i].get();
        found = true;
    }
    if (!found)
        return err_set(eb, ERR_BAD_CONFIG,
                       "kernels: \"%.32s\" is not available on this processor; there are: %s", want,
                       list);
    if (any && strcmp(out->name, "ref") == 0)
        log_warn("engine",
                 "this processor has no AVX2: the plain C kernels run, many times slower");
    if (strcmp(want, "openblas") == 0) kernels_openblas(out);
    return ERR_OK;
}
