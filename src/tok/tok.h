/* tok.h - tokenizers: text becomes ids, equal to those of transformers' tokenizers */
#ifndef XD_TOK_TOK_H
#define XD_TOK_TOK_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/facts.h"

typedef struct xd_tok xd_tok;

/* Opens the tokenizer of a directory: T5's, CLIP's, BERT's, or that of a decoder language model
 * (Qwen's, Llama's, Mistral's, Gemma's). tokenizer_class in tokenizer_config.json selects it;
 * without that key, the files in the directory do. Special tokens come from tokenizer_config.json,
 * special_tokens_map.json, added_tokens.json and tokenizer.json. */
xd_status xd_tok_open(xd_tok **t, const char *dir, xd_err *e);
/* T5's: from spiece.model, or from tokenizer.json if there is no other (the SentencePiece model
 * is then built in memory). */
xd_status xd_tok_open_t5(xd_tok **t, const char *dir, xd_err *e);
/* CLIP's: from vocab.json and merges.txt, or from tokenizer.json unless both are there. */
xd_status xd_tok_open_clip(xd_tok **t, const char *dir, xd_err *e);
/* From memory, without the other files of a directory: a spiece.model, with T5's 100 sentinels;
 * a tokenizer.json, which is a language model's if its model is BPE with a pre-tokenizer, CLIP's
 * if it is BPE without one, BERT's if it is WordPiece; CLIP's two files; BERT's vocab.txt. Keeps
 * no reference to the bytes. */
xd_status xd_tok_open_spiece(xd_tok **t, const void *data, size_t len, xd_err *e);
xd_status xd_tok_open_json(xd_tok **t, const char *text, size_t len, xd_err *e);
xd_status xd_tok_open_bpe(xd_tok **t, const char *vocab, size_t nvocab, const char *merges,
                          size_t nmerges, xd_err *e);
xd_status xd_tok_open_lines(xd_tok **t, const char *vocab, size_t len, xd_err *e);
void      xd_tok_close(xd_tok **t);

/* Ids of a text of `len` UTF-8 bytes; each invalid byte becomes U+FFFD. Truncated to at most
 * `max` ids as transformers does (max <= 0: not truncated). T5's includes the closing </s>,
 * CLIP's and BERT's the opening and the closing token, a language model's what its post-processor
 * adds (Llama 3's <|begin_of_text|>, Gemma's <bos>, none of Qwen's). Not padded. *ids is malloc'ed
 * and owned by the caller.
 *
 * Ids equal those of T5Tokenizer (legacy as in the directory's config), CLIPTokenizer and
 * BertTokenizer of transformers 5, which are the former fast tokenizers: CLIP's applies NFC,
 * treats all symbols alike, and does not use ftfy. */
xd_status xd_tok_ids(const xd_tok *t, const char *text, size_t len, int64_t max, int32_t **ids,
                     int64_t *n, xd_err *e);
/* xd_tok_ids that also gives the untruncated number of ids in *whole. */
xd_status xd_tok_cut(const xd_tok *t, const char *text, size_t len, int64_t max, int32_t **ids,
                     int64_t *n, int64_t *whole, xd_err *e);
/* xd_tok_cut; `bare`: without the tokens that are put around a text. */
xd_status xd_tok_cut_bare(const xd_tok *t, const char *text, size_t len, int64_t max, int bare,
                          int32_t **ids, int64_t *n, int64_t *whole, xd_err *e);
int64_t   xd_tok_vocab(const xd_tok *t);        /* all ids are below it                      */
int32_t   xd_tok_bos(const xd_tok *t);          /* id before a text; -1: none                */
int32_t   xd_tok_eos(const xd_tok *t);          /* id after a text; a language model's: -1: none */
int32_t   xd_tok_pad(const xd_tok *t);          /* padding id; -1: not in the config         */
int       xd_tok_is_lm(const xd_tok *t);        /* 1: of a decoder language model            */
int       xd_tok_pads_left(const xd_tok *t);    /* 1: padding_side is left                   */
int64_t   xd_tok_max(const xd_tok *t);          /* model_max_length (77 for CLIP); 0: unknown */

/* ---- prompts of language models ------------------------------------------------------------ */

typedef enum xd_tok_side { XD_TOK_SIDE_OWN, XD_TOK_SIDE_LEFT, XD_TOK_SIDE_RIGHT } xd_tok_side;

typedef struct xd_tok_frame {   /* what a pipeline puts around a prompt                        */
    const char *text;           /* a filled chat template, "{}" in the prompt's place; or NULL */
    int64_t     max;            /* most ids beside those that are dropped; 0: any              */
    int64_t     drop;           /* ids in front whose embeddings the pipeline drops            */
    int         pad;            /* padded to max + drop ids                                    */
    int         bare;           /* its special tokens are written out: no others are put around */
    xd_tok_side side;           /* of padding; OWN: the tokenizer's                            */
} xd_tok_frame;

typedef struct xd_tok_row {
    int32_t *ids;               /* [n], malloc'ed                                              */
    int64_t  n;
    int64_t  first, real;       /* ids[first] .. ids[first + real - 1] are text, others padding */
    int64_t  drop;              /* of the ids of text: the first that are dropped              */
    int64_t  whole;             /* ids of text before it was truncated                         */
} xd_tok_row;

/* The frame with the prompt in its place, malloc'ed; NULL: out of memory. */
char     *xd_tok_framed(const char *frame, const char *prompt);
/* Special tokens count wherever they are, also in the prompt. Truncation and padding are those of
 * transformers: truncation removes the end of the framed text. */
xd_status xd_tok_frame_ids(const xd_tok *t, const xd_tok_frame *f, const char *prompt,
                           xd_tok_row *row, xd_err *e);
/* 1, and a sentence in why[0..size): the tokenizer lacks a special token of the frame, so that
 * it is not the pipeline's. `dir`: its directory, for the sentence; or NULL. */
int       xd_tok_frame_doubt(const xd_tok *t, const char *dir, const xd_tok_frame *f, char *why,
                             size_t size);
/* 1, and a sentence for a warning: the tokenizer makes another number of ids of the text before the
 * prompt than are dropped, or the directory has a chat template that lacks a special token of the
 * frame. Chat templates are not run. */
int       xd_tok_chat_doubt(const xd_tok *t, const char *dir, const xd_tok_frame *f, char *why,
                            size_t size);

/* What pipelines of diffusers make of a prompt before its tokenizer. All are malloc'ed; NULL if out
 * of memory. Bytes that are no UTF-8 become U+FFFD.
 *
 * In small letters and stripped: str.lower().strip(). */
char *xd_caption_plain(const char *text);
/* prompt_clean: ftfy's repairs, references of HTML written out, one blank for white space. */
char *xd_caption_clean(const char *text);
/* _clean_caption, twice: captions of the web without addresses, tags, names of files, sizes. */
char *xd_caption_of_web(const char *text);

void      xd_tok_about(xd_fact *fact, void *cookie);    /* reports libraries and versions     */

#endif
