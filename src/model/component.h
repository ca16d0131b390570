/* component.h - one component of a model directory: its config, files, network and weights */
#ifndef XD_MODEL_COMPONENT_H
#define XD_MODEL_COMPONENT_H

#include "base/readahead.h"
#include "comm/comm.h"
#include "dit/dit.h"
#include "io/safetensors.h"
#include "model/quantized.h"
#include "model/single_file.h"
#include "model/svdquant.h"
#include "text/text.h"
#include "vae/vae.h"

typedef enum xd_kind { XD_KIND_TEXT, XD_KIND_DIT, XD_KIND_VAE } xd_kind;
enum { XD_KINDS = XD_KIND_VAE + 1 };

enum { XD_PREFETCH_LEAST = 32 << 20 };  /* files of fewer bytes are not worth a thread         */

typedef struct xd_weight_group {        /* ranks of this host that hold the same weights       */
    xd_comm *c;                 /* NULL: this rank alone                                       */
    int      me;                /* this rank's number among those in use                       */
    /* 1: devices have memories of their own, and ranks share the copy from which streamed blocks
     * are fetched. 0: they share all weights. */
    int      streams;
    char    *copy;              /* that copy; NULL: every rank has one of its own              */
    xd_dev  *dev;               /* for which it is pinned                                      */
} xd_weight_group;

typedef struct xd_component {
    char       *name, *dir;     /* "transformer"; its directory                                */
    xd_kind     kind;
    int         from_text;      /* 1: there is no directory; dir is `name`                    */
    xd_json    *config;
    const char *class_name;     /* from its config, borrowed                                   */
    const xd_net_def *def;
    const xd_text *text;        /* the one that `kind` selects is set                          */
    const xd_dit *dit;
    const xd_vae *vae;
    xd_declared *list;          /* every tensor it declares                                    */
    int         nlist;
    /* A file with its weights instead of those in `dir`, and its name in messages
     * ("clip_l"); NULL: none. */
    char       *file, *slot;
    xd_st      *files;          /* NULL until xd_component_files                               */
    xd_quantized *quantized;    /* what of them is in codes; NULL: nothing                     */
    xd_svdquant *svdquant;      /* their layers of SVDQuant; NULL: none                        */
    xd_single_file *single;     /* translates declared names to those in `file`                */
    /* Source of the files; with their layers of SVDQuant as matrices; with declared names. */
    xd_source   stored, raw, src;
    xd_net      net;            /* the network that computes                                   */
    xd_store   *store;          /* its weights; NULL: not loaded                               */
    xd_net      shadow;         /* the network for counting                                    */
    size_t      packed;         /* counted bytes of its weights when loaded                    */
    size_t      block_bytes;    /* counted bytes as one block of shared memory                 */
    size_t      mapped;         /* counted bytes of files that are read in place again and again */
    /* [blocks of this stage]: of block_bytes and mapped those of each, and of mapped. With
     * `streams`, without what a block in files holds in memory. */
    size_t     *blocks_of, *mapped_of;
    int         streams;        /* blocks may stay in files, on a device in the host's memory    */
    xd_readahead *ahead;        /* of the files of streamed blocks; NULL: none                  */
    size_t     *ahead_upto;     /* [streamed blocks]: bytes of it up to the end of each          */
    xd_stream_plan stream;      /* how it is loaded on a device with a memory of its own        */
    size_t      work;           /* extra bytes while it is loaded                              */
    size_t      host_work;      /* of the host, if the device has a memory of its own; else 0   */
    xd_weight_group group;
    int         shared;         /* its weights are in shared memory                            */
    xd_readahead *reader;       /* readahead of its files; NULL: none                          */
    size_t     *upto;     /* [tensors of the files]: bytes of the readahead up to the end of each */
    char        nonfinite[512]; /* the first tensor in which this rank saw NaN or infinities   */
    int         tp, tp_at;      /* tensor-parallel degree (1: whole) and this rank's coordinate */
    xd_dtype    blocks;         /* I8 or F8E4M3: type of the block matrices; others: compute type */
    unsigned    exchanges;      /* counts xd_component_exchange                                */
    xd_stays    stays;          /* which matrices stay as its files store them                 */
} xd_component;

/* Reads DIR/config.json, finds the network that understands it and lists its tensors. `hint`
 * is the class that model_index.json names, or NULL. Close with xd_component_close, also
 * after a failure. */
xd_status xd_component_open(xd_component *p, const char *model, const char *name, xd_kind kind,
                            const char *hint, xd_err *e);
/* As xd_component_open, with the given number of blocks of each kind instead of the config's:
 * "4", or "2,4" for two kinds. Kinds beyond the end of the list keep the config's number.
 * NULL: all do. */
xd_status xd_component_open_some(xd_component *p, const char *model, const char *name, xd_kind kind,
                                 const char *hint, const char *layers, xd_err *e);
/* As xd_component_open, with the text of a config in place of a directory. */
xd_status xd_component_open_text(xd_component *p, const char *name, xd_kind kind, const char *text,
                                 xd_err *e);
/* From now on its weights are those of `src` (copied; what it points to is borrowed), which names
 * them as the component declares them. Compares them with the declared tensors. */
