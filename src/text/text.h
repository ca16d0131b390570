/* text.h - text encoders: token ids become embeddings */
#ifndef XD_TEXT_TEXT_H
#define XD_TEXT_TEXT_H

#include "exec/net.h"

typedef struct xd_text {
    xd_net_def net;
    int64_t (*width)(const void *cfg);          /* E: of a token embedding                     */
    int64_t (*pooled)(const void *cfg);         /* P: of the pooled one; NULL: there is none    */
    /* ids [n] on the host -> out->tok [n,E] (and pooled), in the arena. The first `real` are text; the
     * others are padding that no token sees (transformers' attention_mask), whose rows are made like
     * those of text. `layer_done` of the engine rewinds block memory: encoders run their own blocks with
     * xd_net_block and mark and rewind x->tmp around each. */
    void (*encode)(xd_exec *x, const xd_net *n, const int32_t *ids, int64_t nids, int64_t real, xd_cond *out);
} xd_text;

extern const xd_text *const xd_text_encoders[]; /* the registry, NULL at the end               */

#endif
