/* prefill_answer: what a prefill instance answers its coordinator (cluster-api 5.2), with the
 * members of our own that failover and observation need. Pure. */
#ifndef BATON_PREFILL_PREFILL_ANSWER_H
#define BATON_PREFILL_PREFILL_ANSWER_H

#include "common/base/buf.h"
#include "common/instance/kv_plane.h"

struct prefill_answer {
    const struct infer_req *req; /* with the chain of its parts */
    bool last;                   /* the first tokens ended the request */
    const char *output;          /* for the client; not sent when neither streaming nor last */
    size_t output_len;
    bool
        binary; /* it is no text (api_framing.binary): member outputBase64 in the place of output */
    const char *tokens;              /* whose events are in output; text of proto/emitted.h */
    const struct kv_tx_stats *stats; /* NULL: no hand-over took place */
    uint64_t queue_wait_us, prefill_us;
    uint64_t fetched_tokens; /* whose KV came from a D that had it */
    const uint64_t *digests; /* [n_digests] of the prompt (proto/prefix_msg.h); 0: none are told */
    size_t n_digests;
    int block_tokens;
};

/* {"reqId","isStream","isLastResp","output",
 * "promptTokens","seed","tokens","created","cachedTokens","choices","kvBytes","kvBlocks","kvBlocksHeld","kvTransferMs","kvExposedMs","queueWaitMs","prefillMs","fetchedTokens","blockTokens","prefixDigests"};
 * the first four as 5.2 has them. promptTokens counts all prompts, cachedTokens is a list with one
 * number for each, choices is how many sequences each draws. seed, created, cachedTokens and
 * choices are what the record of a later attempt must repeat (docs/wire-replay.md). */
void prefill_answer_format(struct buf *out, const struct prefill_answer *a);

#endif
