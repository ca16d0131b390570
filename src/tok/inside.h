/* inside.h - what the files of this room share; nobody else includes it.
 *
 * A text becomes ids in five steps, which are those of transformers' T5Tokenizer: added tokens
 * (added.c) are found in the raw text; the rest is normalized by the model's character map
 * (charsmap.c), cut at white space and at U+2581, which each word then begins with (tok.c), and
 * every word is cut into pieces with the best sum of scores (unigram.c). CLIP's and BERT's differ
 * in what lies between added tokens. CLIP's is normalized and cut into words by a pattern (clip.c),
 * and the bytes of a word are merged pair by pair (bpe.c); BERT's is normalized, cut at white space
 * and punctuation, and each word into the longest pieces from the left (bert.c). open.c says which
 * of them a directory has. */
#ifndef XD_TOK_INSIDE_H
#define XD_TOK_INSIDE_H

#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "tok/spm.h"
#include "tok/tok.h"

/* ---- growing bytes ------------------------------------------------------------------------ */

typedef struct xd_bytes_buf { char *p; size_t len, cap; int failed; } xd_bytes_buf;
void xd_bytes_add(xd_bytes_buf *b, const void *p, size_t n);    /* failed: no memory           */

/* ---- UTF-8 -------------------------------------------------------------------------------- */

/* The code point at s[0..len) (len > 0) and the bytes it takes; an invalid byte is -1 and takes
 * one. */
int32_t xd_utf8_get(const char *s, size_t len, size_t *took);
size_t  xd_utf8_len(const char *s);             /* bytes of the valid character at s           */
/* The character that ends before s[at] (at > 0); *from is where it begins. */
int32_t xd_utf8_before(const char *s, size_t at, size_t *from);
void    xd_utf8_put(int32_t c, xd_bytes_buf *out);
int     xd_is_space(int32_t c);                 /* Unicode's White_Space                       */

/* ---- code points ---------------------------------------------------------------------------- */

typedef struct xd_range { int32_t from, to; } xd_range;
int xd_in_ranges(const xd_range *r, size_t n, int32_t c);       /* r: in rising order           */

typedef struct xd_codes { int32_t *p; size_t n; } xd_codes;     /* p is malloc'ed               */
int  xd_codes_read(xd_codes *c, const char *s, size_t len);     /* 0: no memory                 */
/* The canonical decomposition, or with `composed` composition; 0: no memory. */
int  xd_codes_canonical(xd_codes *c, int composed);
void xd_lower(int32_t c, xd_bytes_buf *out);                    /* appends c in lower case      */

/* ---- the vocabulary, before the library has it ---------------------------------------------- */

enum { XD_PIECE_NORMAL = 1, XD_PIECE_UNKNOWN, XD_PIECE_CONTROL, XD_PIECE_USER };
enum { XD_PIECE_MAX = 1024 };           /* bytes of a piece; longer ones are refused           */

typedef struct xd_piece {
    size_t at, len;                     /* its text in xd_vocab.text                           */
    double score;
    int    type;
} xd_piece;

typedef struct xd_vocab {
    xd_piece    *p;
    int          n, cap;
    xd_bytes_buf text;
    xd_bytes_buf map;                   /* the precompiled character map; may be empty          */
} xd_vocab;

/* Read a serialized ModelProto, or tokenizer.json; `what` names it in errors. */
xd_status xd_vocab_spiece(xd_vocab *v, const char *data, size_t len, const char *what, xd_err *e);
xd_status xd_vocab_json(xd_vocab *v, const xd_json *j, const char *what, xd_err *e);
xd_status xd_vocab_add(xd_vocab *v, const char *s, size_t len, double score, int type,
                       const char *what, xd_err *e);
void      xd_vocab_model(const xd_vocab *v, xd_bytes_buf *model);       /* as a ModelProto      */
void      xd_vocab_free(xd_vocab *v);

/* ---- normalization -------------------------------------------------------------------------- */

typedef struct xd_charsmap {            /* borrowed from the vocabulary's map                   */
    const char *trie, *text;
    size_t      units, len;             /* of the trie (4 bytes each), bytes of text            */
} xd_charsmap;

xd_status xd_charsmap_open(xd_charsmap *m, const char *map, size_t len, const char *what,
                           xd_err *e);
