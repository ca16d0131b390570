/* word_list.h - lists of words in one string, separated by spaces or commas */
#ifndef XD_BASE_WORD_LIST_H
#define XD_BASE_WORD_LIST_H

#include <stddef.h>

/* Returns 1 if `word` is an element of the list. The empty word never is. */
int xd_list_has(const char *list, const char *word);
/* As xd_list_has, for the first n bytes of `word`. */
int xd_list_has_n(const char *list, const char *word, size_t n);

/* Returns xdit's name of an element type: "bf16" for "bfloat16". Other words are returned
 * unchanged. */
const char *xd_word_dtype(const char *word);
/* Returns 1 for the names of float16: "fp16", "half". */
int xd_word_half(const char *word);

#endif
