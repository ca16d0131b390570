/* webp.c - writes and reads WebP images with libwebp. Images are written lossy, with their texts in
 * an Exif chunk. Of an animation, only the first frame is read.
 *
 * libwebp encodes only the image itself, with alpha in a chunk of its own. This file writes the
 * container (VP8X, see the WebP container specification) that has the image and the Exif chunk. */
#include <stdlib.h>
#include <string.h>

#include <webp/decode.h>
#include <webp/demux.h>
#include <webp/encode.h>

#include "io/codec.h"

enum { HAS_EXIF = 0x08, HAS_ALPHA = 0x10, RIFF_HEAD = 12, VP8X_CHUNK = 18, MAX_TEXT = 1 << 20 };

static void put_le(uint8_t *p, size_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

static void put_chunk_head(FILE *f, const char *tag, size_t bytes)
{
    uint8_t size[4];
    put_le(size, bytes, 4);
    fwrite(tag, 1, 4, f);
    fwrite(size, 1, 4, f);
}

/* Writes a VP8X header and the image chunks of `coded`, a complete WebP file. A file with alpha has
 * a VP8X header already, which is replaced. */
static void put_extended(FILE *f, const uint8_t *coded, size_t n, const xd_pixels *p,
                         const uint8_t *exif, size_t len)
{
    int     extended = n > RIFF_HEAD + VP8X_CHUNK && !memcmp(coded + RIFF_HEAD, "VP8X", 4);
    size_t  head = RIFF_HEAD + (extended ? VP8X_CHUNK : 0), image = n - head;
    uint8_t x[10] = { (uint8_t)(HAS_EXIF | (extended ? HAS_ALPHA : 0)) };
    put_le(x + 4, (size_t)p->w - 1, 3);
    put_le(x + 7, (size_t)p->h - 1, 3);
    put_chunk_head(f, "RIFF", 4 + 8 + sizeof x + image + 8 + len + len % 2);
    fwrite("WEBP", 1, 4, f);
    put_chunk_head(f, "VP8X", sizeof x);
    fwrite(x, 1, sizeof x, f);
    fwrite(coded + head, 1, image, f);
    put_chunk_head(f, "EXIF", len);
    fwrite(exif, 1, len, f);
    if (len % 2)
        fputc(0, f);
}

static xd_status webp_save(FILE *f, const char *path, const xd_pixels *p,
                           const xd_image_text *texts, xd_err *e)
{
    uint8_t *coded = NULL;
    size_t   len, n;
    uint8_t *exif = xd_exif(texts, MAX_TEXT, &len);
    n = (p->channels == 4 ? WebPEncodeRGBA : WebPEncodeRGB)(
        p->rgb, (int)p->w, (int)p->h, (int)p->w * p->channels, (float)p->quality, &coded);
    if (n < RIFF_HEAD) {
        WebPFree(coded);
        free(exif);
        return xd_fail(e, XD_ENOMEM, "%s: WebP cannot encode %lldx%lld pixels", path,
                       (long long)p->w, (long long)p->h);
    }
    if (exif)
        put_extended(f, coded, n, p, exif, len);
    else
        fwrite(coded, 1, n, f);
    WebPFree(coded);
    free(exif);
    return XD_OK;
}

static int webp_is(const uint8_t *data, size_t len)
{
    return len >= RIFF_HEAD && !memcmp(data, "RIFF", 4) && !memcmp(data + 8, "WEBP", 4);
}

/* Returns the file's first chunk with this name, or an empty chunk if there is none. */
static WebPData chunk_of(const WebPDemuxer *d, const char *name)
{
    WebPChunkIterator i = { 0 };
    WebPData          chunk = { NULL, 0 };
    if (WebPDemuxGetChunk(d, name, 1, &i))
        chunk = i.chunk;
    WebPDemuxReleaseChunkIterator(&i);
    return chunk;
}

/* Decodes a frame to its position on the canvas. The rest of the canvas is black and
 * transparent. */
static int decode_frame(const WebPIterator *f, xd_pixels *p, uint8_t *rgba)
{
    int      alpha = rgba || p->channels == 4;
    size_t   bytes = alpha ? 4 : 3, row = (size_t)p->w * bytes, all = row * (size_t)p->h;
    size_t   at = (size_t)f->y_offset * row + (size_t)f->x_offset * bytes;
    uint8_t *to = rgba ? rgba : p->rgb;
    if (f->width < p->w || f->height < p->h)
        memset(to, 0, all);
    return (alpha ? WebPDecodeRGBAInto : WebPDecodeRGBInto)(f->fragment.bytes, f->fragment.size,
                                                            to + at, all - at, (int)row) != NULL;
}

static xd_status load_frame(const WebPDemuxer *d, const WebPIterator *f, const char *path,
                            xd_pixels *p, xd_err *e)
{
    WebPData exif = chunk_of(d, "EXIF"), xmp = chunk_of(d, "XMP ");
    p->orientation = xd_exif_orientation(exif.bytes, exif.size, xmp.bytes, xmp.size);
    xd_status st = xd_pixels_new(p, WebPDemuxGetI(d, WEBP_FF_CANVAS_WIDTH),
                                 WebPDemuxGetI(d, WEBP_FF_CANVAS_HEIGHT), path, e);
    uint8_t  *rgba = st == XD_OK && p->as_mask ? malloc((size_t)p->w * (size_t)p->h * 4) : NULL;
    if (st == XD_OK && p->as_mask && !rgba)
        st = xd_fail(e, XD_ENOMEM, "%s: no memory for a mask", path);
    if (st == XD_OK && !decode_frame(f, p, rgba))
        st = xd_fail(e, XD_EFORMAT, "%s: WebP: truncated or damaged", path);
    if (st == XD_OK && rgba)
        xd_pixels_mask(p, rgba);
    free(rgba);
    return st;
}

static xd_status webp_load(const uint8_t *data, size_t len, const char *path, xd_pixels *p,
                           xd_err *e)
{
    WebPDemuxer *d = WebPDemux(&(WebPData){ data, len });
    WebPIterator f = { 0 };
    xd_status    st = d && WebPDemuxGetFrame(d, 1, &f) && f.complete
                          ? load_frame(d, &f, path, p, e)
                          : xd_fail(e, XD_EFORMAT, "%s: WebP: truncated or damaged", path);
    WebPDemuxReleaseIterator(&f);
    WebPDemuxDelete(d);
    return st;
}

const xd_codec xd_codec_webp = {
    .name = "WebP",
    .tails = (const char *const[]){ ".webp", NULL },
    .max_side = WEBP_MAX_DIMENSION,
    .alpha = 1,
    .write = webp_save,
    .is = webp_is,
    .read = webp_load,
};
