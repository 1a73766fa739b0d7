/* How fast the coordinator's look at a body is (coordinator/body_look.h), in MB (1e6 bytes) a
 * second of one core's time, best of several rounds, on bodies of 8 MiB:
 *
 *   body_look_text_mb_s      a chat of English text, escapes for its line ends
 *   body_look_chinese_mb_s   a chat of three-byte characters
 *   body_look_messages_mb_s  a chat of messages of 40 characters
 *   body_look_ids_mb_s       a prompt of token ids
 *   body_look_objects_mb_s   {},{},... in a member nobody asks for
 *   body_look_escapes_mb_s   nothing but \u escapes
 *   body_look_..._mb_s       the same of numbers, empty strings, nests, members, prompts of each
 * kind json_tree_objects_mb_s   what an instance makes of the same {},{},...: check and tree
 *   json_tree_ids_mb_s       and of the ids */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "coordinator/body_look.h"
#include "proto/json.h"

enum { BODY_BYTES = 8 << 20, ROUNDS = 7 };

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double rate(const struct api_path *path, const char *body, size_t n) {
    double best = 0;
    for (int i = 0; i < ROUNDS; i++) {
        struct body_look l;
        struct json_value *v = NULL;
        double from = now_s();
        if (path != NULL)
            body_look(&l, path, body, n);
        else if (json_read(&v, body, n, NULL, NULL) != ERR_OK)
            exit(1);
        double mb_s = (double)n / 1e6 / (now_s() - from);
        json_put(v);
        if (path != NULL && !l.is_object) exit(1);
        if (mb_s > best) best = mb_s;
    }
    return best;
}

int main(void) {
    static const struct {
        const char *name, *path, *head, *unit, *tail;
    } rows[] = {
        {"body_look_text", "/v1/chat/completions",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"",
         "The quick brown fox jumps over the lazy dog, and nobody has ever asked it why.\\n",
         "\"}]}"},
        {"body_look_chinese", "/v1/chat/completions",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"",
         "\xE4\xBD\xA0\xE5\xA5\xBD\xEF\xBC\x8C\xE4\xB8\x96\xE7\x95\x8C", "\"}]}"},
        {"body_look_messages", "/v1/chat/completions", "{\"messages\":[",
         "{\"role\":\"user\",\"content\":\"Forty characters of what somebody wrote.\"},",
         "{\"role\":\"user\",\"content\":\"\"}]}"},
        {"body_look_ids", "/v1/completions", "{\"prompt\":[", "12345,151643,7,", "1]}"},
        {"body_look_objects", "/v1/chat/completions", "{\"x\":[", "{},", "{}]}"},
        {"body_look_escapes", "/v1/completions", "{\"prompt\":\"", "\\u4f60", "\"}"},
        {"body_look_reals", "/v1/completions", "{\"x\":[", "1e1,", "1]}"},
        {"body_look_strings", "/v1/completions", "{\"x\":[", "\"\",", "1]}"},
        {"body_look_prompts", "/v1/completions", "{\"prompt\":[", "\"a\",", "1]}"},
        {"body_look_nested", "/v1/completions", "{\"x\":[", "[[[[[]]]]],", "1]}"},
        {"body_look_names", "/v1/completions", "{\"x\":{", "\"\":1,", "\"\":1}}"},
        {"body_look_root", "/v1/completions", "{", "\"\":1,", "\"\":1}"},
        {"body_look_root_n", "/v1/completions", "{", "\"n\":1,", "\"n\":1}"},
        {"body_look_root_names", "/v1/completions", "{",
         "\"stream\":1,\"max_completion_tokens\":1,", "\"n\":1}"},
        {"body_look_root_short_names", "/v1/completions", "{",
         "\"id\":1,\"input\":1,\"abcd\":1,\"abc\":1,", "\"n\":1}"},
        {"body_look_root_escaped", "/v1/completions", "{", "\"\\u006e\":1,", "\"n\":1}"},
        {"body_look_root_short_escapes", "/v1/completions", "{", "\"\\n\":1,", "\"n\":1}"},
        {"body_look_root_mixed", "/v1/completions", "{", "\"n\":1,\"\":{\"a\":1},\"stream\":[],",
         "\"n\":1}"},
        {"body_look_root_arrays", "/v1/completions", "{", "\"\":[],", "\"n\":1}"},
        {"body_look_root_objects", "/v1/completions", "{", "\"\":{},", "\"n\":1}"},
        {"body_look_root_nests", "/v1/completions", "{", "\"\":{\"\":{\"\":1}},", "\"n\":1}"},
        {"body_look_parts", "/v1/chat/completions", "{\"messages\":[",
         "{\"content\":[{\"type\":\"text\",\"text\":\"a\"}]},", "{}]}"},
        {"body_look_many_parts", "/v1/chat/completions", "{\"messages\":[{\"content\":[",
         "{\"text\":\"a\"},", "{}]}]}"},
        {"body_look_messages_spaced", "/v1/chat/completions", "{\"messages\":[", "{ }, ", "{}]}"},
        {"body_look_prompt_escapes", "/v1/completions", "{\"prompt\":[", "\"\\n\",", "1]}"},
        {"body_look_prompt_nested", "/v1/completions", "{\"prompt\":[", "[[[[[1]]]]],", "1]}"},
        {"body_look_prompt_deep", "/v1/completions", "{\"prompt\":[[[", "[[1]],", "1]]]}"},
        {"body_look_prompt_lists", "/v1/completions", "{\"prompt\":[", "[1],", "1]}"},
        {"body_look_prompt_pairs", "/v1/completions", "{\"prompt\":[", "[\"a\",1.5e3],", "1]}"},
        {"body_look_prompt_objects", "/v1/completions", "{\"prompt\":[", "{},", "1]}"},
        {"body_look_backslashes", "/v1/completions", "{\"prompt\":\"", "\\\\", "\"}"},
        {"body_look_spaces", "/v1/completions", "{\"prompt\":", "    ", "\"\"}"},
        {"json_tree_objects", NULL, "{\"x\":[", "{},", "{}]}"},
        {"json_tree_ids", NULL, "{\"prompt\":[", "12345,151643,7,", "1]}"},
    };
    char *body = malloc(BODY_BYTES + 400), model[MODEL_NAME_BYTES_MAX + 1];
    if (body == NULL) return 1;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *p = stpcpy(body, rows[i].head);
        while (p - body < BODY_BYTES) p = stpcpy(p, rows[i].unit);
        p = stpcpy(p, rows[i].tail);
        const struct api_path *path =
            rows[i].path != NULL ? api_path_find("POST", rows[i].path, model) : NULL;
        printf("%s_mb_s %.0f MB/s\n", rows[i].name, rate(path, body, (size_t)(p - body)));
    }
    free(body);
    return 0;
}
