/* word_list.h - lists of words in one string, as tables hold them */
#ifndef XD_BASE_WORD_LIST_H
#define XD_BASE_WORD_LIST_H

#include <stddef.h>

/* Is `word` an element of a space- or comma-separated list? The empty word never is. */
int xd_list_has(const char *list, const char *word);
/* Is the word of the first n letters of `word` an element of the list? */
int xd_list_has_n(const char *list, const char *word, size_t n);

/* Our name of an element type: "bf16" for "bfloat16". Other words are returned unchanged. */
const char *xd_word_dtype(const char *word);
/* Is it a name of float16? */
int xd_word_half(const char *word);

#endif
