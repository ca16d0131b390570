/* movie.c - writes MP4, QuickTime, Matroska and WebM videos with FFmpeg.
 *
 * FFmpeg writes through callbacks to a file that is already open and has no name yet. To move an
 * MP4's index to the front, FFmpeg makes a second pass, for which it would open the file by name.
 * For this pass FFmpeg gets a second set of callbacks on the open file. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "io/vcodec.h"

#ifdef XD_WITH_VIDEO

#include "io/av.h"

enum { DOOR_BYTES = 1 << 16, MAXCODER = 3, THREADS = 4 };

typedef struct coder {
    const char *name;
    const char *options; /* encoder options, "key=value:..." */
    double      bits;    /* bits per pixel and frame; 0: the options set the quality */
    /* Name of the lower-quality video format that this encoder writes, for a warning; NULL: no
     * warning. */
    const char *warn;
} coder;

/* An encoder of sound, and its type of samples: AV_SAMPLE_FMT_FLTP has one array per channel, and
 * AV_SAMPLE_FMT_FLT has the samples of all channels side by side. */
typedef struct voice {
    const char         *name;
    enum AVSampleFormat samples;
    int64_t             bits; /* bits per second */
} voice;

typedef struct format {
    const char *muxer, *options;
    coder       coders[MAXCODER]; /* encoders; the first one that is available is used */
    voice       voices[MAXCODER];
} format;

#define AAC { { "aac", AV_SAMPLE_FMT_FLTP, 192000 } }

#define H264                                                                                      \
    { { "libx264", "crf=17:preset=medium", 0, NULL }, { "libopenh264", "", 0.25, NULL },          \
      { "mpeg4", "flags=+qscale:global_quality=236", 0,                                           \
        "MPEG-4 part 2, which browsers do not play" } }
static const format mp4 = { "mp4", "movflags=+faststart", H264, AAC },
                    mov = { "mov", "movflags=+faststart+use_metadata_tags", H264, AAC },
                    mkv = { "matroska", "", H264, AAC },
                    webm = { "webm",
                             "",
                             { { "libvpx-vp9",
                                 "crf=20:deadline=good:cpu-used=2:"
                                 "row-mt=1",
                                 0, NULL },
                               { "libvpx", "crf=6:qmin=0:qmax=30", 0.5, "VP8" } },
                             { { "libopus", AV_SAMPLE_FMT_FLT, 128000 },
                               { "libvorbis", AV_SAMPLE_FMT_FLTP, 192000 } } };

typedef struct movie {
    const xd_av       *av;
    const xd_film     *film;
    const char        *path;
    xd_err            *e;
    AVFormatContext   *mux;
    AVStream          *stream;
    AVCodecContext    *coder;
    struct SwsContext *sws;
    AVFrame           *rgb, *yuv;
    AVPacket          *packet;
    /* The stream of sound, its encoder and a block of its samples; NULL: there is no sound. */
    AVStream          *track;
    AVCodecContext    *speaker;
    AVFrame           *block;
    int64_t            said; /* number of samples that were passed to the encoder */
} movie;

/* ---- I/O callbacks of FFmpeg on a file ----------------------------------------------------- */

typedef struct door {
    int     fd, why; /* fd: file descriptor; why: errno of the first failed write */
    int64_t at;
} door;

static int door_read(void *cookie, uint8_t *buf, int n)
{
    door   *d = cookie;
    ssize_t got = pread(d->fd, buf, (size_t)n, d->at);
    if (got > 0)
        d->at += got;
    return got > 0 ? (int)got : got ? AVERROR(errno) : AVERROR_EOF;
}

#if LIBAVFORMAT_VERSION_MAJOR >= 61
static int door_write(void *cookie, const uint8_t *buf, int n)
#else
static int door_write(void *cookie, uint8_t *buf, int n)
#endif
{
    door *d = cookie;
    for (int done = 0; done < n;) {
        ssize_t put = pwrite(d->fd, buf + done, (size_t)(n - done), d->at);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0) {
            int why = put < 0 ? errno : ENOSPC;
            d->why = d->why ? d->why : why;
            return AVERROR(why);
        }
        done += (int)put;
        d->at += put;
    }
    return n;
}

