/* process_state: process, memory, budgets, log. */
#include "common/base/process_state.h"

#include <malloc.h>
#include <unistd.h>
#include "common/base/budget.h"
#include "common/base/build.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/proc_stat.h"
#include "proto/json.h"

static void add_u64(struct json_value *o, const char *key, uint64_t v) {
    json_obj_set(o, key, json_new_i64(v < INT64_MAX ? (int64_t)v : INT64_MAX));
}

static struct json_value *memory_json(const struct proc_stat *p) {
    const struct mallinfo2 m = mallinfo2();
    struct json_value *o = json_new_obj();
    add_u64(o, "residentBytes", p->resident_bytes);
    add_u64(o, "virtualBytes", p->virtual_bytes);
    add_u64(o, "mallocInUseBytes", m.uordblks + m.hblkhd);
    add_u64(o, "mallocFreeBytes", m.fordblks);
    return o;
}

static struct json_value *limits_json(const struct budget *b) {
    struct json_value *arr = json_new_arr();
    for (int i = 0; i < BUDGET_COUNT; i++) {
        const uint64_t limit = budget_limit(b, (enum budget_id)i);
        struct json_value *o = json_new_obj();
        json_obj_set(o, "reason", json_new_str(budget_reason((enum budget_id)i)));
        json_obj_set(o, "key", json_new_str(budget_key((enum budget_id)i)));
        if (limit != UINT64_MAX) add_u64(o, "max", limit);
        add_u64(o, "used", budget_used(b, (enum budget_id)i));
        add_u64(o, "refused", budget_refusals(b, (enum budget_id)i));
        json_arr_add(arr, o);
    }
    return arr;
}

static struct json_value *log_json(void) {
    struct log_rule rules[LOG_AREAS_MAX];
    const size_t n = log_rules(rules);
    const uint64_t now = clock_ms();
    struct json_value *o = json_new_obj(), *arr = json_new_arr();
    json_obj_set(o, "level", json_new_str(log_level_name(log_level())));
    for (size_t i = 0; i < n; i++) {
        struct json_value *r = json_new_obj();
        json_obj_set(r, "area", json_new_str(rules[i].area));
        json_obj_set(r, "level", json_new_str(log_level_name(rules[i].level)));
        if (rules[i].until_ms > now) add_u64(r, "secondsLeft", (rules[i].until_ms - now) / 1000);
        json_arr_add(arr, r);
    }
    json_obj_set(o, "rules", arr);
    add_u64(o, "droppedLines", log_dropped());
    return o;
}

struct json_value *process_state(const struct budget *b) {
    struct proc_stat p;
    struct json_value *o = json_new_obj(), *fds = json_new_obj();
    proc_stat_read(&p);
    add_u64(o, "pid", (uint64_t)getpid());
    json_obj_set(o, "commit", json_new_str(build_commit()));
    json_obj_set(o, "unixSeconds", json_new_f64((double)clock_unix_us() * 1e-6));
    json_obj_set(o, "cpuSeconds", json_new_f64(p.cpu_s));
    add_u64(o, "threads", p.threads);
    json_obj_set(o, "memory", memory_json(&p));
    add_u64(fds, "open", p.fds_open);
    add_u64(fds, "max", p.fds_max);
    json_obj_set(o, "descriptors", fds);
    json_obj_set(o, "limits", limits_json(b));
    json_obj_set(o, "log", log_json());
    return o;
}
