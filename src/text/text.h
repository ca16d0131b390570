/* text.h - text encoders: from token ids to embeddings. Image encoders have the same interface and
 * read pixels instead of ids. */
#ifndef XD_TEXT_TEXT_H
#define XD_TEXT_TEXT_H

#include "exec/net.h"

/* An image among the ids of a vision-language encoder. Its sides are multiples of a token's
 * side. */
typedef struct xd_text_image {
    const uint8_t *rgb;         /* [height,width,3] on the host; NULL: black, to count or measure */
    int64_t        height, width;
    int64_t        at, n;       /* its tokens are the ids [at, at + n)                         */
    float          mean[3], std[3];     /* normalization of colours in 0..1: (v - mean) / std  */
} xd_text_image;

/* The input of an encoder, and the hidden states to return. */
typedef struct xd_text_read {
    const int32_t *ids;         /* [n] on the host                                             */
    const float   *pixels;      /* for an image encoder: [images,3,S,S] on the host; n is then
                                   the number of output rows                                   */
    int64_t        n;
    int64_t        first, real; /* ids [first, first + real) are text; the rest is padding      */
    int            nlayers;     /* number of hidden states                                     */
    const int     *layers;      /* their indices, as in xd_text_layer                          */
    int            nimages;     /* images, for an encoder with a vision tower                  */
    const xd_text_image *images;        /* [nimages], in the order of their ids                */
    xd_tensor      image_rows;  /* result of xd_text_run_vision; nd 0: no images               */
} xd_text_read;

/* Geometry of a vision tower. */
typedef struct xd_text_tower {
    int64_t patch, merge;       /* side of a patch in pixels; side of a token in patches       */
    int32_t token;              /* id of the placeholder for an image token                    */
} xd_text_tower;

typedef struct xd_text_vision { /* input and output size of an image encoder                   */
    int64_t side, rows;         /* pixels of an image's side; output rows per image            */
} xd_text_vision;

typedef struct xd_text xd_text;
struct xd_text {
    xd_net_def net;
    void (*vision)(const void *cfg, xd_text_vision *out);       /* NULL: a text encoder         */
    int64_t (*width)(const void *cfg);          /* E: width of a token embedding                */
    int64_t (*pooled)(const void *cfg);         /* P: width of the pooled embedding; NULL: none */
    /* Encodes ids [n] on the host to out->tok [n,E] (and the pooled embedding), in the arena. The
     * first `real` ids are text; the rest is padding, masked in attention (transformers'
     * attention_mask); rows of padding are computed like those of text. An encoder runs its blocks
     * with xd_net_block, and marks and rewinds x->tmp around each. */
    void (*encode)(xd_exec *x, const xd_net *n, const int32_t *ids, int64_t nids, int64_t real,
                   xd_cond *out);
    /* Computes L hidden states and concatenates them along the features: out->tok [n,L E]. `encode`
     * is the same with hidden state -1 and text from row 0 on. NULL: only `encode`. */
    void (*hidden)(xd_exec *x, const xd_net *n, const xd_text_read *r, xd_cond *out);
    /* The same encoder with its vision tower, whose blocks come first; NULL: it has none. Its
     * hidden states are indexed from the last one: -1, -2. */
    const xd_text *with_vision;
    void (*tower)(const void *cfg, xd_text_tower *out); /* NULL: without a vision tower        */
    /* Runs the tower over r->images and writes the rows of all image tokens, [tokens,E] f32. */
    void (*run_vision)(xd_exec *x, const xd_net *n, const xd_text_read *r, xd_tensor rows);
};

/* Converts an index of transformers' hidden_states, negative ones from the end, to 0 .. nlayers:
 * state k is the input of block k, state nlayers the output after the final norm. Clamps indices
 * that are out of range. */
int xd_text_layer(const xd_net *n, int number);
/* Encodes r->images to rows in the arena, for xd_text_read.image_rows of every text that contains
 * these images in this order. Returns a tensor with nd 0 without images. */
xd_tensor xd_text_run_vision(const xd_text *t, xd_exec *x, const xd_net *n, const xd_text_read *r);
/* Runs an encoder: `hidden` if it has it, else `encode`, whose text must start at row 0. */
void xd_text_encode(const xd_text *t, xd_exec *x, const xd_net *n, const xd_text_read *r,
                    xd_cond *out);
/* Returns the number of blocks that must run for these hidden states. */
int xd_text_blocks(const xd_net *n, const int *numbers, int count);

extern const xd_text *const xd_text_encoders[]; /* the registry; ends with NULL                */

#endif