/* Appends the normalized form of valid UTF-8. */
void      xd_charsmap_apply(const xd_charsmap *m, const char *s, size_t len, xd_bytes_buf *out);

/* ---- added tokens --------------------------------------------------------------------------- */

typedef struct xd_added_flags { int lstrip, rstrip, single_word, normalized; } xd_added_flags;

typedef struct xd_added {
    char          *text;                /* what is looked for: normalized when the flag says so  */
    char          *name;                /* as given                                             */
    size_t         len;
    int32_t        id;
    xd_added_flags f;
} xd_added;

typedef struct xd_ids { int32_t *p; int64_t n, cap; int failed; } xd_ids;
void xd_ids_add(xd_ids *o, int32_t id);

/* ---- pieces without scores ------------------------------------------------------------------ */

enum { XD_PIECES_MAX = 1 << 24 };       /* ids are below it                                     */

typedef struct xd_piece_id { size_t at, len; int32_t id; } xd_piece_id;

typedef struct xd_pieces {
    xd_piece_id *p;
    int          n, top;                /* pieces; ids are below `top`                          */
    size_t       longest;               /* bytes of a piece                                     */
    int32_t     *slot;                  /* hash table of piece numbers, -1: free                */
    size_t       slots;                 /* a power of two                                       */
    xd_bytes_buf text;
} xd_pieces;

/* From an object {piece: id}, where with `blanks` an empty piece may stand, and from lines, of which
 * the first has id 0. `what` names them in errors. To be freed also after a failure. */
xd_status xd_pieces_json(xd_pieces *v, const xd_json *j, int blanks, const char *what, xd_err *e);
xd_status xd_pieces_lines(xd_pieces *v, const char *s, size_t len, const char *what, xd_err *e);
int32_t   xd_pieces_find(const xd_pieces *v, const char *s, size_t len);        /* an id, or -1  */
void      xd_pieces_free(xd_pieces *v);
size_t    xd_table_size(int n);         /* slots of a hash table for n entries                  */
size_t    xd_text_hash(const char *s, size_t len);

/* ---- byte pairs and CLIP's words ------------------------------------------------------------- */

typedef struct xd_bpe xd_bpe;
typedef struct xd_bpe_files {           /* names are for errors                                 */
    const xd_json *vocab;               /* an object: piece, id                                 */
    const char    *vocab_name;
    const char    *merges;              /* the text of merges.txt; NULL: `list` has them        */
    size_t         len;
    const xd_json *list;
    const char    *merges_name;
} xd_bpe_files;
/* Keeps nothing of the files. */
xd_status xd_bpe_open(xd_bpe **b, const xd_bpe_files *f, xd_err *e);
void      xd_bpe_close(xd_bpe *b);
/* Says which piece stands for bytes that have none; refused when there is neither. */
xd_status xd_bpe_unknown(xd_bpe *b, const char *s, const char *what, xd_err *e);
const xd_pieces *xd_bpe_pieces(const xd_bpe *b);
void      xd_bpe_word(const xd_bpe *b, const char *w, size_t len, xd_ids *out);

typedef struct xd_clip xd_clip;
xd_status xd_clip_open(xd_clip **c, const xd_bpe_files *f, xd_err *e);
void      xd_clip_close(xd_clip *c);
xd_bpe   *xd_clip_bpe(const xd_clip *c);
/* Appends the normalized form of valid UTF-8. */
void      xd_clip_normalize(const char *s, size_t len, xd_bytes_buf *out);
/* The ids of normalized text. */
void      xd_clip_words(const xd_clip *c, const char *s, size_t len, xd_ids *out);

/* ---- BERT's words ---------------------------------------------------------------------------- */

typedef struct xd_bert_rules {
    int         clean, apart, strip, lower;     /* no controls, Chinese characters apart, no     */
                                                /* accents, small letters                        */
    const char *prefix;                         /* of pieces that do not begin a word; borrowed  */
    int64_t     most;                           /* characters of a word that is not unknown      */
} xd_bert_rules;
void      xd_bert_rules_of_config(xd_bert_rules *r, const xd_json *cfg);
xd_status xd_bert_rules_of_json(xd_bert_rules *r, const xd_json *tj, const char *what, xd_err *e);

