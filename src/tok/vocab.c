/* vocab.c - reads a vocabulary from a serialized SentencePiece ModelProto or from the Unigram model
 * of a tokenizer.json, and writes a ModelProto to memory.
 *
 * A protobuf message is a sequence of keys (field number << 3 | wire type) and values. This file
 * uses only the pieces, the model type and the character map of the ModelProto. */
#include "tok/inside.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- protobuf ----------------------------------------------------------------------------- */

typedef struct wire {
    const unsigned char *p;
    size_t               len, at;
} wire;

typedef struct field {
    /* Number of the field; its value or raw bits, for wire types 0, 1 and 5. */
    uint64_t number, value;
    wire     bytes; /* contents of a field of wire type 2 */
    int      type;
} field;

static int wire_varint(wire *w, uint64_t *v)
{
    *v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (w->at >= w->len)
            return 0;
        uint64_t b = w->p[w->at++];
        *v |= (b & 0x7f) << shift;
        if (b < 0x80)
            return 1;
    }
    return 0;
}

static int wire_fixed(wire *w, size_t n, uint64_t *v)
{
    if (w->len - w->at < n)
        return 0;
    *v = 0;
    for (size_t i = 0; i < n; i++)
        *v |= (uint64_t)w->p[w->at + i] << (8 * i);
    w->at += n;
    return 1;
}

/* Reads the next field of a protobuf message. Returns 0 if the bytes are not a valid field. */
static int wire_field(wire *w, field *f)
{
    uint64_t key, n;
    if (!wire_varint(w, &key) || key >> 3 == 0)
        return 0;
    *f = (field){ .number = key >> 3, .type = (int)(key & 7) };
    switch (f->type) {
    case 0: return wire_varint(w, &f->value);
    case 1: return wire_fixed(w, 8, &f->value);
    case 5: return wire_fixed(w, 4, &f->value);
    case 2:
        if (!wire_varint(w, &n) || n > w->len - w->at)
            return 0;
        f->bytes = (wire){ w->p + w->at, (size_t)n, 0 };
        w->at += (size_t)n;
        return 1;
    default: return 0;
    }
}

/* ---- the vocabulary ------------------------------------------------------------------------- */

xd_status xd_vocab_add(xd_vocab *v, const char *s, size_t len, double score, int type,
                       const char *what, xd_err *e)
{
    if (len == 0 || len > XD_PIECE_MAX)
        return xd_fail(e, XD_EFORMAT, "%s: piece %d has %zu bytes; it must have 1 to %d", what,
                       v->n, len, (int)XD_PIECE_MAX);
    if (memchr(s, 0, len))
        return xd_fail(e, XD_EFORMAT, "%s: piece %d holds a NUL", what, v->n);
    if (!isfinite(score))
        return xd_fail(e, XD_EFORMAT, "%s: the score of piece %d is not a number", what, v->n);
    if (v->n == v->cap) {
        int       cap = v->cap * 2 + 256;
        xd_piece *p = realloc(v->p, (size_t)cap * sizeof *p);
        if (!p)
            return xd_fail(e, XD_ENOMEM, "no memory for a vocabulary of %d pieces", cap);
        v->p = p;
        v->cap = cap;
    }
    v->p[v->n++] = (xd_piece){ v->text.len, len, score, type };
    xd_bytes_add(&v->text, s, len);
    if (v->text.failed)
        return xd_fail(e, XD_ENOMEM, "no memory for a vocabulary of %zu bytes", v->text.len);
    return XD_OK;
}

void xd_vocab_free(xd_vocab *v)
{
    free(v->p);
    free(v->text.p);
    free(v->map.p);
    *v = (xd_vocab){ 0 };
}

static xd_status fail_broken(const char *what, size_t at, size_t len, xd_err *e)
{
    return xd_fail(e, XD_EFORMAT,
                   "%s is not a SentencePiece model or is truncated: byte %zu of %zu is no field",

                   what, at, len);
}

static xd_status read_piece(xd_vocab *v, wire w, const char *what, xd_err *e)
{
    const char *text = "";
    size_t      len = 0;
    double      score = 0;
    int         type = XD_PIECE_NORMAL;
    field       f;
    while (w.at < w.len) {
        if (!wire_field(&w, &f))
            return xd_fail(e, XD_EFORMAT, "%s: piece %d is invalid", what, v->n);
        if (f.number == 1 && f.type == 2) {
            text = (const char *)f.bytes.p;
            len = f.bytes.len;
        } else if (f.number == 2 && f.type == 5) {
            uint32_t bits = (uint32_t)f.value;
            float    s;
            memcpy(&s, &bits, sizeof s);
            score = (double)s;
        } else if (f.number == 3 && f.type == 0) {
            type = f.value <= 16 ? (int)f.value : XD_PIECE_NORMAL;
        }
    }
    return xd_vocab_add(v, text, len, score, type, what, e);
}

