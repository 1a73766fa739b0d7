/* kept_json: the texts of kept answers, looked at and put together by their quotes and brackets
 * alone (proto/json_skim.h), for that is the loop thread's work: what was kept was checked by who
 * answered it. Pure. */
#ifndef BATON_NET_KEPT_JSON_H
#define BATON_NET_KEPT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include "common/base/buf.h"

/* A part of a text. */
struct kept_span {
    const char *p;
    size_t n; /* 0: it is not there, or null */
};

/* What a body asks of those who keep answers. */
enum { KEPT_REFERENCES_MAX = 1024 };
struct kept_body {
    bool is_object;
    bool store;
    struct kept_span previous; /* with its quotes */
    struct kept_span input;
};
void kept_body_look(struct kept_body *out, const char *body, size_t n);

/* The value of a member of an object; names as json_skim_names_init() takes them. */
struct kept_span kept_member(struct kept_span object, const char *name);

/* The elements of a list, or a text as the one element of it. */
struct kept_items {
    struct kept_span list;
    size_t at;
};
struct kept_items kept_items_of(struct kept_span list);
bool kept_items_next(struct kept_items *it, struct kept_span *item);

/* Whether an item stands for another one ({"type":"item_reference","id":..}, or an id alone), and
 * whose id that is, with its quotes. */
bool kept_is_reference(struct kept_span item, struct kept_span *id);
/* A string without its quotes and escapes; false: longer than dst, or not plain ASCII. */
bool kept_plain(char *dst, size_t dst_bytes, struct kept_span string);

/* Items of an input, or of an output, one after another with commas; *some: there are items
 * already. */
void kept_put_items(struct buf *out, struct kept_span list, bool *some);
/* An item of an input as clients are shown it: with type, id ("PREFIX_<number>_i<i>", of what names
 * none), and content as a list of parts. number: of the response. */
void kept_put_item(struct buf *out, struct kept_span item, const char *number, size_t i);
/* The id that kept_put_item() shows, without quotes. */
void kept_put_item_id(struct buf *out, struct kept_span item, const char *number, size_t i);

/* Events of a stream: the part of it from behind that many events on. */
struct kept_span kept_events_from(struct kept_span stream, size_t n_events);
/* The last event that is whole; n 0: none. */
struct kept_span kept_last_event(struct kept_span stream);
/* The response of an event of a response's state; n 0: it has none. */
struct kept_span kept_response_of(struct kept_span event);

#endif
