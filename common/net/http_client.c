/* http_client: libcurl's multi interface driven by the loop. libcurl calls back from deep inside
 * itself and forbids most calls there, so what a caller starts or cancels from such a callback is
 * done when libcurl has returned. */
#include "common/net/http_client.h"

#define CURL_DISABLE_DEPRECATION /* curl_multi_socket_all() has no other name */
#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/net/tls.h"
#include "proto/api.h"

enum {
    HEARTBEAT_MS = 1000,
    CONNECT_MS_DEFAULT = 5000,
    BODY_BYTES_MAX_DEFAULT = 16 * 1024 * 1024,
    IDLE_CONNECTIONS_MAX = 1024,
    /* What is smaller goes out with the head in one send; what is larger is read piece by piece, as
     * the connection takes it. */
    WHOLE_BODY_BYTES_MAX = 64 * 1024,
};

enum call_state {
    CALL_NEW, /* to be handed to libcurl once it is not on the stack */
    CALL_RUNNING,
    CALL_CANCELLED, /* to be freed once libcurl is not on the stack */
    CALL_ENDED,     /* on_done is running */
};

struct http_call {
    struct http_client *client;
    struct http_call *prev, *next;
    enum call_state state;
    CURL *easy;
    struct curl_slist *headers;
    struct http_call_opts opts; /* pointers into caller's memory are not kept */
    struct buf body;
    /* what is sent, in this order, of which sent_bytes are gone */
    const char *lent;
    struct buf own;
    size_t n_lent, sent_bytes;
    enum err failure; /* why a callback of ours ended the transfer */
    bool connected, headers_reported;
    bool starved; /* no memory to watch its socket: to be ended once libcurl is not on the stack */
    struct loop_alarm silence;
    uint64_t last_byte_ms;
    struct tls_expected *expected; /* of the server's certificate; NULL: as libcurl checks it */
    char detail[CURL_ERROR_SIZE];
};

struct http_client {
    struct loop *loop;
    CURLM *multi;
    struct loop_alarm timer;
    struct loop_timer *heartbeat;
    bool lost; /* for want of memory: a timer, or libcurl's own note of a socket */
    struct http_call *calls;
    char *user_agent;
    int in_curl;   /* libcurl is on the stack */
    bool deferred; /* a call is NEW, CANCELLED or starved */
    bool closing;
};

struct watch {
    struct http_client *client;
    struct loop_fd *w;
};

static void call_unlink(struct http_call *call) {
    if (call->prev != NULL)
        call->prev->next = call->next;
    else
        call->client->calls = call->next;
    if (call->next != NULL) call->next->prev = call->prev;
}

static void call_free(struct http_call *call) {
    loop_alarm_stop(&call->silence);
    if (call->easy != NULL) curl_easy_cleanup(call->easy);
    tls_close(&call->opts.tls);
    curl_slist_free_all(call->headers);
    buf_free(&call->body);
    buf_free(&call->own);
    free(call->expected);
    free(call);
}

/* Takes the call out of libcurl and of the list. libcurl must not be on the stack. */
static void call_detach(struct http_call *call) {
    struct http_client *c = call->client;
    if (call->state != CALL_NEW) {
        c->in_curl++;
        curl_multi_remove_handle(c->multi, call->easy);
        c->in_curl--;
    }
    loop_alarm_stop(&call->silence);
    call_unlink(call);
}

static void call_end(struct http_call *call, enum err err, const char *detail) {
    struct http_result r = {
        .err = err, .connected = call->connected, .content_type = "", .body = ""};
    struct curl_header *cause;
    long status = 0;
    char *type = NULL;
    r.detail = detail;
    call_detach(call);
    call->state = CALL_ENDED;
    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(call->easy, CURLINFO_CONTENT_TYPE, &type);
    r.status = (int)status;
    if (type != NULL) r.content_type = type;
    if (curl_easy_header(call->easy, CAUSE_HEADER, 0, CURLH_HEADER, -1, &cause) == CURLHE_OK)
        r.cause = cause_parse(cause->value, strlen(cause->value));
    if (call->body.data != NULL) r.body = call->body.data;
    r.body_len = call->body.len;
    call->opts.on_done(call->opts.arg, &r);
    call_free(call);
}

