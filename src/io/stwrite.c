/* stwrite.c - writes safetensors files: the header, then the elements of each tensor in order */
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "io/safetensors.h"

static const char *const file_names[XD_NDTYPES] = {
    [XD_F32] = "F32",        [XD_F16] = "F16",        [XD_BF16] = "BF16", [XD_F64] = "F64",
    [XD_F8E4M3] = "F8_E4M3", [XD_F8E5M2] = "F8_E5M2", [XD_I8] = "I8",     [XD_U8] = "U8",
    [XD_I16] = "I16",        [XD_I32] = "I32",        [XD_I64] = "I64",   [XD_BOOL] = "BOOL",
};

/* Returns the type in which elements of type t are stored: t if `keep` is set, else F32 for all
 * floats. */
static xd_dtype stored_type(xd_dtype t, int keep)
{
    return !keep && (t == XD_F16 || t == XD_BF16 || t == XD_F64) ? XD_F32 : t;
}

static void header_item(xd_text_buf *b, const xd_st_item *item, int keep, size_t *at)
{
    xd_tensor t = item->t;
    t.type = stored_type(t.type, keep);
    xd_buf_json_string(b, item->name);
    xd_buf_add(b, ":{\"dtype\":\"%s\",\"shape\":[", file_names[t.type]);
    for (int i = 0; i < t.nd; i++)
        xd_buf_add(b, "%s%lld", i ? "," : "", (long long)t.d[i]);
    xd_buf_add(b, "],\"data_offsets\":[%zu,%zu]}", *at, *at + xd_bytes(t));
    *at += xd_bytes(t);
}

/* Appends the header of a safetensors file, padded with spaces so that the data begin at a multiple
 * of `align`. */
static void make_header(xd_text_buf *b, const xd_st_head *h, int keep, size_t align)
{
    const xd_st_item  *items = h->items;
    const char *const *meta = h->meta;
    const int          n = h->n;
    size_t             at = 0;
    xd_buf_add(b, "{");
    if (meta && *meta) {
        xd_buf_add(b, "\"__metadata__\":{");
        for (int i = 0; meta[i]; i += 2) {
            xd_buf_add(b, i ? "," : "");
            xd_buf_json_string(b, meta[i]);
            xd_buf_add(b, ":");
            xd_buf_json_string(b, meta[i + 1]);
        }
        xd_buf_add(b, n ? "}," : "}");
    }
    for (int i = 0; i < n; i++) {
        header_item(b, &items[i], keep, &at);
        xd_buf_add(b, i + 1 < n ? "," : "");
    }
    xd_buf_add(b, "}");
    while (!b->failed && (b->len + XD_ST_SIZE) % align)
        xd_buf_add(b, " ");
}

void xd_st_header(xd_text_buf *b, const xd_st_head *h, size_t align)
{
    make_header(b, h, 1, align);
}

void xd_st_size(size_t n, unsigned char size[XD_ST_SIZE])
{
    for (int i = 0; i < XD_ST_SIZE; i++)
        size[i] = (unsigned char)((uint64_t)n >> 8 * i);
}

/* Writes n adjacent elements. If the elements are converted to another type, n must be at most 256,
 * the size of the conversion buffer. */
static void put_run(FILE *f, const char *p, xd_dtype from, xd_dtype to, int64_t n)
{
    float  tmp[256];
    size_t size = xd_dtype_size(to);
    if (to != from) {
        xd_convert(tmp, to, p, from, n);
        p = (const char *)tmp;
    }
    fwrite(p, size, (size_t)n, f);
}

static void put_row(FILE *f, const char *p, xd_tensor t, xd_dtype to)
{
    int64_t n = t.nd ? t.d[t.nd - 1] : 1, step = t.nd ? t.s[t.nd - 1] : 1;
    int64_t size = (int64_t)xd_dtype_size(t.type), run = step == 1 ? 256 : 1;
    for (int64_t i = 0; i < n; i += run)
        put_run(f, p + i * step * size, t.type, to, n - i < run ? n - i : run);
}

/* Writes the rows of a tensor in order. k[i] is the current index in dimension i, for all
 * dimensions except the last. */
static void put_tensor(FILE *f, xd_tensor t, xd_dtype to)
{
    int64_t k[XD_MAXDIM] = { 0 };
    int     i;
    if (!xd_count(t))
        return;
    do {
        int64_t at = 0;
        for (i = 0; i < t.nd - 1; i++)
            at += k[i] * t.s[i];
        put_row(f, (const char *)t.p + at * (int64_t)xd_dtype_size(t.type), t, to);
        for (i = t.nd - 2; i >= 0 && ++k[i] == t.d[i]; i--)
            k[i] = 0;
    } while (i >= 0);
}

xd_status xd_st_write(const char *path, const xd_st_item *items, int n, int keep,
                      const char *const *meta, xd_err *e)
{
    xd_text_buf   b = { 0 };
    xd_out        o;
    unsigned char size[XD_ST_SIZE];
    make_header(&b, &(xd_st_head){ items, n, meta }, keep, XD_ST_SIZE);
    xd_status st = b.failed ? xd_fail(e, XD_ENOMEM, "no memory for the header of %s", path)
                            : xd_out_open(&o, path, e);
    if (st == XD_OK) {
        xd_st_size(b.len, size);
        fwrite(size, 1, sizeof size, o.f);
        fwrite(b.p, 1, b.len, o.f);
        for (int i = 0; i < n; i++)
            put_tensor(o.f, items[i].t, stored_type(items[i].t.type, keep));
        st = xd_out_commit(&o, e);
    }
    xd_buf_free(&b);
    return st;
}
