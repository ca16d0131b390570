/* text.h - declares text encoders, which turn token ids into embeddings. Image encoders have the
 * same interface, but read pixels in place of token ids. */
#ifndef XD_TEXT_TEXT_H
#define XD_TEXT_TEXT_H

#include "exec/net.h"

/* An image that a vision-language encoder reads between text tokens. The height and the width of
 * the image, in pixels, are multiples of the side of an image token. */
typedef struct xd_text_image {
    /* [height,width,3] pixels on the host. NULL: a black image, which is used when memory is
     * counted or speed is measured. */
    const uint8_t *rgb;
    int64_t        height, width;
    int64_t        at, n;           /* the image's tokens are ids [at, at + n) of the text */
    float          mean[3], std[3]; /* colours v in 0..1 are normalized to (v - mean) / std */
} xd_text_image;

/* The input of a text encoder or an image encoder, and the list of hidden states that the encoder
 * shall return. */
typedef struct xd_text_read {
    const int32_t *ids; /* [n] token ids on the host */
    /* For an image encoder: [images,3,S,S] pixels on the host; `n` is then the number of output
     * rows. For a vision tower with images of one size: such pixels, too. */
    const float   *pixels;
    /* For connectors, which read another encoder's hidden states: [real, L E] those of the text's
     * ids, state after state, on the host. NULL while memory is counted. */
    const float   *states;
    int64_t        n;
    int64_t        first, real;  /* ids [first, first + real) are text; the other ids are padding */
    int            nlayers;      /* number of hidden states to return */
    const int     *layers;       /* [nlayers] indices of the hidden states, as in xd_text_layer */
    int            raw;          /* 1: the last hidden state is that before the final norm */
    int            nimages;      /* number of images, for an encoder with a vision tower */
    const xd_text_image *images; /* [nimages] images, in the order of their tokens in `ids` */
    /* [tokens,(1 + deep) E] embeddings of the images' tokens and, behind them, the features that
     * xd_text_tower.deep counts, computed by xd_text_run_vision. If there are no images, the tensor
     * has no dimensions (nd is 0). */
    xd_tensor            image_rows;
} xd_text_read;

/* Properties of the vision tower of a text encoder. */
typedef struct xd_text_tower {
    int64_t patch, merge; /* side of a patch in pixels; side of a token in patches */
    int32_t token;        /* id of the placeholder that an image token replaces */
    /* Side in pixels of all images, which are square and are passed as xd_text_read.pixels. 0:
     * images have any size, and their pixels are those of xd_text_image. */
    int64_t side;
    /* Number of the language model's first blocks after which features of the images are added.
     * These features follow the embeddings in xd_text_read.image_rows. */
    int     deep;
} xd_text_tower;

typedef struct xd_text_vision { /* input and output size of an image encoder */
    int64_t side, rows;         /* side of an image in pixels; output rows per image */
} xd_text_vision;

typedef struct xd_text xd_text;
struct xd_text {
    xd_net_def net;
    /* Writes the input and output size of an image encoder. The pointer is NULL for a text
     * encoder. */
    void       (*vision)(const void *cfg, xd_text_vision *out);
    int64_t    (*width)(const void *cfg); /* returns E, the width of a token embedding */
    /* Returns the width of the rows xd_text_read.states of connectors; NULL: other encoders. */
    int64_t    (*reads)(const void *cfg);
    /* returns P, the width of the pooled embedding; NULL: the encoder has no pooled embedding */
    int64_t    (*pooled)(const void *cfg);
    /* Encodes ids [n], which are in host memory, to out->tok [n,E]. If the encoder has a pooled
     * embedding, computes it, too. Both tensors are allocated from the arena. The first `real` ids
     * are text, and the other ids are padding. Attention does not read padding (transformers'
     * attention_mask), but the rows of padding tokens are computed in the same way as the rows of
     * text tokens. An encoder runs its blocks with xd_net_block, and marks and rewinds x->tmp
     * around each block. */
    void (*encode)(xd_exec *x, const xd_net *n, const int32_t *ids, int64_t nids, int64_t real,
                   xd_cond *out);
    /* Computes L hidden states and concatenates them along the features: out->tok [n,L E]. If
     * hidden state -1 is the only one that is requested, and the text begins at row 0, `encode`
     * computes the same result. NULL: the encoder has only `encode`. */
    void (*hidden)(xd_exec *x, const xd_net *n, const xd_text_read *r, xd_cond *out);
    /* The variant of this encoder that also runs the vision tower. In the variant, the blocks of
     * the tower come before those of the language model, so hidden states have indices from the
     * end: -1, -2. NULL: the encoder has no vision tower. */
    const xd_text *with_vision;
    /* returns the properties of the vision tower; NULL: the encoder has no vision tower */
    void           (*tower)(const void *cfg, xd_text_tower *out);
    /* Runs the vision tower on r->images and writes the embeddings of all image tokens to `rows`,
     * f32, as in xd_text_read.image_rows. */
    void (*run_vision)(xd_exec *x, const xd_net *n, const xd_text_read *r, xd_tensor rows);
};

/* Converts an index of transformers' hidden_states, which may be negative to count from the end, to
 * an index from 0 to nlayers. Hidden state k is the input of block k; hidden state nlayers is the
 * output after the final norm. An index out of range becomes the nearest one in range. */
int       xd_text_layer(const xd_net *n, int number);
/* Encodes r->images, and returns the embeddings of the images' tokens, which are allocated from the
 * arena. The result can be used as xd_text_read.image_rows of every text that contains these images
 * in this order. If there are no images, returns a tensor without dimensions (nd is 0). */
xd_tensor xd_text_run_vision(const xd_text *t, xd_exec *x, const xd_net *n, const xd_text_read *r);
/* Runs encoder t: calls t->hidden or, if it is NULL, t->encode, for which the text must begin at
 * row 0. */
void      xd_text_encode(const xd_text *t, xd_exec *x, const xd_net *n, const xd_text_read *r,
                         xd_cond *out);
/* Returns how many blocks must run to compute the hidden states with these indices. */
int       xd_text_blocks(const xd_net *n, const int *numbers, int count);

/* list of all text and image encoders; ends with NULL */
extern const xd_text *const xd_text_encoders[];

#endif
