/* component.h - declares xd_component: a text encoder, transformer, VAE or upsampler of a model,
 * with its config, files, network and weights. */
#ifndef XD_MODEL_COMPONENT_H
#define XD_MODEL_COMPONENT_H

#include "audio/audio.h"
#include "base/readahead.h"
#include "comm/comm.h"
#include "dit/dit.h"
#include "io/safetensors.h"
#include "model/quantized.h"
#include "model/single_file.h"
#include "model/svdquant.h"
#include "model/widened.h"
#include "text/text.h"
#include "upsample/upsample.h"
#include "upsample/upscaler.h"
#include "vae/vae.h"

typedef enum xd_kind {
    XD_KIND_TEXT,
    XD_KIND_DIT,
    XD_KIND_VAE,
    XD_KIND_AUDIO,
    XD_KIND_UPSAMPLER,
    XD_KIND_UPSCALER
} xd_kind;
/* Number of kinds of components whose reading time is predicted separately; the time for audio
 * networks and latent upsamplers is included in the VAE's. */
enum { XD_KINDS = XD_KIND_VAE + 1 };

/* Minimum size in bytes of a component's files for which a readahead thread is started. */
enum { XD_PREFETCH_MIN = 32 << 20 };

typedef struct xd_weight_group { /* share group: ranks of one host that share a copy of their
                                  * weights */
    xd_comm *c;                  /* communicator of the share group; NULL: only this rank */
    int      me; /* this rank's number among the computing ranks of the share group */
    /* 1: each device has its own memory, and the ranks of the share group share only a copy in host
     * memory, from which blocks are copied to the devices when they are computed. 0: the ranks
     * share all weights. */
    int      streams;
    /* Copy in host memory of the streamed blocks, which the ranks of the share group share; NULL:
     * each rank has its own copy. */
    char    *copy;
    xd_dev  *dev; /* device for which the host copy is pinned */
} xd_weight_group;

/* A set of weights of a component, with the LoRA files that change these weights. The weights may
 * be loaded or not. Several engines may share a set of weights; the set counts its references
 * (xd_weights_keep). */
typedef struct xd_weights {
    int             refs;
    xd_source       src;       /* weight source with declared names; src.sums: the LoRA terms */
    xd_net          net;       /* network that computes with the weights */
    int             tp, tp_at; /* tensor-parallel degree (1: none) and this rank's coordinate */
    /* Element type of the matrices in transformer blocks: I8, F8E4M3, or any other value for the
     * compute type. */
    xd_dtype        blocks;
    xd_stays        stays; /* which matrices keep the format that they have in the files */
    /* 1: the weights of transformer blocks may stay in files; for a GPU, they may also stay in host
     * memory. */
    int             streams;
    xd_store       *store;  /* memory of the loaded weights; NULL: the weights are not loaded */
    xd_stream_plan  stream; /* plan for streaming blocks to a device that has its own memory */
    xd_weight_group group;
    int             shared; /* 1: the weights are in shared memory */
    /* readahead of the weight files before the weights are loaded; NULL: no readahead */
    xd_readahead   *reader;
    /* [tensors of the files]: for each tensor, the number of bytes that `reader` has read ahead
     * once the tensor is complete. */
    size_t         *upto;
    xd_readahead   *ahead; /* readahead of streamed blocks; NULL: no readahead */
    /* [streamed blocks]: for each block, the number of bytes that `ahead` has read ahead once the
     * block is complete. */
    size_t         *ahead_upto;
    /* Name of the first tensor with NaN or infinities; "": no such tensor. */
    char            nonfinite[512];
} xd_weights;

/* Sizes of the memory that a set of weights needs. An engine computes the sizes of a set of weights
 * on a count device (a device that counts bytes and computes nothing). All sizes are 0 until they
 * are counted. */
typedef struct xd_weight_counts {
    xd_net  shadow; /* the component's network, opened on a device that only counts memory */
    size_t  packed; /* bytes of the loaded weights */
    /* bytes of the weights in a region of shared memory, with the gaps between weights */
    size_t  block_bytes;
    size_t  mapped; /* bytes of mapped files that are read again in every step */
    /* [blocks of this pipeline stage]: blocks_of[i] counts the bytes of block i that are included
     * in block_bytes or in `mapped`; mapped_of[i] counts only those included in `mapped`. If
     * w->streams is 1, the bytes of a streamed block that stay in memory are not included. */
    size_t *blocks_of, *mapped_of;
    size_t  work;      /* extra bytes of memory that are needed during loading */
    size_t  host_work; /* extra host bytes during loading if the device has its own
                                   memory; else 0 */
} xd_weight_counts;

