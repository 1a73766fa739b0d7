/* limits: every upper bound of the system, with its unit, in one header. */
#ifndef BATON_PROTO_LIMITS_H
#define BATON_PROTO_LIMITS_H

enum {
    REQ_ID_BYTES_MAX = 1024,   /* header req-id */
    CLIENT_ID_BYTES_MAX = 256, /* Triton id */
    TRACE_BYTES_MAX = 640,     /* a client's tracing headers, as log fields */
    MODEL_NAME_BYTES_MAX = 256,
    INSTANCE_NAME_BYTES_MAX = 63,
    PROMPT_TOKENS_MAX = 1048576,   /* ids in one request */
    STOP_STRINGS_MAX = 32768,      /* items of `stop`: each has at least one unit */
    STOP_STRING_UNITS_MAX = 32768, /* UTF-16 code units of one stop string, and of all together */
    STOP_STRINGS_BYTES_MAX = 3 * 32768,        /* the same in UTF-8 */
    PROMPT_TEXT_BYTES_MAX = 100 * 1024 * 1024, /* largest maxRequestLength */
    STOP_TOKEN_IDS_MAX = 1024,
    LOGIT_BIAS_MAX = 1024, /* entries of logit_bias */
    TOP_LOGPROBS_MAX = 20,
    LOOKUP_TOKENS_MAX = 16,               /* tokens of one draft by prompt lookup */
    CHOICES_MAX = 128,                    /* sequences drawn from one prompt */
    BEAM_TOKENS_MAX = 128,                /* new tokens of a beam search */
    PARTS_MAX = 128,                      /* prompts of one request */
    SEQUENCES_MAX = 1024,                 /* parts times choices of one client request */
    ALLOWED_IDS_MAX = 1048576,            /* entries of allowed_token_ids */
    BAD_WORDS_IDS_MAX = 65536,            /* ids of bad_words, lengths included */
    GUIDE_BYTES_MAX = 1024 * 1024,        /* text of what guided decoding allows */
    CONTEXT_BYTES_MAX = 16 * 1024 * 1024, /* of earlier responses that go before a body */
    ECHOED_BYTES_MAX = 1024 * 1024,       /* of a request's members that its answer repeats */
    ADAPTER_NAME_BYTES_MAX = 256,
    CACHE_SALT_BYTES_MAX = 256,
    EOS_IDS_MAX = 16,
    JSON_DEPTH_MAX = 100,
    HTTP_HEAD_BYTES_MAX = 16384,
    HTTP_HEADERS_MAX = 100,
    INSTANCES_MAX = 4096,
    DEVICES_MAX = 1024, /* devices in one role body */
    KV_LAYERS_MAX = 1024,
    KV_FRAME_BYTES_MAX = 8 * 1024 * 1024,       /* payload of one frame of the KV link */
    KV_FRAME_TARGET_BYTES = 2 * 1024 * 1024,    /* what the sender aims at */
    DRESULT_FRAME_BYTES_MAX = 256 * 1024,       /* of version 2, behind its length */
    DRESULT_PIECE_BYTES_MAX = 64 * 1024 * 1024, /* put together from frames, or one of version 1 */
    DRESULT_REPLAY_BYTES_MAX = 1024 * 1024, /* kept per request for a replay; a request of which no
                                               listener has taken so much is paused */
    DRESULT_REPLAY_MS_MAX = 30000,
};

#endif
