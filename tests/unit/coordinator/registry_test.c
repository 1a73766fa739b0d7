/* Goal: instances are found, updated and removed by their management address and id, ids follow
 * from that address and are never given twice, and "serves" is true exactly when every stage is
 * passed. Method: a small registry worked by hand; each stage of a serving instance taken away
 * alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "coordinator/registry.h"

static struct node_conf node(const char *ip, uint16_t mgmt_port) {
    struct node_conf n = {.mgmt_port = mgmt_port, .port = 1, .n_devices = 1};
    snprintf(n.ip, sizeof(n.ip), "%s", ip);
    snprintf(n.mgmt_ip, sizeof(n.mgmt_ip), "%s", ip);
    n.devices = calloc(1, sizeof(*n.devices));
    return n;
}

static struct inst *put(struct registry *r, const char *ip, uint16_t mgmt_port) {
    struct node_conf n = node(ip, mgmt_port);
    struct inst *in = registry_put(r, &n);
    assert_null(n.devices); /* taken, or freed */
    return in;
}

static void ids_and_addresses(void **state) {
    struct registry r = {0};
    (void)state;
    struct inst *a = put(&r, "127.0.0.1", 2001), *b = put(&r, "127.0.0.1", 2002),
                *c = put(&r, "127.0.0.2", 2001);
    assert_int_equal(r.n, 3);
    assert_int_equal(a->id, store_first_id("127.0.0.1:2001"));
    const uint32_t b_id = b->id;
    assert_true(a->id != b_id && a->id != c->id && b_id != c->id);
    assert_ptr_equal(registry_find(&r, b_id), b);
    assert_ptr_equal(registry_find_node(&r, "127.0.0.2", 2001), c);
    assert_null(registry_find(&r, 4));
    assert_null(registry_find_node(&r, "127.0.0.2", 2002));
    assert_ptr_equal(put(&r, "127.0.0.1", 2002), b); /* an update keeps its id */
    assert_int_equal(r.n, 3);
    registry_remove(&r, b);
    assert_null(registry_find(&r, b_id));
    struct inst *again = put(&r, "127.0.0.1", 2002);
    assert_int_equal(again->id, b_id); /* it is the same one */
    registry_remove(&r, a);
    registry_remove(&r, again);
    registry_remove(&r, c);
    assert_null(r.first);
    assert_int_equal(r.n, 0);
}

static void names(void **state) {
    struct registry r = {0};
    (void)state;
    struct inst *a = put(&r, "127.0.0.1", 2001), *b = put(&r, "127.0.0.2", 2001);
    assert_string_equal(a->address, "127.0.0.1:1");
    assert_string_equal(inst_name(a), "127.0.0.1:1"); /* it has not said another */
    assert_ptr_equal(registry_find_name(&r, "127.0.0.2:1"), b);
    snprintf(a->facts.config.instance_name, sizeof(a->facts.config.instance_name), "rack1-p0");
    assert_string_equal(inst_name(a), "rack1-p0");
    assert_ptr_equal(registry_find_name(&r, "rack1-p0"), a);
    assert_ptr_equal(registry_find_name(&r, "127.0.0.1:1"), a); /* the address stays good */
    snprintf(b->facts.config.instance_name, sizeof(b->facts.config.instance_name), "rack1-p0");
    assert_null(registry_find_name(&r, "rack1-p0")); /* which one? */
    assert_ptr_equal(registry_find_name(&r, "127.0.0.2:1"), b);
    assert_null(registry_find_name(&r, "nobody"));
    registry_remove(&r, a);
    registry_remove(&r, b);
}

/* Whoever comes first: an instance has the id of its address. */
static void order_of_arrival(void **state) {
    struct registry r = {0}, back = {0};
    (void)state;
    for (uint16_t i = 0; i < 64; i++) put(&r, "10.0.0.1", 1024 + i);
    for (uint16_t i = 64; i-- > 0;) put(&back, "10.0.0.1", 1024 + i);
    for (const struct inst *in = r.first; in != NULL; in = in->next) {
        assert_in_range(in->id, STORE_ID_MIN, STORE_ID_MAX);
        assert_string_equal(registry_find(&back, in->id)->identity, in->identity);
    }
    while (r.first != NULL) registry_remove(&r, r.first);
    while (back.first != NULL) registry_remove(&back, back.first);
}

