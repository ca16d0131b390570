/* spm.h - C interface to the SentencePiece library: opens a model from memory and finds ids of
 * pieces.
 *
 * The library checks the model and owns the pieces. unigram.c searches the best segmentation
 * itself: the library adds scores in f32, but transformers' tokenizers in f64, so that ties (a row
 * of dots) would be resolved differently. */
#ifndef XD_TOK_SPM_H
#define XD_TOK_SPM_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xd_spm xd_spm;

/* Opens a serialized ModelProto. NULL on failure, with the library's message in why[0..size). */
xd_spm *xd_spm_open(const void *model, size_t len, char *why, size_t size);
void    xd_spm_close(xd_spm *m);        /* accepts NULL                                      */
int     xd_spm_size(const xd_spm *m);   /* number of pieces                                  */
/* Id of the piece with exactly these bytes; -1: none. */
int     xd_spm_find(const xd_spm *m, const char *s, size_t len);

#ifdef __cplusplus
}
#endif

#endif
