/* spm.h - C interface to the SentencePiece library: opens a tokenizer model from memory and finds
 * the ids of its pieces.
 *
 * The SentencePiece library checks the tokenizer model and owns its pieces. SentencePiece's own
 * segmentation is not used; unigram.c searches for the best segmentation of a text into pieces.
 * SentencePiece adds scores in f32, but transformers' tokenizers add them in f64, so that ties (as
 * in a row of dots) would be resolved differently. */
#ifndef XD_TOK_SPM_H
#define XD_TOK_SPM_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xd_spm xd_spm;

/* Opens a tokenizer model, which is a serialized ModelProto. On failure, returns NULL and writes
 * the library's error message to why[0..size). */
xd_spm *xd_spm_open(const void *model, size_t len, char *why, size_t size);
void    xd_spm_close(xd_spm *m);      /* closes a tokenizer model; m may be NULL */
int     xd_spm_size(const xd_spm *m); /* returns the number of pieces of the model */
/* Returns the id of the piece with exactly these bytes, or -1 if the model has no such piece. */
int     xd_spm_find(const xd_spm *m, const char *s, size_t len);

#ifdef __cplusplus
}
#endif

#endif
