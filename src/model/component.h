/* component.h - one component of a model directory: its config, files, network and weights */
#ifndef XD_MODEL_COMPONENT_H
#define XD_MODEL_COMPONENT_H

#include "base/readahead.h"
#include "comm/comm.h"
#include "dit/dit.h"
#include "io/safetensors.h"
#include "model/single_file.h"
#include "text/text.h"
#include "vae/vae.h"

typedef enum xd_kind { XD_KIND_TEXT, XD_KIND_DIT, XD_KIND_VAE } xd_kind;

typedef struct xd_weight_group {         /* the ranks of my host that hold the same weights (group.h)     */
    xd_comm *c;                 /* NULL: I alone                                               */
    int      me;                /* my rank among those in use                                  */
} xd_weight_group;

typedef struct xd_component {
    char       *name, *dir;     /* "transformer"; its directory                                */
    xd_kind     kind;
    xd_json    *config;
    const char *class_name;     /* of its config, borrowed from it                             */
    const xd_net_def *def;
    const xd_text *text;        /* the one of these that its kind says                         */
    const xd_dit  *dit;
    const xd_vae  *vae;
    xd_declared *list;          /* every tensor it declares                                    */
    int         nlist;
    char       *file, *slot;    /* its weights instead of those in `dir`, and what they are for   */
                                /* ("clip_l"); NULL: none                                      */
    xd_st      *files;          /* NULL until xd_component_files                                    */
    xd_single_file  *single;         /* what the names in `file` mean                               */
    xd_source   raw, src;       /* under the names of the files, under those declared           */
    xd_net      net;            /* the one that computes                                       */
    xd_store   *store;          /* its weights; NULL: not loaded                               */
    xd_net      shadow;         /* the one that counts                                         */
    size_t      packed;         /* bytes of its weights when loaded, as counted                */
    size_t      room;           /* the same as one block of shared memory                      */
    size_t      work;           /* bytes beside them while they are loaded                     */
    xd_weight_group      group;
    int         shared;         /* its weights lie in such a block                             */
    xd_readahead   *ahead;          /* has its files read before they are asked for; NULL: nobody has */
    size_t     *upto;           /* [tensors of the files]: how much of that ends with each      */
    char        odd[512];       /* the first that holds NaN or infinite numbers, seen by me     */
    int         tp, tp_at;      /* tensor degree (1: whole) and my coordinate                  */
    xd_dtype    blocks;         /* I8 or F8E4M3: the matrices of its blocks; others: as computed  */
} xd_component;

/* Reads DIR/config.json, finds the network that understands it, lists its tensors. `hint` is the
 * class that model_index.json names, or NULL. Closed with xd_component_close also after a failure. */
xd_status xd_component_open(xd_component *p, const char *model, const char *name, xd_kind kind,
                       const char *hint, xd_err *e);
/* The same with so many blocks of each kind, whatever the config says: "4", or "2,4" where there are
 * two kinds. Kinds that the list does not reach stay as they are. NULL: all do. */
xd_status xd_component_open_some(xd_component *p, const char *model, const char *name, xd_kind kind,
                            const char *hint, const char *layers, xd_err *e);
void      xd_component_close(xd_component *p);

/* From now on its weights are those of `file`, which is copied; "flux1-dev.safetensors" or any
 * other of a known layout (naming.h). slot: what to call it in messages. */
xd_status xd_component_take(xd_component *p, const char *file, const char *slot, xd_err *e);
/* Opens the weight files and compares them with the list; warns of tensors that are too many. */
xd_status xd_component_files(xd_component *p, xd_err *e);

/* Fills the shadow network for a count device and says how many bytes the weights need. */
xd_status xd_component_count(xd_component *p, xd_dev *count, xd_dtype type, xd_err *e);

/* Behind that, for weights that will be loaded with `share`: how many bytes those need. */
xd_status xd_component_count_kinds(xd_component *p, xd_dev *count, xd_dtype type, xd_err *e);

/* From now on this rank has the blocks [first, last) only; nothing may be loaded yet. */
void      xd_component_stage(xd_component *p, int first, int last);

/* Loads the weights (from the files, or random ones when there are none); nothing to do when
 * they are there. Collective over its group. share: blocks of one kind share the storage of the first (random only). */
xd_status xd_component_load(xd_component *p, xd_dev *dev, xd_dtype type, int share, xd_err *e);
/* The same on a rank that has fared so far like s: where one of its group has failed none of them loads. */
xd_status xd_component_load_after(xd_component *p, xd_status s, xd_dev *dev, xd_dtype type, xd_err *e);

/* From now on its files are read ahead of a load, at most `most` bytes: what this rank will read of them, or
 * where it has group what all of them will, by the first of them. Nothing where that is not worth a thread.
 * count: the count device. Ends when it is loaded or dropped. */
void      xd_component_prefetch(xd_component *p, xd_dev *count, xd_dtype type, size_t most, const atomic_int *cancel);
void      xd_component_prefetch_end(xd_component *p);
/* A source's `will`, and that tensor i of the files has been read. */
void      xd_component_will_read(void *self, const char *name, int64_t first, int64_t n);
void      xd_component_was_read(const xd_component *p, int64_t i);
/* Has the source told what a load will read, in its order. */
void      xd_component_list_reads(const xd_component *p, xd_dev *count, xd_dtype type);

void      xd_component_drop(xd_component *p);     /* collective over its group, who are group no more         */

#endif
