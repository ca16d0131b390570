/* word_list.c - finds words in lists, and returns xdit's short names of data types */
#include "base/word_list.h"

#include <string.h>

int xd_list_has_n(const char *list, const char *word, size_t n)
{
    static const char between[] = " ,";
    for (const char *p = list; n && *p; p += strcspn(p, between), p += strspn(p, between))
        if (strcspn(p, between) == n && memcmp(p, word, n) == 0)
            return 1;
    return 0;
}

int xd_list_has(const char *list, const char *word)
{
    return xd_list_has_n(list, word, strlen(word));
}

const char *xd_word_dtype(const char *word)
{
    static const char *const names[][2] = {
        { "bfloat16", "bf16" },     { "torch.bfloat16", "bf16" },
        { "float32", "f32" },       { "torch.float32", "f32" },
        { "fp32", "f32" },          { "float", "f32" },
        { "fp16", "f16" },          { "float16", "f16" },
        { "torch.float16", "f16" }, { "half", "f16" },
        { "float8_e4m3fn", "fp8" }, { "torch.float8_e4m3fn", "fp8" },
        { "e4m3", "fp8" },
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i][0], word) == 0)
            return names[i][1];
    return word;
}

int xd_word_half(const char *word)
{
    return strcmp(xd_word_dtype(word), "f16") == 0;
}
