/* net.h - a network: weights outside the blocks, and a list of blocks.
 *
 * Text encoders, transformers and VAEs are all networks; each room adds its own entry points. */
#ifndef XD_EXEC_NET_H
#define XD_EXEC_NET_H

#include "base/json.h"
#include "exec/exec.h"
#include "exec/weight.h"

typedef struct xd_net xd_net;

typedef struct xd_state {       /* what flows from block to block - and from rank to rank      */
    xd_tensor h;                /* [txt mine; ref mine; img mine, D] F32, updated in place      */
    xd_tensor skips;            /* outputs of blocks that later ones read [k rows of h, D] in the compute */
                                /* type, one below the other; absent where no block reads any    */
    xd_tensor skip;             /* the one that this block reads [rows of h, D], or absent        */
    void     *local;            /* the model's own conditioning, made by cond(), not sent       */
    const void *kept;           /* what it keeps of the text from step to step (xd_dit.keep)    */
} xd_state;

typedef struct xd_block {       /* one kind of block                                           */
    const char *name;           /* "transformer_blocks.%d": its scope in the checkpoint         */
    size_t      size;           /* of its weight struct                                        */
    void (*weights)(xd_decl *d, const void *cfg, int layer, void *w);
    void (*forward)(xd_exec *x, const xd_net *n, const void *w, xd_state *s);
} xd_block;

/* What every registered network says about itself; the first member of its room's struct. */
typedef struct xd_net_def {
    const char     *name;       /* "pixart"                                                    */
    const char     *classes[6]; /* `_class_name`s or `architectures` it understands            */
    const char     *prefix;     /* "text_model.": of declared names, which files may lack; or NULL */
    const char     *unread[4];  /* tensors that files may hold for nobody to read                */
    const xd_field *fields;     /* config.json -> cfg struct                                   */
    size_t          cfg_size, glob_size;
    /* After the fields are read: derives what follows from them, refuses what is impossible or
     * not built, with a sentence that names the key. NULL: nothing to check. */
    xd_status (*check)(void *cfg, xd_err *e);
    int  (*nlayers)(const void *cfg);                   /* NULL: no blocks                      */
    const xd_block *(*block)(const void *cfg, int layer);
    void (*weights)(xd_decl *d, const void *cfg, void *glob);
} xd_net_def;

struct xd_net {
    const xd_net_def *def;
    void             *cfg;
    void             *glob;     /* weights outside the blocks                                   */
    void            **layer;    /* layer[i], or NULL: another stage's                           */
    int               nlayers;
    int               first, last;      /* my stage runs [first, last)                          */
};

/* Reads cfg from a config object by the definition's table. `obj` NULL: all defaults. The net
 * is closed with xd_net_close also after a failure. */
xd_status xd_net_open(xd_net *n, const xd_net_def *def, const xd_json *obj, const char *what,
                      xd_err *e);
void      xd_net_close(xd_net *n);
/* The number of block `layer` among those of its scope: "single_transformer_blocks.0" may be block
 * 19 of the net. */
int       xd_net_number(const xd_net *n, int layer);
/* Visits all weights of the net (my stage's layers). */
xd_status xd_net_visit(xd_net *n, xd_decl *d);
/* Runs block `layer`. */
void      xd_net_block(xd_exec *x, const xd_net *n, int layer, xd_state *s);

struct xd_cond {                /* one prompt, encoded: lives as long as the request           */
    xd_tensor tok;              /* [n,E] F32 token embeddings: real tokens, no padding unless   */
                                /* the model was trained to read its padding                   */
    xd_tensor pooled;           /* [1,P] F32 or absent                                         */
    xd_tensor penultimate;      /* [n,E] F32: what the last block read, of encoders that tell    */
    int64_t   real[3];          /* of the rows of each encoder that padding fills up: those of text */
};
typedef struct xd_cond xd_cond;

#endif
