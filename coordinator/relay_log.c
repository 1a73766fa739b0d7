/* relay_log: what becomes known of a request while it runs: the transcript, the attempts that were
 * lost and the silence they caused, and in the end its record. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "coordinator/journal.h"
#include "coordinator/recorder.h"
#include "coordinator/relay_priv.h"
#include "proto/json.h"

/* ---- the transcript */

static void drop_transcript(struct relay *r) {
    transcript_free(&r->transcript);
    budget_give(&r->set->co->budget, BUDGET_TRANSCRIPT_BYTES, r->transcript_bytes);
    r->transcript_bytes = 0;
}

/* From here on the client can be served by the attempt that runs, or not at all. */
static void give_up_transcript(struct relay *r, const char *why) {
    log_warn("relay", "req=%s event=transcript_given_up tokens=%u detail=\"%s\"", r->id_text,
             r->transcript.n_ids, why);
    drop_transcript(r);
    r->transcript_broken = true;
    if (r->entry != NULL) journal_break(r->set->co->journal, r->entry);
}

/* It has grown by so many bytes. */
static void account(struct relay *r, size_t n_bytes) {
    if (n_bytes == 0) return;
    if (budget_take(&r->set->co->budget, BUDGET_TRANSCRIPT_BYTES, n_bytes))
        r->transcript_bytes += n_bytes;
    else
        give_up_transcript(r, "pd.transcripts_mib are used up");
}

void relay_log_first(struct relay *r, const struct json_value *o) {
    struct transcript *t = &r->transcript;
    struct json_value *cached;
    const char *seed = "";
    char *end;
    size_t n = 0;
    int64_t created;
    uint64_t n_choices = r->n_sequences / (r->n_prompts > 0 ? r->n_prompts : 1);
    if (t->n_parts > 0 || r->transcript_broken) return;
    if (json_get_i64(o, "created", &created) != JSON_OK || created < 0 ||
        json_get_arr(o, "cachedTokens", &cached) != JSON_OK ||
        json_get_str(o, "seed", &seed, &n) != JSON_OK)
        return; /* of an instance that cannot go on behind a record */
    (void)json_get_u64(o, "choices", &n_choices);
    if (n_choices > CHOICES_MAX ||
        transcript_open(t, (uint32_t)json_arr_len(cached), (uint32_t)n_choices) != ERR_OK) {
        give_up_transcript(r, "prompts or choices out of range");
        return;
    }
    t->created_unix_s = created;
    t->seed = strtoull(seed, &end, 10);
    for (size_t i = 0; i < t->n_parts; i++) {
        uint64_t v = 0;
        (void)json_as_u64(json_arr_at(cached, i), &v);
        t->cached_tokens[i] = v <= PROMPT_TOKENS_MAX ? (uint32_t)v : 0;
    }
    account(r, transcript_memory(t));
    if (r->entry != NULL && !r->transcript_broken) journal_start(r->set->co->journal, r->entry, t);
}

void relay_log_adopt(struct relay *r) {
    if (r->transcript.n_parts > 0) account(r, transcript_memory(&r->transcript));
}

/* Adds one token; *grown: grows by the bytes that it took. */
static enum err add_token(struct transcript *t, const struct emitted *e, size_t *grown) {
    const bool known = e->choice < t->n_parts * t->n_choices;
    const uint32_t cap = known ? t->choices[e->choice].cap : 0;
    const enum err got = transcript_add(t, e);
    if (known) *grown += (t->choices[e->choice].cap - cap) * sizeof(e->id);
    return got;
}

void relay_log_tokens(struct relay *r, const struct emitted *tokens, size_t n) {
    size_t grown = 0;
    if (n == 0 || r->transcript.n_parts == 0) return;
    for (size_t i = 0; i < n; i++) {
        const enum err e = add_token(&r->transcript, &tokens[i], &grown);
        if (e == ERR_OK) continue;
        give_up_transcript(r, err_text(e));
        return;
    }
    account(r, grown);
}

bool relay_can_go_on(const struct relay *r) {
    return !r->out.begun || (r->transcript.n_parts > 0 && !transcript_has_ended(&r->transcript));
}

/* ---- attempts */

static void name_of(const struct relay_set *s, uint32_t id, char out[INSTANCE_NAME_BYTES_MAX + 1]) {
    const struct inst *in = registry_find(&s->co->reg, id);
    snprintf(out, INSTANCE_NAME_BYTES_MAX + 1, "%s", in != NULL ? inst_name(in) : "");
}

void relay_log_lost(struct relay *r, enum cause cause) {
    const struct attempt *a = &r->attempt;
    const uint64_t now = clock_us();
    relay_log_recovered(r); /* the one before, if its attempt brought nothing */
    if (!r->out.begun && r->transcript.n_parts > 0 && transcript_has_ended(&r->transcript))
        give_up_transcript(r, "the end of the answer is lost"); /* all of it is made again */
    struct lost_attempt *grown = realloc(r->lost, (r->n_logged + 1) * sizeof(*grown));
    r->n_lost++; /* whatever is remembered of it */
    r->silent_since_us = r->out.begun ? r->last_piece_us : now;
    r->silent_cause = cause;
    if (r->transcript.n_ids == 0) r->n_tokens = 0; /* all is computed again */
    recorder_lost(r->set->co->recorder, &(struct record_loss){.id = r->id_text,
                                                              .epoch = a->epoch,
                                                              .p = a->p_id,
                                                              .d = a->d_id,
                                                              .cause = cause_name(cause),
                                                              .n_kept = r->transcript.n_ids});
    if (grown == NULL) return;
    r->lost = grown;
    struct lost_attempt *l = &grown[r->n_logged++];
    *l = (struct lost_attempt){.epoch = a->epoch,
                               .p_id = a->p_id,
                               .d_id = a->d_id,
                               .cause = cause,
                               .n_kept = r->transcript.n_ids,
                               .silent_unix_us = clock_unix_us() - (now - r->silent_since_us)};
    name_of(r->set, a->p_id, l->p_name);
    name_of(r->set, a->d_id, l->d_name);
}