/* What the store knows of an instance: id, place and an order; a static label is newer. */
static void from_the_store(void **state) {
    struct store_row rows[] = {
        {.identity = "10.0.0.1:2001", .id = 7, .role = ROLE_PREFILL, .group = 2, .drained = true},
        {.identity = "10.0.0.1:2002", .id = 8, .role = ROLE_PREFILL, .group = 2},
    };
    const struct store_state s = {.term = 5, .rows = rows, .n_rows = 2};
    struct registry r = {0};
    struct errbuf eb = {0};
    (void)state;
    assert_int_equal(store_memory_open(&r.store), ERR_OK);
    assert_int_equal(store_keep(r.store, &s, false, &eb), ERR_OK);
    const struct inst *a = put(&r, "10.0.0.1", 2001);
    assert_int_equal(a->id, 7);
    assert_int_equal(a->plan.place.role, ROLE_PREFILL);
    assert_int_equal(a->plan.place.group, 2);
    assert_true(a->drain.ordered && a->drain.term == 5);
    struct node_conf n = node("10.0.0.1", 2002);
    n.label = LABEL_DECODE_STATIC;
    const struct inst *b = registry_put(&r, &n);
    assert_int_equal(b->id, 8);
    assert_int_equal(b->plan.place.role, ROLE_NONE);
    assert_int_equal(b->plan.place.group, 0);
    const struct inst *c = put(&r, "10.0.0.1", 2003);
    assert_int_equal(c->plan.place.role, ROLE_NONE);
    assert_int_equal(c->drain.term, 0);
    while (r.first != NULL) registry_remove(&r, r.first);
    store_close(&r.store);
}

/* Ids outlive a coordinator, also those that another one gave by other rules. */
static void kept_ids(void **state) {
    struct registry r = {0};
    (void)state;
    struct inst *a = put(&r, "127.0.0.1", 2001), *b = put(&r, "127.0.0.1", 2002),
                *c = put(&r, "127.0.0.1", 2003);
    const uint32_t of_a = a->id, of_b = b->id, of_c = c->id;
    registry_keep_id(&r, a, of_b); /* b had it by its address only */
    assert_true(a->id == of_b && b->id == of_a && c->id == of_c);
    assert_true(registry_find(&r, of_a) == b && registry_find(&r, of_b) == a);
    registry_keep_id(&r, a, 9); /* once is enough */
    assert_int_equal(a->id, of_b);
    registry_keep_id(&r, b, of_b); /* which is taken for good */
    assert_int_equal(b->id, of_a);
    registry_keep_id(&r, c, 0); /* it has none yet */
    assert_int_equal(c->id, of_c);
    struct inst *d = put(&r, "127.0.0.1", 2004);
    registry_keep_id(&r, d, 40);
    assert_int_equal(d->id, 40);
    assert_ptr_equal(registry_find(&r, 40), d);
    registry_remove(&r, d); /* the last one: the next goes behind c */
    assert_null(registry_find(&r, 40));
    assert_ptr_equal(c->next, NULL);
    const struct inst *e = put(&r, "127.0.0.1", 2005);
    assert_ptr_equal(c->next, e);
    while (r.first != NULL) registry_remove(&r, r.first);
}

/* Two addresses with one hash: the second to come has the next id. */
static void one_hash(void **state) {
    struct registry r = {0};
    (void)state;
    struct inst *a = put(&r, "127.0.0.1", 2001);
    registry_keep_id(&r, a, store_first_id("127.0.0.1:2002"));
    const uint32_t id = put(&r, "127.0.0.1", 2002)->id;
    assert_int_equal(id, store_next_id(a->id));
    assert_int_equal(store_next_id(STORE_ID_MAX), STORE_ID_MIN);
    while (r.first != NULL) registry_remove(&r, r.first);
}

