/* word_list.h - searches for words in lists that are stored as one string. A list is one string
 * whose words are separated by spaces or commas. */
#ifndef XD_BASE_WORD_LIST_H
#define XD_BASE_WORD_LIST_H

#include <stddef.h>

/* Returns 1 if `word` is an element of the list `list`. Returns 0 if `word` is empty. */
int xd_list_has(const char *list, const char *word);
/* Returns 1 if the first n bytes of `word` are an element of the list. */
int xd_list_has_n(const char *list, const char *word, size_t n);

/* Returns xdit's name of an element type that has several names, such as "bf16" for "bfloat16".
 * Returns any other word unchanged. */
const char *xd_word_dtype(const char *word);
/* Returns 1 if `word` is a name of the element type float16: "fp16" or "half". */
int         xd_word_half(const char *word);

#endif