static enum err err_of(const struct http_call *call, CURLcode code) {
    switch (code) {
    case CURLE_OK: return ERR_OK;
    case CURLE_OPERATION_TIMEDOUT: return call->connected ? ERR_TIMEOUT : ERR_PEER_LOST;
    case CURLE_OUT_OF_MEMORY: return ERR_NO_MEMORY;
    case CURLE_WRITE_ERROR: return call->failure != ERR_OK ? call->failure : ERR_INTERNAL;
    default: return ERR_PEER_LOST;
    }
}

static void on_silence(void *arg) {
    struct http_call *call = arg;
    uint64_t now_ms = clock_ms(), end_ms = call->last_byte_ms + call->opts.silence_ms;
    if (now_ms < end_ms) {
        loop_alarm_set(call->client->loop, &call->silence, end_ms - now_ms, on_silence, call);
        return;
    }
    call_end(call, call->connected ? ERR_TIMEOUT : ERR_PEER_LOST, "no byte arrived in time");
}

/* Runs ended transfers' on_done. Any of them may start or cancel calls, so each message is copied
 * first. */
static void read_messages(struct http_client *c) {
    CURLMsg *m;
    int left;
    while ((m = curl_multi_info_read(c->multi, &left)) != NULL) {
        struct http_call *call = NULL;
        CURLcode code = m->data.result;
        if (m->msg != CURLMSG_DONE) continue;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&call);
        if (call->state != CALL_RUNNING) continue;
        const char *misnamed = call->expected != NULL ? call->expected->said : "";
        call_end(call, err_of(call, code),
                 misnamed[0] != '\0'       ? misnamed
                 : call->detail[0] != '\0' ? call->detail
                                           : curl_easy_strerror(code));
    }
}

static void begin(struct http_call *call) {
    struct http_client *c = call->client;
    c->in_curl++;
    CURLMcode m = curl_multi_add_handle(c->multi, call->easy);
    c->in_curl--;
    if (m == CURLM_OK)
        call->state = CALL_RUNNING;
    else
        call_end(call, ERR_INTERNAL, curl_multi_strerror(m));
}

/* What callbacks asked for while libcurl was on the stack. on_done of a call that could not begin
 * may ask again. */
static void run_deferred(struct http_client *c) {
    while (c->deferred) {
        struct http_call *call = c->calls;
        c->deferred = false;
        while (call != NULL && call->state != CALL_NEW && call->state != CALL_CANCELLED &&
               !call->starved)
            call = call->next;
        if (call == NULL) break;
        c->deferred = true; /* there may be more: look again */
        if (call->state == CALL_NEW) {
            begin(call);
        } else if (call->state == CALL_RUNNING) {
            call_end(call, ERR_NO_MEMORY, "no memory to watch its socket");
        } else {
            call_detach(call);
            call_free(call);
        }
    }
}

static void after_curl(struct http_client *c) {
    if (c->in_curl > 0) return;
    run_deferred(c);
    read_messages(c);
}

static void act(struct http_client *c, curl_socket_t fd, int bits) {
    int running;
    c->in_curl++;
    c->lost |= curl_multi_socket_action(c->multi, fd, bits, &running) != CURLM_OK;
    c->in_curl--;
    after_curl(c);
}

static void on_socket_event(void *arg, int fd, int events) {
    struct watch *w = arg;
    act(w->client, fd,
        (events & LOOP_READ ? CURL_CSELECT_IN : 0) | (events & LOOP_WRITE ? CURL_CSELECT_OUT : 0));
}

static void on_timer(void *arg) {
    act(arg, CURL_SOCKET_TIMEOUT, 0);
}

static int timer_cb(CURLM *multi, long timeout_ms, void *arg) {
    struct http_client *c = arg;
    (void)multi;
    loop_alarm_stop(&c->timer);
    /* An error here would leave libcurl's list of calls in disorder. */
    if (timeout_ms >= 0) loop_alarm_set(c->loop, &c->timer, (uint64_t)timeout_ms, on_timer, c);
    return 0;
}

/* Brings all calls to where they would be. */
static void on_heartbeat(void *arg) {
    struct http_client *c = arg;
    int running;
    if (!c->lost && !c->deferred) return;
    c->in_curl++;
    c->lost = curl_multi_socket_all(c->multi, &running) != CURLM_OK;
    c->in_curl--;
    after_curl(c);
}

static bool watch_socket(struct http_client *c, curl_socket_t fd, int events, struct watch *w) {
    if (w != NULL) return loop_fd_set(w->w, events) == ERR_OK;
    w = calloc(1, sizeof(*w));
    if (w == NULL) return false;
    w->client = c;
    if (loop_fd_watch(&w->w, c->loop, fd, events, on_socket_event, w) != ERR_OK) {
        free(w);
        return false;
    }
    curl_multi_assign(c->multi, fd, w);
    return true;
}