typedef struct xd_component {
    char               *name, *dir; /* name such as "transformer"; directory of the component */
    xd_kind             kind;
    /* 1: the component was opened from the text of a config, without a directory */
    int                 from_text;
    xd_json            *config;
    const char         *class_name; /* name of the Python class in the config; borrowed */
    const xd_net_def   *def;
    /* Of the pointers text, dit, vae, audio, upsampler and upscaler, only the one for the
     * component's kind is set; the others are NULL. */
    const xd_text      *text;
    const xd_dit       *dit;
    const xd_vae       *vae;
    const xd_audio     *audio;
    const xd_upsampler *upsampler;
    const xd_upscaler  *upscaler;
    xd_declared        *list; /* all tensors that the network declares */
    int                 nlist;
    /* `file`: the file that replaces the weights in `dir`; NULL: no file replaces the weights.
     * `slot`: the short name of the component for messages, such as "clip_l". */
    char               *file, *slot;
    /* The directories (or weight files) of a transformer's side networks (xd_side). */
    char               *sides[XD_MAXSIDES];
    int                 nsides;
    /* Name of a weight that gets more columns than its files contain, and the new number of columns
     * (xd_component_widen). If `wide` is empty, no weight is widened. */
    char                wide[64];
    int64_t             wide_cols;
    /* weight source that adds columns to the weight `wide`; NULL: no weight is widened */
    xd_widened         *widened;
    xd_st              *files; /* weight files; NULL until xd_component_files opens them */
    /* quantized tensors of the files; NULL: no tensor is quantized */
    xd_quantized       *quantized;
    /* SVDQuant layers of the files; NULL: the files have no such layers */
    xd_svdquant        *svdquant;
    xd_single_file     *single; /* translates declared tensor names to the names in `file` */
    /* translations for side networks whose files have names of their own; NULL: none */
    xd_single_file     *side_names[XD_MAXSIDES];
    xd_source           below[XD_MAXSIDES]; /* the weight sources under these translations */
    /* `stored` returns the tensors of the files; `raw` returns them too, but with the SVDQuant
     * layers decoded. */
    xd_source           stored, raw;
    xd_weights         *w;     /* the set of weights in use; NULL: the model lacks the component */
    xd_weight_counts   *count; /* memory sizes of `w`, counted by the engine */
} xd_component;

/* Opens a component: reads config.json in its directory, finds the network that implements the
 * class in the config, and lists the network's tensors. hint: the class that model_index.json
 * names, or NULL. After a failure, xd_component_close must be called as well. */
xd_status xd_component_open(xd_component *p, const char *model, const char *name, xd_kind kind,
                            const char *hint, xd_err *e);
/* Opens a component as xd_component_open does, but `layers` replaces the numbers of transformer
 * blocks in the config: "4", or "2,4" for two kinds of blocks. Kinds of blocks without a number in
 * `layers` keep the config's number. If `layers` is NULL, all kinds do. */
xd_status xd_component_open_some(xd_component *p, const char *model, const char *name, xd_kind kind,
                                 const char *hint, const char *layers, xd_err *e);
/* Opens a component as xd_component_open does, but from the JSON text of a config, without a
 * directory. */
xd_status xd_component_open_text(xd_component *p, const char *name, xd_kind kind, const char *text,
                                 xd_err *e);
/* Opens an autoencoder from a weight file without config.json, whose config follows from the names
 * and shapes of its tensors (xd_vae.describe). own: properties of the autoencoder that the file
 * replaces. Opens nothing, so that p->w is NULL, if the file needs a config. */
xd_status xd_component_open_described(xd_component *p, const char *name, const char *file,
                                      const char *slot, const xd_vae_info *own, xd_err *e);
/* Sets the component's weight source, which must return tensors by their declared names.
 * xd_component_source compares the source's tensors with the declared ones. *The struct *src is
 * copied, but its pointers are borrowed. */
xd_status xd_component_source(xd_component *p, const xd_source *src, xd_err *e);
/* Sets p->class_name from _class_name or architectures in the config or, if the config has neither,
 * to `hint`. */
