/* sim_abilities: a status body, or the perf of one. */
#include "tools/sim/sim_abilities.h"

#include "proto/json.h"

static enum err take(struct perf_msg *out, struct sim_times *times, const struct json_value *root,
                     struct errbuf *eb) {
    struct json_value *perf = NULL;
    if (json_get_obj(root, "perf", &perf) != JSON_OK) perf = NULL;
    const enum err e = perf_parse(out, perf != NULL ? perf : root, eb);
    if (e != ERR_OK) return e;
    if (!(perf_prompt_s(out, 1) > 0))
        return err_set(eb, ERR_INVALID, "perf.prompts: at least one measured prompt is needed");
    if (!(perf_step_s(out, 1, 1) > 0))
        return err_set(eb, ERR_INVALID, "perf.steps: at least one measured step is needed");
    return sim_times_parse(times, root, eb);
}

enum err sim_abilities_parse(struct perf_msg *out, struct sim_times *times, const char *p, size_t n,
                             struct errbuf *eb) {
    struct json_value *root = NULL;
    if (n > SIM_ABILITIES_BYTES_MAX)
        return err_set(eb, ERR_TOO_LARGE, "abilities have %zu bytes, at most %d are allowed", n,
                       SIM_ABILITIES_BYTES_MAX);
    enum err e = json_read(&root, p, n, NULL, eb);
    if (e == ERR_OK) e = take(out, times, root, eb);
    json_put(root);
    return e;
}

enum err sim_abilities_read(struct perf_msg *out, struct sim_times *times, const char *path,
                            struct errbuf *eb) {
    struct json_value *root = NULL;
    enum err e = json_read_file(&root, path, SIM_ABILITIES_BYTES_MAX, NULL, eb);
    if (e == ERR_OK) e = take(out, times, root, eb);
    json_put(root);
    return e;
}
