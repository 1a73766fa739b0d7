/* tok_pre_names: the table. */
#include "common/text/tok_pre_names.h"

#include <string.h>

/* Pieces that many of them share. */
#define CONTRACTED "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define BLANKS     "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define WORD       "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define SIGNS      " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define GPT2       "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LLAMA3     CONTRACTED "|" WORD "|\\p{N}{1,3}|" SIGNS "|" BLANKS
#define QWEN2      CONTRACTED "|" WORD "|\\p{N}|" SIGNS "|" BLANKS
#define UPPER      "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER      "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K_WORDS(tail)                                                                          \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" tail "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER    \
    "*" tail
#define O200K_REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" BLANKS
#define HAN        "\xE4\xB8\x80-\xE9\xBE\xA5"                          /* U+4E00 to U+9FA5 */
#define KANA       "\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF" /* U+3040 to U+30FF */
#define CJK                                                                                        \
    "[" HAN "\xE0\xA0\x80-\xE4\xB8\x80\xEA\xB0\x80-\xED\x9F\xBF]+" /* U+0800 to U+4E00, AC00 */
#define V3_WORDS                                                                                   \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?"           \
    "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" BLANKS

static const char *const
    gpt2[] = {GPT2, NULL},
    *const llama3[] = {LLAMA3, NULL}, *const qwen2[] = {QWEN2, NULL},
    *const qwen35[] = {CONTRACTED "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "
                                  "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" BLANKS,
                       NULL},
    *const starcoder[] = {"\\p{N}", GPT2, NULL},
    *const falcon[] = {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]", NULL},
    *const deepseek_coder[] = {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK, "\\p{N}", NULL},
    *const deepseek_v3[] = {"\\p{N}{1,3}", "[" HAN KANA "]+", V3_WORDS, NULL},
    *const o200k[] = {O200K_WORDS(CONTRACTED "?") "|\\p{N}{1,3}" O200K_REST, NULL},
    *const tekken[] = {O200K_WORDS("") "|\\p{N}" O200K_REST, NULL},
    *const bailing[] = {"'(?i:[sdmt]|ll|ve|re)|" WORD
                        "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]|"
                        "\\s+(?!\\S)|\\s+",
                        NULL},
    *const seed_coder[] = {CONTRACTED "|" WORD "|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" BLANKS,
                           NULL};

static const struct {
    const char *names; /* separated by blanks */
    struct tok_pre pre;
} table[] = {
    {" llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano ",
     {llama3, true, true}},
    {" dbrx smaug-bpe glm4 chatglm-bpe ", {llama3, false, false}},
    {" qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2 ",
     {qwen2, false, false}},
    {" qwen35 ", {qwen35, false, false}},
    {" gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 modern-bert mellum gigachat "
     "a.x-4.0 jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe ",
     {gpt2, false, false}},
    {" starcoder refact command-r smollm codeshell exaone minerva-7b mellum2 ",
     {starcoder, false, false}},
    {" falcon ", {falcon, false, false}},
    {" deepseek-coder ", {deepseek_coder, false, false}},
    {" deepseek-v3 hunyuan-dense joyai-llm ", {deepseek_v3, false, false}},
    {" gpt-4o llama4 kanana2 talkie minimax-m2 ", {o200k, false, false}},
    {" tekken ", {tekken, true, true}},
    {" bailingmoe bailingmoe2 llada-moe ", {bailing, false, false}},
    {" seed-coder ", {seed_coder, false, false}},
};

const struct tok_pre *tok_pre_find(const char *name, size_t n) {
    if (n == 0 || memchr(name, ' ', n) != NULL || memchr(name, 0, n) != NULL) return NULL;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        for (const char *s = table[i].names; (s = strchr(s, ' ')) != NULL && s[1] != 0; s++)
            if (strncmp(s + 1, name, n) == 0 && s[1 + n] == ' ') return &table[i].pre;
    }
    return NULL;
}
