/* openapi_gen: writes the description of the API that /openapi.json serves, at build time:
 * openapi_gen common/net/openapi.in.json MANNER OUT. The file has the paths, the answers and what
 * no table knows; where it says "x-parameters": FAMILY the parameters come from the reader's own
 * rows (common/endpoint/ep_rows.h; "x-early": those that are read before), so a bound here is the
 * bound that is checked. MANNER is that of paths under /v1/: mindie or openai (errorStyle). Ends
 * with 1 and a line when the file says of a parameter what the rows say, or misses an inference
 * path. */
#include <ctype.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/endpoint/ep_rows.h"
#include "proto/api.h"
#include "proto/json.h"

enum { FILE_BYTES_MAX = 1 << 20, SCHEMA_BYTES = 512 };

static bool openai; /* the manner */

static _Noreturn void give_up(const char *what, const char *which) {
    fprintf(stderr, "openapi_gen: %s: %s\n", what, which);
    exit(1);
}

static void add(struct json_value *o, const char *key, struct json_value *v) {
    if (v == NULL || json_obj_set(o, key, v) != 0) give_up("no memory for", key);
}

static struct json_value *read_text(const char *text) {
    struct json_value *v = NULL;
    struct errbuf eb = {0};
    if (json_read(&v, text, strlen(text), NULL, &eb) != ERR_OK) give_up(eb.text, text);
    return v;
}

/* ---- parameters */

/* Whole numbers without a fraction, 2^64-1 in full. */
static struct json_value *number(double d) {
    char text[40];
    if (d > 9e18) return json_new_f64_as(d, "18446744073709551615");
    /* cppcheck-suppress floatConversionOverflow ; larger ones have returned */
    int64_t whole = (int64_t)d;
    if (d == (double)whole) return json_new_i64(whole);
    snprintf(text, sizeof(text), "%.15g", d);
    return json_new_f64_as(d, text);
}

static void add_range(struct json_value *o, const struct ep_range *g) {
    if (!(g->how & R_ON)) return;
    add(o, "minimum", number(g->how & R_OR_MINUS_1 ? -1 : g->lo));
    if (g->how & R_LO_OPEN) add(o, "exclusiveMinimum", json_new_bool(true));
    if (g->hi < FLT_MAX) add(o, "maximum", number(g->hi));
    if (g->how & R_HI_OPEN) add(o, "exclusiveMaximum", json_new_bool(true));
    if (g->how & R_OR_MINUS_1) add(o, "not", read_text("{\"enum\":[0]}"));
    if (g->how & R_CONFIGURED) add(o, "x-configured", json_new_bool(true));
}

/* The schema of a row that a function reads, {hi} filled in. */
static struct json_value *checked_schema(const struct ep_row *row, const struct ep_range *g) {
    char text[SCHEMA_BYTES];
    const char *from = row->schema, *hole;
    size_t n = 0;
    while ((hole = strstr(from, "{hi}")) != NULL) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%.*s%.0f", (int)(hole - from), from,
                              g->hi);
        from = hole + 4;
    }
    if (n + strlen(from) >= sizeof(text)) give_up("too long a schema", row->key);
    strcpy(text + n, from);
    return read_text(text);
}

static struct json_value *schema_of(const struct ep_row *row, enum fam fam) {
    static const char *const types[] = {
        [T_F32] = "number",  [T_I32] = "integer",  [T_I64] = "integer",
        [T_U64] = "integer", [T_BOOL] = "boolean",
    };
    const struct ep_range *g = ep_row_range(row, fam, openai);
    struct json_value *o;
    if (row->help == NULL) give_up("nothing is said of", row->key);
    if (row->type == T_CHECK) {
        o = checked_schema(row, g);
    } else {
        o = json_new_obj();
        add(o, "type", json_new_str(types[row->type]));
    }
    add(o, "description", json_new_str(row->help));
    if (row->type != T_CHECK) add_range(o, g);
    if (row->type == T_U64 && g->how == 0) {
        add(o, "minimum", json_new_i64(0));
        add(o, "maximum", number(18446744073709551615.0));
    }
    if (row->def != NULL) add(o, "default", read_text(row->def));
    return o;
}

static void add_rows(struct json_value *properties, enum fam fam, const uint8_t *order) {
    for (; *order != P_END; order++) {
        const struct ep_row *row = &ep_rows[*order];
        if (row->key == NULL || (row->openai_only && !ep_rows_as_openai(fam, openai))) continue;
        if (json_obj_find(properties, row->key, NULL))
            give_up("the file says what a row says", row->key);
        add(properties, row->key, schema_of(row, fam));
    }
}

/* What the file calls a family; NULL: its parameters are described as another's, or by
 * proto/grpc/. */
static const char *const family_names[FAM_COUNT] = {
    [FAM_CHAT] = "chat",
    [FAM_COMPLETIONS] = "completions",
    [FAM_TGI] = "tgi",
    [FAM_VLLM] = "vllm",
    [FAM_NATIVE] = "native",
    [FAM_TRITON_TOKEN] = "triton_token",
    [FAM_TRITON_TEXT] = "triton_text",
    [FAM_ANTHROPIC] = "anthropic",
    [FAM_RESPONSES] = "responses",
    [FAM_OLLAMA_CHAT] = "ollama",
    [FAM_LLAMACPP] = "llamacpp",
};

static enum fam family_of(const char *name) {
    for (int i = 0; i < FAM_COUNT; i++)
        if (family_names[i] != NULL && strcmp(family_names[i], name) == 0) return (enum fam)i;
    give_up("no family is called", name);
}