static int64_t door_seek(void *cookie, int64_t offset, int whence)
{
    door       *d = cookie;
    struct stat s;
    if (fstat(d->fd, &s) != 0)
        return AVERROR(errno);
    whence &= ~AVSEEK_FORCE;
    if (whence == AVSEEK_SIZE)
        return s.st_size;
    return d->at = offset + (whence == SEEK_END ? s.st_size : whence == SEEK_CUR ? d->at : 0);
}

static AVIOContext *door_open(const xd_av *av, door *d, int writes)
{
    unsigned char *buf = av->av_malloc(DOOR_BYTES);
    AVIOContext   *io = buf ? av->avio_alloc_context(buf, DOOR_BYTES, writes, d, door_read,
                                                     writes ? door_write : NULL, door_seek)
                            : NULL;
    if (!io)
        av->av_freep(&buf);
    return io;
}

static void door_close(const xd_av *av, AVIOContext **io)
{
    if (*io)
        av->av_freep(&(*io)->buffer);
    av->avio_context_free(io);
}

/* Callback for files that an FFmpeg muxer opens itself. FFmpeg opens only one file itself: the
 * output file, which it reads in its second pass. */
static int second_open(AVFormatContext *mux, AVIOContext **io, const char *url, int flags,
                       AVDictionary **options)
{
    const movie *m = mux->opaque;
    door        *first = mux->pb->opaque, *d;
    (void)url;
    (void)options;
    *io = NULL;
    if (flags != AVIO_FLAG_READ)
        return AVERROR(ENOSYS);
    if (!(d = m->av->av_malloc(sizeof *d)))
        return AVERROR(ENOMEM);
    *d = (door){ .fd = first->fd };
    if (!(*io = door_open(m->av, d, 0)))
        m->av->av_freep(&d);
    return *io ? 0 : AVERROR(ENOMEM);
}

static int second_close(AVFormatContext *mux, AVIOContext *io)
{
    const movie *m = mux->opaque;
    m->av->av_freep(&io->opaque);
    door_close(m->av, &io);
    return 0;
}

/* ---- setting up ---------------------------------------------------------------------------- */

static xd_status fail_call(const movie *m, int code, const char *what)
{
    char        why[AV_ERROR_MAX_STRING_SIZE] = "";
    const door *d = m->mux && m->mux->pb ? m->mux->pb->opaque : NULL;
    if (d && d->why)
        return xd_fail(m->e, XD_EIO, "cannot write %s: %s", m->path, strerror(d->why));
    m->av->av_strerror(code, why, sizeof why);
    return xd_fail(m->e, code == AVERROR(ENOMEM) ? XD_ENOMEM : XD_EIO,
                   "%s: FFmpeg failed to %s %lld frames of %lldx%lld: %s", m->path, what,
                   (long long)m->film->n, (long long)m->film->w, (long long)m->film->h, why);
}

/* Sets the encoder's colour space to that of HD video, BT.709, with values from 16 to 235. Each
 * colour sample is at the position of the left one of its pixels. */
static void set_colours(AVCodecContext *c)
{
    c->pix_fmt = AV_PIX_FMT_YUV420P;
    c->color_range = AVCOL_RANGE_MPEG;
    c->color_primaries = AVCOL_PRI_BT709;
    c->color_trc = AVCOL_TRC_BT709;
    c->colorspace = AVCOL_SPC_BT709;
    c->chroma_sample_location = AVCHROMA_LOC_LEFT;
}

