/* text.h - text encoders: token ids become embeddings */
#ifndef XD_TEXT_TEXT_H
#define XD_TEXT_TEXT_H

#include "exec/net.h"

/* Which ids are text, and which hidden states are handed out. */
typedef struct xd_text_read {
    const int32_t *ids;         /* [n] on the host                                             */
    int64_t        n;
    int64_t        first, real; /* ids [first, first + real) are text; the rest is padding      */
    int            nlayers;     /* number of hidden states                                     */
    const int     *layers;      /* their numbers, as of xd_text_layer                          */
} xd_text_read;

typedef struct xd_text {
    xd_net_def net;
    int64_t (*width)(const void *cfg);          /* E: width of a token embedding                */
    int64_t (*pooled)(const void *cfg);         /* P: width of the pooled embedding; NULL: none */
    /* ids [n] on the host -> out->tok [n,E] (and the pooled embedding), in the arena. The first
     * `real` ids are text; the rest is padding, masked in attention (transformers'
     * attention_mask), whose rows are computed like those of text. `layer_done` of the engine
     * rewinds block memory: an encoder runs its own blocks with xd_net_block and marks and
     * rewinds x->tmp around each. */
    void (*encode)(xd_exec *x, const xd_net *n, const int32_t *ids, int64_t nids, int64_t real,
                   xd_cond *out);
    /* Hidden states side by side: out->tok [n,L E]. It is as `encode` in all else, whose result is
     * hidden state -1 of text that starts at row 0. NULL: the encoder has no numbered states. */
    void (*hidden)(xd_exec *x, const xd_net *n, const xd_text_read *r, xd_cond *out);
} xd_text;

/* The index of a hidden state as in transformers' hidden_states: 0 is what the first block reads, k
 * what block k reads, nlayers the last one after the final norm; -1 is nlayers, -2 what the last
 * block reads. Numbers beyond these are the nearest of them. */
int xd_text_layer(const xd_net *n, int number);
/* Runs an encoder: `hidden` where it has numbered states, else `encode`, which takes text that
 * starts at row 0. */
void xd_text_encode(const xd_text *t, xd_exec *x, const xd_net *n, const xd_text_read *r,
                    xd_cond *out);
/* The number of blocks that run before all of these hidden states are there. */
int xd_text_blocks(const xd_net *n, const int *numbers, int count);

extern const xd_text *const xd_text_encoders[]; /* the registry; ends with NULL                */

#endif
