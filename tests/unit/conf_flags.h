/* conf_flags: every key of a program's table has a flag and a variable of its own, which set it and
 * are named when they are wrong. For the tests of the programs' tables. Include after cmocka.h. */
#ifndef BATON_TESTS_CONF_FLAGS_H
#define BATON_TESTS_CONF_FLAGS_H

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/conf_layers.h"
#include "proto/json.h"

static void cf_env_of(char *out, size_t cap, const struct conf_names *names, const char *flag) {
    size_t n = (size_t)snprintf(out, cap, "%s", names->env_prefix);
    for (const char *p = flag + 2; *p != '\0' && n + 1 < cap; p++)
        out[n++] = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
    out[n] = '\0';
}

/* The flag gives what the row refuses: flag, key and value are in the text. */
static void cf_refused(struct conf_layers *l, const struct conf_key *k, const char *flag) {
    char bad[256];
    char prog[] = "p";
    char *argv[] = {prog, bad, NULL};
    struct errbuf eb = {0};
    bool taken = false;
    int i = 1;
    snprintf(bad, sizeof(bad), "%s=%s", flag,
             k->type == CONF_INT || k->type == CONF_F64 || k->type == CONF_BOOL ? "17x" : "%%");
    if (k->type == CONF_STR || k->type == CONF_LIST) return; /* nothing of the sort is refused */
    assert_int_equal(conf_layers_flag(l, 2, argv, &i, &taken, &eb), ERR_BAD_CONFIG);
    assert_true(taken);
    char head[256];
    snprintf(head, sizeof(head), "%s: %s must be ", flag, k->path);
    assert_true(strncmp(eb.text, head, strlen(head)) == 0);
    assert_non_null(strstr(eb.text, k->type == CONF_WORD || k->type == CONF_LOWER ||
                                            k->type == CONF_NAME || k->type == CONF_IP
                                        ? "%%"
                                        : "17x"));
}

static void cf_set_by_flag(const struct conf_names *names, const struct conf_key *k,
                           const char *flag, const char *value) {
    char arg[2048];
    char prog[] = "p";
    char *argv[] = {prog, arg, NULL};
    struct conf_layers *l = NULL;
    struct errbuf eb = {0};
    struct json_value *root = json_new_obj(), *v = NULL;
    bool taken = false;
    int i = 1;
    snprintf(arg, sizeof(arg), "%s=%s", flag, value);
    assert_int_equal(conf_layers_create(&l, names), ERR_OK);
    assert_int_equal(conf_layers_flag(l, 2, argv, &i, &taken, &eb), ERR_OK);
    assert_true(taken && i == 1 && conf_layers_any(l));
    assert_int_equal(conf_layers_apply(l, root, "f.json", &eb), ERR_OK);
    assert_int_equal(conf_find(&v, root, k->path, "", NULL), ERR_OK);
    assert_non_null(v);
    json_put(root);
    conf_layers_free(&l);
}

static void cf_set_by_env(const struct conf_names *names, const struct conf_key *k,
                          const char *flag, const char *value) {
    char env[256];
    struct conf_layers *l = NULL;
    struct errbuf eb = {0};
    struct json_value *root = json_new_obj(), *v = NULL;
    cf_env_of(env, sizeof(env), names, flag);
    setenv(env, value, 1);
    assert_int_equal(conf_layers_create(&l, names), ERR_OK);
    assert_int_equal(conf_layers_env(l, &eb), ERR_OK);
    unsetenv(env);
    assert_int_equal(conf_layers_apply(l, root, NULL, &eb), ERR_OK);
    assert_int_equal(conf_find(&v, root, k->path, "", NULL), ERR_OK);
    assert_non_null(v);
    json_put(root);
    conf_layers_free(&l);
}

static void cf_every_key(const struct conf_names *names) {
    struct conf_layers *l = NULL;
    assert_int_equal(conf_layers_create(&l, names), ERR_OK);
    for (size_t i = 0; i < names->n_keys; i++) {
        const struct conf_key *k = &names->keys[i];
        const char *flag = conf_layers_flag_name(l, i);
        assert_true(flag[strspn(flag, "abcdefghijklmnopqrstuvwxyz0123456789-")] == '\0');
        for (size_t j = 0; j < i; j++) assert_string_not_equal(flag, conf_layers_flag_name(l, j));
        const char *value = k->def[0] != '\0' ? k->def : k->type == CONF_INT ? "1" : "x";
        if (k->type == CONF_INT && k->def[0] == '\0' && k->min > 1) continue;
        cf_set_by_flag(names, k, flag, value);
        cf_set_by_env(names, k, flag, value);
        cf_refused(l, k, flag);
    }
    conf_layers_free(&l);
}

#endif
