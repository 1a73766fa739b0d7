/* Goal: the two files say what is so, are rewritten as the chapter says, and another coordinator
 * starts with what the process file says, unless it is another cluster's, or others may write it.
 * Method: a real coordinator over instances of the test (fake_cluster.h), its files in a folder of
 * the test; the file is loaded into fresh stores. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "coordinator/cluster_files.h"
#include "coordinator/process_file.h"
#include "tests/unit/coordinator/fake_cluster.h"

static char dir[64] = "/tmp/cluster_files.XXXXXX", conf[512], process[128], status[128];

static int set_up(void **state) {
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(process, sizeof(process), "%s/process.json", dir);
    snprintf(status, sizeof(status), "%s/status.json", dir);
    snprintf(conf, sizeof(conf),
             "{\"pd\":{\"register_lease_s\":1,\"role_post_retry_ms\":50},"
             "\"controller\":{\"http_retries\":1,"
             "\"process_manager\":{\"to_file\":true,\"file_path\":\"%s\"},"
             "\"cluster_status\":{\"to_file\":true,\"file_path\":\"%s\"}}}",
             process, status);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    unlink(process);
    unlink(status);
    return rmdir(dir);
}

static bool exists(void *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

/* malloc'd. */
static char *contents(const char *path, size_t *n) {
    FILE *in = fopen(path, "rb");
    char *s = calloc(1, 1 << 20);
    assert_non_null(in);
    *n = fread(s, 1, (1 << 20) - 1, in);
    fclose(in);
    return s;
}

static struct json_value *json_of(const char *path) {
    struct json_value *root = NULL;
    size_t n;
    char *s = contents(path, &n);
    assert_int_equal(json_read(&root, s, n, NULL, NULL), ERR_OK);
    free(s);
    return root;
}

static int64_t num(const struct json_value *o, const char *key) {
    int64_t v = -1;
    assert_int_equal(json_get_i64(o, key, &v), JSON_OK);
    return v;
}

static bool flag(const struct json_value *o, const char *key) {
    bool b = false;
    assert_int_equal(json_get_bool(o, key, &b), JSON_OK);
    return b;
}

static const struct json_value *server(const struct json_value *root, const struct fake *f) {
    struct json_value *arr;
    assert_int_equal(json_get_arr(root, "server", &arr), JSON_OK);
    for (size_t i = 0; i < json_arr_len(arr); i++)
        if (num(json_arr_at(arr, i), "id") == f->id) return json_arr_at(arr, i);
    fail_msg("no instance %u", f->id);
    return NULL;
}

static void up(void) {
    unlink(process);
    unlink(status);
    fc_start(conf, 1, 2);
    run_until(exists, process);
    run_until(exists, status);
}

static bool drained_is_written(void *arg) {
    struct json_value *root = json_of(process);
    const bool on = flag(server(root, arg), "is_drained");
    json_put(root);
    return on;
}

static void what_they_say(void **state) {
    struct stat st;
    struct json_value *v, *info;
    (void)state;
    up();
    const struct fake *p = &fc.fakes[0], *d = &fc.fakes[1];
    assert_int_equal(stat(process, &st), 0);
    assert_int_equal(st.st_mode & 0777 & ~0640, 0);
    fc.co.files.written = 0; /* once more, now that all serve */
    fc.co.files.next_ms = 0;
    run_for(200);
    struct json_value *root = json_of(process);
    const struct json_value *o = server(root, d);
    assert_int_equal(num(o, "current_role"), 'D');
    assert_true(flag(o, "is_healthy") && flag(o, "is_initialized") && !flag(o, "is_faulty"));
    assert_int_equal(num(o, "delete_time"), 0);
    assert_int_equal(json_get_obj(o, "static_info", &info), JSON_OK);
    assert_int_equal(num(info, "group_id"), 1);
    assert_int_equal(num(info, "max_seq_len"), 1024);
    assert_int_equal(num(info, "total_slots_num"), 8);
    assert_int_equal(num(info, "block_size"), 16);
    assert_int_equal(num(info, "label"), LABEL_DECODE_STATIC);
    assert_int_equal(num(info, "role"), 'D');
    assert_int_equal(json_get_arr(o, "peers", &v), JSON_OK);
    assert_int_equal(json_arr_len(v), 1);
    int64_t peer = 0;
    assert_int_equal(json_as_i64(json_arr_at(v, 0), &peer), JSON_OK);
    assert_int_equal(peer, p->id);
    assert_int_equal(json_get_arr(server(root, p), "active_peers", &v), JSON_OK);
    assert_int_equal(json_arr_len(v), 2);
    assert_int_equal(json_get_obj(o, "dynamic_info", &info), JSON_OK);
    assert_int_equal(num(info, "avail_block_num"), 100);
    json_put(root);
    root = json_of(status);
    o = server(root, p);
    assert_int_equal(num(o, "role"), 'P');
    assert_int_equal(json_get_arr(o, "peers", &v), JSON_OK);
    assert_int_equal(json_arr_len(v), 2);
    const char *ip;
    size_t n;
    assert_int_equal(json_as_str(json_arr_at(v, 0), &ip, &n), JSON_OK);
    assert_string_equal(ip, "127.0.0.1");
    assert_int_equal(json_get_obj(o, "dynamic_info", &info), JSON_OK);
    assert_int_equal(num(info, "total_npu_block_nums"), 100);
    assert_int_equal(json_get_arr(info, "peers", &v), JSON_OK);
    assert_int_equal(json_get_arr(root, "coordinator", &v), JSON_OK);
    assert_true(flag(json_arr_at(v, 0), "is_healthy"));
    json_put(root);
    fc_close();
}

