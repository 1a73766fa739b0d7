/* cluster_files: the objects of the two files, and how they are written and read. */
#include "coordinator/cluster_files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/whole_file.h"
#include "coordinator/coordinator.h"
#include "coordinator/process_file.h"
#include "coordinator/stand_in.h"
#include "proto/crc32c.h"
#include "proto/json.h"

enum { PATH_BYTES = 2 * COORD_PATH_BYTES };

/* ---- what is in them */

static void add_u64(struct json_value *o, const char *key, uint64_t v) {
    json_obj_set(o, key, json_new_i64((int64_t)v));
}
static void add_str(struct json_value *o, const char *key, const char *s) {
    json_obj_set(o, key, json_new_str(s));
}
static void add_bool(struct json_value *o, const char *key, bool b) {
    json_obj_set(o, key, json_new_bool(b));
}
static void add_port(struct json_value *o, const char *key, unsigned port) {
    char text[8];
    snprintf(text, sizeof(text), "%u", port);
    add_str(o, key, text);
}

/* As ASCII code. */
static unsigned role_code(enum inst_role role) {
    return role == ROLE_PREFILL ? 'P' : role == ROLE_DECODE ? 'D' : role == ROLE_FLEX ? 'F' : 'U';
}

/* One without a label prefers what it is. */
static unsigned label_of(const struct inst *in) {
    if (in->node.label >= 0) return (unsigned)in->node.label;
    return in->plan.place.role == ROLE_DECODE ? LABEL_DECODE_PREFER : LABEL_PREFILL_PREFER;
}

static bool is_initialized(const struct inst *in) {
    return inst_has_role(in) && inst_state_has_role(in->life.state);
}

static void add_ports(struct json_value *o, const struct inst *in) {
    add_port(o, "port", in->node.port);
    add_port(o, "mgmt_port", in->node.mgmt_port);
    add_port(o, "metric_port", in->node.metric_port);
    add_port(o, "inter_comm_port", in->node.inter_comm_port);
}

static struct json_value *static_json(const struct inst *in) {
    const struct config_msg *c = &in->facts.config;
    const struct status_msg *s = &in->facts.status;
    struct json_value *o = json_new_obj();
    add_u64(o, "id", in->id);
    add_u64(o, "group_id", in->plan.place.group);
    add_u64(o, "max_seq_len", c->max_seq_len);
    add_u64(o, "max_output_len", c->max_output_len);
    add_u64(o, "total_slots_num", s->total_slots);
    add_u64(o, "total_block_num", s->total_blocks);
    add_u64(o, "block_size", c->cache_block_size);
    add_u64(o, "label", label_of(in));
    add_u64(o, "role", role_code(stand_in_word(in)));
    add_u64(o, "p_percentage", s->role == ROLE_FLEX ? (uint64_t)s->p_percentage : 0);
    add_u64(o, "virtual_id", in->id);
    return o;
}

/* Of linked instances: ids, or addresses. */
static struct json_value *links_json(const struct coordinator *co, const struct inst *in, bool ok,
                                     bool addresses) {
    struct json_value *arr = json_new_arr();
    for (size_t i = 0; i < in->facts.status.n_links; i++) {
        const struct link_status *l = &in->facts.status.links[i];
        const struct inst *peer = addresses ? registry_find(&co->reg, l->target) : NULL;
        if (ok && !l->ok) continue;
        if (!addresses)
            json_arr_add(arr, json_new_i64(l->target));
        else if (peer != NULL)
            json_arr_add(arr, json_new_str(peer->node.ip));
    }
    return arr;
}

static struct json_value *dynamic_json(const struct coordinator *co, const struct inst *in,
                                       bool whole) {
    const struct status_msg *s = &in->facts.status;
    struct json_value *o = json_new_obj();
    add_u64(o, "avail_slots_num", s->avail_slots);
    add_u64(o, "avail_block_num", s->avail_blocks);
    if (!whole) return o;
    add_u64(o, "waiting_request_num", s->waiting);
    add_u64(o, "running_request_num", s->running);
    add_u64(o, "swapped_request_num", s->swapped);
    add_u64(o, "free_npu_block_nums", s->free_blocks);
    add_u64(o, "free_cpu_block_nums", 0);
    add_u64(o, "total_npu_block_nums", s->total_blocks);
    add_u64(o, "total_cpu_block_nums", 0);
    json_obj_set(o, "peers", links_json(co, in, true, false));
    return o;
}

