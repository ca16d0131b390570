/* inside.h - used only in src/tok: declares functions and types that several source files of the
 * tokenizers use.
 *
 * Texts are tokenized in the same steps as by the tokenizers of the library transformers. All
 * tokenizers first find added tokens in the raw text (added.c). T5's tokenizer normalizes the text
 * between the added tokens with the model's character map (charsmap.c), and splits the text at
 * white space and at U+2581, so that every word begins with U+2581 (tok.c). After the text is
 * split, T5's tokenizer segments each word into the pieces with the largest sum of scores
 * (unigram.c). CLIP's tokenizer normalizes the text, splits it into words with a regular expression
 * (clip.c), and merges the bytes of a word pair by pair (bpe.c). BERT's tokenizer normalizes the
 * text, splits it at white space and punctuation, and segments each word from the left into the
 * longest pieces (bert.c). ByT5's tokens are the bytes of the text (tok.c). The tokenizer of a
 * language model follows the rules in its tokenizer.json (lm.c): it normalizes, splits with regular
 * expressions (pattern.c), and merges bytes or characters (bpe.c). open.c selects the tokenizer of
 * a directory; lm_open.c reads the tokenizer of a language model. */
#ifndef XD_TOK_INSIDE_H
#define XD_TOK_INSIDE_H

#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "tok/spm.h"
#include "tok/tok.h"

/* ---- growing bytes ------------------------------------------------------------------------ */

/* Bits of the field `failed` of a text buffer. XD_FAILED_MEMORY: out of memory. XD_FAILED_ENDLESS:
 * a regular expression exceeded its match limit. */
enum { XD_FAILED_MEMORY = 1, XD_FAILED_ENDLESS = 2 };

typedef struct xd_bytes_buf {
    char  *p;
    size_t len, cap;
    int    failed;
} xd_bytes_buf;
/* appends bytes; sets `failed` if out of memory */
void xd_bytes_add(xd_bytes_buf *b, const void *p, size_t n);
void xd_bytes_free(xd_bytes_buf *b);
typedef struct xd_slice {
    const char *p;
    size_t      len;
} xd_slice; /* a text, which is borrowed */

/* ---- UTF-8 -------------------------------------------------------------------------------- */

/* Returns the code point of the UTF-8 character at s[0..len), len > 0, and sets *took to the
 * character's length in bytes. If the byte at s is invalid, returns -1 and sets *took to 1. */
int32_t xd_utf8_get(const char *s, size_t len, size_t *took);
size_t  xd_utf8_len(const char *s); /* returns the length in bytes of the valid character at s */
/* Returns the code point of the UTF-8 character that ends before s[at], where `at` must be above 0.
 * Sets *from to the offset of the character's first byte. */
int32_t xd_utf8_before(const char *s, size_t at, size_t *from);
void    xd_utf8_put(int32_t c, xd_bytes_buf *out);
int     xd_is_space(int32_t c); /* returns 1 if c has Unicode's property White_Space */
int     xd_is_blank(int32_t c); /* returns 1 if Python's str.isspace() is true for c */

/* ---- code points ---------------------------------------------------------------------------- */

typedef struct xd_range { int32_t from, to; } xd_range;
/* Returns 1 if code point c is in one of n sorted ranges. */
int xd_in_ranges(const xd_range *r, size_t n, int32_t c);

typedef struct xd_codes {
    int32_t *p;
    size_t   n;
} xd_codes; /* code points of a text; p is malloc'ed */
/* reads UTF-8; returns 0 if out of memory */
int xd_codes_read(xd_codes *c, const char *s, size_t len);
/* Normalizes code points to NFD or NFC of Unicode 9 or, for XD_NFC_TODAY, to NFC of the Unicode
 * version of utf8proc. Returns 0 if out of memory. */
enum { XD_NFD, XD_NFC, XD_NFC_TODAY };
int  xd_codes_canonical(xd_codes *c, int form);
void xd_lower(int32_t c, xd_bytes_buf *out); /* appends the lower case of code point c */

/* ---- cleaning of prompts, as in diffusers (caption.c) ---------------------------------------- */

