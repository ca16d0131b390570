/* words.h - lists of words in one text, as tables have them */
#ifndef XD_BASE_WORDS_H
#define XD_BASE_WORDS_H

#include <stddef.h>

/* Is `word` one of the list's, which stand apart by spaces or commas? Without a letter it is none. */
int xd_word_listed(const char *list, const char *word);
/* The same of the first n letters of `word`. */
int xd_word_listed_n(const char *list, const char *word, size_t n);

#endif
