/* gguf_box.h - for tests: weights in blocks, and GGUF files of them */
#ifndef XD_TESTS_GGUF_BOX_H
#define XD_TESTS_GGUF_BOX_H

#include "rename.h"

/* All tensors of a folder of a diffusers model, by their names there. */
void box_folder(box *b, const char *folder, const char *stem);
/* Tensors of two to four dimensions become blocks of the types in turn, where their elements are
 * whole blocks; `plain` gets all tensors, these in f32 as the numbers that the blocks stand for.
 * Blocks are random, of the magnitude of the tensor. Returns how many became blocks. */
int  box_blocks(box *b, box *plain);
/* Names of a T5, or of a language model behind "model.", become those of llama.cpp. */
void box_t5_names(box *b);
void box_lm_names(box *b);
/* Rows of queries (`heads`) and keys (`kv`) as llama.cpp orders those of a Llama. */
void box_pairs(box *b, int heads, int kv);
/* A GGUF file of an architecture (NULL: it tells none). heads > 0: its keys tell the heads. shards
 * > 0: tensors are dealt out to as many files, of which `path` names one. ggml: shapes as ggml has
 * them, without leading ones, and with at most four extents. */
typedef struct gguf_how {
    const char *arch;
    int         heads, kv, shards, ggml;
} gguf_how;
void box_write_gguf(const box *b, const char *path, gguf_how how);

#endif
