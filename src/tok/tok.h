/* tok.h - tokenizers: text becomes ids, exactly as transformers' tokenizers give them */
#ifndef XD_TOK_TOK_H
#define XD_TOK_TOK_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct xd_tok xd_tok;

/* Opens the tokenizer of a directory, T5's, CLIP's or BERT's, as tokenizer_class of its
 * tokenizer_config.json says, or without one as the files that are there. Special tokens are those
 * of tokenizer_config.json / special_tokens_map.json / added_tokens.json / tokenizer.json. */
xd_status xd_tok_open(xd_tok **t, const char *dir, xd_err *e);
/* T5's: spiece.model, or tokenizer.json when that is all there is (the SentencePiece model is built
 * from it in memory). */
xd_status xd_tok_open_t5(xd_tok **t, const char *dir, xd_err *e);
/* CLIP's: vocab.json and merges.txt, or tokenizer.json when those are not both there. */
xd_status xd_tok_open_clip(xd_tok **t, const char *dir, xd_err *e);
/* The same from memory, without the files beside it: a spiece.model with T5's 100 sentinels; a
 * tokenizer.json, CLIP's when its model is BPE and BERT's when it is WordPiece; CLIP's two files;
 * BERT's vocab.txt. Nothing of the bytes is kept. */
xd_status xd_tok_open_spiece(xd_tok **t, const void *data, size_t len, xd_err *e);
xd_status xd_tok_open_json(xd_tok **t, const char *text, size_t len, xd_err *e);
xd_status xd_tok_open_bpe(xd_tok **t, const char *vocab, size_t nvocab, const char *merges,
                          size_t nmerges, xd_err *e);
xd_status xd_tok_open_lines(xd_tok **t, const char *vocab, size_t len, xd_err *e);
void      xd_tok_close(xd_tok **t);

/* Ids of a text of `len` UTF-8 bytes (invalid bytes are U+FFFD, one each), cut to at most `max` ids
 * the way transformers truncates (max <= 0: not cut): T5's with the closing </s>, CLIP's and BERT's
 * with the opening and the closing token. *ids is malloc'ed and the caller's. Not padded. Ids equal
 * those of T5Tokenizer (legacy as the directory's config says), CLIPTokenizer and BertTokenizer of
 * transformers 5, which are those that once were called fast: CLIP's has NFC, and every symbol
 * alike, no ftfy. */
xd_status xd_tok_ids(const xd_tok *t, const char *text, size_t len, int64_t max, int32_t **ids,
                     int64_t *n, xd_err *e);
/* The same; *whole is what *n would be if nothing were cut. */
xd_status xd_tok_cut(const xd_tok *t, const char *text, size_t len, int64_t max, int32_t **ids,
                     int64_t *n, int64_t *whole, xd_err *e);
int64_t   xd_tok_vocab(const xd_tok *t);        /* ids are below it                          */
int32_t   xd_tok_bos(const xd_tok *t);          /* id before a text; -1: none is put there   */
int32_t   xd_tok_eos(const xd_tok *t);          /* id after it                               */
int32_t   xd_tok_pad(const xd_tok *t);          /* id to pad with; -1: the config has none   */
int64_t   xd_tok_max(const xd_tok *t);          /* model_max_length (77 of CLIP); 0: not said */

/* Lowers and strips a caption as diffusers' PixArt pipelines do without their optional cleaners
 * (Python's str.lower().strip()). malloc'ed; NULL without memory. */
char *xd_caption_plain(const char *text);

void      xd_tok_about(xd_fact *fact, void *cookie);    /* libraries and their versions       */

#endif