void      xd_component_name_class(xd_component *p, const char *hint);
/* Finds the network that implements the class in the config or, failing that, the class `hint`, and
 * makes it the component's network. */
xd_status xd_component_network(xd_component *p, const char *hint, xd_err *e);
/* Returns 1 if a network of this kind implements the class. */
int       xd_component_knows(xd_kind kind, const char *name);
/* Adds the vision network to a text encoder that can also read images. Refuses a text encoder
 * without a vision network. */
xd_status xd_component_add_vision(xd_component *p, xd_err *e);
/* Adds side networks to a transformer (xd_side). sides: the directories of the side networks, or
 * weight files whose folder contains a config.json. Refuses side networks that do not fit the
 * transformer. */
xd_status xd_component_add_sides(xd_component *p, const char *const *sides, int n, xd_err *e);
/* Gives a transformer more input channels than its files contain: the config's in_channels becomes
 * `channels`, and out_channels becomes the old value of in_channels. The new columns of the weight
 * `name`, which multiplies the latents, are zeros, to which LoRA files add terms. Call
 * xd_component_widen before files are opened. */
xd_status xd_component_widen(xd_component *p, const char *name, int64_t channels, xd_err *e);
void      xd_component_close(xd_component *p);

/* Replaces the component's weights by those of `file` (the name is copied): one file such as
 * "model.safetensors", with tensor names in a known layout (key_map.h). slot: the component's short
 * name for messages. */
xd_status   xd_component_set_file(xd_component *p, const char *file, const char *slot, xd_err *e);
/* Returns how the names of the component's weight files begin: "model" for networks of the library
 * transformers, and "diffusion_pytorch_model" for those of diffusers. */
const char *xd_component_stem(const xd_component *p);
/* Opens the weight files and compares their tensors with the declared ones. xd_component_files
 * warns about tensors that are not declared. */
xd_status   xd_component_files(xd_component *p, xd_err *e);

/* Lists the tensors of all blocks that the component declares, including tensors that are never
 * read. The type of a tensor in the list is its type after loading (xd_declared.type), where BF16
 * stands for the compute type. blocks: as in xd_decl. Before xd_component_list is called, the
 * weight files must be open. *list is malloc'ed. */
xd_status xd_component_list(const xd_component *p, xd_dtype blocks, xd_declared **list, int *n,
                            xd_err *e);
/* Returns 1 for the name of a tensor that no network reads: a scale or format of a quantized
 * tensor, or a tokenizer that is stored among the weights. */
int       xd_component_is_note(const char *name);

/* Counts a component's memory. Builds the network p->count->shadow on a count device, and computes
 * the sizes `packed`, `block_bytes` and `work` in p->count. */
xd_status xd_component_count(xd_component *p, xd_dev *count, xd_dtype type, xd_err *e);

/* Returns the bytes of the component's weights, in total and per block. Call xd_component_blocks
 * after xd_component_count. */
xd_block_sizes xd_component_blocks(const xd_component *p);

/* Returns the bytes that the component's weights occupy in a region of shared memory, without
 * streamed blocks. */
size_t xd_component_held_bytes(const xd_component *p);

/* Counts the bytes of weights if all blocks of one kind share the memory of the first such block
 * (xd_component_load with share = 1). Call xd_component_count_kinds after xd_component_count. */
xd_status xd_component_count_kinds(xd_component *p, xd_dev *count, xd_dtype type, xd_err *e);

/* Restricts the component on this rank to the network's blocks [first, last). xd_component_stage
 * must be called before weights are loaded. */
void xd_component_stage(xd_component *p, int first, int last);

/* Loads a component's weights from its files, or makes random weights if there are no files; does
 * nothing if the weights are loaded. On a count device, which computes nothing, xd_component_load
 * only exchanges the status of the share group. xd_component_load is collective over the
 * component's share group. If `share` is 1 (only for random weights), all transformer blocks of one
 * kind use the memory of the first such block. */
xd_status xd_component_load(xd_component *p, xd_dev *dev, xd_dtype type, int share, xd_err *e);
/* Loads the weights as xd_component_load does with share = 0. s: this rank's status before the
 * call; if a rank of the share group has failed before, no rank of the group loads weights. */