/* Opens a video encoder. Returns NULL if the encoder is not available on this machine or fails. */
static AVCodecContext *coder_open(const movie *m, const coder *row, int *code)
{
    const xd_film  *f = m->film;
    const AVCodec  *codec = m->av->avcodec_find_encoder_by_name(row->name);
    AVCodecContext *c = codec ? m->av->avcodec_alloc_context3(codec) : NULL;
    AVDictionary   *options = NULL;
    if (!c)
        return NULL;
    c->width = (int)(f->w + f->w % 2);
    c->height = (int)(f->h + f->h % 2);
    xd_video_rate(f->fps, &c->framerate.num, &c->framerate.den);
    c->time_base = (AVRational){ c->framerate.den, c->framerate.num };
    c->sample_aspect_ratio = (AVRational){ 1, 1 };
    c->thread_count = THREADS;
    c->bit_rate = (int64_t)(row->bits * c->width * c->height * f->fps);
    set_colours(c);
    if (m->mux->oformat->flags & AVFMT_GLOBALHEADER)
        c->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    m->av->av_dict_parse_string(&options, row->options, "=", ":", 0);
    *code = m->av->avcodec_open2(c, codec, &options);
    m->av->av_dict_free(&options);
    if (*code < 0)
        m->av->avcodec_free_context(&c);
    return c;
}

static xd_status open_coder(movie *m, const format *row)
{
    int code = AVERROR_ENCODER_NOT_FOUND;
    for (int i = 0; i < MAXCODER && row->coders[i].name; i++) {
        const coder *c = &row->coders[i];
        if (!(m->coder = coder_open(m, c, &code)))
            continue;
        if (c->warn)
            xd_log(XD_LOG_WARN, "%s: this machine's FFmpeg has no %s, so the video is %s", m->path,
                   row->coders[0].name, c->warn);
        return XD_OK;
    }
    return fail_call(m, code, "open an encoder for");
}

static AVCodecContext *speaker_open(const movie *m, const voice *row, int *code)
{
    const xd_sound *s = m->film->sound;
    const AVCodec  *codec = m->av->avcodec_find_encoder_by_name(row->name);
    AVCodecContext *c = codec ? m->av->avcodec_alloc_context3(codec) : NULL;
    if (!c)
        return NULL;
    c->sample_fmt = row->samples;
    c->sample_rate = s->rate;
    c->bit_rate = row->bits;
    c->time_base = (AVRational){ 1, s->rate };
    m->av->av_channel_layout_default(&c->ch_layout, s->channels);
    if (m->mux->oformat->flags & AVFMT_GLOBALHEADER)
        c->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    *code = m->av->avcodec_open2(c, codec, NULL);
    if (*code < 0)
        m->av->avcodec_free_context(&c);
    return c;
}

/* Opens an encoder for the film's sound. If this machine has none, the video has no sound. */
static xd_status open_sound(movie *m, const format *row)
{
    int code = 0;
    for (int i = 0; m->film->sound && i < MAXCODER && row->voices[i].name && !m->speaker; i++)
        m->speaker = speaker_open(m, &row->voices[i], &code);
    if (!m->film->sound)
        return XD_OK;
    if (!m->speaker) {
        xd_log(XD_LOG_WARN,
               "%s: this machine's FFmpeg has no encoder %s, so the video has no sound: write it "
               "to a .wav file",
               m->path, row->voices[0].name);
        return XD_OK;
    }
    m->track = m->av->avformat_new_stream(m->mux, NULL);
    m->block = m->av->av_frame_alloc();
    if (!m->track || !m->block)
        return fail_call(m, AVERROR(ENOMEM), "hold");
    m->block->format = m->speaker->sample_fmt;
    m->block->nb_samples = m->speaker->frame_size;
    m->block->sample_rate = m->speaker->sample_rate;
    m->av->av_channel_layout_default(&m->block->ch_layout, m->film->sound->channels);
    code = m->av->av_frame_get_buffer(m->block, 0);
    if (code >= 0)
        code = m->av->avcodec_parameters_from_context(m->track->codecpar, m->speaker);
    m->track->time_base = m->speaker->time_base;
    return code < 0 ? fail_call(m, code, "open a stream of sound for") : XD_OK;
}

