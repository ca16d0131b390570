/* tok.h - declares tokenizers, which convert text to the same ids as transformers' tokenizers. */
#ifndef XD_TOK_TOK_H
#define XD_TOK_TOK_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct xd_tok xd_tok;

/* Opens the tokenizer of a directory: T5, ByT5, CLIP, BERT, or a decoder language model (Qwen,
 * Llama, Mistral, Gemma). The kind of tokenizer is selected by the key tokenizer_class in
 * tokenizer_config.json or, without this key, by the files in the directory. Special tokens come
 * from tokenizer_config.json, special_tokens_map.json, added_tokens.json and tokenizer.json. */
xd_status xd_tok_open(xd_tok **t, const char *dir, xd_err *e);
/* Opens a T5 tokenizer from the file spiece.model in a directory. If there is no spiece.model,
 * builds a SentencePiece model in memory from tokenizer.json. */
xd_status xd_tok_open_t5(xd_tok **t, const char *dir, xd_err *e);
/* Open a tokenizer from the contents of one or two files in memory, without a directory.
 * xd_tok_open_spiece reads a spiece.model, and adds T5's 100 sentinels. xd_tok_open_json reads a
 * tokenizer.json: a BPE model with a pre-tokenizer is a language model's, a BPE model without a
 * pre-tokenizer is CLIP's, and a WordPiece model is BERT's. xd_tok_open_bpe reads CLIP's vocabulary
 * and merges. xd_tok_open_lines reads BERT's vocab.txt. A tokenizer that was opened from memory
 * keeps no reference to the bytes. */
xd_status xd_tok_open_spiece(xd_tok **t, const void *data, size_t len, xd_err *e);
xd_status xd_tok_open_json(xd_tok **t, const char *text, size_t len, xd_err *e);
xd_status xd_tok_open_bpe(xd_tok **t, const char *vocab, size_t nvocab, const char *merges,
                          size_t nmerges, xd_err *e);
xd_status xd_tok_open_lines(xd_tok **t, const char *vocab, size_t len, xd_err *e);
void      xd_tok_close(xd_tok **t);

/* Tokenizes a text of `len` UTF-8 bytes; each invalid byte becomes U+FFFD. xd_tok_ids truncates to
 * at most `max` ids like transformers; a `max` of 0 or below means no truncation. xd_tok_ids adds
 * special tokens: for T5 the closing </s>, for CLIP and BERT an opening and a closing token, for
 * language models those of their post-processor (Llama 3 <|begin_of_text|>, Gemma <bos>, Qwen
 * none). Does not pad. *ids is malloc'ed and owned by the caller.
 *
 * The ids equal those of T5Tokenizer (with `legacy` as in the directory's config), CLIPTokenizer
 * and BertTokenizer of transformers 5, and those of the fast tokenizers of earlier versions.
 * (CLIP's fast tokenizer applies NFC, treats all symbols alike, and does not use ftfy.) */
xd_status xd_tok_ids(const xd_tok *t, const char *text, size_t len, int64_t max, int32_t **ids,
                     int64_t *n, xd_err *e);
/* Tokenizes as xd_tok_ids does, and sets *untruncated to the number of ids before truncation. If
 * `no_special` is 1, no special tokens are added before and after the text. */
xd_status xd_tok_cut_plain(const xd_tok *t, const char *text, size_t len, int64_t max,
                           int no_special, int32_t **ids, int64_t *n, int64_t *untruncated,
                           xd_err *e);
/* returns the size of the vocabulary; all ids are smaller */
int64_t   xd_tok_vocab(const xd_tok *t);
/* returns the id of the token that begins a text; -1: no such token */
int32_t   xd_tok_bos(const xd_tok *t);
/* returns the id of the token that ends a text; -1: no such token, as in language models */
int32_t   xd_tok_eos(const xd_tok *t);
/* returns the id of the padding token, or -1 if the config does not set it */
int32_t   xd_tok_pad(const xd_tok *t);
/* returns 1 if the tokenizer belongs to a decoder language model */
int       xd_tok_is_lm(const xd_tok *t);
int       xd_tok_pads_left(const xd_tok *t); /* returns 1 if padding_side is "left" */
int64_t   xd_tok_max(const xd_tok *t); /* returns model_max_length (77 for CLIP), or 0 if unknown */