/* The process file changes with what it says, not with numbers of load. */
static void rewritten(void **state) {
    struct errbuf eb;
    size_t n, m;
    (void)state;
    up();
    run_for(1200);
    char *was = contents(process, &n);
    fc.fakes[1].used = 5;
    run_for(1500);
    assert_int_equal(fake_inst(&fc.fakes[1])->facts.status.avail_slots, 3);
    char *is = contents(process, &m);
    assert_true(n == m && memcmp(was, is, n) == 0);
    free(is);
    free(was);
    assert_int_equal(drain_order(&fc.co, fc.fakes[1].id, true, false, &eb), ERR_OK);
    run_until(drained_is_written, &fc.fakes[1]);
    /* where it cannot be written it goes on, and tries again */
    snprintf(fc.co.conf.process_path, sizeof(fc.co.conf.process_path), "%s/none/p.json", dir);
    fc.co.files.written = fc.co.files.next_ms = 0;
    run_for(200);
    assert_true(fc.co.files.process_failed && !fc.co.files.status_failed);
    snprintf(fc.co.conf.process_path, sizeof(fc.co.conf.process_path), "%s", process);
    fc.co.files.next_ms = 0;
    run_for(200);
    assert_false(fc.co.files.process_failed);
    fc_close();
}

/* How many rows a fresh store has after a load. */
static const struct store_row *loaded(const struct rank_table *t, const char *identity) {
    static struct store *fresh;
    struct coordinator *co = &fc.co;
    struct store *own = co->store;
    store_close(&fresh);
    assert_int_equal(store_memory_open(&fresh), ERR_OK);
    co->store = fresh;
    cluster_files_load(co, t);
    co->store = own;
    return identity != NULL ? store_find(fresh, identity) : (store_close(&fresh), NULL);
}

static void the_next_coordinator(void **state) {
    struct errbuf eb;
    (void)state;
    up();
    struct inst *d = fake_inst(&fc.fakes[1]);
    assert_int_equal(drain_order(&fc.co, d->id, true, false, &eb), ERR_OK);
    run_until(drained_is_written, &fc.fakes[1]);
    loop_timer_stop(&fc.co.tick); /* the file stays as it is */
    const struct store_row *row = loaded(NULL, d->identity);
    assert_non_null(row);
    assert_true(row->id == d->id && row->role == ROLE_DECODE && row->group == 1 && row->drained);
    /* of the same rank table, or another */
    struct node_conf nodes[3];
    for (int i = 0; i < 3; i++) nodes[i] = fake_inst(&fc.fakes[i])->node;
    assert_non_null(loaded(&(struct rank_table){nodes, 3}, d->identity));
    assert_null(loaded(&(struct rank_table){nodes, 2}, d->identity));
    nodes[2].mgmt_port++;
    assert_null(loaded(&(struct rank_table){nodes, 3}, d->identity));
    /* other settings; off; a state folder has the say; others may write it; damaged; a link */
    fc.co.conf.p_rate = fc.co.conf.d_rate = 3;
    assert_null(loaded(NULL, d->identity));
    fc.co.conf.p_rate = fc.co.conf.d_rate = 0;
    fc.co.conf.process_to_file = false;
    assert_null(loaded(NULL, d->identity));
    fc.co.conf.process_to_file = true;
    strcpy(fc.co.conf.state_dir, "x");
    assert_null(loaded(NULL, d->identity));
    fc.co.conf.state_dir[0] = 0;
    assert_int_equal(chmod(process, 0666), 0);
    assert_null(loaded(NULL, d->identity));
    assert_int_equal(chmod(process, 0640), 0);
    assert_non_null(loaded(NULL, d->identity));
    FILE *f = fopen(process, "r+b");
    assert_non_null(f);
    fputc('[', f);
    fclose(f);
    assert_null(loaded(NULL, d->identity));
    assert_int_equal(rename(process, status), 0);
    assert_int_equal(symlink(status, process), 0);
    assert_null(loaded(NULL, d->identity));
    (void)loaded(NULL, NULL);
    fc_close();
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_they_say), cmocka_unit_test(rewritten),
                                       cmocka_unit_test(the_next_coordinator)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