/* Contents of character classes [...] in regular expressions; the classes match the same characters
 * as Python's \s, \w and \d. */
#define XD_SPACES "\\t-\\r\\x1c- \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}"  \
    "\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define XD_LETTERS   "\\p{L}\\p{N}_"
#define XD_DIGIT  "\\p{Nd}"

enum { XD_FIND_BYTES = 1 }; /* the pattern matches bytes, not UTF-8 characters */
typedef struct xd_finder xd_finder;
xd_finder *xd_finder_open(const char *pattern, int flags); /* returns NULL if out of memory */
void       xd_finder_close(xd_finder *f);
/* Searches the text s for a pattern, from s[at] on or, if `here` is 1, only at s[at]. Returns 1 if
 * the pattern is found. Writes the begin and end of the match to span[0] and span[1], and those of
 * the pattern's groups to the next elements of span. */
int xd_finder_next(const xd_finder *f, const char *s, size_t len, size_t at, int here, size_t *span,
                   int groups);
/* In a text, replaces all matches of a pattern by the string `by`, in which "$1" stands for the
 * first group of the match. */
void xd_replace(xd_bytes_buf *text, const char *pattern, const char *by, int flags);

/* Appends the characters of an HTML entity. `name` is the HTML entity's name without "&" and ";".
 * If `no_semicolon` is 1, only entities that are valid without ";" are accepted. Returns 0 if the
 * HTML entity is unknown. */
int     xd_entity_put(const char *name, size_t n, int no_semicolon, xd_bytes_buf *out);
/* Parses a numeric HTML entity "&#...", and writes its number to *v. Returns the length of the
 * numeric entity in bytes, or 0 if the text does not begin with one. */
size_t  xd_entity_number(const char *s, size_t len, int64_t *v);
int32_t xd_entity_code(int64_t v); /* returns the code point of a numeric entity */
int32_t xd_windows_code(int byte); /* returns the code point of a byte in Windows-1252 */
/* Replaces HTML entities as Python's html.unescape does. */
void    xd_unescape(const char *s, size_t len, xd_bytes_buf *out);
/* Replaces HTML entities as ftfy's unescape_html does. */
void    xd_unescape_whole(const char *s, size_t len, xd_bytes_buf *out);
void    xd_unescape_twice(xd_bytes_buf *text);

/* repairs a text with wrong encoding (mojibake) as ftfy does */
void                   xd_fix_charset(xd_bytes_buf *text);
/* Replaces C1 control characters by the characters that the same bytes have in Windows-1252.
 * Returns 1 if the text had C1 control characters. */
int                    xd_fix_controls(xd_bytes_buf *text);
void                   xd_fix_text(xd_bytes_buf *text); /* repairs a text like ftfy.fix_text */
/* A parser of HTML start tags in a text. xd_tags_open borrows the text and returns NULL if out of
 * memory. */
typedef struct xd_tags xd_tags;
xd_tags               *xd_tags_open(const char *s, size_t len);
void                   xd_tags_close(xd_tags *t);
/* Returns the end of the attributes of the start tag whose "<" is at `at`. If a byte that cannot be
 * part of an attribute comes first, returns the offset of this byte. */
size_t                 xd_tags_scan(xd_tags *t, size_t at);
/* xd_tags_name returns the end of the tag name at s[at], and xd_tags_attribute returns the end of
 * the attribute at s[at]. If s[at] begins no name or attribute, both functions return `at`. */
size_t                 xd_tags_name(const xd_tags *t, size_t at, size_t *behind);
size_t                 xd_tags_attribute(const xd_tags *t, size_t at);
/* replaces HTML by the text that BeautifulSoup(html, "html.parser").text returns */
void                   xd_html_text(xd_bytes_buf *text);

/* The functions xd_caption_... begin with xd_caption_read and end with xd_caption_end.
 * xd_caption_read appends `text` to a buffer as valid UTF-8. xd_caption_end returns the buffer as a
 * string, or NULL if out of memory. */
void  xd_caption_read(const char *text, xd_bytes_buf *out);
char *xd_caption_end(xd_bytes_buf *text);

/* ---- JSON without a tree -------------------------------------------------------------------- */

