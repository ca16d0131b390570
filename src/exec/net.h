/* net.h - a network: weights outside the blocks, and a list of blocks.
 *
 * Text encoders, transformers and VAEs are networks; each kind adds its own entry points. */
#ifndef XD_EXEC_NET_H
#define XD_EXEC_NET_H

#include "base/json.h"
#include "exec/exec.h"
#include "exec/weight.h"
#include "exec/weight_stream.h"

typedef struct xd_net xd_net;

typedef struct xd_state {       /* passed from block to block, and from rank to rank           */
    xd_tensor h;                /* [txt mine; pad; ref; img mine, D] F32, updated in place      */
    xd_tensor skips;            /* outputs of early blocks for long skips, [k rows of h, D] in   */
                                /* the compute type, one below the other; absent if none         */
    xd_tensor skip;             /* long skip of this block [rows of h, D], or absent             */
    void     *local;            /* conditioning of the model, made by cond(), not sent           */
    double    t;                /* the pass's xd_input.t; 0: not of a transformer                */
    const void *kept;           /* results of the text kept from step to step (xd_dit.keep)      */
} xd_state;

typedef struct xd_block {       /* one kind of block                                           */
    const char *name;           /* "transformer_blocks.%d": scope in the checkpoint             */
    size_t      size;           /* of the weight struct                                        */
    void (*weights)(xd_decl *d, const void *cfg, int layer, void *w);
    void (*forward)(xd_exec *x, const xd_net *n, const void *w, xd_state *s);
} xd_block;

/* Definition of a registered network; the first member of the struct of each kind of network. */
typedef struct xd_net_def {
    const char     *name;       /* "t5"                                                        */
    const char     *classes[6]; /* accepted `_class_name`s or `architectures`                  */
    const char     *prefix;     /* "text_model.": of declared names, optional in files; or NULL */
    const char *const *prefixes;        /* what files may have in its place; ends with NULL     */
    const char     *lead;       /* the one of these, or "", that lists show; NULL: `prefix`       */
    /* Declared names that begin so ("visual.") have no prefix in files, or `prefix` before them;
     * NULL: none do. */
    const char     *beside;
    /* Tensors in files that are not read, with or without a prefix. A star at the beginning or at
     * the end stands for any text: "visual.*". */
    const char     *unread[6];
    const xd_field *fields;     /* config.json -> cfg struct                                   */
    size_t          cfg_size, glob_size;
    /* Called after the fields are read: computes derived values; refuses what is impossible or not
     * implemented, with a sentence that names the key. NULL: nothing to check. */
    xd_status (*check)(void *cfg, xd_err *e);
    int  (*nlayers)(const void *cfg);                   /* NULL: no blocks                      */
    const xd_block *(*block)(const void *cfg, int layer);
    void (*weights)(xd_decl *d, const void *cfg, void *glob);
} xd_net_def;

struct xd_net {
    const xd_net_def *def;
    void             *cfg;
    void             *glob;     /* weights outside the blocks                                   */
    void            **layer;    /* layer[i]: weights of block i; NULL: on another stage         */
    int               nlayers;
    int               first, last;      /* my stage has blocks [first, last)                    */
    xd_weight_stream *stream;   /* of blocks whose weights wait on the host; NULL: of none      */
};

/* Reads cfg from a config object by the definition's table (`obj` NULL: all defaults). Close the
 * net with xd_net_close, also after a failure. */
xd_status xd_net_open(xd_net *n, const xd_net_def *def, const xd_json *obj, const char *what,
                      xd_err *e);
void      xd_net_close(xd_net *n);
/* 1: a tensor of this name in a file is known and not read. */
int       xd_net_unread(const xd_net_def *def, const char *name);
/* The index of block `layer` within its scope: "single_transformer_blocks.0" may be block 19. */
int       xd_net_number(const xd_net *n, int layer);
/* Visits all weights of the net (my stage's layers). */
xd_status xd_net_visit(xd_net *n, xd_decl *d);
/* The weights of block `layer`, which work that is queued now may use. All blocks of the stage are
 * asked for in order. A network's code reads n->layer for shapes only. */
const void *xd_net_layer(xd_exec *x, const xd_net *n, int layer);
/* Runs block `layer`. */
void      xd_net_block(xd_exec *x, const xd_net *n, int layer, xd_state *s);

struct xd_cond {                /* an encoded prompt, valid as long as the request             */
    xd_tensor tok;              /* [n,E] F32 token embeddings of real tokens; padding only if   */
                                /* the model was trained to read it                            */
    xd_tensor pooled;           /* [1,P] F32 or absent                                         */
    xd_tensor penultimate;      /* [n,E] F32: input of the last block, if the encoder has it    */
    int64_t   real[3];          /* rows of text of each encoder whose rows include padding      */
};
typedef struct xd_cond xd_cond;

#endif
