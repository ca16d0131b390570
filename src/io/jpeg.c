/* jpeg.c - writes and reads JPEG images with libjpeg.
 *
 * Images are written without chroma subsampling. The metadata texts of an image are written twice,
 * as Exif and as one comment. Images are read as by Pillow: CMYK values are inverted, as Adobe
 * stores them.
 *
 * libjpeg's error handler returns by longjmp. The codec's own struct references the memory that
 * must be freed after an error. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

#include "io/codec.h"

enum { MAX_COMMENT = 65533, EXIF_MARK = 6, MAX_SCANS = 100 };

typedef struct notes { /* metadata of an image; each field may be NULL */
    char    *lines;
    uint8_t *exif; /* Exif block, which begins with "Exif" */
    size_t   n;
} notes;

typedef struct trap {
    struct jpeg_error_mgr mgr; /* must be first: a pointer to `mgr` is cast to trap */
    jmp_buf               jump;
    const char           *path;
    xd_status             code;  /* status to return for libjpeg's errors */
    int                   ended; /* 1: libjpeg has reported that the file is truncated */
    xd_err               *e;
} trap;

static void on_error(j_common_ptr c)
{
    trap *t = (trap *)(void *)c->err;
    char  msg[JMSG_LENGTH_MAX];
    c->err->format_message(c, msg);
    xd_fail(t->e, t->code, "%s: JPEG: %s", t->path, msg);
    longjmp(t->jump, 1);
}

/* Ignores all warnings of libjpeg, such as extra bytes before a marker, except the warning about a
 * truncated file. libjpeg would fill the missing part of a truncated image with invented pixels. */
static void take_warning(j_common_ptr c, int level)
{
    trap *t = (trap *)(void *)c->err;
    if (level < 0 && t->mgr.msg_code == JWRN_JPEG_EOF)
        t->ended = 1;
}

static struct jpeg_error_mgr *trap_init(trap *t, const char *path, xd_status code, xd_err *e)
{
    jpeg_std_error(&t->mgr);
    t->mgr.error_exit = on_error;
    t->mgr.emit_message = take_warning;
    t->path = path;
    t->code = code;
    t->ended = 0;
    t->e = e;
    return &t->mgr;
}

static notes notes_of(const xd_image_text *texts)
{
    notes    v = { .lines = xd_texts_joined(texts, MAX_COMMENT) };
    uint8_t *exif = xd_exif(texts, MAX_COMMENT - EXIF_MARK, &v.n);
    v.exif = exif ? malloc(EXIF_MARK + v.n) : NULL;
    if (v.exif) {
        memcpy(v.exif, "Exif\0\0", EXIF_MARK);
        memcpy(v.exif + EXIF_MARK, exif, v.n);
    }
    free(exif);
    return v;
}

static void notes_free(const notes *v)
{
    free(v->lines);
    free(v->exif);
}

static void compress_image(struct jpeg_compress_struct *c, FILE *f, const xd_pixels *p,
                           const notes *v)
{
    jpeg_stdio_dest(c, f);
    c->image_width = (JDIMENSION)p->w;
    c->image_height = (JDIMENSION)p->h;
    c->input_components = 3;
    c->in_color_space = JCS_RGB;
    jpeg_set_defaults(c);
    jpeg_set_quality(c, p->quality, TRUE);
    for (int i = 0; i < 3; i++)
        c->comp_info[i].h_samp_factor = c->comp_info[i].v_samp_factor = 1;
    jpeg_start_compress(c, TRUE);
    if (v->exif)
        jpeg_write_marker(c, JPEG_APP0 + 1, v->exif, (unsigned)(EXIF_MARK + v->n));
    if (v->lines)
        jpeg_write_marker(c, JPEG_COM, (const JOCTET *)v->lines, (unsigned)strlen(v->lines));
    for (int64_t i = 0; i < p->h; i++) {
        JSAMPROW row = p->rgb + i * p->w * 3;
        jpeg_write_scanlines(c, &row, 1);
    }
    jpeg_finish_compress(c);
}

static xd_status jpeg_save(FILE *f, const char *path, const xd_pixels *p,
                           const xd_image_text *texts, xd_err *e)
{
    struct jpeg_compress_struct c;
    trap                        t;
    const notes                 v = notes_of(texts);
    c.err = trap_init(&t, path, XD_EIO, e);
    if (setjmp(t.jump)) {
        jpeg_destroy_compress(&c);
        notes_free(&v);
        return XD_EIO;
    }
    jpeg_create_compress(&c);
    compress_image(&c, f, p, &v);
    jpeg_destroy_compress(&c);
    notes_free(&v);
    return XD_OK;
}

static int jpeg_is(const uint8_t *data, size_t len)
{
    return len > 3 && data[0] == 0xff && data[1] == 0xd8 && data[2] == 0xff;
}

