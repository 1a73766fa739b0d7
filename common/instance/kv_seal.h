/* kv_seal: AES-256-GCM over the frames of one direction of a sealed KV link (cluster-api 12.3;
 * docs/wire-kv-link.md). The head is additional data, the payload is encrypted, the tag
 * takes the place behind it.
 *
 * Frames are counted from 1 and never skipped, so sender and receiver agree on the nonce without
 * sending it: u32 epoch, u64 count. Every KV_SEAL_EPOCH_FRAMES frames the epoch rises and the key
 * is replaced by one derived from it (HKDF-Expand with SHA-256), so one key seals at most 512 GiB
 * and an old one cannot be had from a newer.
 *
 * Pure but for libcrypto. Thread: any one at a time. Errors: ERR_BAD_FRAME for whatever is not the
 * very next frame of the other end; ERR_TOO_LARGE: the count is used up; ERR_NO_MEMORY. */
#ifndef BATON_INSTANCE_KV_SEAL_H
#define BATON_INSTANCE_KV_SEAL_H

#include "proto/kv_frame.h"

enum { KV_SEAL_SECRET_BYTES = 32, KV_SEAL_EPOCH_FRAMES = 65536 };

struct kv_seal;

enum kv_seal_side { KV_SEALS, KV_UNSEALS };
/* secret: of this direction, from the exporter of the handshake. Copied. */
enum err kv_seal_create(struct kv_seal **out, enum kv_seal_side side,
                        const uint8_t secret[KV_SEAL_SECRET_BYTES]);
void kv_seal_destroy(struct kv_seal **s); /* wipes the keys; NULL is fine */

/* Seals a finished frame of n bytes, whose last KV_SEAL_BYTES are room for the tag, with the next
 * count. */
enum err kv_seal_frame(struct kv_seal *s, uint8_t *frame, size_t n);
/* The same in pieces, each read where it lies and written, sealed, to its place in the frame: begin
 * with a finished head; every piece of the payload, in order, to == from or apart; end. After an
 * error nothing more can be sealed. */
enum err kv_seal_begin(struct kv_seal *s, uint8_t *frame, size_t n);
enum err kv_seal_piece(struct kv_seal *s, uint8_t *to, const uint8_t *from, size_t n);
enum err kv_seal_end(struct kv_seal *s, uint8_t *tag);
/* Opens the next frame in place: after ERR_OK *f is as kv_frame_open() gives it. After an error the
 * payload is not for reading and the link is over: nothing later can be right. */
enum err kv_unseal_frame(struct kv_seal *s, struct kv_frame *f, uint8_t *frame, size_t n);

#endif
