/* text_cache.h - embeddings of earlier prompts, kept by an engine that serves many requests
 *
 * The key of an embedding is the ids of its prompt for every encoder of the pipeline, and two
 * hashes of the images that encoders see; all else that decides on it is the same for all requests
 * of an engine. Only rank 0 of the used ranks keeps
 * embeddings, in host memory; it broadcasts them like new ones. */
#ifndef XD_PIPELINE_TEXT_CACHE_H
#define XD_PIPELINE_TEXT_CACHE_H

#include "pipeline/text_encode.h"

enum { XD_TEXT_CACHE_MOST = 256 << 20, XD_TEXT_CACHE_SHARE = 16 };

typedef struct xd_text_cache xd_text_cache;

typedef struct xd_text_key { const int64_t *v; int64_t n; } xd_text_key;

/* An empty cache of at most `most` bytes; NULL: no memory. */
xd_text_cache *xd_text_cache_open(size_t most);
void           xd_text_cache_close(xd_text_cache **c);
/* The bytes kept for a key, until the next call; NULL: none, or not as many as `bytes`. */
const void    *xd_text_cache_find(xd_text_cache *c, xd_text_key key, size_t bytes);
/* Memory for the bytes of a new key, which the caller fills. What has not been found for the
 * longest time makes room. NULL: they are more than the cache may hold, or there is no memory. */
void          *xd_text_cache_add(xd_text_cache *c, xd_text_key key, size_t bytes);
size_t         xd_text_cache_bytes(const xd_text_cache *c);

/* Sets w->known of the prompts whose embeddings are kept, on all ranks, and fills these embeddings
 * on rank 0. Does nothing unless the engine keeps its encoders (xd_open_args.keep). s: this rank's
 * status so far. Collective; returns the status of all ranks. */
xd_status xd_prompts_recall(xd_prompts *w, xd_job *j, xd_status s, xd_err *e);
/* Keeps the embeddings of the other prompts. On rank 0. */
void      xd_prompts_remember(const xd_prompts *w, xd_job *j);

#endif