/* A JSON text that is being read, and the offset `at` of the next byte to read. */
typedef struct xd_skim {
    const char *p;
    size_t      len, at;
} xd_skim;
typedef struct xd_skimmed { /* a tokenizer.json, split into its vocabulary, its merges and
                             * everything else */
    xd_bytes_buf rest;      /* the JSON text; vocab is replaced by {}, merges by [] */
    /* JSON texts of model.vocab (an object) and of model.merges in a tokenizer.json; NULL: the file
     * does not contain it. */
    xd_slice     vocab, merges;
} xd_skimmed;
/* Splits a tokenizer.json into its vocabulary, its merges and everything else. out->vocab and
 * out->merges point into `text`; the caller frees out->rest. If the JSON text is invalid, out->rest
 * is the complete text. */
xd_status xd_skim_read(xd_skimmed *out, const char *text, size_t len, xd_err *e);
/* Each of the functions xd_skim_... skips white space and reads one JSON token, or returns 0 if the
 * text continues with a token of another kind. */
int       xd_skim_is(xd_skim *k, char c);
/* Reads a JSON string. *out points into the JSON text or, if the string contains escapes, into
 * *buf, and is then valid until the next call. */
int       xd_skim_string(xd_skim *k, xd_bytes_buf *buf, xd_slice *out);
int       xd_skim_id(xd_skim *k, int64_t *id); /* reads a JSON integer, clamped to int64_t */
xd_status xd_skim_broken(const xd_skim *k, const char *what, const char *part, xd_err *e);

/* ---- a SentencePiece vocabulary -------------------------------------------------------------- */

enum { XD_PIECE_NORMAL = 1, XD_PIECE_UNKNOWN, XD_PIECE_CONTROL, XD_PIECE_USER };
enum { XD_PIECE_MAX = 1024 }; /* maximum number of bytes of a piece; longer pieces are refused */

typedef struct xd_piece {
    /* offset of the vocabulary piece in xd_vocab.text; length of the piece in bytes */
    size_t at, len;
    double score;
    int    type;
} xd_piece;

typedef struct xd_vocab {
    xd_piece    *p;
    int          n, cap;
    xd_bytes_buf text;
    xd_bytes_buf map; /* precompiled character map that normalizes text; may be empty */
} xd_vocab;

/* Read a SentencePiece vocabulary from a serialized ModelProto or from a tokenizer.json. `what` is
 * the name of the file in error messages. */
enum { XD_SPM_UNIGRAM = 1, XD_SPM_BPE }; /* type of SentencePiece model that is accepted */
xd_status xd_vocab_spiece(xd_vocab *v, const char *data, size_t len, int type, const char *what,
                          xd_err *e);
xd_status xd_vocab_json(xd_vocab *v, const xd_json *j, const char *what, xd_err *e);
xd_status xd_vocab_add(xd_vocab *v, const char *s, size_t len, double score, int type,
                       const char *what, xd_err *e);
/* writes the vocabulary as a ModelProto */
void      xd_vocab_model(const xd_vocab *v, xd_bytes_buf *model);
void      xd_vocab_free(xd_vocab *v);

/* ---- normalization -------------------------------------------------------------------------- */

/* A character map for normalizing text; it borrows the bytes of xd_vocab.map. */
typedef struct xd_charsmap {
    const char *trie, *text;
    /* number of 4-byte elements of the trie; number of bytes of the replacements */
    size_t      units, len;
} xd_charsmap;

xd_status xd_charsmap_open(xd_charsmap *m, const char *map, size_t len, const char *what,
                           xd_err *e);
/* Appends the normalized form of a text, which must be valid UTF-8. */
void      xd_charsmap_apply(const xd_charsmap *m, const char *s, size_t len, xd_bytes_buf *out);

/* ---- added tokens --------------------------------------------------------------------------- */

typedef struct xd_added_flags { int lstrip, rstrip, single_word, normalized; } xd_added_flags;

typedef struct xd_added {
    /* Text for which the tokenizer searches: the token's text or, if f.normalized is set, its
     * normalized text. */
    char          *text;
    char          *name; /* text of the token in the tokenizer file */
    size_t         len;
    int32_t        id;
    xd_added_flags f;
} xd_added;