/* ---- prompts of language models ------------------------------------------------------------ */

typedef enum xd_tok_side { XD_TOK_SIDE_OWN, XD_TOK_SIDE_LEFT, XD_TOK_SIDE_RIGHT } xd_tok_side;

typedef struct xd_tok_frame { /* template (frame) that a pipeline puts around a prompt */
    const char *text; /* rendered chat template, with "{}" in place of the prompt; or NULL */
    /* maximum number of token ids after the first `drop` ids; 0: no limit */
    int64_t     max;
    /* number of token ids at the beginning whose embeddings the pipeline removes */
    int64_t     drop;
    int         pad; /* 1: texts are padded to max + drop ids */
    /* 1: no special tokens are added, because `text` already contains them */
    int         no_special;
    /* Whether padding comes before or after the text; XD_TOK_SIDE_OWN: as the tokenizer's config
     * tells. */
    xd_tok_side side;
} xd_tok_frame;

typedef struct xd_tok_row {
    int32_t *ids; /* [n] token ids, malloc'ed */
    int64_t  n;
    /* The ids of the text are ids[first] .. ids[first + real - 1]; all other ids are padding. */
    int64_t  first, real;
    /* number of token ids at the beginning of the text whose embeddings are removed */
    int64_t  drop;
    int64_t  untruncated; /* number of token ids of the text before truncation */
} xd_tok_row;

/* In the text of a frame (prompt template), replaces "{}" by the prompt. Returns the malloc'ed
 * result, or NULL if out of memory. */
char     *xd_tok_framed(const char *frame, const char *prompt);
/* Tokenizes a prompt in the prompt template (frame) of a pipeline. Special tokens are recognized in
 * the complete text, also in the prompt. The text is truncated and padded as in transformers:
 * truncation removes the end of the complete text, even if it belongs to the template. */
xd_status xd_tok_frame_ids(const xd_tok *t, const xd_tok_frame *f, const char *prompt,
                           xd_tok_row *row, xd_err *e);
/* Checks that a tokenizer fits the prompt template (frame) of a pipeline. If the tokenizer lacks a
 * special token of the template, returns 1 and writes an error message to why[0..size). `dir`,
 * which may be NULL, is the tokenizer's directory for the message. */
int       xd_tok_frame_doubt(const xd_tok *t, const char *dir, const xd_tok_frame *f, char *why,
                             size_t size);
/* Returns 1 and writes a warning to why[0..size) if the number of token ids before the prompt is
 * not f->drop, or if the chat template in the directory lacks a special token of the pipeline's
 * template f. The chat template is not rendered. */
int       xd_tok_chat_doubt(const xd_tok *t, const char *dir, const xd_tok_frame *f, char *why,
                            size_t size);

/* Prepare a prompt for the tokenizer, as diffusers' pipelines do. All xd_caption functions return
 * malloc'ed strings, or NULL if out of memory. Invalid UTF-8 bytes become U+FFFD.
 *
 * xd_caption_plain converts the text to lower case and strips white space: str.lower().strip(). */
char *xd_caption_plain(const char *text);
/* Strips white space from a prompt: str.strip(). */
char *xd_caption_strip(const char *text);
/* Cleans a prompt as diffusers' prompt_clean does: repairs text as ftfy does, replaces HTML
 * entities, and replaces runs of white space by one space. */
char *xd_caption_clean(const char *text);
/* Cleans a prompt as two calls of diffusers' _clean_caption do: removes text that is typical of
 * captions from the web, such as URLs, HTML tags, file names and sizes. */
char *xd_caption_of_web(const char *text);
/* Returns a text with the quoted passages of a prompt, each passage once: for the quotes "A" and
 * “B”, the text 'Text "A". Text "B". '. Returns an empty string if the prompt contains no
 * quotes. */
char *xd_caption_quoted(const char *text);

/* reports the names and versions of the libraries that the tokenizers use */
void xd_tok_about(xd_fact *fact, void *cookie);

#endif