static struct json_value *status_json(const struct coordinator *co) {
    struct json_value *root = json_new_obj(), *servers = json_new_arr(), *us = json_new_arr(),
                      *me = json_new_obj();
    for (const struct inst *in = co->reg.first; in != NULL; in = in->next) {
        struct json_value *o = json_new_obj();
        add_u64(o, "id", in->id);
        add_str(o, "ip", in->node.ip);
        add_ports(o, in);
        add_u64(o, "role", role_code(stand_in_word(in)));
        json_obj_set(o, "static_info", static_json(in));
        json_obj_set(o, "peers", links_json(co, in, true, true));
        json_obj_set(o, "dynamic_info", dynamic_json(co, in, true));
        add_bool(o, "is_faulty", in->life.state == INST_FAULTY);
        json_arr_add(servers, o);
    }
    add_str(me, "ip", co->conf.manage_ip);
    add_bool(me, "is_healthy", !co->stopping);
    json_arr_add(us, me);
    json_obj_set(root, "server", servers);
    json_obj_set(root, "coordinator", us);
    return root;
}

/* What is not in process_hash() are numbers that change all the time. */
static struct json_value *process_json(const struct coordinator *co, const struct inst *in) {
    struct json_value *o = json_new_obj(), *peers = json_new_arr();
    const uint64_t now = clock_ms();
    const uint64_t gone_ms = in->gone_since_ms;
    add_u64(o, "delete_time",
            gone_ms != 0 && gone_ms <= now ? (clock_unix_us() / 1000 - (now - gone_ms)) / 1000 : 0);
    add_u64(o, "id", in->id);
    add_str(o, "host_id", in->node.ip);
    add_str(o, "ip", in->node.ip);
    add_str(o, "mgmt_ip", in->node.mgmt_ip);
    add_ports(o, in);
    add_bool(o, "is_healthy", inst_answers(in));
    add_bool(o, "is_initialized", is_initialized(in));
    add_bool(o, "is_drained", in->drain.ordered);
    add_str(o, "inference_type", "dmi");
    add_str(o, "role_state", role_status_name(in->facts.status.role_status));
    add_u64(o, "current_role", role_code(in->plan.place.role));
    add_str(o, "model_name", in->facts.config.model_name);
    json_obj_set(o, "static_info", static_json(in));
    for (const struct inst *p = co->reg.first; p != NULL; p = p->next)
        if (p != in && plan_is_peer(in->plan.place.role, in->plan.place.group, &p->plan.place))
            json_arr_add(peers, json_new_i64(p->id));
    json_obj_set(o, "peers", peers);
    json_obj_set(o, "active_peers", links_json(co, in, true, false));
    add_bool(o, "is_distribute", false);
    json_obj_set(o, "dp_group_peers", json_new_arr());
    json_obj_set(o, "server_info_list", json_new_arr());
    json_obj_set(o, "dynamic_info", dynamic_json(co, in, false));
    add_bool(o, "is_faulty", in->life.state == INST_FAULTY);
    return o;
}

/* Of the settings that decide roles. */
static uint32_t configuration_of(const struct coord_conf *c) {
    char text[2 * COORD_PATH_BYTES];
    const int n = snprintf(text, sizeof(text), "%lld:%lld %s %d %d %s", (long long)c->p_rate,
                           (long long)c->d_rate, c->deploy_mode, c->controller_enabled,
                           c->fall_back, c->rank_table_path);
    return crc32c(0, text, n > 0 && (size_t)n < sizeof(text) ? (size_t)n : 0);
}