typedef struct xd_ids {
    int32_t *p;
    int64_t  n, cap;
    int      failed;
} xd_ids;
void xd_ids_add(xd_ids *o, int32_t id);

/* ---- pieces without scores ------------------------------------------------------------------ */

enum { XD_PIECES_MAX = 1 << 24 }; /* upper limit of the ids in a vocabulary */

typedef struct xd_piece_id {
    size_t  at, len;
    int32_t id;
} xd_piece_id;

typedef struct xd_pieces {
    xd_piece_id *p;
    int          n, top;  /* number of pieces; all ids are below `top` */
    size_t       longest; /* length in bytes of the longest piece */
    int32_t     *slot;    /* hash table of indices of pieces; -1: empty slot */
    size_t       slots;   /* number of slots of the hash table, a power of two */
    xd_bytes_buf text;
} xd_pieces;

/* Read the pieces of a vocabulary from a JSON object {piece: id}, from the text of such an object,
 * from a list, or from lines of text, of which the first line has id 0. If `blanks` is 1, the
 * vocabulary may contain an empty piece. `what` is the name of the file in error messages. After a
 * failure, xd_pieces_free must be called as well. */
xd_status xd_pieces_json(xd_pieces *v, const xd_json *j, int blanks, const char *what, xd_err *e);
xd_status xd_pieces_span(xd_pieces *v, xd_slice span, const char *what, xd_err *e);
xd_status xd_pieces_list(xd_pieces *v, const xd_vocab *list, const char *what, xd_err *e);
xd_status xd_pieces_lines(xd_pieces *v, const char *s, size_t len, const char *what, xd_err *e);
/* Returns the id of a piece, or -1 if the vocabulary does not contain it. */
int32_t   xd_pieces_find(const xd_pieces *v, const char *s, size_t len);
void      xd_pieces_free(xd_pieces *v);
size_t    xd_table_size(int n); /* returns the number of hash table slots for n entries */
size_t    xd_text_hash(const char *s, size_t len);

/* ---- byte pair encoding --------------------------------------------------------------------- */

typedef struct xd_bpe xd_bpe;
typedef struct xd_bpe_files { /* files of a BPE tokenizer; the names are for error messages */
    const xd_json  *vocab;    /* vocabulary as a JSON object {piece: id} */
    const char     *vocab_name;
    const char     *merges; /* content of merges.txt; NULL: `list` is used */
    size_t          len;
    const xd_json  *list;
    const char     *merges_name;
    /* JSON texts of the vocabulary (bytes) and of the merges (pairs), which replace `vocab` and
     * `list`. */
    xd_slice        bytes, pairs;
    /* If `pieces` is not NULL, all other fields are ignored: every split of one of these pieces
     * into two others is a merge (SentencePiece BPE). */
    const xd_vocab *pieces;
} xd_bpe_files;
/* The opened tokenizer keeps no reference to the content of the files. */
xd_status        xd_bpe_open(xd_bpe **b, const xd_bpe_files *f, xd_err *e);
void             xd_bpe_close(xd_bpe *b);
/* Makes s the piece that represents bytes which no vocabulary piece contains. Refuses a vocabulary
 * that contains neither s nor a piece for every byte. */
xd_status        xd_bpe_unknown(xd_bpe *b, const char *s, const char *what, xd_err *e);
const xd_pieces *xd_bpe_pieces(const xd_bpe *b);
/* Appends the ids of one word of CLIP's tokenizer. */
void             xd_bpe_word(const xd_bpe *b, const char *w, size_t len, xd_ids *out);
/* Merges neighbours in the list of n token ids by BPE, and appends the resulting ids. */
void             xd_bpe_merge(const xd_bpe *b, const int32_t *ids, size_t n, xd_ids *out);
/* Writes, as UTF-8, the character by which byte-level BPE (GPT-2) represents a byte. Returns the
 * length of the written character in bytes. */
size_t           xd_byte_letter(int byte, char out[2]);

/* ---- CLIP's tokenizer ----------------------------------------------------------------------- */

