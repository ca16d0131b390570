/* spm.h - the thin C face of the SentencePiece library: a model read from memory, and which id a
 * piece has.
 *
 * The library checks the model and owns the pieces. The best segmentation is searched in
 * unigram.c, because the library adds scores in f32 and transformers' tokenizers in f64: equal
 * sums (a row of dots) then fall differently. */
#ifndef XD_TOK_SPM_H
#define XD_TOK_SPM_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xd_spm xd_spm;

/* Opens a serialized ModelProto. NULL on failure, with the library's reason in why[0..size). */
xd_spm *xd_spm_open(const void *model, size_t len, char *why, size_t size);
void    xd_spm_close(xd_spm *m);        /* accepts NULL                                      */
int     xd_spm_size(const xd_spm *m);   /* pieces                                            */
/* The id of the piece that is exactly these bytes; -1: there is none. */
int     xd_spm_find(const xd_spm *m, const char *s, size_t len);

#ifdef __cplusplus
}
#endif

#endif