static int texts_set(const movie *m, const xd_image_text *t)
{
    for (; t->key; t++) {
        const char *key = !strcmp(t->key, "parameters") ? "comment"
                          : !strcmp(t->key, "xdit")     ? "description"
                                                        : t->key;
        if (m->av->av_dict_set(&m->mux->metadata, key, t->value, 0) < 0)
            return 0;
    }
    return 1;
}

static xd_status open_mux(movie *m, const format *row, door *d, const xd_image_text *texts)
{
    int code = m->av->avformat_alloc_output_context2(&m->mux, NULL, row->muxer, NULL);
    if (code < 0)
        return fail_call(m, code, "open a file for");
    m->mux->opaque = m;
    m->mux->io_open = second_open;
    m->mux->io_close2 = second_close;
    m->stream = m->av->avformat_new_stream(m->mux, NULL);
    m->mux->pb = door_open(m->av, d, 1);
    return m->stream && m->mux->pb && texts_set(m, texts) ? XD_OK
                                                          : fail_call(m, AVERROR(ENOMEM), "hold");
}

static xd_status write_head(movie *m, const format *row)
{
    AVDictionary *options = NULL;
    int           code = m->av->avcodec_parameters_from_context(m->stream->codecpar, m->coder);
    m->stream->time_base = m->coder->time_base;
    m->stream->avg_frame_rate = m->coder->framerate;
    m->av->av_dict_parse_string(&options, row->options, "=", ":", 0);
    if (code >= 0)
        code = m->av->avformat_write_header(m->mux, &options);
    m->av->av_dict_free(&options);
    return code < 0 ? fail_call(m, code, "begin a file of") : XD_OK;
}

static AVFrame *frame_new(const movie *m, int pixels)
{
    AVFrame *f = m->av->av_frame_alloc();
    if (!f)
        return NULL;
    f->format = pixels;
    f->width = m->coder->width;
    f->height = m->coder->height;
    if (m->av->av_frame_get_buffer(f, 0) < 0)
        m->av->av_frame_free(&f);
    return f;
}

static int sws_set(const movie *m, const char *name, int64_t v)
{
    return m->av->av_opt_set_int(m->sws, name, v, 0) >= 0;
}

static xd_status open_frames(movie *m)
{
    const AVCodecContext *c = m->coder;
    m->rgb = frame_new(m, AV_PIX_FMT_RGB24);
    m->yuv = frame_new(m, c->pix_fmt);
    m->packet = m->av->av_packet_alloc();
    m->sws = m->av->sws_alloc_context();
    if (!m->rgb || !m->yuv || !m->packet || !m->sws)
        return fail_call(m, AVERROR(ENOMEM), "hold");
    m->yuv->color_range = c->color_range;
    m->yuv->colorspace = c->colorspace;
    m->yuv->color_primaries = c->color_primaries;
    m->yuv->color_trc = c->color_trc;
    m->yuv->chroma_location = c->chroma_sample_location;
    const int *bt709 = m->av->sws_getCoefficients(SWS_CS_ITU709);
    int ok = sws_set(m, "srcw", c->width) && sws_set(m, "srch", c->height) &&
             sws_set(m, "dstw", c->width) && sws_set(m, "dsth", c->height) &&
             sws_set(m, "src_format", AV_PIX_FMT_RGB24) && sws_set(m, "dst_format", c->pix_fmt) &&
             sws_set(m, "dst_h_chr_pos", 0) && sws_set(m, "dst_v_chr_pos", 128) &&
             sws_set(m, "sws_flags", SWS_BICUBIC | SWS_FULL_CHR_H_INP | SWS_ACCURATE_RND);
    if (ok)
        m->av->sws_setColorspaceDetails(m->sws, bt709, 1, bt709, 0, 0, 1 << 16, 1 << 16);
    return ok && m->av->sws_init_context(m->sws, NULL, NULL) >= 0
               ? XD_OK
               : fail_call(m, AVERROR(EINVAL), "convert the colours of");
}