xd_status xd_component_source(xd_component *p, const xd_source *src, xd_err *e);
/* Sets the name of the class: that of the config, or `hint`. */
void      xd_component_name_class(xd_component *p, const char *hint);
/* Sets the network that understands the config: that of the class which it names, or of `hint`. */
xd_status xd_component_network(xd_component *p, const char *hint, xd_err *e);
/* Is it a class of a network of this kind? */
int       xd_component_knows(xd_kind kind, const char *name);
/* From now on a text encoder has its vision tower. Refuses one that has none. */
xd_status xd_component_see(xd_component *p, xd_err *e);
void      xd_component_close(xd_component *p);

/* From now on the component's weights are those of `file` (the name is copied): one file such as
 * "model.safetensors", in a known layout (key_map.h). slot: its name in messages. */
xd_status xd_component_take(xd_component *p, const char *file, const char *slot, xd_err *e);
/* Opens the weight files and compares them with the declared tensors; warns of unknown tensors. */
xd_status xd_component_files(xd_component *p, xd_err *e);

/* Lists every tensor that the component declares, of all its blocks, and those that are declared
 * and not read, with the types that a load makes of them (xd_declared.type): BF16 stands for the
 * compute type, blocks: as in xd_decl. The files are open. *list is malloc'ed. */
xd_status xd_component_list(const xd_component *p, xd_dtype blocks, xd_declared **list, int *n,
                            xd_err *e);
/* Is it a tensor that says how others are stored (their scales), or a tokenizer beside weights? */
int       xd_component_is_note(const char *name);

/* Fills the shadow network for a count device and computes the bytes of the weights (`packed`,
 * `block_bytes`, `work`). */
xd_status xd_component_count(xd_component *p, xd_dev *count, xd_dtype type, xd_err *e);

/* After xd_component_count: the bytes of its weights, in all and block by block. */
xd_block_sizes xd_component_blocks(const xd_component *p);

/* Bytes of its weights as one block of shared memory, without those of streamed blocks. */
size_t         xd_component_held_bytes(const xd_component *p);

/* After xd_component_count, for weights that will be loaded with `share`: computes their bytes. */
xd_status xd_component_count_kinds(xd_component *p, xd_dev *count, xd_dtype type, xd_err *e);

/* From now on this rank has only the blocks [first, last). Call before anything is loaded. */
void      xd_component_stage(xd_component *p, int first, int last);

/* Loads the weights from the files, or random ones if there are none; does nothing if they are
 * loaded. Collective over its group. share: blocks of one kind share the storage of the first
 * (random weights only). */
xd_status xd_component_load(xd_component *p, xd_dev *dev, xd_dtype type, int share, xd_err *e);
/* As xd_component_load without `share`, on a rank with status s so far: if one rank of the group
 * has failed, none loads. */
xd_status xd_component_load_after(xd_component *p, xd_status s, xd_dev *dev, xd_dtype type,
                                  xd_err *e);

/* Starts the readahead of its files before a load, at most `most` bytes: what this rank will read
 * or, in a group, what all its ranks will read (then only the first of them reads ahead). Does
 * nothing where a thread does not pay off. count: the count device. Ends when the component is
 * loaded or dropped. */
void      xd_component_prefetch(xd_component *p, xd_dev *count, xd_dtype type, size_t most,
                                const xd_canceller *cancel);
void      xd_component_prefetch_end(xd_component *p);
/* Of a component with streamed blocks: reads the files of the next ones ahead. `next` is called
 * with the component before the k-th of them is used. */
void      xd_component_stream_open(xd_component *p, xd_dev *dev, xd_dtype type);
void      xd_component_stream_next(void *self, int k);
void      xd_component_stream_close(xd_component *p);
/* Bytes of its files that a load by this rank will read and the page cache lacks now; 0 where it is
 * loaded or has no files. Costs the look-up of every page: half a second for 24 GB. */
size_t    xd_component_cold_bytes(xd_component *p, xd_dev *count, xd_dtype type);
/* A source's `will`, and that tensor i of the files has been read. */
void      xd_component_will_read(void *self, const char *name, int64_t first, int64_t n);
void      xd_component_was_read(const xd_component *p, int64_t i);
/* Makes the source list what a load of the block, numbered from the first one of this stage, will
 * read. */
void      xd_component_list_block(const xd_component *p, xd_dev *dev, xd_dtype type, int block);
/* Makes the source list what a load will read, in order. */
void      xd_component_list_reads(const xd_component *p, xd_dev *count, xd_dtype type);

void      xd_component_drop(xd_component *p);     /* collective over its group, which ends     */

/* Weights of a component that are set aside while it has others, with what is counted of them and
 * the terms that were added to them (lora.h). */
typedef struct xd_component_weights {
    xd_net          net, shadow;        /* without a definition: not opened                    */
    xd_store       *store;
    size_t          packed, block_bytes, mapped, *blocks_of, *mapped_of, work, host_work;
    xd_stream_plan  stream;
    xd_readahead   *ahead;
    size_t         *ahead_upto;
    xd_weight_group group;
    int             shared;
    const xd_source_sums *sums;
    void           *sums_self;
    char            nonfinite[sizeof ((xd_component *)0)->nonfinite];
} xd_component_weights;

/* Weights of the component that are not loaded, for the same blocks; without terms. */
xd_status xd_component_weights_open(xd_component_weights *w, const xd_component *p, xd_err *e);
/* Exchanges what the component has and what is set aside. Local. */
void      xd_component_exchange(xd_component *p, xd_component_weights *w);
/* Frees the weights, as xd_component_drop; they stay open. Collective over their group. */
void      xd_component_weights_drop(xd_component_weights *w, xd_component *p);
void      xd_component_weights_close(xd_component_weights *w, xd_component *p);

#endif