typedef struct xd_clip xd_clip;
xd_status              xd_clip_open(xd_clip **c, const xd_bpe_files *f, xd_err *e);
void                   xd_clip_close(xd_clip *c);
xd_bpe                *xd_clip_bpe(const xd_clip *c);
/* Appends the normalized form of a text, which must be valid UTF-8. */
void                   xd_clip_normalize(const char *s, size_t len, xd_bytes_buf *out);
/* Appends the token ids of a text that is already normalized. */
void                   xd_clip_words(const xd_clip *c, const char *s, size_t len, xd_ids *out);

/* ---- patterns ------------------------------------------------------------------------------- */

typedef struct xd_pattern xd_pattern;
/* Opens a pattern for splitting text. If `text` is not NULL, the pattern matches the literal
 * `text`; otherwise it is a regular expression. */
xd_status xd_pattern_open(xd_pattern **p, const char *regex, const char *text, const char *what,
                          xd_err *e);
void      xd_pattern_close(xd_pattern *p);

/* What happens to the matches when a text is split; the values are the behaviors of Split in the
 * tokenizers library. */
typedef enum xd_split_how {
    XD_SPLIT_ISOLATED,
    XD_SPLIT_REMOVED,
    XD_SPLIT_WITH_PREVIOUS,
    XD_SPLIT_WITH_NEXT,
    XD_SPLIT_CONTIGUOUS
} xd_split_how;
typedef struct xd_text_cut {
    size_t from, to;
    int    match;
} xd_text_cut;
typedef struct xd_cuts {
    xd_text_cut *p;
    size_t       n, cap;
    int          failed;
} xd_cuts;
/* Splits a text, which must be valid UTF-8, into the matches of the pattern and the text between
 * matches. The caller frees the array c->p of cuts. */
void xd_pattern_cut(const xd_pattern *p, const char *s, size_t len, xd_cuts *c);
/* Removes matches from a split text, or merges them with their neighbours, as `how` tells. If
 * `invert` is 1, the text between matches is treated as the matches, and the matches as the text
 * between them. */
void xd_cuts_merge(xd_cuts *c, xd_split_how how, int invert);

/* ---- tokenizers of language models ---------------------------------------------------------- */

typedef struct xd_lm xd_lm;
typedef enum xd_lm_class { XD_LM_OTHER, XD_LM_QWEN, XD_LM_GEMMA } xd_lm_class;
typedef struct xd_lm_files {
    xd_bpe_files   bpe;
    /* content of tokenizer.json without the vocabulary; NULL: the tokenizer has no tokenizer.json,
     * and the default rules of the tokenizer class are used */
    const xd_json *rules;
    xd_lm_class    named;
    const char    *unknown; /* default unk_token of the tokenizer class */
} xd_lm_files;
/* The opened tokenizer keeps no reference to the content of the files. */
xd_status        xd_lm_open(xd_lm **l, const xd_lm_files *f, xd_err *e);
void             xd_lm_close(xd_lm *l);
const xd_pieces *xd_lm_pieces(const xd_lm *l);
/* Appends the normalized form of a text, which must be valid UTF-8. */
void             xd_lm_normalize(const xd_lm *l, const char *s, size_t len, xd_bytes_buf *out);
/* Appends the token ids of a text that is already normalized. */
void             xd_lm_words(const xd_lm *l, const char *s, size_t len, xd_ids *out);

/* ---- BERT's tokenizer ----------------------------------------------------------------------- */

typedef struct xd_bert_rules {
    int         clean;         /* 1: control characters are removed */
    int         split_chinese; /* 1: each Chinese character becomes a word */
    /* strip: 1 if accents are removed; lower: 1 if the text is converted to lower case. */
    int         strip, lower;
    /* Prefix of vocabulary pieces that do not begin a word, such as "##"; borrowed. */
    const char *prefix;
    /* Maximum number of characters of a word; a longer word becomes a single token with the id for
     * unknown words. */
    int64_t     max_chars;
} xd_bert_rules;
void      xd_bert_rules_of_config(xd_bert_rules *r, const xd_json *cfg);
xd_status xd_bert_rules_of_json(xd_bert_rules *r, const xd_json *tj, const char *what, xd_err *e);

