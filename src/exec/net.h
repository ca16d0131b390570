/* net.h - defines a neural network, which has a config, weights outside the blocks, and a list of
 * blocks.
 *
 * Text encoders, transformers and VAEs are networks; each kind adds its own functions. */
#ifndef XD_EXEC_NET_H
#define XD_EXEC_NET_H

#include "base/json.h"
#include "exec/exec.h"
#include "exec/weight.h"
#include "exec/weight_stream.h"

typedef struct xd_net xd_net;

typedef struct xd_state { /* activations that are passed from block to block and rank to rank */
    /* The hidden state, F32, which blocks change in place. The hidden state consists of this rank's
     * tokens of text, padding, reference images, image and audio, in this order. Each token is a
     * row of D features. A model may use only the first features of an audio token. In a model with
     * several hidden states per token (xd_dit_info.states), the memory contains the first state of
     * all tokens, then the second state of all tokens, and so on. */
    xd_tensor   h;
    /* Outputs of early blocks, which later blocks read (long skip connections). The outputs, in the
     * compute type, follow each other along the rows: k blocks give k times as many rows as h, of D
     * features. Absent if the model has no long skip connections. */
    xd_tensor   skips;
    /* The input that the current block gets from a long skip connection, [rows of h, D], or
     * absent. */
    xd_tensor   skip;
    /* Tensors that the model's function cond() has computed for the current forward pass, and that
     * are not sent to other ranks. */
    void       *local;
    /* Timestep of the forward pass (xd_input.t); 0 if the network is not a transformer. */
    double      t;
    /* Tensors that depend only on the text, kept between steps (xd_dit.keep). */
    const void *kept;
} xd_state;

typedef struct xd_block { /* describes a kind of block of a network */
    /* Prefix of tensor names in the checkpoint: "transformer_blocks.%d". */
    const char *name;
    size_t      size; /* size in bytes of the struct that contains a block's weights */
    void        (*weights)(xd_decl *d, const void *cfg, int layer, void *w);
    void        (*forward)(xd_exec *x, const xd_net *n, const void *w, xd_state *s);
} xd_block;

/* Definition of a kind of network, such as a certain text encoder. An xd_net_def is the first
 * member of xd_text, xd_dit and xd_vae. */
typedef struct xd_net_def {
    const char        *name; /* xdit's name of the network, for example "t5" */
    /* values of `_class_name` or `architectures` in a config that select this network */
    const char        *classes[6];
    /* Prefix of tensor names, such as "text_model.", which a file may omit; NULL: no prefix. */
    const char        *prefix;
    /* Other prefixes that a file may use in place of `prefix`; the list ends with NULL. */
    const char *const *prefixes;
    /* Prefix of the tensor names in printed lists, for example ""; NULL: printed names begin with
     * `prefix`. */
    const char        *lead;
    /* Start of some declared tensor names, such as "visual.". In a file, a name that starts with
     * `beside` has either no prefix or `prefix`, but never one of `prefixes`. `beside` may be
     * NULL. */
    const char        *beside;
    /* A piece of some declared tensor names, such as "vision_model.", that names in files may lack;
     * NULL: no such piece. */
    const char        *omits;
    /* Names of tensors that files may contain, with or without a prefix, but that are never read. A
     * star at the start or end of an entry of `unread` matches any text: "visual.*". */
    const char        *unread[6];
    const xd_field    *fields; /* field table for reading config.json into the cfg struct */
    size_t             cfg_size, glob_size;
    /* Function that is called after the table's fields are read, to read config values that no
     * table can describe, such as the configs of side networks. If `read` is NULL, the table
     * describes the whole config. */
    xd_status          (*read)(void *cfg, const xd_json *obj, const char *what, xd_err *e);
    /* Function that is called after the config is read, to compute derived values, and to refuse
     * impossible or unsupported values with an error that names the config key. If `check` is NULL,
     * the config needs no check. */
    xd_status          (*check)(void *cfg, xd_err *e);
    /* Function that returns the number of blocks of the network. If `nlayers` is NULL, the network
     * has no blocks. */
    int                (*nlayers)(const void *cfg);
    const xd_block    *(*block)(const void *cfg, int layer);
    /* Returns 1 for a block that is never run (an idle block). Files contain the weights of idle
     * blocks, but these weights are not loaded. If `idle` is NULL, all blocks are run. */
    int                (*idle)(const void *cfg, int layer);
    void               (*weights)(xd_decl *d, const void *cfg, void *glob);
} xd_net_def;

struct xd_net {
    const xd_net_def *def;
    void             *cfg;
    void             *glob; /* weights outside the blocks */
    /* layer[i] points to the weights of block i; it is NULL if the block is on another pipeline
     * stage or is never run. */
    void            **layer;
    int               nlayers;
    int               first, last; /* this rank's pipeline stage has blocks [first, last) */
    /* Copies the weights of blocks that stay in host memory to the device when they are needed;
     * NULL: all weights are on the device. */
    xd_weight_stream *stream;
};

/* Opens a network: reads its config from the JSON object `obj` by the field table of `def`. If
 * `obj` is NULL, all values of the config have their defaults. Call xd_net_close also after a
 * failure. */
xd_status   xd_net_open(xd_net *n, const xd_net_def *def, const xd_json *obj, const char *what,
                        xd_err *e);
void        xd_net_close(xd_net *n);
/* Returns 1 if files may have a tensor of this name that the network does not read. */
int         xd_net_unread(const xd_net_def *def, const char *name);
/* Returns the number that stands for block `layer` in the checkpoint's tensor names. For example,
 * block 19 of the network may be "single_transformer_blocks.0". */
int         xd_net_number(const xd_net *n, int layer);
/* Declares weights to d: the network's weights outside the blocks, and the weights of the blocks of
 * this rank's pipeline stage. */
xd_status   xd_net_visit(xd_net *n, xd_decl *d);
/* Returns the weights of block `layer`. The caller may queue computations with the returned weights
 * until the next call of xd_net_layer. Call xd_net_layer for all blocks of this rank's pipeline
 * stage, in order, because weights may be copied to the device just before they are used. To use
 * the weights, call xd_net_layer; n->layer itself may be read only for the shapes of weights. */
const void *xd_net_layer(xd_exec *x, const xd_net *n, int layer);
/* Runs block `layer` on the activations s. */
void        xd_net_block(xd_exec *x, const xd_net *n, int layer, xd_state *s);

/* Position of a reference image among the rows of the text embedding xd_cond.tok, for transformers
 * that read reference images there (xd_dit_info.prefix_refs). */
typedef struct xd_cond_image {
    int64_t at, n;      /* rows [at, at + n) of the text embedding belong to the image */
    int64_t rows, cols; /* size of the reference image in latent tokens */
} xd_cond_image;

struct xd_cond { /* an encoded prompt, valid during the request */
    /* [n,E] F32: text embeddings of n tokens, which include padding tokens if the model was trained
     * with padding. */
    xd_tensor tok;
    xd_tensor pooled;      /* [1,P] F32 pooled embedding, or absent */
    xd_tensor penultimate; /* [n,E] F32: input of the text encoder's last block, or absent */
    /* For each text encoder, the number of rows of `tok` that are not padding, if the rows include
     * padding. */
    int64_t   real[4];
    /* [nimages] reference images, in the order of their rows (borrowed) */
    int       nimages;
    const xd_cond_image *images;
};
typedef struct xd_cond xd_cond;

#endif