/* Never an error: libcurl would end all calls for it. */
static int socket_cb(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_arg) {
    struct http_client *c = arg;
    struct watch *w = socket_arg;
    int events = (what & CURL_POLL_IN ? LOOP_READ : 0) | (what & CURL_POLL_OUT ? LOOP_WRITE : 0);
    struct http_call *call = NULL;
    if (what == CURL_POLL_REMOVE) {
        if (w != NULL) loop_fd_unwatch(&w->w);
        free(w);
        curl_multi_assign(c->multi, fd, NULL);
    } else if (!watch_socket(c, fd, events, w)) {
        curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&call);
        if (call != NULL) call->starved = c->deferred = true;
    }
    return 0;
}

/* Called when a connection stands, new or used before, and before the first byte of the request is
 * sent. */
static int prereq_cb(void *arg, char *peer_ip, char *own_ip, int peer_port, int own_port) {
    struct http_call *call = arg;
    (void)peer_ip;
    (void)own_ip;
    (void)peer_port;
    (void)own_port;
    call->connected = true;
    return CURL_PREREQFUNC_OK;
}

static long status_of(const struct http_call *call) {
    long status = 0;
    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

void http_call_headers(struct http_call *call,
                       void (*fn)(void *arg, const char *name, const char *value), void *arg) {
    struct curl_header *h = NULL;
    while ((h = curl_easy_nextheader(call->easy, CURLH_HEADER, -1, h)) != NULL)
        fn(arg, h->name, h->value);
}

static size_t header_cb(char *p, size_t size, size_t n, void *arg) {
    struct http_call *call = arg;
    (void)p;
    n *= size;
    call->last_byte_ms = clock_ms();
    if (call->state != CALL_RUNNING) return 0;
    /* The empty line ends a head; interim answers (1xx) have one of their own. */
    if (n > 2 || call->headers_reported || status_of(call) < 200) return n;
    call->headers_reported = true;
    if (call->opts.on_headers != NULL) call->opts.on_headers(call->opts.arg, (int)status_of(call));
    return call->state == CALL_RUNNING ? n : 0;
}

static size_t write_cb(char *p, size_t size, size_t n, void *arg) {
    struct http_call *call = arg;
    n *= size;
    call->last_byte_ms = clock_ms();
    if (call->state != CALL_RUNNING) return 0;
    if (call->opts.on_data != NULL && status_of(call) == 200) {
        if (!call->opts.on_data(call->opts.arg, p, n)) call->failure = ERR_CANCELLED;
        return call->failure == ERR_OK && call->state == CALL_RUNNING ? n : 0;
    }
    if (n > call->opts.body_bytes_max - call->body.len) {
        call->failure = ERR_TOO_LARGE;
        return 0;
    }
    buf_append(&call->body, p, n);
    if (call->body.failed) call->failure = ERR_NO_MEMORY;
    return call->failure == ERR_OK ? n : 0;
}

static size_t read_cb(char *out, size_t size, size_t n, void *arg) {
    struct http_call *call = arg;
    size_t at = call->sent_bytes;
    if (call->state != CALL_RUNNING) return CURL_READFUNC_ABORT; /* what was lent may be gone */
    n *= size;
    const bool lent = at < call->n_lent;
    const char *from = lent ? call->lent + at : call->own.data + (at - call->n_lent);
    const size_t left = lent ? call->n_lent - at : call->n_lent + call->own.len - at;
    if (n > left) n = left;
    if (n > 0) memcpy(out, from, n);
    call->sent_bytes += n;
    return n;
}

/* A kept connection turned out to be closed: from the start again. */
static int seek_cb(void *arg, curl_off_t offset, int origin) {
    struct http_call *call = arg;
    if (origin != SEEK_SET || offset < 0 || (size_t)offset > call->n_lent + call->own.len)
        return CURL_SEEKFUNC_FAIL;
    call->sent_bytes = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

enum err http_client_create(struct http_client **out, struct loop *loop, const char *user_agent) {
    struct http_client *c = calloc(1, sizeof(*c));
    *out = NULL;
    if (c == NULL) return ERR_NO_MEMORY;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0) {
        free(c);
        return ERR_NO_MEMORY;
    }
    c->loop = loop;
    c->multi = curl_multi_init();
    c->user_agent = strdup(user_agent != NULL ? user_agent : "");
    if (c->multi == NULL || c->user_agent == NULL ||
        loop_timer_start(&c->heartbeat, loop, HEARTBEAT_MS, HEARTBEAT_MS, on_heartbeat, c) !=
            ERR_OK) {
        http_client_destroy(&c);
        return ERR_NO_MEMORY;
    }
    curl_multi_setopt(c->multi, CURLMOPT_SOCKETFUNCTION, socket_cb);
    curl_multi_setopt(c->multi, CURLMOPT_SOCKETDATA, c);
    curl_multi_setopt(c->multi, CURLMOPT_TIMERFUNCTION, timer_cb);
    curl_multi_setopt(c->multi, CURLMOPT_TIMERDATA, c);
    curl_multi_setopt(c->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    curl_multi_setopt(c->multi, CURLMOPT_MAXCONNECTS, (long)IDLE_CONNECTIONS_MAX);
    *out = c;
    return ERR_OK;
}

void http_client_destroy(struct http_client **cp) {
    struct http_client *c = *cp;
    if (c == NULL) return;
    *cp = NULL;
    c->closing = true; /* an on_done that tries again must not keep us here */
    while (c->calls != NULL) {
        struct http_call *call = c->calls;
        if (call->state == CALL_CANCELLED) {
            call_detach(call);
            call_free(call);
        } else {
            call_end(call, ERR_CANCELLED, "the client is closing");
        }
    }
    if (c->multi != NULL) curl_multi_cleanup(c->multi);
    loop_alarm_stop(&c->timer);
    loop_timer_stop(&c->heartbeat);
    free(c->user_agent);
    free(c);
    curl_global_cleanup();
}

static bool add_header(struct http_call *call, const char *line) {
    struct curl_slist *l = curl_slist_append(call->headers, line);
    if (l != NULL) call->headers = l;
    return l != NULL;
}

static bool copy_headers(struct http_call *call, const char *const *lines) {
    bool has_type = false;
    for (; lines != NULL && *lines != NULL; lines++) {
        if (strpbrk(*lines, "\r\n") != NULL || !add_header(call, *lines)) return false;
        has_type = has_type || strncasecmp(*lines, "Content-Type:", 13) == 0;
    }
    /* Without a name and value, such a line keeps libcurl from adding the field by itself. */
    return (has_type || add_header(call, "Content-Type:")) && add_header(call, "Expect:");
}

/* Like a POST, with a body (perhaps empty) of known length, under the method's own name. */
static bool set_body(struct http_call *call, const struct http_call_opts *o) {
    CURL *e = call->easy;
    const size_t n = o->body_len + o->tail_len;
    const bool is_whole = n <= WHOLE_BODY_BYTES_MAX, lend = o->body_lent && !is_whole;
    if (lend) {
        call->lent = o->body;
        call->n_lent = o->body_len;
    } else if (o->body_len > 0) {
        buf_append(&call->own, o->body, o->body_len);
    }
    if (o->tail_len > 0) buf_append(&call->own, o->tail, o->tail_len);
    if (call->own.failed) return false;
    bool ok = curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)n) == CURLE_OK;
    if (is_whole) {
        const char *p = call->own.data != NULL ? call->own.data : "";
        return ok && curl_easy_setopt(e, CURLOPT_POSTFIELDS, p) == CURLE_OK;
    }
    return ok && curl_easy_setopt(e, CURLOPT_POST, 1L) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_READFUNCTION, read_cb) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_READDATA, call) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_SEEKFUNCTION, seek_cb) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_SEEKDATA, call) == CURLE_OK;
}