static struct json_value *processes_json(const struct coordinator *co) {
    struct json_value *root = json_new_obj(), *servers = json_new_arr();
    char term[24];
    snprintf(term, sizeof(term), "%" PRIu64, co->term);
    add_u64(root, "version", PROCESS_FILE_VERSION);
    add_u64(root, "configuration", configuration_of(&co->conf));
    add_str(root, "term", term);
    for (const struct inst *in = co->reg.first; in != NULL; in = in->next)
        if (!in->pushed.on) json_arr_add(servers, process_json(co, in));
    json_obj_set(root, "server", servers);
    json_obj_set(root, "processed_switch_faults", json_new_arr());
    return root;
}

/* ---- how they are written */

static void path_of(char path[PATH_BYTES], const struct coord_conf *c, const char *name) {
    snprintf(path, PATH_BYTES, "%s%s%s", name[0] == '/' ? "" : c->dir, name[0] == '/' ? "" : "/",
             name);
}

/* failed: of the time before; an error is logged once. Without its folder a file is not wanted: the
 * reference's default names one. */
static bool put(const struct coordinator *co, const char *name, const char *bytes, size_t n,
                bool *failed) {
    char path[PATH_BYTES], fresh[PATH_BYTES + 8];
    path_of(path, &co->conf, name);
    snprintf(fresh, sizeof(fresh), "%s.new", path);
    const int why = whole_replace(AT_FDCWD, fresh, path, 0640, bytes, n);
    if (why == ENOENT && !*failed)
        log_info("files", "event=no_folder file=%s", path);
    else if (why != 0 && !*failed)
        log_error("files", "event=not_written file=%s detail=\"%s\"", path, strerror(why));
    if (why == 0 && *failed) log_info("files", "event=written_again file=%s", path);
    *failed = why != 0;
    return why == 0;
}

/* Its folder is there, so that it is worth while to make it; what else forbids writing shows when
 * it is written. */
static bool is_wanted(const struct coordinator *co, const char *name, bool failed) {
    char path[PATH_BYTES];
    path_of(path, &co->conf, name);
    char *slash = strrchr(path, '/');
    if (!failed || slash == NULL || slash == path) return true;
    *slash = 0;
    return access(path, F_OK) == 0;
}

static void put_status(struct coordinator *co) {
    if (!is_wanted(co, co->conf.status_path, co->files.status_failed)) return;
    struct json_value *root = status_json(co);
    size_t n = 0;
    const char *s = json_to_text(root, JSON_COMPACT, &n);
    if (s != NULL) (void)put(co, co->conf.status_path, s, n, &co->files.status_failed);
    json_put(root);
}

/* Of one instance, all that process_json() says without numbers. */
static uint32_t process_hash(uint32_t h, const struct inst *in) {
    const struct config_msg *c = &in->facts.config;
    const struct status_msg *s = &in->facts.status;
    const struct node_conf *n = &in->node;
    const uint64_t numbers[] = {in->gone_since_ms,
                                in->id,
                                n->port,
                                n->mgmt_port,
                                n->metric_port,
                                n->inter_comm_port,
                                inst_answers(in),
                                is_initialized(in),
                                in->drain.ordered,
                                (uint64_t)s->role_status,
                                (uint64_t)in->plan.place.role,
                                in->plan.place.group,
                                c->max_seq_len,
                                c->max_output_len,
                                c->cache_block_size,
                                s->total_slots,
                                s->total_blocks,
                                label_of(in),
                                (uint64_t)stand_in_word(in),
                                s->role == ROLE_FLEX ? (uint64_t)s->p_percentage : 0,
                                in->life.state == INST_FAULTY};
    h = crc32c(h, numbers, sizeof(numbers));
    h = crc32c(h, n->ip, strlen(n->ip));
    h = crc32c(h, n->mgmt_ip, strlen(n->mgmt_ip));
    h = crc32c(h, c->model_name, strlen(c->model_name));
    for (size_t i = 0; i < s->n_links; i++)
        if (s->links[i].ok) h = crc32c(h, &s->links[i].target, sizeof(s->links[i].target));
    return h;
}

/* Of what is to be written, without making it: that costs more than all else a tick does. Peers
 * follow from roles and groups. */