xd_status xd_component_load_after(xd_component *p, xd_status s, xd_dev *dev, xd_dtype type,
                                  xd_err *e);

/* Starts a thread that reads at most `most` bytes of the component's files into the page cache,
 * before the component is loaded. The readahead thread reads the bytes that this rank will load. In
 * a share group, only the first rank has a readahead thread, which reads the bytes that all ranks
 * of the group will load. If the files are too small for a thread to save time, no thread is
 * started. The readahead thread stops when the component is loaded or dropped. count: a device that
 * only counts memory. */
void   xd_component_prefetch(xd_component *p, xd_dev *count, xd_dtype type, size_t most,
                             const xd_canceller *cancel);
void   xd_component_prefetch_end(xd_component *p);
/* Opens the readahead for streamed blocks, which reads the files of the next blocks into the page
 * cache. Before streamed block k is used, call xd_component_stream_next with the component's `w` as
 * `self`. */
void   xd_component_stream_open(xd_component *p, xd_dev *dev, xd_dtype type);
void   xd_component_stream_next(void *self, int k);
void   xd_component_stream_close(xd_component *p);
/* Returns how many bytes this rank must read from disk to load the component's weights, because
 * they are not in the page cache. Returns 0 if the weights are loaded or there are no files.
 * xd_component_cold_bytes is slow: it takes half a second for 24 GB. */
size_t xd_component_cold_bytes(xd_component *p, xd_dev *count, xd_dtype type);
/* xd_component_will_read implements xd_source.will, and also adds the elements to the readahead
 * thread's list. xd_component_was_read tells the readahead thread that tensor i of the files has
 * been loaded. */
void   xd_component_will_read(void *self, const char *name, int64_t first, int64_t n);
void   xd_component_was_read(const xd_component *p, int64_t i);
/* Calls xd_source.will for all tensors of one transformer block, which will be read to load it.
 * block: index of the block among the blocks of this pipeline stage. */
void   xd_component_list_block(const xd_component *p, xd_dev *dev, xd_dtype type, int block);
/* Calls xd_source.will for all tensors that will be read to load the component, in the order of
 * reading. */
void   xd_component_list_reads(const xd_component *p, xd_dev *count, xd_dtype type);

/* Frees the component's weights, if they are loaded. All ranks that share one copy of the weights
 * must call xd_component_drop. */
void xd_component_drop(xd_component *p);

/* xd_weights_keep adds a reference to a set of weights, and xd_weights_release removes a reference.
 * When the last reference is removed, the set is closed; at that time, the set's weights must not
 * be loaded. */
xd_weights *xd_weights_keep(xd_weights *w);
void        xd_weights_release(xd_weights **w);

/* A second set of weights of a component, for other LoRA files, and its memory sizes. If `w` is
 * NULL, no second set is open. */
typedef struct xd_component_weights {
    xd_weights       *w;
    xd_weight_counts *count;
} xd_component_weights;

/* Opens a second set of weights for the component's blocks. The weights of the new set are not
 * loaded and have no LoRA terms. */
xd_status xd_component_weights_open(xd_component_weights *v, const xd_component *p, xd_err *e);
/* Swaps the component's set of weights and the second set of weights, `v`. xd_component_swap sends
 * no messages. */
void      xd_component_swap(xd_component *p, xd_component_weights *v);
/* Frees the weights of the component's second set of weights, but the set stays open. All ranks of
 * its share group must call xd_component_weights_drop. */
void      xd_component_weights_drop(xd_component_weights *v, xd_component *p);
void      xd_component_weights_close(xd_component_weights *v, xd_component *p);

/* xd_component_share completes `p`, a copy of an open component's struct, so that both components
 * share one set of weights; `p` gets its own memory sizes, and must be closed with
 * xd_component_unshare. xd_component_follow makes `p` use the weights that the component `of` uses
 * now, and counts the memory again if `p` used other weights before. */
xd_status xd_component_share(xd_component *p, xd_err *e);
void      xd_component_follow(xd_component *p, const xd_component *of);
void      xd_component_unshare(xd_component *p);
/* Completes `p`, a copy of an open component's struct, to a component that only counts memory: it
 * loads no weights, is not split over ranks, and has no files. The component `p` borrows the
 * network's config. */
xd_status xd_component_fork(xd_component *p, xd_err *e);
void      xd_component_unfork(xd_component *p);

#endif