/* Reads the model type (such as Unigram or BPE) from the TrainerSpec message. */
static xd_status read_trainer(wire w, uint64_t *type, const char *what, xd_err *e)
{
    field f;
    while (w.at < w.len) {
        if (!wire_field(&w, &f))
            return xd_fail(e, XD_EFORMAT, "%s: the trainer's settings are invalid", what);
        if (f.number == 3 && f.type == 0)
            *type = f.value;
    }
    return XD_OK;
}

static xd_status check_type(uint64_t have, int type, const char *what, xd_err *e)
{
    static const char *const names[] = { "0", "unigram", "BPE", "word", "character" };
    if (have == (uint64_t)type)
        return XD_OK;
    return xd_fail(e, XD_EUNSUPPORTED, "%s holds a %s model, but %s needs a %s model", what,
                   have < 5 ? names[have] : "unknown", type == XD_SPM_UNIGRAM ? "T5" : "Gemma",
                   names[type]);
}

static xd_status read_normalizer(xd_vocab *v, wire w, const char *what, xd_err *e)
{
    field f;
    while (w.at < w.len) {
        if (!wire_field(&w, &f))
            return xd_fail(e, XD_EFORMAT, "%s: the normalizer's settings are invalid", what);
        if (f.number == 2 && f.type == 2) {
            v->map.len = 0;
            xd_bytes_add(&v->map, f.bytes.p, f.bytes.len);
        }
    }
    return v->map.failed ? xd_fail(e, XD_ENOMEM, "no memory for a character map") : XD_OK;
}

xd_status xd_vocab_spiece(xd_vocab *v, const char *data, size_t len, int type, const char *what,
                          xd_err *e)
{
    wire      w = { (const unsigned char *)data, len, 0 };
    xd_status s = XD_OK;
    uint64_t  have = 0; /* model type in the file; 0: not specified */
    field     f;
    while (w.at < w.len && s == XD_OK) {
        size_t at = w.at;
        if (!wire_field(&w, &f))
            return fail_broken(what, at, len, e);
        if (f.type != 2)
            continue;
        if (f.number == 1)
            s = read_piece(v, f.bytes, what, e);
        else if (f.number == 2)
            s = read_trainer(f.bytes, &have, what, e);
        else if (f.number == 3)
            s = read_normalizer(v, f.bytes, what, e);
    }
    if (s == XD_OK && have)
        s = check_type(have, type, what, e);
    if (s == XD_OK && v->n == 0)
        return xd_fail(e, XD_EFORMAT, "%s has no pieces", what);
    return s == XD_OK && !have ? check_type(XD_SPM_UNIGRAM, type, what, e) : s;
}

/* ---- tokenizer.json ------------------------------------------------------------------------- */

static int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static xd_status read_base64(xd_bytes_buf *out, const char *s, const char *what, xd_err *e)
{
    uint32_t bits = 0;
    int      n = 0;
    for (; *s && *s != '='; s++) {
        int d = base64_digit(*s);
        if (d < 0)
            return xd_fail(e, XD_EFORMAT, "%s: the character map is not base64", what);
        bits = bits << 6 | (uint32_t)d;
        n = (n + 1) % 4;
        unsigned char b = (unsigned char)(bits >> (n == 2 ? 4 : n == 3 ? 2 : 0) & 0xff);
        if (n != 1)
            xd_bytes_add(out, &b, 1);
    }
    return out->failed ? xd_fail(e, XD_ENOMEM, "no memory for a character map") : XD_OK;
}

/* Returns the first precompiled character map in a normalizer or in a sequence of normalizers. Like
 * T5Tokenizer, ignores other kinds of normalizers. */
static const char *find_map(const xd_json *norm)
{
    const char *type = xd_json_text(xd_json_get(norm, "type"));
    if (!type)
        return NULL;
    if (!strcmp(type, "Precompiled"))
        return xd_json_text(xd_json_get(norm, "precompiled_charsmap"));
    if (strcmp(type, "Sequence"))
        return NULL;
    const xd_json *i = xd_json_first(xd_json_get(norm, "normalizers"));
    for (; i; i = xd_json_next(i)) {
        const char *t = xd_json_text(xd_json_get(i, "type"));
        if (t && !strcmp(t, "Precompiled"))
            return xd_json_text(xd_json_get(i, "precompiled_charsmap"));
    }
    return NULL;
}

