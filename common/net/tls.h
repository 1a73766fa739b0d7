/* tls: checked TLS contexts, and sessions over bytes in memory (OpenSSL's only door: tls*.c).
 *
 * A context is made at start, from a block of settings: own certificate and key, the CAs that may
 * have signed a peer's certificate, CRLs. All rules about files, strength and validity are checked
 * then. tls_reload() reads the files again: sessions that begin afterwards have what they hold now,
 * those that run keep what they began with. A context takes either side; which one is a session's
 * choice.
 *
 * Rules:   TLS 1.3 (1.2 when allowed), AEAD suites only, no renegotiation, no resumption (so no
 *   peer escapes verification). Both sides prove themselves; a server may waive that
 *   (client_cert_optional). Each block has its own CA set: a certificate of another plane's CA is
 *   refused. Peers' keys must be as strong as ours: RSA of 3072 bits, EC on P-256.
 * Files:   regular, owned by the process user, no symlink, mode 0400, at most 10 MB; or root's, not
 *   ours to write, and closed to others (file_owner.h). A folder on the way to one may be a
 * symlink. Thread:  tls_open() at start. Any thread may make sessions of a context, or reload it; a
 * session belongs to one thread. No call here blocks, but tls_open() and tls_reload() read files.
 * Source:  RFC 8446 (7.5 for the exporter), RFC 5280. */
#ifndef BATON_NET_TLS_H
#define BATON_NET_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/net/sock_io.h"
#include "proto/err.h"

enum { TLS_PATH_BYTES = 1024, TLS_FILES_MAX = 3, TLS_NAME_BYTES = 256, TLS_WHY_BYTES = 240 };

/* Full names of the settings, for messages: "ServerConfig.tlsCert". Point to static strings. */
struct tls_names {
    const char *ca, *cert, *key, *passwd, *crl;
    const char *ca_limited, *peer_name; /* NULL when not used */
};

/* Paths as they are opened; "" is an unused entry. */
struct tls_conf {
    struct tls_names names;
    char ca[TLS_FILES_MAX][TLS_PATH_BYTES]; /* at least one; PEM, may hold several certificates */
    /* further CAs, whose peers are let in as limited ones (tls_sock_limited()) */
    char ca_limited[TLS_FILES_MAX][TLS_PATH_BYTES];
    char cert[TLS_PATH_BYTES];   /* own certificate, then its intermediates */
    char key[TLS_PATH_BYTES];    /* PEM; "" passwd: must be unencrypted, warned of */
    char passwd[TLS_PATH_BYTES]; /* one line; wiped from memory after the key is open */
    /* none: no revocation test; otherwise every CA of a peer's chain needs a CRL */
    char crl[TLS_FILES_MAX][TLS_PATH_BYTES];
    bool allow_tls12;          /* for old clients */
    bool client_cert_optional; /* server side: a client without certificate is let in */
    bool verify_host;          /* client side: the server's certificate must name its host */
    /* A DNS name that the peer's certificate must have, whatever it is called by, and whether or
     * not verify_host; in sessions over memory on either side. "": none. */
    char peer_name[TLS_NAME_BYTES];
};

struct tls;

/* ERR_BAD_CONFIG: eb names the setting, the file and the rule it breaks. *c is copied. */
enum err tls_open(struct tls **out, const struct tls_conf *c, struct errbuf *eb);
/* The files anew. On an error, as tls_open() has them, the context stays as it was. */
enum err tls_reload(struct tls *t, struct errbuf *eb);
const struct tls_conf *tls_settings(const struct tls *t); /* for as long as t */

/* When what is in force ends: of each file with certificates the first of them, of CRLs the next
 * update. Key and password files have no end. */
struct tls_expiry {
    const char *path; /* of tls_settings() */
    int64_t unix_s;
};
enum { TLS_EXPIRIES_MAX = 3 * TLS_FILES_MAX + 1 };
size_t tls_expiries(struct tls *t, struct tls_expiry out[TLS_EXPIRIES_MAX]);

