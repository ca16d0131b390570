/* word_list.h - searches words in lists that are strings. A list is one string whose words are
 * separated by spaces or commas. */
#ifndef XD_BASE_WORD_LIST_H
#define XD_BASE_WORD_LIST_H

#include <stddef.h>

/* Returns 1 if `word` is an element of the list `list`. Returns 0 for the empty word. */
int xd_list_has(const char *list, const char *word);
/* Returns 1 if the first n bytes of `word` are an element of the list. */
int xd_list_has_n(const char *list, const char *word, size_t n);

/* Returns xdit's name of an element type that has other names: "bf16" for "bfloat16". Returns
 * unchanged a word that has no other name. */
const char *xd_word_dtype(const char *word);
/* Returns 1 if `word` is a name of the element type float16: "fp16" or "half". */
int         xd_word_half(const char *word);

#endif