/* Limits the number of scans of a progressive image. Every scan processes all pixels, so a small
 * malicious file with many scans could take hours. */
static void count_scans(j_common_ptr c)
{
    struct jpeg_decompress_struct *d = (struct jpeg_decompress_struct *)(void *)c;
    trap                          *t = (trap *)(void *)c->err;
    if (d->input_scan_number <= MAX_SCANS)
        return;
    xd_fail(t->e, t->code, "%s: JPEG: more than %d scans", t->path, MAX_SCANS);
    longjmp(t->jump, 1);
}

static int begins_with(jpeg_saved_marker_ptr m, const char *name, size_t n)
{
    return m->data_length >= n && !memcmp(m->data, name, n);
}

/* Returns the image's orientation from the first Exif block and the last XMP block, like Pillow. */
static int find_orientation(const struct jpeg_decompress_struct *c)
{
    static const char     exif_name[] = "Exif\0", xmp_name[] = "http://ns.adobe.com/xap/1.0/";
    jpeg_saved_marker_ptr exif = NULL, xmp = NULL;
    for (jpeg_saved_marker_ptr m = c->marker_list; m; m = m->next) {
        if (!exif && begins_with(m, exif_name, sizeof exif_name))
            exif = m;
        else if (begins_with(m, xmp_name, sizeof xmp_name))
            xmp = m;
    }
    return xd_exif_orientation(exif ? exif->data : NULL, exif ? exif->data_length : 0,
                               xmp ? xmp->data : NULL, xmp ? xmp->data_length : 0);
}

/* Returns a times b / 255, rounded. */
static int share(int a, int b)
{
    int v = a * b + 128;
    return (v + (v >> 8)) >> 8;
}

/* Converts pixels to RGB from CMYK that is stored inverted (255 means no ink). */
static void inks_to_rgb(const JSAMPLE *from, int64_t n, uint8_t *rgb)
{
    for (int64_t i = 0; i < n; i++)
        for (int c = 0; c < 3; c++) {
            int black = from[4 * i + 3], v = black - share(255 - from[4 * i + c], black);
            rgb[3 * i + c] = (uint8_t)(v > 0 ? v : 0);
        }
}

static xd_status decompress_image(struct jpeg_decompress_struct *c, trap *t, xd_pixels *p)
{
    jpeg_save_markers(c, JPEG_APP0 + 1, 0xffff);
    jpeg_read_header(c, TRUE);
    int inks = c->num_components == 4;
    if (c->num_components != 1 && c->num_components != 3 && !inks)
        return xd_fail(t->e, XD_EFORMAT,
                       "%s: JPEG: its pixels have %d components; 1, 3 or 4 are "
                       "supported",
                       t->path, c->num_components);
    p->orientation = find_orientation(c);
    /* the size is checked before libjpeg allocates all coefficients of a progressive image */
    xd_status st = xd_pixels_new(p, c->image_width, c->image_height, t->path, t->e);
    if (st != XD_OK)
        return st;
    c->out_color_space = inks ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(c);
    JSAMPARRAY line =
        c->mem->alloc_sarray((j_common_ptr)c, JPOOL_IMAGE, c->image_width * (inks ? 4 : 1), 1);
    while (c->output_scanline < c->output_height) {
        JSAMPROW row = p->rgb + (size_t)c->output_scanline * (size_t)p->w * 3;
        jpeg_read_scanlines(c, inks ? line : &row, 1);
        if (t->ended)
            return xd_fail(t->e, XD_EFORMAT, "%s: JPEG: truncated at row %u of %u", t->path,
                           c->output_scanline, c->output_height);
        if (inks)
            inks_to_rgb(line[0], p->w, row);
    }
    jpeg_finish_decompress(c);
    xd_pixels_opaque(p);
    return XD_OK;
}

static xd_status jpeg_load(const uint8_t *data, size_t len, const char *path, xd_pixels *p,
                           xd_err *e)
{
    struct jpeg_decompress_struct c;
    struct jpeg_progress_mgr      progress = { .progress_monitor = count_scans };
    trap                          t;
    c.err = trap_init(&t, path, XD_EFORMAT, e);
    if (setjmp(t.jump)) {
        jpeg_destroy_decompress(&c);
        return XD_EFORMAT;
    }
    jpeg_create_decompress(&c);
    c.progress = &progress;
    jpeg_mem_src(&c, data, len);
    xd_status st = decompress_image(&c, &t, p);
    jpeg_destroy_decompress(&c);
    return st;
}

const xd_codec xd_codec_jpeg = {
    .name = "JPEG",
    .tails = (const char *const[]){ ".jpg", ".jpeg", NULL },
    .max_side = JPEG_MAX_DIMENSION,
    .write = jpeg_save,
    .is = jpeg_is,
    .read = jpeg_load,
};
