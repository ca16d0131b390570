/* movie_read.c - decodes the frames of MP4, QuickTime, Matroska, WebM and GIF files with FFmpeg */
#include "io/movie_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef XD_WITH_VIDEO

#include "io/av.h"

struct xd_movie_reader {
    const xd_av       *av;
    char              *path;
    AVFormatContext   *file;
    AVCodecContext    *coder;
    AVPacket          *packet;
    AVFrame           *frame;
    struct SwsContext *sws;
    int                stream;
    int                ended; /* 1: all packets of the file have been read */
};

static xd_status fail_call(const xd_movie_reader *m, int code, const char *what, xd_err *e)
{
    char why[AV_ERROR_MAX_STRING_SIZE] = "";
    m->av->av_strerror(code, why, sizeof why);
    return xd_fail(e, code == AVERROR(ENOMEM) ? XD_ENOMEM : XD_EFORMAT,
                   "%s: FFmpeg cannot %s it: %s", m->path, what, why);
}

/* Opens a local video file. Only the formats that this program writes are accepted. */
static int open_file(xd_movie_reader *m)
{
    AVDictionary *options = NULL;
    size_t        n = strlen(m->path) + sizeof "file:";
    char         *url = malloc(n);
    int           code = url ? 0 : AVERROR(ENOMEM);
    if (url) {
        snprintf(url, n, "file:%s", m->path);
        m->av->av_dict_set(&options, "protocol_whitelist", "file", 0);
        m->av->av_dict_set(&options, "format_whitelist",
                           "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,gif", 0);
        code = m->av->avformat_open_input(&m->file, url, NULL, &options);
        m->av->av_dict_free(&options);
    }
    free(url);
    return code < 0 ? code : m->av->avformat_find_stream_info(m->file, NULL);
}

static int open_coder(xd_movie_reader *m)
{
    int code = m->av->av_find_best_stream(m->file, AVMEDIA_TYPE_VIDEO, -1, -1, NULL, 0);
    if (code < 0)
        return code;
    m->stream = code;
    const AVCodecParameters *p = m->file->streams[code]->codecpar;
    const AVCodec           *codec = m->av->avcodec_find_decoder(p->codec_id);
    if (!codec)
        return AVERROR_DECODER_NOT_FOUND;
    m->coder = m->av->avcodec_alloc_context3(codec);
    m->packet = m->av->av_packet_alloc();
    m->frame = m->av->av_frame_alloc();
    if (!m->coder || !m->packet || !m->frame)
        return AVERROR(ENOMEM);
    code = m->av->avcodec_parameters_to_context(m->coder, p);
    return code < 0 ? code : m->av->avcodec_open2(m->coder, codec, NULL);
}

xd_status xd_movie_reader_open(xd_movie_reader **out, const char *path, xd_err *e)
{
    const xd_av *av;
    *out = NULL;
    if (xd_av_load(&av, e) != XD_OK)
        return e->code;
    xd_movie_reader *m = calloc(1, sizeof *m);
    if (!m || !(m->path = strdup(path))) {
        free(m);
        return xd_fail(e, XD_ENOMEM, "%s: no memory", path);
    }
    m->av = av;
    int level = av->av_log_get_level(), code;
    av->av_log_set_level(AV_LOG_QUIET);
    if ((code = open_file(m)) < 0)
        fail_call(m, code, "read", e);
    else if ((code = open_coder(m)) < 0)
        fail_call(m, code, "decode", e);
    av->av_log_set_level(level);
    if (code < 0) {
        xd_movie_reader_close(&m);
        return e->code;
    }
    *out = m;
    return XD_OK;
}

/* Decodes the next frame. Returns 0 after the last frame, or FFmpeg's negative error code. */
static int decode_frame(xd_movie_reader *m)
{
    for (;;) {
        int code = m->av->avcodec_receive_frame(m->coder, m->frame);
        if (code != AVERROR(EAGAIN))
            return code == AVERROR_EOF ? 0 : code < 0 ? code : 1;
        while (!m->ended && (code = m->av->av_read_frame(m->file, m->packet)) >= 0 &&
               m->packet->stream_index != m->stream)
            m->av->av_packet_unref(m->packet);
        if (code == AVERROR_EOF)
            m->ended = 1;
        else if (code < 0 && code != AVERROR(EAGAIN))
            return code;
        code = m->av->avcodec_send_packet(m->coder, m->ended ? NULL : m->packet);
        m->av->av_packet_unref(m->packet);
        if (code < 0)
            return code;
    }
}