static uint32_t processes_hash(const struct coordinator *co) {
    const uint64_t all[] = {co->term, configuration_of(&co->conf)};
    uint32_t h = crc32c(0, all, sizeof(all));
    for (const struct inst *in = co->reg.first; in != NULL; in = in->next)
        if (!in->pushed.on) h = process_hash(h, in);
    return h | 1; /* 0: none was written */
}

static void put_processes(struct coordinator *co) {
    struct buf b = BUF_INIT;
    size_t n = 0;
    if (!is_wanted(co, co->conf.process_path, co->files.process_failed)) return;
    const uint32_t hash = processes_hash(co);
    if (hash == co->files.written && !co->files.process_failed) return;
    struct json_value *root = processes_json(co);
    const char *s = json_to_text(root, JSON_COMPACT, &n);
    if (s != NULL) buf_append(&b, s, n);
    if (process_file_seal(&b) == ERR_OK &&
        put(co, co->conf.process_path, b.data, b.len, &co->files.process_failed))
        co->files.written = hash;
    buf_free(&b);
    json_put(root);
}

void cluster_files_tick(struct coordinator *co, uint64_t now_ms) {
    if (now_ms < co->files.next_ms) return;
    co->files.next_ms = now_ms + (uint64_t)co->conf.sync_s * 1000;
    if (co->conf.status_to_file) put_status(co);
    /* Those that register have not all come back yet: what is known of them stays. */
    const bool all_known = co->conf.rank_table_path[0] != 0 ||
                           now_ms - co->started_ms >= (uint64_t)co->conf.register_lease_s * 1000;
    if (co->conf.process_to_file && all_known) put_processes(co);
}

/* ---- how one is read */

static enum err check_nodes(const struct process_file *f, const struct rank_table *t,
                            struct errbuf *eb) {
    char(*text)[STORE_IDENTITY_BYTES] = calloc(t->n_nodes + 1, sizeof(*text));
    const char **names = calloc(t->n_nodes + 1, sizeof(*names));
    enum err e = ERR_NO_MEMORY;
    if (text != NULL && names != NULL) {
        for (size_t i = 0; i < t->n_nodes; i++) {
            snprintf(text[i], sizeof(text[i]), "%s:%u", t->nodes[i].mgmt_ip, t->nodes[i].mgmt_port);
            names[i] = text[i];
        }
        e = process_file_same_nodes(f, names, t->n_nodes, eb);
    }
    free(names);
    free(text);
    return e;
}

static enum err take(struct coordinator *co, const struct process_file *f,
                     const struct rank_table *t, struct errbuf *eb) {
    const uint32_t ours = configuration_of(&co->conf);
    if (f->configuration != ours)
        return err_set(eb, ERR_CONFLICT,
                       "the settings that decide roles were others (%08" PRIx32 ", now %08" PRIx32
                       ")",
                       f->configuration, ours);
    const enum err e = t != NULL ? check_nodes(f, t, eb) : ERR_OK;
    return e == ERR_OK ? store_keep(co->store, &f->state, false, eb) : e;
}

void cluster_files_load(struct coordinator *co, const struct rank_table *t) {
    char path[PATH_BYTES];
    struct buf b = BUF_INIT;
    struct errbuf why = {0};
    struct process_file f;
    co->files = (struct cluster_files){0, 0, false, false};
    if (!co->conf.process_to_file || co->ha != NULL || co->conf.state_dir[0] != 0) return;
    path_of(path, &co->conf, co->conf.process_path);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT) return;
    enum err e = fd >= 0 ? whole_read_own(&b, fd, PROCESS_FILE_BYTES_MAX, &why)
                         : err_set(&why, ERR_IO, "%s", strerror(errno));
    if (fd >= 0) close(fd);
    if (e == ERR_OK) e = process_file_parse(&f, b.data != NULL ? b.data : "", b.len, &why);
    if (e == ERR_OK) {
        e = take(co, &f, t, &why);
        if (e == ERR_OK)
            log_info("files", "event=loaded file=%s instances=%zu", path, f.state.n_rows);
        store_state_free(&f.state);
    }
    if (e != ERR_OK) log_error("files", "event=ignored file=%s detail=\"%s\"", path, why.text);
    buf_free(&b);
}