static bool set_request(struct http_call *call, const struct http_call_opts *o) {
    CURL *e = call->easy;
    bool ok = curl_easy_setopt(e, CURLOPT_URL, o->url) == CURLE_OK;
    if (strcmp(o->method, "HEAD") == 0) {
        ok = ok && curl_easy_setopt(e, CURLOPT_NOBODY, 1L) == CURLE_OK;
    } else if (strcmp(o->method, "GET") != 0 || o->body_len > 0) {
        ok = ok && set_body(call, o) &&
             curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, o->method) == CURLE_OK;
    }
    return ok && curl_easy_setopt(e, CURLOPT_HTTPHEADER, call->headers) == CURLE_OK;
}

static CURLcode ssl_ctx_cb(CURL *easy, void *ssl_ctx, void *arg) {
    struct http_call *call = arg;
    (void)easy;
    return tls_setup_client_ctx(call->opts.tls, ssl_ctx, call->expected) ? CURLE_OK
                                                                         : CURLE_SSL_CERTPROBLEM;
}

/* Certificate, key, CAs and CRLs come from the checked context, not from files of libcurl's
 * finding. A build of libcurl on another TLS library refuses the callback, and so the call. */
static bool set_tls(struct http_call *call) {
    struct tls *tls = call->opts.tls;
    CURL *e = call->easy;
    if (tls == NULL) return curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http") == CURLE_OK;
    if (tls_settings(tls)->peer_name[0] != '\0' &&
        (call->expected = calloc(1, sizeof(*call->expected))) == NULL)
        return false;
    return curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "https") == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_CAINFO, NULL) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_CAPATH, NULL) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, 1L) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, tls_verifies_host(tls) ? 2L : 0L) ==
               CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_SSL_SESSIONID_CACHE, 0L) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_SSL_CTX_FUNCTION, ssl_ctx_cb) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_SSL_CTX_DATA, call) == CURLE_OK;
}

