/* text.h - text encoders: token ids become embeddings */
#ifndef XD_TEXT_TEXT_H
#define XD_TEXT_TEXT_H

#include "exec/net.h"

typedef struct xd_text_how {    /* which hidden state a pipeline takes                        */
    int skip;                   /* blocks at the end that it has not passed: with 1 it is the one
                                   before the last block (hidden_states[-2] of transformers)   */
    int raw;                    /* 1: without the final norm                                   */
} xd_text_how;

typedef struct xd_text {
    xd_net_def net;
    int64_t (*width)(const void *cfg);          /* E: of a token embedding                     */
    /* P: of the pooled embedding, which is always made of all blocks and the final norm; NULL:
     * this encoder makes none. */
    int64_t (*pooled)(const void *cfg);
    /* ids [n] on the host -> out->tok [n,E] and out->pooled [1,P], in the arena. Every id is read,
     * padding too: who wants padding, or none, hands in such ids. how NULL: the last hidden state
     * with its norm. `layer_done` of the engine rewinds block memory: encoders run their own
     * blocks with xd_net_block and mark and rewind x->tmp around each. */
    void (*encode)(xd_exec *x, const xd_net *n, const int32_t *ids, int64_t nids,
                   const xd_text_how *how, xd_cond *out);
} xd_text;

extern const xd_text *const xd_text_encoders[]; /* the registry, NULL at the end               */

#endif