typedef struct xd_bert xd_bert;
typedef struct xd_bert_files {
    const char    *lines;               /* the text of vocab.txt; NULL: `vocab` has the pieces  */
    size_t         len;
    const xd_json *vocab;               /* an object: piece, id                                 */
    const char    *name;                /* of the file, for errors                              */
    xd_bert_rules  rules;
} xd_bert_files;
/* Keeps nothing of the files. */
xd_status xd_bert_open(xd_bert **b, const xd_bert_files *f, xd_err *e);
void      xd_bert_unknown(xd_bert *b, int32_t id);      /* what stands for unknown words         */
void      xd_bert_close(xd_bert *b);
const xd_pieces *xd_bert_pieces(const xd_bert *b);
/* Appends the normalized form of valid UTF-8. */
void      xd_bert_normalize(const xd_bert *b, const char *s, size_t len, xd_bytes_buf *out);
/* The ids of normalized text. */
void      xd_bert_words(const xd_bert *b, const char *s, size_t len, xd_ids *out);

/* ---- a tokenizer ----------------------------------------------------------------------------- */

struct xd_tok {
    xd_clip    *clip;                   /* CLIP's; NULL: another                                */
    xd_bert    *bert;                   /* BERT's; NULL: another                                */
    /* T5's has neither, but the next six.                                                      */
    xd_vocab    v;
    xd_charsmap map;
    xd_spm     *spm;
    double      unknown;                /* score of a character without a piece                 */
    char        lens[XD_PIECE_MAX + 1]; /* lens[n]: some piece has n bytes                      */
    size_t      longest;
    xd_added   *added;
    int         nadded, capadded;
    int32_t    *slot;                   /* hash table of added tokens by name, -1: free         */
    size_t      slots;                  /* a power of two                                       */
    int32_t    *order[2];               /* those that are looked for in raw and in normalized    */
    int         norder[2];              /* text, sorted by it                                   */
    int32_t     begin, end, pad;        /* ids; -1: none                                        */
    int32_t     next;                   /* id of the next token out of vocabulary               */
    int64_t     max;                    /* model_max_length; 0: none                            */
    int         cut_left;               /* truncation drops the beginning                       */
};

/* Id of a text in the vocabulary, added tokens aside; -1: none. */
int32_t   xd_tok_find(const xd_tok *t, const char *s, size_t len);
/* Appends the normalized form of valid UTF-8, of which not all is valid any more. */
void      xd_tok_normalize(const xd_tok *t, const char *s, size_t len, xd_bytes_buf *out);

/* Makes `s` an added token unless it is one; its id is the vocabulary's or the next one. */
xd_status xd_added_add(xd_tok *t, const char *s, xd_added_flags f, xd_err *e);
int32_t   xd_added_id(const xd_tok *t, const char *s);          /* -1: no such token            */
int       xd_json_flag(const xd_json *o, const char *key, int otherwise);       /* true, false   */
typedef enum xd_tok_kind { XD_TOK_T5, XD_TOK_CLIP, XD_TOK_BERT, XD_TOK_KINDS } xd_tok_kind;
/* Reads the directory's special tokens: any of cfg (tokenizer_config.json), map
 * (special_tokens_map.json), old (added_tokens.json), tj (tokenizer.json) may be NULL. */
typedef struct xd_special_files {
    const xd_json *cfg, *map, *old, *tj;
    int            spiece;              /* T5's with a spiece.model                             */
    int            bare;                /* BERT's tokenizer.json without a class: only tokens that */
                                        /* files name are added                                 */
    xd_tok_kind    kind;
} xd_special_files;
xd_status xd_special_read(xd_tok *t, const xd_special_files *f, xd_err *e);
/* The text of a named special token ("eos_token"), or what the tokenizer's class calls it; NULL. */
const char *xd_special_name(const xd_special_files *f, const char *key);
int       xd_special_extra_ids(const xd_json *cfg);             /* how many sentinels           */
/* Next match at or after s[at]: the token, and where it begins and ends with the white space it
 * swallows (not before `from`); -1: none. `normalized` picks which tokens. */
int       xd_added_find(const xd_tok *t, int normalized, const char *s, size_t len, size_t at,
                        size_t from, size_t *begin, size_t *end);

/* Appends the ids of one word, valid UTF-8. */
void xd_unigram(const xd_tok *t, const char *s, size_t len, xd_ids *out);

#endif
