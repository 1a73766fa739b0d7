/* kernels: which sets there are and which of them this processor runs. */
#include "common/engine/kernels.h"

#include <stdio.h>
#include <string.h>
#include "common/base/log.h"
#include "common/engine/kernels_cpu.h"

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
    {"avx2", kernels_avx2, cpu_has_avx2},
    {"avx512", kernels_avx512, cpu_has_avx512},
    {"avx512vnni", kernels_avx512vnni, cpu_has_avx512vnni},
    {"avx512bf16", kernels_avx512bf16, cpu_has_avx512bf16},
    {"amx", kernels_amx, cpu_has_amx},
    {"neon", kernels_neon, cpu_has_neon},
    {"neondot", kernels_neondot, cpu_has_neondot},
    {"neoni8mm", kernels_neoni8mm, cpu_has_neoni8mm},
    {"neonbf16", kernels_neonbf16, cpu_has_neonbf16},
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
    return idx == 0 && kernels_openblas(out, NULL) == ERR_OK;
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
                 "no kernel set knows this processor's vectors (AVX2, Advanced SIMD): the plain C "
                 "kernels run, many times slower");
    return strcmp(want, "openblas") == 0 ? kernels_openblas(out, eb) : ERR_OK;
}

const char *kernels_arithmetic(const struct kernels *k, bool bf16_weights, enum dtype kv) {
    const bool own = k->f32_only || (k->own_bf16 && bf16_weights) ||
                     (k->chunk_scores != NULL && kv == DTYPE_BF16);
    return own ? k->name : "common";
}
