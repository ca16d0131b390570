/* text.h - declares text encoders, which turn token ids into embeddings. Image encoders use the
 * interface of text encoders, but read pixels instead of token ids. */
#ifndef XD_TEXT_TEXT_H
#define XD_TEXT_TEXT_H

#include "exec/net.h"

/* An image that a vision-language encoder reads between text tokens. The height and the width of
 * the image, in pixels, are multiples of the side of an image token. */
typedef struct xd_text_image {
    /* [height,width,3] pixels in host memory; NULL: a black image, which is used when memory is
     * counted or speed is measured. */
    const uint8_t *rgb;
    int64_t        height, width;
    int64_t        at, n;           /* the image's tokens are ids [at, at + n) of the text */
    float          mean[3], std[3]; /* colours v in 0..1 are normalized to (v - mean) / std */
} xd_text_image;

/* Input of a text encoder or an image encoder, and the list of hidden states that the encoder must
 * return. */
typedef struct xd_text_read {
    const int32_t       *ids; /* [n] token ids on the host */
    /* For an image encoder: [images,3,S,S] pixels in host memory; `n` is then the number of output
     * rows. For the vision network of a text encoder whose images all have one size: also
     * [images,3,S,S] pixels. */
    const float         *pixels;
    /* For encoders that read another encoder's output (connectors): [real, L E] in host memory,
     * where row i contains L hidden states of width E of text token i; NULL while memory is only
     * counted. */
    const float         *states;
    int64_t              n;
    /* token ids [first, first + real) are text; the other ids are padding */
    int64_t              first, real;
    int                  nlayers; /* number of hidden states that the encoder must return */
    const int           *layers;  /* [nlayers] indices of the hidden states, as in xd_text_layer */
    int                  raw;     /* 1: the last hidden state is the state before the final norm */
    int                  nimages; /* number of images, for an encoder with a vision tower */
    const xd_text_image *images;  /* [nimages] images, in the order of their tokens in `ids` */
    /* [tokens,(1 + deep) E] result of xd_text_run_vision: each row contains an image token's
     * embedding, followed by the features for the first `deep` blocks (xd_text_tower.deep). If
     * there are no images, image_rows has no dimensions (nd is 0). */
    xd_tensor            image_rows;
} xd_text_read;

/* Properties of a text encoder's vision network (vision tower). */
typedef struct xd_text_tower {
    int64_t patch, merge; /* side of a patch in pixels; side of a token in patches */
    int32_t token;        /* id of the placeholder that an image token replaces */
    /* Side in pixels of all images, which are square and are passed as xd_text_read.pixels. 0:
     * images have any size, and their pixels are in xd_text_image. */
    int64_t side;
    /* Number of blocks at the start of the language model after each of which image features are
     * added to the hidden state. The image features follow the embeddings in
     * xd_text_read.image_rows. */
    int     deep;
} xd_text_tower;

typedef struct xd_text_vision { /* input and output size of an image encoder */
    int64_t side, rows;         /* side of an image in pixels; number of output rows per image */
} xd_text_vision;

typedef struct xd_text xd_text;
struct xd_text {
    xd_net_def net;
    /* Writes the input and output size of an image encoder; NULL for a text encoder. */
    void       (*vision)(const void *cfg, xd_text_vision *out);
    int64_t    (*width)(const void *cfg); /* returns E, the width of a token embedding */
    /* For encoders that read another encoder's output (connectors), returns the width of the rows
     * of xd_text_read.states; NULL for other encoders. */
    int64_t    (*reads)(const void *cfg);
    /* returns P, the width of the pooled embedding; NULL: the encoder has no pooled embedding */
    int64_t    (*pooled)(const void *cfg);
    /* Encodes the n token ids `ids`, which are in host memory, to embeddings out->tok [n,E]. If the
     * encoder has a pooled embedding, `encode` also computes it. The tensors out->tok and
     * out->pooled are allocated from the arena. The first `real` token ids are text; the other ids
     * are padding. Attention does not read padding (like attention_mask in the library
     * transformers), but embeddings of padding tokens are computed too. An encoder runs its blocks
     * with xd_net_block, and marks and rewinds x->tmp around each block. */
    void (*encode)(xd_exec *x, const xd_net *n, const int32_t *ids, int64_t nids, int64_t real,
                   xd_cond *out);
    /* Computes several hidden states of the n tokens and concatenates them along the features:
     * out->tok [n,L E] for L hidden states of width E. If only the last hidden state (-1) is
     * requested, and the text begins at row 0, `encode` computes the same result. If `hidden` is
     * NULL, the encoder provides only `encode`. */
    void (*hidden)(xd_exec *x, const xd_net *n, const xd_text_read *r, xd_cond *out);
    /* Variant of this encoder that also runs the vision network (tower); NULL: the encoder has no
     * vision network. In a variant with a vision network, the blocks of the vision network come
     * before those of the language model, so hidden states are counted from the end: -1, -2. */
    const xd_text *with_vision;
    /* returns the properties of the vision tower; NULL: the encoder has no vision tower */
    void           (*tower)(const void *cfg, xd_text_tower *out);
    /* Runs the vision tower on r->images and writes the embeddings of all image tokens to `rows`,
     * f32, as in xd_text_read.image_rows. */
    void (*run_vision)(xd_exec *x, const xd_net *n, const xd_text_read *r, xd_tensor rows);
};

/* Converts an index of `hidden_states` in the library transformers, which counts from the end if it
 * is negative, to an index from 0 to nlayers. Hidden state k is the input of block k; hidden state
 * nlayers is the output after the final norm. An index out of range becomes the nearest index in
 * range. */
int       xd_text_layer(const xd_net *n, int number);
/* Encodes r->images, and returns the embeddings of the images' tokens, which are allocated from the
 * arena. The returned tensor can be used as xd_text_read.image_rows of every text that contains
 * these images in this order. If there are no images, the returned tensor has no dimensions (nd is
 * 0). */
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