/* ---- writing ------------------------------------------------------------------------------- */

/* Copies video frame i to rows that are padded to a multiple of the vector width. If the width or
 * height is odd, duplicates the last pixel. */
static void copy_frame(const movie *m, int64_t i)
{
    const xd_film *f = m->film;
    const uint8_t *from = f->rgb + i * f->w * f->h * 3;
    for (int64_t y = 0; y < m->rgb->height; y++) {
        uint8_t *to = m->rgb->data[0] + y * m->rgb->linesize[0];
        memcpy(to, from + (y < f->h ? y : f->h - 1) * f->w * 3, (size_t)f->w * 3);
        if (f->w % 2)
            memcpy(to + f->w * 3, to + (f->w - 1) * 3, 3);
    }
}

/* Writes the compressed packets that an encoder has ready. */
static int write_packets(movie *m, AVCodecContext *from, const AVStream *stream)
{
    int code;
    while ((code = m->av->avcodec_receive_packet(from, m->packet)) >= 0) {
        m->packet->stream_index = stream->index;
        if (from == m->coder)
            m->packet->duration = 1;
        m->av->av_packet_rescale_ts(m->packet, from->time_base, stream->time_base);
        if ((code = m->av->av_interleaved_write_frame(m->mux, m->packet)) < 0)
            return code;
    }
    return code == AVERROR(EAGAIN) || code == AVERROR_EOF ? 0 : code;
}

static int encode_frame(movie *m, int64_t i)
{
    int code = m->av->av_frame_make_writable(m->yuv);
    if (code < 0)
        return code;
    copy_frame(m, i);
    m->av->sws_scale(m->sws, (const uint8_t *const *)m->rgb->data, m->rgb->linesize, 0,
                     m->rgb->height, m->yuv->data, m->yuv->linesize);
    m->yuv->pts = i;
    code = m->av->avcodec_send_frame(m->coder, m->yuv);
    return code < 0 ? code : write_packets(m, m->coder, m->stream);
}

/* Copies n samples from m->said on to the block, in the order of the encoder. */
static void copy_samples(const movie *m, int64_t n)
{
    const xd_sound *s = m->film->sound;
    const float    *from = s->samples + m->said * s->channels;
    const int       apart = m->speaker->sample_fmt == AV_SAMPLE_FMT_FLTP;
    for (int64_t i = 0; i < n; i++)
        for (int c = 0; c < s->channels; c++) {
            float *to = (float *)(void *)m->block->data[apart ? c : 0];
            to[apart ? i : i * s->channels + c] = from[i * s->channels + c];
        }
}

/* Encodes the sound up to sample `end`, in complete blocks unless the sound ends there. */
static int encode_sound(movie *m, int64_t end)
{
    const xd_sound *s = m->film->sound;
    int             code = 0;
    while (m->speaker && code >= 0 && m->said < s->n) {
        int64_t n = s->n - m->said < m->speaker->frame_size ? s->n - m->said
                                                            : m->speaker->frame_size;
        if (m->said + n > end)
            break;
        code = m->av->av_frame_make_writable(m->block);
        if (code < 0)
            break;
        copy_samples(m, n);
        m->block->nb_samples = (int)n;
        m->block->pts = m->said;
        m->said += n;
        code = m->av->avcodec_send_frame(m->speaker, m->block);
        if (code >= 0)
            code = write_packets(m, m->speaker, m->track);
    }
    return code;
}

/* Ends an encoder and writes its last packets. */
static int flush_coder(movie *m, AVCodecContext *from, const AVStream *stream)
{
    int code = from ? m->av->avcodec_send_frame(from, NULL) : 0;
    return from && code >= 0 ? write_packets(m, from, stream) : code;
}