typedef struct xd_bert xd_bert;
typedef struct xd_bert_files {
    const char    *lines; /* content of vocab.txt; NULL: the field `vocab` is used instead */
    size_t         len;
    const xd_json *vocab; /* vocabulary as a JSON object {piece: id} */
    const char    *name;  /* name of the vocabulary file in error messages */
    xd_bert_rules  rules;
} xd_bert_files;
/* The opened tokenizer keeps no reference to the content of the files. */
xd_status        xd_bert_open(xd_bert **b, const xd_bert_files *f, xd_err *e);
void             xd_bert_unknown(xd_bert *b, int32_t id); /* sets the id that unknown words get */
void             xd_bert_close(xd_bert *b);
const xd_pieces *xd_bert_pieces(const xd_bert *b);
/* Appends the normalized form of a text, which must be valid UTF-8. */
void             xd_bert_normalize(const xd_bert *b, const char *s, size_t len, xd_bytes_buf *out);
/* Appends the token ids of a text that is already normalized. */
void             xd_bert_words(const xd_bert *b, const char *s, size_t len, xd_ids *out);

/* ---- a tokenizer ----------------------------------------------------------------------------- */

struct xd_tok {
    xd_clip    *clip;  /* CLIP's tokenizer, or NULL */
    xd_bert    *bert;  /* BERT's tokenizer, or NULL if t is another tokenizer */
    xd_lm      *lm;    /* tokenizer of a language model, or NULL */
    int         bytes; /* 1: ByT5's tokenizer, whose tokens are the bytes of a text */
    /* Only T5's tokenizer uses the fields from `v` to `longest`. */
    xd_vocab    v;
    xd_charsmap map;
    xd_spm     *spm;
    double      unknown; /* score of a character that no vocabulary piece contains */
    /* lens[n]: 1 if some vocabulary piece has a length of n bytes */
    char        lens[XD_PIECE_MAX + 1];
    size_t      longest;
    xd_added   *added;
    int         nadded, capadded;
    int32_t    *slot;  /* hash table of added tokens by name; -1: empty slot */
    size_t      slots; /* number of slots of the hash table, a power of two */
    /* Indices of the added tokens, sorted by their texts: order[0] lists the tokens that are
     * searched in raw text, order[1] those that are searched in normalized text. */
    int32_t    *order[2];
    int         norder[2];
    /* ids of the tokens bos, eos and pad; -1: the tokenizer has no such token */
    int32_t     begin, end, pad;
    /* Ids of the special tokens that are put before a text (head) and after a text (tail). */
    xd_ids      head, tail;
    int         pad_left; /* 1: padding comes before the text */
    int32_t     next;     /* id that the next token outside the vocabulary gets */
    int64_t     max;      /* maximum number of ids (model_max_length); 0: no limit */
    int         cut_left; /* 1: truncation drops the beginning of the text */
};

void    xd_tok_open_bytes(xd_tok *t); /* makes t ByT5's tokenizer, which has no vocabulary file */
/* Returns the id of the piece s in the vocabulary without added tokens, or -1 if the vocabulary
 * does not contain it. */
int32_t xd_tok_find(const xd_tok *t, const char *s, size_t len);
/* Appends the normalized form of a text. The text to normalize must be valid UTF-8; the normalized
 * text may contain invalid UTF-8. */
void    xd_tok_normalize(const xd_tok *t, const char *s, size_t len, xd_bytes_buf *out);

/* Makes `s` an added token, unless it already is one. The added token gets the id of the vocabulary
 * piece `s` or, if the vocabulary does not contain it, the next free id. */
xd_status                 xd_added_add(xd_tok *t, const char *s, xd_added_flags f, xd_err *e);
/* returns the id of the added token s, or -1 if s is no added token */
int32_t                   xd_added_id(const xd_tok *t, const char *s);
/* Adds a token, which is given as a JSON string, or as a JSON object with "content" and flags. If
 * `special` is 1, the token's flag "normalized" is false by default. */
xd_status                 xd_added_json(xd_tok *t, const xd_json *j, int special, xd_err *e);
/* Prepares the search for added tokens in texts. xd_added_sort must be called after all tokens are
 * added. */
