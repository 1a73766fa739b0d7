/* tok_pre_names: the table. */
#include "common/text/tok_pre_names.h"

#include <stdint.h>
#include <string.h>
#include "common/base/near_text.h"

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

/* The cased letters that the tokenizer of DeepSeek LLM and V2 lists one by one. */
#define CASED                                                                                      \
    "\\x{41}-\\x{5A}\\x{61}-\\x{7A}\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}"          \
    "\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}-\\x{377}"        \
    "\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}"                  \
    "\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}"                         \
    "\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}"                 \
    "\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}"                 \
    "\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}"                 \
    "\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}"         \
    "\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}"        \
    "\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}"        \
    "\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}"          \
    "\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}"        \
    "\\x{214E}\\x{2183}-\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}"        \
    "\\x{2CF2}-\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}"                 \
    "\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}"                 \
    "\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}"               \
    "\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}"         \
    "\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"

static const char *const
    gpt2[] = {GPT2, NULL},
    *const llama3[] = {LLAMA3, NULL}, *const qwen2[] = {QWEN2, NULL},
    *const qwen35[] = {CONTRACTED "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "
                                  "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" BLANKS,
                       NULL},
    *const starcoder[] = {"\\p{N}", GPT2, NULL},
    *const falcon[] = {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]", NULL},
    *const deepseek_coder[] = {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK, "\\p{N}", NULL},
    *const deepseek_llm[] =
        {"[\\r\\n]",
         "\\s?[" CASED "]+",
         "\\s?[!-/"
         ":-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+",
         "\\s+$",
         CJK,
         "\\p{N}+",
         NULL},
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
    {" deepseek-llm ", {deepseek_llm, false, false}},
    {" deepseek-coder ", {deepseek_coder, false, false}},
    {" deepseek-v3 hunyuan-dense joyai-llm ", {deepseek_v3, false, false}},
    {" gpt-4o llama4 kanana2 talkie minimax-m2 ", {o200k, false, false}},
    {" tekken ", {tekken, true, true}},
    {" bailingmoe bailingmoe2 llada-moe ", {bailing, false, false}},
    {" seed-coder ", {seed_coder, false, false}},
};

const char *tok_pre_nearest(const char *name, size_t *n) {
    const char *best = "";
    size_t n_best = 0, least = SIZE_MAX;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        for (const char *s = table[i].names + 1; *s != 0; s += strcspn(s, " ") + 1) {
            const size_t n_s = strcspn(s, " "), d = near_distance(name, *n, s, n_s);
            if (d >= least) continue;
            least = d;
            best = s;
            n_best = n_s;
        }
    }
    *n = n_best;
    return best;
}

const struct tok_pre *tok_pre_find(const char *name, size_t n) {
    if (n == 0 || memchr(name, ' ', n) != NULL || memchr(name, 0, n) != NULL) return NULL;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        for (const char *s = table[i].names; (s = strchr(s, ' ')) != NULL && s[1] != 0; s++)
            if (strncmp(s + 1, name, n) == 0 && s[1 + n] == ' ') return &table[i].pre;
    }
    return NULL;
}
