/* ep_guide: the members that ask for guided decoding. */
#include "common/endpoint/ep.h"

static const char *const vllm_members[] = {"guided_json",        "guided_regex",
                                           "guided_choice",      "guided_grammar",
                                           "structured_outputs", "structural_tag"};

static bool refused(struct ep_read *r) {
    return ep_fail(r, 422,
                   "Guided decoding (grammar, guided_*, structured_outputs, structural_tag) is not "
                   "available yet.");
}

bool ep_guide_read(struct ep_read *r) {
    struct json_object *v;
    unsigned guides = r->fam->guides;
    if ((guides & GUIDES_FORMAT) && json_get(r->params, "response_format", &v) == JSON_OK &&
        !ep_check_response_format(r, v))
        return false;
    for (size_t i = 0; i < sizeof(vllm_members) / sizeof(vllm_members[0]); i++)
        if ((guides & GUIDES_VLLM) && json_get(r->params, vllm_members[i], &v) == JSON_OK)
            return refused(r);
    if ((guides & GUIDES_TGI) && json_get(r->params, "grammar", &v) == JSON_OK) return refused(r);
    return true;
}
