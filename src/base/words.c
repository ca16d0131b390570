/* words.c - looking a word up; see words.h */
#include "base/words.h"

#include <string.h>

int xd_word_listed_n(const char *list, const char *word, size_t n)
{
    static const char between[] = " ,";
    for (const char *p = list; n && *p; p += strcspn(p, between), p += strspn(p, between))
        if (strcspn(p, between) == n && memcmp(p, word, n) == 0)
            return 1;
    return 0;
}

int xd_word_listed(const char *list, const char *word)
{
    return xd_word_listed_n(list, word, strlen(word));
}