static int n_families(void) {
    int n = 0;
    for (int i = 0; i < FAM_COUNT; i++) n += family_names[i] != NULL;
    return n;
}

/* Adds the rows of a family that `member` names, as lists has them. False: it is not there. */
static bool fill_rows(struct json_value *v, const char *member, const uint8_t *const *lists) {
    struct json_value *name, *properties;
    if (!json_obj_find(v, member, &name)) return false;
    enum fam fam = family_of(json_str(name));
    if (json_get_obj(v, "properties", &properties) != JSON_OK)
        give_up("no properties beside", member);
    add_rows(properties, fam, lists[fam]);
    json_obj_del(v, member);
    return true;
}

/* Fills every object that says "x-parameters" or "x-early"; returns how many say the first. */
static int fill_parameters(struct json_value *v) {
    int n = 0;
    if (json_is(v, json_type_array))
        for (size_t i = 0; i < json_arr_len(v); i++) n += fill_parameters(json_arr_at(v, i));
    if (!json_is(v, json_type_object)) return n;
    json_obj_foreach(v, key, child) {
        (void)key;
        n += fill_parameters(child);
    }
    fill_rows(v, "x-early", ep_early);
    return n + fill_rows(v, "x-parameters", ep_orders);
}

/* ---- errors of OpenAI's manner */

/* 422 and 424 are 400 there, an unknown model is 404. */
static void openai_responses(struct json_value *op, bool infer) {
    struct json_value *responses, *was, *now = json_new_obj();
    if (json_get_obj(op, "responses", &responses) != JSON_OK) give_up("no responses", "of a path");
    json_obj_foreach(responses, status, r) {
        const char *as = strcmp(status, "422") == 0 || strcmp(status, "424") == 0 ? "400" : status;
        bool error = json_obj_find(r, "$ref", NULL);
        if (json_obj_find(now, as, &was)) continue;
        add(now, as,
            error ? read_text("{\"$ref\":\"#/components/responses/OpenAIError\"}")
                  : read_text(json_to_text(r, JSON_COMPACT, NULL)));
        if (infer && strcmp(status, "401") == 0)
            add(now, "404", read_text("{\"$ref\":\"#/components/responses/OpenAIError\"}"));
    }
    add(op, "responses", now);
}

/* method as OpenAPI has it. */
static bool is_infer(const char *method, const char *path) {
    char model[MODEL_NAME_BYTES_MAX + 1];
    const struct api_path *row =
        strcmp(method, "post") == 0 ? api_path_find("POST", path, model) : NULL;
    return row != NULL && api_is_infer(row);
}

static void openai_paths(struct json_value *paths) {
    json_obj_foreach(paths, path, item) {
        if (api_path_errors(path) != API_ERRORS_V1 ||
            api_path_style(path, ERROR_STYLE_OPENAI) != ERROR_STYLE_OPENAI)
            continue;
        json_obj_foreach(item, method, op) {
            openai_responses(op, is_infer(method, path));
        }
    }
}

/* ---- the document */

static void check_paths(const struct json_value *paths) {
    struct json_value *item;
    char path[API_PATH_BYTES], method[16];
    for (const struct api_path *a = api_paths; a->path != NULL; a++) {
        if (a->frames == API_FRAMES_GRPC) continue; /* described by proto/grpc/ */
        api_path_format(path, sizeof(path), a, a->work == API_KEPT ? "{response_id}" : "{model}");
        for (size_t i = 0; i <= strlen(a->method); i++) method[i] = (char)tolower(a->method[i]);
        if (json_get_obj(paths, path, &item) != JSON_OK || !json_obj_find(item, method, NULL))
            give_up(a->method, path);
    }
}

static void name_manner(struct json_value *info) {
    static const char hole[] = "{manner}";
    const char *text, *at;
    char with[2048];
    size_t n;
    if (json_get_str(info, "description", &text, &n) != JSON_OK ||
        (at = strstr(text, hole)) == NULL)
        give_up("the description does not name", hole);
    n = (size_t)snprintf(with, sizeof(with), "%.*s%s%s", (int)(at - text), text,
                         openai ? "Paths under /v1/ answer in OpenAI's manner (errorStyle openai)."
                                : "Paths under /v1/ answer in the reference's manner (errorStyle "
                                  "mindie).",
                         at + strlen(hole));
    if (n >= sizeof(with)) give_up("too long", "description");
    add(info, "description", json_new_str(with));
}

int main(int argc, char **argv) {
    struct json_value *doc, *paths, *info;
    struct errbuf eb = {0};
    if (argc != 4 || (strcmp(argv[2], "mindie") != 0 && strcmp(argv[2], "openai") != 0))
        give_up("usage", "openapi_gen FILE mindie|openai OUT");
    openai = strcmp(argv[2], "openai") == 0;
    if (json_read_file(&doc, argv[1], FILE_BYTES_MAX, NULL, &eb) != ERR_OK)
        give_up(argv[1], eb.text);
    if (json_get_obj(doc, "paths", &paths) != JSON_OK ||
        json_get_obj(doc, "info", &info) != JSON_OK)
        give_up(argv[1], "no paths or no info");
    name_manner(info);
    check_paths(paths);
    if (fill_parameters(doc) != n_families()) give_up(argv[1], "not every family is in it once");
    if (openai) openai_paths(paths);
    size_t n;
    const char *text = json_to_text(doc, JSON_COMPACT, &n);
    FILE *out = fopen(argv[3], "w");
    if (text == NULL || out == NULL || fwrite(text, 1, n, out) != n || fclose(out) != 0)
        give_up("cannot write", argv[3]);
    json_put(doc);
    return 0;
}