/* Contexts are counted: each tls_ref() wants its tls_close(). NULL is fine for both. */
struct tls *tls_ref(struct tls *t);
void tls_close(struct tls **t);

/* A server's side of a connected, non-blocking socket. Takes fd on ERR_OK; the handshake runs
 * inside the first reads. */
enum err tls_sock_io(struct sock_io *io, struct tls *t, int fd);
/* Bytes of memory that a part of a record holds until the rest comes; 0 for a plain socket. */
size_t tls_sock_held(const struct sock_io *io);
/* Once its handshake is done: a CA of tls_conf.ca_limited is in the chain of the peer's
 * certificate, so it may do only some of what the plane offers (dispatch.h says what). */
bool tls_sock_limited(const struct sock_io *io);
/* Once its handshake is done: the peer speaks HTTP/2 (RFC 7301). */
bool tls_sock_h2(const struct sock_io *io);
/* Why a sock_io of the above failed, for a log line; "" when it did not, or when the peer left
 * without a word. */
const char *tls_sock_error(const struct sock_io *io);

/* The name a peer's certificate must have, and what is said when it has others. */
struct tls_expected {
    char name[TLS_NAME_BYTES];
    const char *setting;      /* that has the name; NULL: none */
    char said[TLS_WHY_BYTES]; /* "the certificate must name N (SETTING), but names A"; "": right */
};

/* For http_client: puts certificate, key, CAs, CRLs and rules into libcurl's SSL_CTX. With a
 * tls_conf.peer_name *x is filled in, and must stay where it is as long as handshakes of this
 * SSL_CTX may run; else it may be NULL. */
bool tls_setup_client_ctx(struct tls *t, void *ssl_ctx, struct tls_expected *x);
/* Whether a caller has to hold the server's certificate against the host of its URL. */
bool tls_verifies_host(const struct tls *t);

/* ---- sessions over memory: bytes in, bytes out, whatever carries them */
struct tls_session;
enum tls_role { TLS_CLIENT, TLS_SERVER };
enum tls_state { TLS_HANDSHAKE, TLS_UP, TLS_FAILED };

/* peer_name: an IP literal or DNS name that the peer's certificate must have among its
 * subjectAltNames, on either side, where tls_conf.peer_name names none; NULL: any certificate of
 * the CA set. A client has its first bytes ready to drain at once. */
enum err tls_session_create(struct tls_session **out, struct tls *t, enum tls_role role,
                            const char *peer_name);
void tls_session_free(struct tls_session **s);
/* Bytes of the peer, all taken; runs the handshake as far as they go. ERR_REFUSED: the handshake
 * has failed (tls_session_error()); an alert for the peer may be there to drain. ERR_TOO_LARGE:
 * more than 64 KiB unread. */
enum err tls_session_feed(struct tls_session *s, const void *p, size_t n);
size_t tls_session_pending(const struct tls_session *s); /* bytes that drain would give */
size_t tls_session_drain(struct tls_session *s, void *p, size_t n); /* bytes for the peer */
enum tls_state tls_session_state(const struct tls_session *s);
const char *tls_session_error(const struct tls_session *s); /* "" unless TLS_FAILED */
/* Exporter key material (RFC 8446 7.5) once TLS_UP: the same n bytes on both sides for the same
 * label; no context. ERR_CONFLICT before. */
enum err tls_session_export(struct tls_session *s, const char *label, void *out, size_t n);
/* The peer's certificate, once TLS_UP, has this IP literal or DNS name among its subjectAltNames.
 */
bool tls_session_peer_has_name(const struct tls_session *s, const char *name);
/* Application bytes of a session that is up. write: ERR_CONFLICT before TLS_UP. read: bytes given,
 * 0 when there are none now (or the session failed). */
enum err tls_session_write(struct tls_session *s, const void *p, size_t n);
size_t tls_session_read(struct tls_session *s, void *p, size_t n);

/* The one line of a file that is a password, by the rules of a key's (mode 0400, the process's own
 * user). ERR_BAD_CONFIG: eb begins with name. */
enum err tls_password_read(char *out, size_t cap, const char *name, const char *path,
                           struct errbuf *eb);

#endif