static xd_status write_frames(movie *m)
{
    int code = 0;
    for (int64_t i = 0; i < m->film->n && code >= 0; i++) {
        code = encode_frame(m, i);
        if (code >= 0 && m->speaker)
            code =
                encode_sound(m, (int64_t)((double)((i + 1) * m->film->sound->rate) / m->film->fps));
    }
    if (code >= 0)
        code = encode_sound(m, INT64_MAX);
    if (code >= 0)
        code = flush_coder(m, m->coder, m->stream);
    if (code >= 0)
        code = flush_coder(m, m->speaker, m->track);
    if (code >= 0)
        code = m->av->av_write_trailer(m->mux);
    if (code >= 0) {
        m->av->avio_flush(m->mux->pb);
        code = m->mux->pb->error;
    }
    return code < 0 || ((const door *)m->mux->pb->opaque)->why ? fail_call(m, code, "code") : XD_OK;
}

static void close_movie(movie *m)
{
    const xd_av *av = m->av;
    av->av_frame_free(&m->rgb);
    av->av_frame_free(&m->yuv);
    av->av_frame_free(&m->block);
    av->avcodec_free_context(&m->speaker);
    av->av_packet_free(&m->packet);
    av->sws_freeContext(m->sws);
    av->avcodec_free_context(&m->coder);
    if (m->mux)
        door_close(av, &m->mux->pb);
    av->avformat_free_context(m->mux);
}

static const format *format_of(const xd_vcodec *c)
{
    return c == &xd_vcodec_mp4   ? &mp4
           : c == &xd_vcodec_mov ? &mov
           : c == &xd_vcodec_mkv ? &mkv
                                 : &webm;
}

static xd_status movie_write(const xd_vcodec *c, xd_out *o, const xd_film *film,
                             const xd_image_text *texts, xd_err *e)
{
    const format *row = format_of(c);
    movie         m = { .film = film, .path = o->path, .e = e };
    door          d = { .fd = fileno(o->f) };
    xd_status     st = xd_av_load(&m.av, e);
    if (st != XD_OK)
        return st;
    int level = m.av->av_log_get_level();
    m.av->av_log_set_level(AV_LOG_QUIET);
    st = open_mux(&m, row, &d, texts);
    if (st == XD_OK)
        st = open_coder(&m, row);
    if (st == XD_OK)
        st = open_sound(&m, row);
    if (st == XD_OK)
        st = write_head(&m, row);
    if (st == XD_OK)
        st = open_frames(&m);
    if (st == XD_OK)
        st = write_frames(&m);
    close_movie(&m);
    m.av->av_log_set_level(level);
    return st;
}

static xd_status movie_ready(const xd_vcodec *c, xd_err *e)
{
    const format *row = format_of(c);
    const xd_av  *av;
    xd_status     st = xd_av_load(&av, e);
    if (st != XD_OK)
        return st;
    for (int i = 0; i < MAXCODER && row->coders[i].name; i++)
        if (av->avcodec_find_encoder_by_name(row->coders[i].name))
            return XD_OK;
    return xd_fail(e, XD_EUNSUPPORTED,
                   "this machine's FFmpeg has no encoder %s for %s; write .gif, .rgb, or a "
                   ".png for each frame",
                   row->coders[0].name, c->tail);
}

#else /* without FFmpeg in the build there is no writer */
#define movie_write NULL
#define movie_ready NULL
#endif

#define ROW(label, ending)                                                                        \
    { .name = label, .tail = ending, .max_side = 16384, .write = movie_write, .ready = movie_ready }
const xd_vcodec xd_vcodec_mp4 = ROW("MP4", ".mp4"), xd_vcodec_mov = ROW("QuickTime", ".mov"),
                xd_vcodec_mkv = ROW("Matroska", ".mkv"), xd_vcodec_webm = ROW("WebM", ".webm");
