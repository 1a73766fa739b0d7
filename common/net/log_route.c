#include "common/net/log_route.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/http_server.h"
#include "proto/api_error.h"
#include "proto/json.h"

enum { BODY_BYTES_MAX = 4096 };

static unsigned minutes_default = LOG_MINUTES_DEFAULT;

void log_route_minutes(unsigned minutes) {
    minutes_default = minutes;
}

static void reply_error(struct http_x *x, int status, const char *text) {
    char *body = api_error_body(API_ERRORS_PLAIN, ERROR_STYLE_MINDIE, &status, text, NULL, NULL);
    http_x_reply(x, status, "application/json; charset=utf-8", body != NULL ? body : "",
                 body != NULL ? strlen(body) : 0);
    free(body);
}

static void reply_rules(struct http_x *x) {
    struct log_rule rules[LOG_AREAS_MAX];
    const size_t n = log_rules(rules);
    const uint64_t now = clock_ms();
    struct buf out = BUF_INIT;
    buf_printf(&out, "{\"level\":\"%s\",\"rules\":[", log_level_name(log_level()));
    for (size_t i = 0; i < n; i++) {
        const uint64_t until = rules[i].until_ms;
        buf_printf(&out, "%s{\"area\":\"%s\",\"level\":\"%s\"", i > 0 ? "," : "", rules[i].area,
                   log_level_name(rules[i].level));
        if (until != 0)
            buf_printf(&out, ",\"seconds\":%llu",
                       (unsigned long long)(until > now ? (until - now + 999) / 1000 : 0));
        buf_putc(&out, '}');
    }
    buf_puts(&out, "]}");
    http_x_reply(x, out.failed ? 503 : 200, "application/json; charset=utf-8",
                 out.failed ? "" : out.data, out.failed ? 0 : out.len);
    buf_free(&out);
}

static enum err read_rule(struct log_rule *rule, bool *drop, const struct json_value *root,
                          struct errbuf *eb) {
    const char *level = "", *area = "";
    size_t n = 0, n_area = 0;
    int64_t minutes = minutes_default;
    *rule = (struct log_rule){0};
    if (!json_is(root, json_type_object))
        return err_set(eb, ERR_INVALID, "the body must be an object like {\"level\":\"debug\"}");
    if (json_get_str(root, "level", &level, &n) != JSON_OK ||
        (!(*drop = strcmp(level, "default") == 0) && log_level_parse(level) < 0))
        return err_set(eb, ERR_INVALID,
                       "level must be debug, info, warn, error, none or default, got \"%.40s\"",
                       level);
    const enum json_got got = json_get_str(root, "area", &area, &n_area);
    if (got != JSON_ABSENT && (got != JSON_OK || n_area >= sizeof(rule->area)))
        return err_set(eb, ERR_INVALID, "area must be a string of at most %zu characters",
                       sizeof(rule->area) - 1);
    const enum json_got when = json_get_i64(root, "minutes", &minutes);
    if ((when != JSON_ABSENT && when != JSON_OK) || minutes < 0 || minutes > LOG_MINUTES_MAX)
        return err_set(eb, ERR_INVALID, "minutes must be in [0, %d], 0 for no end",
                       LOG_MINUTES_MAX);
    memcpy(rule->area, area, n_area);
    rule->level = *drop ? LOG_INFO : (enum log_level)log_level_parse(level);
    rule->until_ms = minutes == 0 ? 0 : clock_ms() + (uint64_t)minutes * 60000;
    return ERR_OK;
}

static void on_get(void *arg, struct http_x *x, const struct route_params *p) {
    (void)arg, (void)p;
    reply_rules(x);
}

static void on_post(void *arg, struct http_x *x, const struct route_params *p) {
    (void)arg, (void)p;
    struct json_value *root = NULL;
    struct log_rule rule;
    struct errbuf eb = {0};
    bool drop = false;
    size_t n;
    const char *body = http_x_body(x, &n);
    enum err e = json_read(&root, body, n, NULL, &eb);
    if (e == ERR_OK) e = read_rule(&rule, &drop, root, &eb);
    json_put(root);
    if (e != ERR_OK) {
        reply_error(x, 422, eb.text);
        return;
    }
    if (drop) {
        log_rule_drop(rule.area);
    } else if ((e = log_rule_set(&rule)) != ERR_OK) {
        char text[120];
        snprintf(text, sizeof(text),
                 e == ERR_BUSY ? "%d areas have levels of their own already: drop one"
                               : "area must be of a-z, 0-9 and _, at most %d of them",
                 e == ERR_BUSY ? LOG_AREAS_MAX : LOG_AREA_BYTES - 1);
        reply_error(x, e == ERR_BUSY ? 429 : 422, text);
        return;
    }
    log_write(LOG_WARN, "log", "event=level area=%s level=%s", rule.area[0] != 0 ? rule.area : "*",
              drop ? "default" : log_level_name(rule.level));
    reply_rules(x);
}

const struct route log_routes[] = {
    {PLANE_MGMT, "GET", "/v1/log", on_get, 0},
    {PLANE_MGMT, "POST", "/v1/log", on_post, BODY_BYTES_MAX},
    {0},
};