void relay_log_recovered(struct relay *r) {
    if (r->silent_since_us == 0) return;
    const uint64_t us = clock_us() - r->silent_since_us;
    r->silent_since_us = 0;
    if (r->n_logged > 0) r->lost[r->n_logged - 1].silence_us = us;
    coord_metrics_recovered(r->set->co->metrics, cause_name(r->silent_cause), us);
    log_info("relay", "req=%s event=recovered cause=%s attempt=%u tokens_kept=%u silence_ms=%llu",
             r->id_text, cause_name(r->silent_cause), r->n_lost + 1, r->transcript.n_ids,
             (unsigned long long)(us / 1000));
}

/* ---- lengths */

static void note_lengths(const struct relay *r) {
    struct length_sums *l = &r->set->lengths;
    if (l->n == LENGTHS_MAX) *l = (struct length_sums){l->input / 2, l->output / 2, l->n / 2};
    l->input += (double)r->n_chars / r->set->co->conf.string_token_rate;
    l->output += (double)r->n_tokens;
    l->n++;
}

void relay_lengths(const struct relay_set *s, struct relay_lengths *mean) {
    const struct length_sums *l = &s->lengths;
    *mean = (struct relay_lengths){0, 0};
    if (l->n > 0) *mean = (struct relay_lengths){l->input / l->n, l->output / l->n};
}

/* ---- the record */

void relay_log_fill(const struct relay *r, struct recent *e) {
    const uint64_t ms = clock_ms() - r->arrival_ms;
    *e = (struct recent){.path = r->path->path,
                         .state = r->state,
                         .epoch = r->n_lost,
                         .p_id = r->attempt.p_id,
                         .d_id = r->attempt.d_id,
                         .stream = r->out.stream,
                         .started_unix_ms = clock_unix_us() / 1000 - ms,
                         .ttft_us = r->first_token_us != 0 ? r->first_token_us - r->arrival_us : 0,
                         .queue_us = r->waited_first_us,
                         .total_ms = ms,
                         .n_tokens = r->n_tokens,
                         .handover = r->handover,
                         .lost = r->lost,
                         .n_lost = r->n_logged};
    memcpy(e->id, r->id_text, sizeof(e->id));
    snprintf(e->tenant, sizeof(e->tenant), "%s", r->tenant->name);
    if (r->adapter != NULL) snprintf(e->adapter, sizeof(e->adapter), "%s", r->adapter);
    name_of(r->set, e->p_id, e->p_name);
    name_of(r->set, e->d_id, e->d_name);
}

void relay_log_note(struct relay *r, enum cause cause) {
    struct recent e;
    struct buf b = BUF_INIT;
    if (r->out.x == NULL || !http_x_notes(r->out.x)) return;
    relay_log_fill(r, &e);
    buf_printf(&b, ",\"request\":\"%s\",\"attempts\":%u,\"queue_ms\":%.3f", e.id, r->n_lost + 1,
               (double)e.queue_us / 1000);
    if (e.p_name[0] != 0) {
        buf_puts(&b, ",\"prefill\":");
        buf_json_text(&b, e.p_name, strlen(e.p_name), true);
        buf_puts(&b, ",\"decode\":");
        buf_json_text(&b, e.d_name, strlen(e.d_name), true);
    }
    if (e.ttft_us > 0)
        buf_printf(&b,
                   ",\"prompt_tokens\":%llu,\"cached_tokens\":%llu,\"tokens\":%llu,"
                   "\"ttft_ms\":%.3f",
                   (unsigned long long)e.handover.prompt_tokens,
                   (unsigned long long)e.handover.cached_tokens, (unsigned long long)e.n_tokens,
                   (double)e.ttft_us / 1000);
    if (cause != CAUSE_NONE) buf_printf(&b, ",\"cause\":\"%s\"", cause_name(cause));
    if (!b.failed) http_x_note(r->out.x, b.data);
    buf_free(&b);
}

void relay_log_end(struct relay *r, int status, enum cause cause) {
    struct relay_set *s = r->set;
    struct recent *e = &s->recent[s->n_recent++ % RECENT];
    if (status == 200 && r->n_tokens > 0) note_lengths(r);
    recorder_end(s->co->recorder, r->id_text, status, cause_name(cause), r->n_lost + 1);
    free(e->lost);
    relay_log_fill(r, e);
    e->state = RELAY_ENDED;
    e->status = status;
    e->cause = cause;
    if (r->traced) otlp_request(s->co->otlp, &r->trace, e);
    r->lost = NULL;
    r->n_logged = 0;
    log_info("relay",
             "req=%s status=%d cause=%s p=%u d=%u epoch=%u ttft_ms=%llu total_ms=%llu "
             "kv_bytes=%llu transfer_ms=%.2f exposed_ms=%.2f",
             r->id_text, status, cause_name(cause), e->p_id, e->d_id, e->epoch,
             (unsigned long long)(e->ttft_us / 1000), (unsigned long long)e->total_ms,
             (unsigned long long)r->handover.kv_bytes, r->handover.transfer_ms,
             r->handover.exposed_ms);
}

void relay_log_free(struct relay *r) {
    drop_transcript(r);
    free(r->lost);
    r->lost = NULL;
}