/* Converts the decoded frame to RGB with the frame's own colour matrix and range. */
static int convert_frame(xd_movie_reader *m, uint8_t *rgb)
{
    const AVFrame *f = m->frame;
    const struct {
        const char *name;
        int64_t     v;
    } set[] = {
        { "srcw", f->width },
        { "srch", f->height },
        { "src_format", f->format },
        { "dstw", f->width },
        { "dsth", f->height },
        { "dst_format", AV_PIX_FMT_RGB24 },
        { "sws_flags", SWS_BICUBIC | SWS_FULL_CHR_H_INT | SWS_ACCURATE_RND },
    };
    m->av->sws_freeContext(m->sws);
    if (!(m->sws = m->av->sws_alloc_context()))
        return AVERROR(ENOMEM);
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        if (m->av->av_opt_set_int(m->sws, set[i].name, set[i].v, 0) < 0)
            return AVERROR(EINVAL);
    int        space = f->colorspace == AVCOL_SPC_UNSPECIFIED || f->colorspace == AVCOL_SPC_RGB
                           ? SWS_CS_DEFAULT
                           : (int)f->colorspace;
    const int *matrix = m->av->sws_getCoefficients(space);
    m->av->sws_setColorspaceDetails(m->sws, matrix, f->color_range == AVCOL_RANGE_JPEG, matrix, 1,
                                    0, 1 << 16, 1 << 16);
    int code = m->av->sws_init_context(m->sws, NULL, NULL);
    if (code < 0)
        return code;
    uint8_t *to[4] = { rgb };
    int      line[4] = { 3 * f->width };
    code = m->av->sws_scale(m->sws, (const uint8_t *const *)f->data, f->linesize, 0, f->height, to,
                            line);
    return code < 0 ? code : 0;
}

xd_status xd_movie_reader_next(xd_movie_reader *m, uint8_t **rgb, int64_t *w, int64_t *h, xd_err *e)
{
    int code, level = m->av->av_log_get_level();
    *w = *h = 0;
    m->av->av_log_set_level(AV_LOG_QUIET);
    if ((code = decode_frame(m)) > 0) {
        uint8_t *room = realloc(*rgb, (size_t)m->frame->width * (size_t)m->frame->height * 3 + 64);
        *rgb = room ? room : *rgb;
        code = room ? convert_frame(m, room) : AVERROR(ENOMEM);
        *w = m->frame->width;
        *h = m->frame->height;
        m->av->av_frame_unref(m->frame);
    }
    m->av->av_log_set_level(level);
    return code < 0 ? fail_call(m, code, "decode", e) : XD_OK;
}

double xd_movie_reader_rate(const xd_movie_reader *m)
{
    AVRational r = m->file->streams[m->stream]->avg_frame_rate;
    return r.num > 0 && r.den > 0 ? (double)r.num / r.den : 0;
}

int xd_movie_reader_has_sound(const xd_movie_reader *m)
{
    return m->av->av_find_best_stream(m->file, AVMEDIA_TYPE_AUDIO, -1, -1, NULL, 0) >= 0;
}

void xd_movie_reader_close(xd_movie_reader **mp)
{
    xd_movie_reader *m = *mp;
    if (!m)
        return;
    m->av->sws_freeContext(m->sws);
    m->av->av_frame_free(&m->frame);
    m->av->av_packet_free(&m->packet);
    m->av->avcodec_free_context(&m->coder);
    m->av->avformat_close_input(&m->file);
    free(m->path);
    free(m);
    *mp = NULL;
}

#else

xd_status xd_movie_reader_open(xd_movie_reader **m, const char *path, xd_err *e)
{
    *m = NULL;
    return xd_fail(e, XD_EUNSUPPORTED,
                   "%s is not an image, and this build has no FFmpeg to read "
                   "videos",
                   path);
}

xd_status xd_movie_reader_next(xd_movie_reader *m, uint8_t **rgb, int64_t *w, int64_t *h, xd_err *e)
{
    (void)m, (void)rgb, (void)w, (void)h;
    return xd_fail(e, XD_EUNSUPPORTED, "this build has no FFmpeg");
}

double xd_movie_reader_rate(const xd_movie_reader *m)
{
    (void)m;
    return 0;
}

int xd_movie_reader_has_sound(const xd_movie_reader *m)
{
    (void)m;
    return 0;
}

void xd_movie_reader_close(xd_movie_reader **m)
{
    *m = NULL;
}

#endif
