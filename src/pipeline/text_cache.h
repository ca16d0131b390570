/* text_cache.h - keeps the embeddings of earlier prompts in a cache, so that an engine that serves
 * many requests need not encode a prompt again.
 *
 * The key of a cached embedding has the token ids of the prompt for every text encoder of the
 * pipeline, and two hashes of the images that encoders read. The key needs nothing else, because
 * all other inputs of text encoders are the same for all requests of an engine. Only the first of
 * the ranks in use, rank 0, has a cache of embeddings, which is in host memory. Rank 0 broadcasts a
 * cached embedding to the other ranks in the same way as a new embedding. */
#ifndef XD_PIPELINE_TEXT_CACHE_H
#define XD_PIPELINE_TEXT_CACHE_H

#include "pipeline/text_encode.h"

enum { XD_TEXT_CACHE_MOST = 256 << 20, XD_TEXT_CACHE_SHARE = 16 };

typedef struct xd_text_cache xd_text_cache;

typedef struct xd_text_key {
    const int64_t *v;
    int64_t        n;
} xd_text_key;

/* Opens an empty cache of at most `most` bytes. Returns NULL if out of memory. */
xd_text_cache *xd_text_cache_open(size_t most);
void           xd_text_cache_close(xd_text_cache **c);
/* Returns the cached embedding of a key; the pointer is valid until the next call of
 * xd_text_cache_find or xd_text_cache_add. Returns NULL if the embedding is not cached or its size
 * is not `bytes`. */
const void    *xd_text_cache_find(xd_text_cache *c, xd_text_key key, size_t bytes);
/* Allocates `bytes` for the embedding of a new key, which the caller writes. If the cache is full,
 * removes the least recently used entries. Returns NULL if the embedding is larger than the cache's
 * limit, or if out of memory. */
void          *xd_text_cache_add(xd_text_cache *c, xd_text_key key, size_t bytes);
size_t         xd_text_cache_bytes(const xd_text_cache *c);

/* On all ranks, sets xd_prompt.known for each prompt whose embeddings are in the cache; on rank 0,
 * also copies these embeddings from the cache. xd_prompts_recall does nothing unless the engine
 * keeps its encoders (xd_open_args.keep). `s` is this rank's status so far; if a rank has failed,
 * all ranks return an error. All ranks must call xd_prompts_recall. */
xd_status xd_prompts_recall(xd_prompts *w, xd_job *j, xd_status s, xd_err *e);
/* Caches the embeddings of the prompts that were not cached before. On ranks other than rank 0,
 * which have no cache, xd_prompts_remember does nothing. */
void      xd_prompts_remember(const xd_prompts *w, xd_job *j);

#endif
