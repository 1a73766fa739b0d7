/* ctl_live: tables that are drawn again: watch and top. On what is no terminal they are printed one
 * behind the other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "common/base/clock.h"
#include "tools/ctl/ctl.h"

static void print_time(void) {
    const time_t now = time(NULL);
    struct tm tm;
    char text[32] = "";
    if (localtime_r(&now, &tm) != NULL) strftime(text, sizeof(text), "%H:%M:%S", &tm);
    printf("%s", text);
}

static bool is_own_word(const char *word, const char *flag) {
    const size_t n = strlen(flag);
    return strncmp(word, flag, n) == 0 && (word[n] == '\0' || word[n] == '=');
}

/* --every and --count stand before the command that is watched. */
int ctl_cmd_watch(struct ctl *c) {
    static char fallback[] = "status";
    char *alone[] = {fallback, NULL};
    long every_s = 2, count = 0;
    int at = 0, last = 0;
    while (at < c->argc && strncmp(c->argv[at], "--", 2) == 0) {
        const bool every = is_own_word(c->argv[at], "--every");
        if (!every && !is_own_word(c->argv[at], "--count")) break;
        const char *value = strchr(c->argv[at], '=');
        value = value != NULL ? value + 1 : at + 1 < c->argc ? c->argv[++at] : "";
        char *end;
        const long v = strtol(value, &end, 10);
        if (value[0] == '\0' || *end != '\0' || v < 1 || v > 86400)
            return ctl_fail(c, 2, "%s must be a number from 1 to 86400, got \"%s\"",
                            every ? "--every" : "--count", value);
        *(every ? &every_s : &count) = v;
        at++;
    }
    const int n = c->argc - at;
    char **words = n > 0 ? c->argv + at : alone;
    const struct ctl_command *command = ctl_find(words[0]);
    if (command != NULL &&
        ((command->kind & (CTL_RAW | CTL_LOCAL)) != 0 || command->run == ctl_cmd_top))
        return ctl_fail(c, 2, "watch %s: it is no table that can be shown again", words[0]);
    for (long i = 0; count == 0 || i < count; i++) {
        struct ctl once = *c;
        if (i > 0) ctl_sleep_ms((unsigned)every_s * 1000);
        ctl_clear();
        if (ctl_moves()) {
            printf("every %ld s: %s %s   ", every_s, c->name, words[0]);
            print_time();
            printf("\n\n");
        }
        const int rc = ctl_run_words(&once, n > 0 ? n : 1, words);
        c->tls = once.tls; /* opened once */
        if (rc == 2) return rc;
        last = rc;
        fflush(stdout);
    }
    return last; /* of the last look */
}

/* ---- top */

struct sample {
    uint64_t at_ms;
    long long finished, failed;
};

static double rate(long long now, long long then, uint64_t ms) {
    return ms > 0 && now >= then ? (double)(now - then) * 1000 / (double)ms : 0;
}

static void print_used(const struct json_value *o, const char *total, const char *free_,
                       int width) {
    char text[40];
    const long long t = ctl_num(o, total), used = t - ctl_num(o, free_);
    snprintf(text, sizeof(text), "%lld/%lld %3.0f%%", used, t,
             t > 0 ? 100.0 * (double)used / (double)t : 0);
    printf("%-*s ", width, text);
}

static void draw(const struct json_value *status, const struct sample *last,
                 const struct sample *now) {
    struct json_value *co = NULL, *arr = NULL;
    const uint64_t ms = last->at_ms != 0 ? now->at_ms - last->at_ms : 0;
    bool ready = false;
    json_get_obj(status, "coordinator", &co);
    json_get_arr(status, "instances", &arr);
    json_get_bool(co, "ready", &ready);
    ctl_clear();
    ctl_paint(ready ? "ready" : "NOT ready", 0, ready ? "ready" : "NOT ready");
    printf("   in flight %lld   queued %lld   %.1f answers/s   %.1f failed/s   ",
           ctl_num(co, "requestsInFlight"), ctl_num(co, "requestsQueued"),
           rate(now->finished, last->finished, ms), rate(now->failed, last->failed, ms));
    print_time();
    printf("\n\n%-21s %-8s %-10s %-14s %-18s %-8s %-8s %-8s %s\n", "NAME", "ROLE", "STATE", "SLOTS",
           "BLOCKS", "RUNNING", "WAITING", "LEASES", "PROMPT_TOK/S");
    for (size_t i = 0; i < json_arr_len(arr); i++) {
        const struct json_value *o = json_arr_at(arr, i);
        printf("%-21s %-8s ", ctl_str(o, "name"), ctl_str(o, "role"));
        ctl_paint(ctl_str(o, "state"), 10, ctl_str(o, "state"));
        putchar(' ');
        print_used(o, "slotsTotal", "slotsFree", 14);
        print_used(o, "blocksTotal", "blocksFree", 18);
        printf("%-8lld %-8lld %-8lld %.0f\n", ctl_num(o, "runningRequests"),
               ctl_num(o, "waitingRequests"), ctl_num(o, "kvLeases"),
               ctl_real(o, "promptTokensPerSecond"));
    }
}

int ctl_cmd_top(struct ctl *c) {
    struct sample last = {0};
    long every_s = 1, count = ctl_moves() || c->json ? 0 : 1;
    if (!ctl_number(c, "--every", 1, 3600, &every_s) ||
        !ctl_number(c, "--count", 1, 1000000, &count))
        return 2;
    if (c->json && count == 0) count = 1;
    for (long i = ctl_moves() ? 1 : 0;;
         i++) { /* the first look of a single table is for its rates */
        struct json_value *status = ctl_status(c), *co = NULL;
        if (status == NULL) return 1;
        json_get_obj(status, "coordinator", &co);
        const struct sample now = {clock_ms(), ctl_num(co, "requestsFinished"),
                                   ctl_num(co, "requestsFailed")};
        const char *text = c->json ? json_to_text(status, JSON_COMPACT, NULL) : NULL;
        if (i > 0 && c->json)
            printf("%s\n", text != NULL ? text : "null");
        else if (i > 0)
            draw(status, &last, &now);
        json_put(status);
        last = now;
        if (count > 0 && i >= count) return 0;
        ctl_sleep_ms((unsigned)every_s * 1000);
    }
}