static bool set_options(struct http_call *call) {
    const struct http_call_opts *o = &call->opts;
    CURL *e = call->easy;
    bool ok = set_tls(call);
    ok = ok && curl_easy_setopt(e, CURLOPT_USERAGENT, call->client->user_agent) == CURLE_OK;
    ok = ok && curl_easy_setopt(e, CURLOPT_NOPROXY, "*") == CURLE_OK;
    /* The path is the caller's to the byte: libcurl would fold "/../" into another path. */
    curl_easy_setopt(e, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(e, CURLOPT_PRIVATE, call);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, call->detail);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(e, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)o->connect_ms);
    curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)o->total_ms);
    curl_easy_setopt(e, CURLOPT_FRESH_CONNECT, o->fresh_connection ? 1L : 0L);
    curl_easy_setopt(e, CURLOPT_PREREQFUNCTION, prereq_cb);
    curl_easy_setopt(e, CURLOPT_PREREQDATA, call);
    curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, header_cb);
    curl_easy_setopt(e, CURLOPT_HEADERDATA, call);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, write_cb);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, call);
    return ok;
}

enum err http_client_call(struct http_client *c, const struct http_call_opts *o,
                          struct http_call **out) {
    if (out != NULL) *out = NULL;
    if (c->closing) return ERR_STOPPING;
    if (strncasecmp(o->url, "https:", 6) == 0 && o->tls == NULL) return ERR_INVALID;
    struct http_call *call = calloc(1, sizeof(*call));
    if (call == NULL) return ERR_NO_MEMORY;
    call->client = c;
    call->opts = *o;
    call->opts.method = call->opts.url = NULL;
    call->opts.headers = NULL;
    call->opts.body = call->opts.tail = NULL;
    call->opts.tls = tls_ref(o->tls);
    if (o->connect_ms == 0) call->opts.connect_ms = CONNECT_MS_DEFAULT;
    if (o->body_bytes_max == 0) call->opts.body_bytes_max = BODY_BYTES_MAX_DEFAULT;
    call->last_byte_ms = clock_ms();
    call->easy = curl_easy_init();
    if (call->easy == NULL || !copy_headers(call, o->headers) || !set_request(call, o) ||
        !set_options(call)) {
        call_free(call);
        return ERR_INVALID;
    }
    if (o->silence_ms > 0) loop_alarm_set(c->loop, &call->silence, o->silence_ms, on_silence, call);
    call->next = c->calls;
    if (call->next != NULL) call->next->prev = call;
    c->calls = call;
    if (c->in_curl > 0) {
        call->state = CALL_NEW;
        c->deferred = true;
    } else {
        c->in_curl++;
        CURLMcode m = curl_multi_add_handle(c->multi, call->easy);
        c->in_curl--;
        if (m != CURLM_OK) {
            call_unlink(call);
            call_free(call);
            return ERR_INTERNAL;
        }
        call->state = CALL_RUNNING;
    }
    if (out != NULL) *out = call;
    return ERR_OK;
}

void http_call_cancel(struct http_call **callp) {
    struct http_call *call = *callp;
    *callp = NULL;
    if (call == NULL || call->state == CALL_ENDED || call->state == CALL_CANCELLED) return;
    if (call->client->in_curl > 0) {
        if (call->state == CALL_NEW) {
            call_unlink(call);
            call_free(call);
            return;
        }
        call->state = CALL_CANCELLED;
        loop_alarm_stop(&call->silence);
        call->client->deferred = true;
        return;
    }
    call_detach(call);
    call_free(call);
}
