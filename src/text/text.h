/* text.h - text encoders: token ids become embeddings */
#ifndef XD_TEXT_TEXT_H
#define XD_TEXT_TEXT_H

#include "exec/net.h"

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
} xd_text;

extern const xd_text *const xd_text_encoders[]; /* the registry; ends with NULL                */

#endif
