/* net.h - a network: weights outside the blocks, and a list of blocks
 *
 * Text encoders, transformers and VAEs are networks; each kind adds its own entry points. */
#ifndef XD_EXEC_NET_H
#define XD_EXEC_NET_H

#include "base/json.h"
#include "exec/exec.h"
#include "exec/weight.h"
#include "exec/weight_stream.h"

typedef struct xd_net xd_net;

typedef struct xd_state {       /* passed from block to block and rank to rank                 */
    xd_tensor h;                /* [txt; pad; ref; img, D] F32 own rows, in place               */
    xd_tensor skips;            /* outputs of early blocks for long skips, [k rows of h, D] in   */
                                /* the compute type, stacked; absent if none                     */
    xd_tensor skip;             /* long skip of this block [rows of h, D], or absent             */
    void     *local;            /* conditioning made by cond(), not sent                         */
    double    t;                /* xd_input.t of the pass; 0: not a transformer                  */
    const void *kept;           /* text data kept between steps (xd_dit.keep)                    */
} xd_state;

typedef struct xd_block {       /* one kind of block                                           */
    const char *name;           /* "transformer_blocks.%d": scope in the checkpoint             */
    size_t      size;           /* size of the weight struct                                   */
    void (*weights)(xd_decl *d, const void *cfg, int layer, void *w);
    void (*forward)(xd_exec *x, const xd_net *n, const void *w, xd_state *s);
} xd_block;

/* Definition of a registered network; first member of the struct of each kind of network. */
typedef struct xd_net_def {
    const char     *name;       /* name, e.g. "t5"                                             */
    const char     *classes[6]; /* accepted `_class_name`s or `architectures`                  */
    const char     *prefix;     /* "text_model.": of names, optional in files; or NULL          */
    const char *const *prefixes;        /* alternatives to `prefix` in files; ends with NULL    */
    const char     *lead;       /* the prefix (or "") in printed lists; NULL: `prefix`            */
    /* Start of declared names ("visual.") that have no prefix in files, or `prefix` before them;
     * NULL: none. */
    const char     *beside;
    /* Tensors in files that are ignored, with or without a prefix. A star at the start or end
     * matches any text: "visual.*". */
    const char     *unread[6];
    const xd_field *fields;     /* config.json -> cfg struct                                   */
    size_t          cfg_size, glob_size;
    /* Called after the fields are read: computes derived values, and refuses impossible or
     * unsupported values with an error that names the key. NULL: nothing to check. */
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
    int               first, last;      /* this rank's stage has blocks [first, last)           */
    xd_weight_stream *stream;   /* streamed blocks; NULL: none                                  */
};

/* Reads cfg from a config object by the definition's table (`obj` NULL: all defaults). Close the
 * net with xd_net_close, also after a failure. */
xd_status xd_net_open(xd_net *n, const xd_net_def *def, const xd_json *obj, const char *what,
                      xd_err *e);
void      xd_net_close(xd_net *n);
/* Returns 1 if a tensor of this name in a file is known and ignored. */
int       xd_net_unread(const xd_net_def *def, const char *name);
/* Returns the index of block `layer` in its scope: "single_transformer_blocks.0" may be block
 * 19. */
int       xd_net_number(const xd_net *n, int layer);
/* Visits all weights of the net (blocks of this rank's stage). */
xd_status xd_net_visit(xd_net *n, xd_decl *d);
/* Returns the weights of block `layer` for work that is queued now. Must be called for all blocks
 * of the stage in order. Code of networks reads n->layer directly for shapes only. */
const void *xd_net_layer(xd_exec *x, const xd_net *n, int layer);
/* Runs block `layer`. */
void      xd_net_block(xd_exec *x, const xd_net *n, int layer, xd_state *s);

struct xd_cond {                /* an encoded prompt, valid during the request                 */
    xd_tensor tok;              /* [n,E] F32 token embeddings, with padding only if the model    */
                                /* was trained with it                                         */
    xd_tensor pooled;           /* [1,P] F32 or absent                                         */
    xd_tensor penultimate;      /* [n,E] F32: input of the last block, if available             */
    int64_t   real[3];          /* text rows per encoder, if its rows include padding           */
};
typedef struct xd_cond xd_cond;

#endif