static void bounded(void **state) {
    struct registry r = {0};
    (void)state;
    for (int i = 0; i < INSTANCES_MAX; i++)
        assert_non_null(put(&r, i % 2 ? "127.0.0.1" : "127.0.0.2", (uint16_t)(1024 + i)));
    assert_null(put(&r, "127.0.0.3", 1024));
    assert_non_null(put(&r, "127.0.0.2", 1024)); /* known: no new one */
    while (r.first != NULL) registry_remove(&r, r.first);
}

static void make_serving(struct inst *in, enum inst_role role, uint32_t peer) {
    in->facts.online = true;
    in->life.state = INST_SERVING;
    in->plan.place.role = in->facts.status.role = role;
    in->facts.status.role_status = ROLE_STATUS_READY;
    in->stream = STREAM_UP;
    in->facts.status.links = calloc(2, sizeof(*in->facts.status.links));
    in->facts.status.n_links = 2;
    in->facts.status.links[0] = (struct link_status){.target = 99};
    in->facts.status.links[1] = (struct link_status){.target = peer, .ok = true};
}

static void expect(const struct inst *in, const char *stage) {
    const char *why = "?";
    assert_int_equal(inst_serves(in, &why), stage == NULL);
    assert_int_equal(inst_serves(in, NULL), stage == NULL);
    if (stage == NULL) {
        assert_null(why);
    } else {
        assert_string_equal(why, stage);
    }
}

static void stages(void **state) {
    struct registry r = {0};
    struct inst *p = put(&r, "127.0.0.1", 2001), *d = put(&r, "127.0.0.1", 2002);
    (void)state;
    expect(p, "online");
    make_serving(p, ROLE_PREFILL, d->id);
    make_serving(d, ROLE_DECODE, p->id);
    expect(p, NULL);
    expect(d, NULL);
    d->facts.online = false;
    expect(d, "online");
    d->facts.online = true;
    d->life.state = INST_FAULTY;
    expect(d, "health");
    d->life.state = INST_LEAVING;
    expect(d, "draining");
    d->life.state = INST_ROLE_POSTED;
    expect(d, "role");
    d->life.state = INST_SERVING;
    d->facts.status.role = ROLE_PREFILL;
    expect(d, "role");
    d->facts.status.role = ROLE_DECODE;
    d->plan.place.next = ROLE_PREFILL;
    expect(d, "draining");
    d->plan.place.next = ROLE_NONE;
    d->drain.why = DRAIN_ORDER;
    expect(d, "draining");
    d->drain.why = DRAIN_NONE;
    d->facts.status.role_status = ROLE_STATUS_UNKNOWN;
    expect(d, "role");
    d->facts.status.role_status =
        ROLE_STATUS_SWITCHING; /* other peers: it goes on with those it has */
    expect(d, NULL);
    d->facts.status.role_status = ROLE_STATUS_READY;
    d->facts.status.links[1].ok = false;
    expect(d, "link");
    d->facts.status.links[1].ok = true;
    d->stream = p->stream = STREAM_DOWN;
    expect(d, "dresult");
    expect(p, "dresult");
    p->stream = STREAM_NONE; /* a P of another make has none */
    expect(p, NULL);

    assert_true(inst_linked(p, d) && inst_linked(d, p));
    assert_true(inst_link_ok(p, d->id));
    assert_false(inst_link_ok(p, 99) || inst_link_ok(p, 12345));
    p->facts.status.links[1].ok = false; /* one side is not enough */
    assert_false(inst_linked(p, d) || inst_linked(d, p));
    registry_remove(&r, p);
    registry_remove(&r, d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_and_addresses), cmocka_unit_test(names),
        cmocka_unit_test(kept_ids),          cmocka_unit_test(order_of_arrival),
        cmocka_unit_test(from_the_store),    cmocka_unit_test(one_hash),
        cmocka_unit_test(bounded),           cmocka_unit_test(stages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
