/* tls_facts: see tls_facts.h. */
#include "common/net/tls_facts.h"

#include <stdio.h>
#include <string.h>
#include "proto/json.h"

typedef char path_t[TLS_PATH_BYTES];

static void add_paths(struct json_value *o, const char *key, const path_t paths[TLS_FILES_MAX]) {
    struct json_value *arr = json_new_arr();
    for (int i = 0; i < TLS_FILES_MAX; i++)
        if (paths[i][0] != 0) json_arr_add(arr, json_new_str(paths[i]));
    json_obj_set(o, key, arr);
}

static void add_expiries(struct json_value *o, struct tls *t) {
    struct tls_expiry ends[TLS_EXPIRIES_MAX];
    struct json_value *arr = json_new_arr();
    const size_t n = t != NULL ? tls_expiries(t, ends) : 0;
    for (size_t i = 0; i < n; i++) {
        struct json_value *one = json_new_obj();
        json_obj_set(one, "file", json_new_str(ends[i].path));
        json_obj_set(one, "unixSeconds", json_new_i64(ends[i].unix_s));
        json_arr_add(arr, one);
    }
    json_obj_set(o, "expires", arr);
}

struct json_value *tls_facts_json(const char *plane, const struct tls_conf *c, struct tls *open) {
    struct json_value *o = json_new_obj();
    struct errbuf eb = {0};
    struct tls *own = NULL;
    if (open == NULL) (void)tls_open(&own, c, &eb);
    json_obj_set(o, "plane", json_new_str(plane));
    json_obj_set(o, "cert", json_new_str(c->cert));
    json_obj_set(o, "key", json_new_str(c->key));
    json_obj_set(o, "passwd", json_new_str(c->passwd));
    add_paths(o, "ca", c->ca);
    add_paths(o, "caLimited", c->ca_limited);
    add_paths(o, "crl", c->crl);
    json_obj_set(o, "verifyHost", json_new_bool(c->verify_host));
    json_obj_set(o, "peerName", json_new_str(c->peer_name));
    json_obj_set(o, "tls12", json_new_bool(c->allow_tls12));
    json_obj_set(o, "clientOptional", json_new_bool(c->client_cert_optional));
    add_expiries(o, open != NULL ? open : own);
    json_obj_set(o, "error", json_new_str(eb.text));
    tls_close(&own);
    return o;
}

static bool take_text(const struct json_value *o, const char *key, char *out, size_t cap) {
    const char *s = "";
    size_t n = 0;
    (void)json_get_str(o, key, &s, &n);
    if (n >= cap) return false;
    memcpy(out, s, n);
    out[n] = 0;
    return true;
}

static bool take_path(const struct json_value *o, const char *key, path_t out) {
    return take_text(o, key, out, TLS_PATH_BYTES);
}

static bool take_paths(const struct json_value *o, const char *key, path_t out[TLS_FILES_MAX]) {
    struct json_value *arr;
    if (json_get_arr(o, key, &arr) != JSON_OK) return true;
    if (json_arr_len(arr) > TLS_FILES_MAX) return false;
    for (size_t i = 0; i < json_arr_len(arr); i++) {
        const char *s = "";
        size_t n = 0;
        if (json_as_str(json_arr_at(arr, i), &s, &n) != JSON_OK || n >= TLS_PATH_BYTES)
            return false;
        memcpy(out[i], s, n);
        out[i][n] = 0;
    }
    return true;
}

bool tls_facts_conf(struct tls_conf *c, const struct json_value *facts) {
    memset(c, 0, sizeof(*c));
    c->names = (struct tls_names){.ca = "CA",
                                  .cert = "certificate",
                                  .key = "key",
                                  .passwd = "password",
                                  .crl = "CRL",
                                  .ca_limited = "CA of limited clients",
                                  .peer_name = "the name its peer is set to ask for"};
    (void)json_get_bool(facts, "verifyHost", &c->verify_host);
    (void)json_get_bool(facts, "tls12", &c->allow_tls12);
    (void)json_get_bool(facts, "clientOptional", &c->client_cert_optional);
    return take_text(facts, "peerName", c->peer_name, sizeof(c->peer_name)) &&
           take_path(facts, "cert", c->cert) && take_path(facts, "key", c->key) &&
           take_path(facts, "passwd", c->passwd) && take_paths(facts, "ca", c->ca) &&
           take_paths(facts, "caLimited", c->ca_limited) && take_paths(facts, "crl", c->crl);
}
