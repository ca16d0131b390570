/* text.h - text encoders: token ids become embeddings. An encoder of images is one, too: it reads
 * pixels in place of ids. */
#ifndef XD_TEXT_TEXT_H
#define XD_TEXT_TEXT_H

#include "exec/net.h"

/* An image that an encoder reads among the ids, of whole cells of its vision tower. */
typedef struct xd_text_image {
    const uint8_t *rgb;         /* [height,width,3] on the host; NULL: black, to count or measure */
    int64_t        height, width;
    int64_t        at, n;       /* its tokens are the ids [at, at + n)                         */
    float          mean[3], std[3];     /* of colours in 0..1, which become (v - mean) / std */
} xd_text_image;

/* Which ids are text, and which hidden states are handed out. */
typedef struct xd_text_read {
    const int32_t *ids;         /* [n] on the host                                             */
    const float   *pixels;      /* of an encoder of images: [images,3,S,S] on the host, and n is the
                                 * rows of all of them                                         */
    int64_t        n;
    int64_t        first, real; /* ids [first, first + real) are text; the rest is padding      */
    int            nlayers;     /* number of hidden states                                     */
    const int     *layers;      /* their numbers, as of xd_text_layer                          */
    int            nimages;     /* of an encoder with a vision tower, in the order of their ids */
    const xd_text_image *images;
    xd_tensor      seen;        /* their rows, of xd_text_see; absent without images             */
} xd_text_read;

/* What a vision tower makes of an image. */
typedef struct xd_text_sight {
    int64_t patch, merge;       /* sides: pixels of a patch, patches of a token                */
    int32_t token;              /* the id in whose places an image's tokens stand              */
} xd_text_sight;

typedef struct xd_text_vision { /* what an image is to an encoder of images                    */
    int64_t side, rows;         /* pixels of its sides; rows that it becomes                   */
} xd_text_vision;

typedef struct xd_text xd_text;
struct xd_text {
    xd_net_def net;
    void (*vision)(const void *cfg, xd_text_vision *out);       /* NULL: it encodes text        */
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
    /* The same encoder with its vision tower, whose blocks run before its own; NULL: it has none.
     * Hidden states of it are numbered from the last one: -1, -2. */
    const xd_text *seeing;
    void (*sight)(const void *cfg, xd_text_sight *out); /* of an encoder with a vision tower   */
    /* Runs the tower over the images of r, of which nothing else is read: their tokens one after
     * the other -> rows [tokens,E] F32. */
    void (*see)(xd_exec *x, const xd_net *n, const xd_text_read *r, xd_tensor rows);
};

/* The index of a hidden state as in transformers' hidden_states: 0 is what the first block reads, k
 * what block k reads, nlayers the last one after the final norm; -1 is nlayers, -2 what the last
 * block reads. Numbers beyond these are the nearest of them. */
int xd_text_layer(const xd_net *n, int number);
/* The rows of the images of r, in the arena, for every text that has these images among its ids, in
 * this order; absent without images. */
xd_tensor xd_text_see(const xd_text *t, xd_exec *x, const xd_net *n, const xd_text_read *r);
/* Runs an encoder: `hidden` where it has numbered states, else `encode`, which takes text that
 * starts at row 0. */
void xd_text_encode(const xd_text *t, xd_exec *x, const xd_net *n, const xd_text_read *r,
                    xd_cond *out);
/* The number of blocks that run before all of these hidden states are there. */
int xd_text_blocks(const xd_net *n, const int *numbers, int count);

extern const xd_text *const xd_text_encoders[]; /* the registry; ends with NULL                */

#endif