xd_status xd_vocab_json(xd_vocab *v, const xd_json *j, const char *what, xd_err *e)
{
    const xd_json *model = xd_json_get(j, "model"), *list = xd_json_get(model, "vocab");
    const char    *type = xd_json_text(xd_json_get(model, "type"));
    const char    *map = find_map(xd_json_get(j, "normalizer"));
    if (type && strcmp(type, "Unigram"))
        return xd_fail(e, XD_EUNSUPPORTED, "%s holds a %s model, but T5 needs a Unigram model",
                       what, type);
    if (xd_json_size(list) == 0 || xd_json_key(xd_json_first(list)))
        return xd_fail(e, XD_EFORMAT, "%s has no list model.vocab of pieces with scores", what);
    xd_status s = XD_OK;
    for (const xd_json *i = xd_json_first(list); i; i = xd_json_next(i)) {
        const xd_json *piece = xd_json_first(i);
        const char    *text = xd_json_text(piece);
        double         score;
        if (!text || !xd_json_number(xd_json_next(piece), &score))
            return xd_fail(e, XD_EFORMAT, "%s: entry %d of model.vocab is not [piece, score]", what,
                           v->n);
        s = xd_vocab_add(v, text, strlen(text), score, XD_PIECE_NORMAL, what, e);
        if (s != XD_OK)
            return s;
    }
    return map ? read_base64(&v->map, map, what, e) : XD_OK;
}

/* ---- writing -------------------------------------------------------------------------------- */

static void put_varint(xd_bytes_buf *b, uint64_t v)
{
    do {
        unsigned char c = (unsigned char)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
        xd_bytes_add(b, &c, 1);
        v >>= 7;
    } while (v);
}

static void put_int(xd_bytes_buf *b, int number, uint64_t v)
{
    put_varint(b, (uint64_t)number << 3);
    put_varint(b, v);
}

static void put_bytes(xd_bytes_buf *b, int number, const void *p, size_t n)
{
    put_varint(b, (uint64_t)number << 3 | 2);
    put_varint(b, n);
    xd_bytes_add(b, p, n);
}

static void put_float(xd_bytes_buf *b, int number, float v)
{
    uint32_t      bits;
    unsigned char raw[4];
    memcpy(&bits, &v, sizeof bits);
    for (int i = 0; i < 4; i++)
        raw[i] = (unsigned char)(bits >> (8 * i));
    put_varint(b, (uint64_t)number << 3 | 5);
    xd_bytes_add(b, raw, sizeof raw);
}

/* Writes a ModelProto for the sentencepiece library, which requires exactly one unknown piece. As
 * in transformers' T5Tokenizer, piece 2 becomes the unknown piece, even if the file declares
 * another piece as unknown, and all other pieces become normal pieces. */
void xd_vocab_model(const xd_vocab *v, xd_bytes_buf *model)
{
    xd_bytes_buf part = { 0 };
    for (int i = 0; i < v->n; i++) {
        part.len = 0;
        put_bytes(&part, 1, v->text.p + v->p[i].at, v->p[i].len);
        put_float(&part, 2, fabs(v->p[i].score) <= FLT_MAX ? (float)v->p[i].score : 0);
        put_int(&part, 3, i == 2 ? XD_PIECE_UNKNOWN : XD_PIECE_NORMAL);
        put_bytes(model, 1, part.p, part.len);
    }
    part.len = 0;
    put_int(&part, 3, 1);  /* model_type: unigram */
    put_int(&part, 40, 2); /* unk_id */
    /* unk_piece: the text by which the library finds the unknown piece. */
    if (v->n > 2)
        put_bytes(&part, 45, v->text.p + v->p[2].at, v->p[2].len);
    put_bytes(model, 2, part.p, part.len);
    part.len = 0;
    put_bytes(&part, 1, "identity", 8);
    if (v->map.len)
        put_bytes(&part, 2, v->map.p, v->map.len);
    /* add_dummy_prefix, remove_extra_whitespaces and escape_whitespaces are set to 0. */
    for (int n = 3; n <= 5; n++)
        put_int(&part, n, 0);
    put_bytes(model, 3, part.p, part.len);
    model->failed |= part.failed;
    free(part.p);
}
