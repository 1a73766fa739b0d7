/* ep_infer_info: what inference.GRPCInferenceService says of server and models
 * (kserve-runtimes 8.7, 10, 11). */
#include <stdio.h>
#include <string.h>
#include "common/endpoint/answer.h"
#include "common/endpoint/ep.h"
#include "common/engine/lora_set.h"

#define EXTENSIONS                                                                                 \
    "[\"model_repository\",\"model_configuration\",\"binary_tensor_data\",\"parameters\","         \
    "\"statistics\"]"

bool ep_infer_model(const struct endpoint *ep, const struct json_value *body, const char *member,
                    const char *version_member, char *why, size_t n_why) {
    const char *name = "", *version = "";
    size_t n = 0, n_version = 0;
    json_get_str(body, member, &name, &n);
    if (version_member != NULL) json_get_str(body, version_member, &version, &n_version);
    why[0] = '\0';
    if (!ep_serves(ep, name, n))
        snprintf(why, n_why, "Request for unknown model: '%.256s' is not found", name);
    else if (n_version > 0 && (n_version != 1 || version[0] != '1'))
        snprintf(why, n_why, "Request for unknown model: '%.256s' version %.64s is not found", name,
                 version);
    return why[0] == '\0';
}

/* The model that the message names, or an adapter, as a JSON string to *named; or the error. */
static bool read_model(const struct endpoint *ep, const struct endpoint_ask *ask,
                       const char *member, const char *version, struct buf *named,
                       struct api_answer *out) {
    const char *name = "";
    size_t n = 0;
    struct buf wire = BUF_INIT;
    struct json_value *body = NULL;
    char why[400];
    bool good = ep_ask_read(ep, ask, &wire, &body, out);
    if (good && member != NULL && !ep_infer_model(ep, body, member, version, why, sizeof(why))) {
        ep_answer_error(ep, ask->path->errors, 404, why, out);
        good = false;
    }
    if (good && member != NULL) {
        json_get_str(body, member, &name, &n);
        buf_json_str(named, name, n);
    }
    json_put(body);
    buf_free(&wire);
    return good;
}

void endpoint_infer_server(const struct endpoint *ep, const struct endpoint_ask *ask,
                           struct api_answer *out) {
    struct buf json = BUF_INIT;
    if (!read_model(ep, ask, NULL, NULL, NULL, out)) return;
    buf_puts(&json,
             "{\"name\":\"MindIE Server\",\"version\":\"1.0.0\",\"extensions\":" EXTENSIONS "}");
    ep_ask_reply(ask, &json, out);
}

void endpoint_infer_about(const struct endpoint *ep, const struct endpoint_ask *ask,
                          struct api_answer *out) {
    static const char tensors[] =
        ",\"versions\":[\"1\"],\"platform\":\"MindIE Server\",\"inputs\":["
        "{\"name\":\"text_input\",\"datatype\":\"BYTES\",\"shape\":[1]},"
        "{\"name\":\"stream\",\"datatype\":\"BOOL\",\"shape\":[1]},"
        "{\"name\":\"sampling_parameters\",\"datatype\":\"BYTES\",\"shape\":[1]},"
        "{\"name\":\"exclude_input_in_output\",\"datatype\":\"BOOL\",\"shape\":[1]},"
        "{\"name\":\"max_tokens\",\"datatype\":\"INT32\",\"shape\":[1]}],"
        "\"outputs\":[{\"name\":\"text_output\",\"datatype\":\"BYTES\",\"shape\":[-1]}]}";
    struct buf json = BUF_INIT;
    buf_puts(&json, "{\"name\":");
    if (!read_model(ep, ask, "name", "version", &json, out)) {
        buf_free(&json);
        return;
    }
    buf_puts(&json, tensors);
    ep_ask_reply(ask, &json, out);
}

void endpoint_infer_config(const struct endpoint *ep, const struct endpoint_ask *ask,
                           struct api_answer *out) {
    static const char config[] =
        ",\"backend\":\"vllm\",\"version_policy\":{\"latest\":{\"num_versions\":1}},"
        "\"input\":[{\"name\":\"text_input\",\"data_type\":\"TYPE_STRING\",\"dims\":[1]},"
        "{\"name\":\"stream\",\"data_type\":\"TYPE_BOOL\",\"dims\":[1],\"optional\":true},"
        "{\"name\":\"sampling_parameters\",\"data_type\":\"TYPE_STRING\",\"dims\":[1],"
        "\"optional\":true},{\"name\":\"exclude_input_in_output\",\"data_type\":\"TYPE_BOOL\","
        "\"dims\":[1],\"optional\":true},{\"name\":\"max_tokens\",\"data_type\":\"TYPE_INT32\","
        "\"dims\":[1],\"optional\":true}],\"output\":[{\"name\":\"text_output\",\"data_type\":"
        "\"TYPE_STRING\",\"dims\":[-1]}],\"model_transaction_policy\":{\"decoupled\":true}}}";
    struct buf json = BUF_INIT;
    buf_puts(&json, "{\"config\":{\"name\":");
    if (!read_model(ep, ask, "name", "version", &json, out)) {
        buf_free(&json);
        return;
    }
    buf_puts(&json, config);
    ep_ask_reply(ask, &json, out);
}

static void put_ready(struct buf *json, const char *name) {
    buf_puts(json, "{\"name\":");
    put_cstr(json, name);
    buf_puts(json, ",\"version\":\"1\",\"state\":\"READY\"}");
}

void endpoint_infer_index(const struct endpoint *ep, const struct endpoint_ask *ask,
                          struct api_answer *out) {
    struct buf json = BUF_INIT;
    struct lora_info adapter;
    if (!read_model(ep, ask, NULL, NULL, NULL, out)) return;
    buf_puts(&json, "{\"models\":[");
    put_ready(&json, ep->conf.model_name);
    for (int at = 0; ep_next_adapter(ep, &at, &adapter);) {
        buf_putc(&json, ',');
        put_ready(&json, adapter.name);
    }
    buf_puts(&json, "]}");
    ep_ask_reply(ask, &json, out);
}

/* As over REST. */
static void load_or_unload(const struct endpoint *ep, const struct endpoint_ask *ask, bool load,
                           struct api_answer *out) {
    const char *name = "";
    size_t n = 0;
    struct buf wire = BUF_INIT, json = BUF_INIT;
    struct json_value *body = NULL;
    if (ep_ask_read(ep, ask, &wire, &body, out)) {
        json_get_str(body, "model_name", &name, &n);
        if (!load) {
            ep_refuse_unload(ep, ask->path->errors, name, n, out);
        } else if (!ep_refuse_load(ep, ask->path->errors, name, n, out)) {
            buf_puts(&json, "{}");
            ep_ask_reply(ask, &json, out);
        }
    }
    json_put(body);
    buf_free(&wire);
}

void endpoint_infer_load(const struct endpoint *ep, const struct endpoint_ask *ask,
                         struct api_answer *out) {
    load_or_unload(ep, ask, true, out);
}

void endpoint_infer_unload(const struct endpoint *ep, const struct endpoint_ask *ask,
                           struct api_answer *out) {
    load_or_unload(ep, ask, false, out);
}

void endpoint_infer_empty(const struct endpoint *ep, const struct endpoint_ask *ask,
                          struct api_answer *out) {
    struct buf json = BUF_INIT;
    if (!read_model(ep, ask, NULL, NULL, NULL, out)) return;
    buf_puts(&json, "{}");
    ep_ask_reply(ask, &json, out);
}