xd_status                 xd_added_sort(xd_tok *t, xd_err *e);
/* Returns the boolean value of a key in the JSON object o, or `otherwise` if o does not contain the
 * key. */
int                       xd_json_flag(const xd_json *o, const char *key, int otherwise);
typedef struct xd_lm_json xd_lm_json;
typedef enum xd_tok_kind {
    XD_TOK_T5,
    XD_TOK_CLIP,
    XD_TOK_BERT,
    XD_TOK_BYTES,
    XD_TOK_LM,
    XD_TOK_KINDS
} xd_tok_kind;
/* The parsed files of a tokenizer's directory that may declare special tokens: cfg
 * (tokenizer_config.json), map (special_tokens_map.json), old (added_tokens.json), tj
 * (tokenizer.json). A pointer to a parsed file is NULL if the directory lacks the file. */
typedef struct xd_special_files {
    const xd_json    *cfg, *map, *old, *tj;
    int               spiece; /* 1: the tokenizer is T5's and was opened from a file spiece.model */
    /* 1: the tokenizer is BERT's and was opened from tokenizer.json, which lists all its special
     * tokens, so that no default ones are added. */
    int               named_only;
    xd_lm_class       named; /* tokenizer class of a language model */
    const xd_lm_json *json;  /* tokenizer.json of a language model, or NULL */
    xd_tok_kind       kind;
} xd_special_files;
xd_status xd_special_read(xd_tok *t, const xd_special_files *f, xd_err *e);

/* The tokenizer.json of a language model, whose large vocabulary is not parsed into a JSON tree. */
struct xd_lm_json {
    char      *text; /* content of the file, owned by this struct */
    size_t     len;
    xd_skimmed skim;
    xd_json   *rules; /* the parsed JSON document without vocab and merges */
};
/* Maximum size of a vocabulary file in bytes; the largest known files have 2^25 bytes. */
enum { XD_TOK_FILE_MAX = 1 << 28 };
/* returns 1 if the directory has the file */
int       xd_tok_has(const char *dir, const char *name);
/* xd_lm_json_parse borrows `text`. Call xd_lm_json_free also after a failure. */
xd_status xd_lm_json_parse(xd_lm_json *j, const char *text, size_t len, const char *what,
                           xd_err *e);
xd_status xd_lm_json_read(xd_lm_json *j, const char *path, xd_err *e);
void      xd_lm_json_free(xd_lm_json *j);
/* Returns 1 if a tokenizer.json is for a language model, or 0 if it is for CLIP. */
int       xd_lm_json_fits(const xd_json *rules);
xd_status xd_lm_open_json(xd_tok **t, const xd_lm_json *j, xd_special_files *f, const char *what,
                          xd_err *e);
xd_status xd_lm_open_dir(xd_tok **t, const char *dir, xd_special_files *f, xd_err *e);
xd_status xd_tok_open_lm(xd_tok **t, const xd_lm_files *l, const xd_special_files *f, xd_err *e);
/* Reads a language model's vocabulary and special tokens into t. */
xd_status xd_lm_read(xd_tok *t, const xd_lm_files *b, const xd_special_files *f, xd_err *e);

/* Returns the text of the special token with this key (for example "eos_token"). If the files do
 * not contain the key, returns the default of the tokenizer's class. Returns NULL if the tokenizer
 * has no such special token. */
const char *xd_special_name(const xd_special_files *f, const char *key);
/* Returns the number of sentinel tokens of T5 or ByT5. */
int         xd_special_extra_ids(const xd_json *cfg, xd_tok_kind kind);
/* Finds the next added token at or after s[at]. Returns the index of the added token, or -1 if no
 * added token follows. Sets *begin and *end to the bounds of the found token, including the white
 * space that it strips; *begin is at least `from`. If `normalized` is 1, the function searches only
 * for tokens of normalized text; if it is 0, only for tokens of raw text. */
int         xd_added_find(const xd_tok *t, int normalized, const char *s, size_t len, size_t at,
                          size_t from, size_t *begin, size_t *end);

/* Appends the token ids of one word, which must be valid UTF-8. */
void xd_unigram(const xd_tok *t, const char *s, size_t len, xd_ids *out);

#endif
