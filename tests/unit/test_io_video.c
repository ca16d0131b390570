/* test_io_video.c - videos written in every format and read back.
 *
 * What FFmpeg writes is decoded by FFmpeg, with the colours that the file claims, and compared
 * with what went in: at least 38 dB for H.264 and VP9 (33 where sides are odd), 27 dB for a GIF
 * of 256 colours, where the palette that FFmpeg finds has 28.5, and all bits for a GIF of few. */
#define _XOPEN_SOURCE 700       /* P_tmpdir */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "io/video.h"
#include "scratch.h"

enum { W = 80, H = 48, N = 20 };
static uint8_t pixels[N * W * H * 3];

static const xd_image_text texts[] = {
    { "parameters", "a caf\xc3\xa9\nSteps: 20, Size: 80x48" },
    { "xdit", "{\"prompt\": \"\xe7\x8c\xab \xf0\x9f\x90\xb1\", \"a=b;c\": 1}" },
    { NULL, NULL },
};

/* A hill of colours that wanders; no two frames are alike, and no channel is another's mirror. */
static xd_film generate(int n, int w, int h, double fps)
{
    uint8_t *p = pixels;
    for (int i = 0; i < n; i++)
        for (int y = 0; y < h; y++)
            for (int x = 0; x < w; x++) {
                *p++ = (uint8_t)(30 + 200 * x / W);
                *p++ = (uint8_t)(220 - 150 * y / H - 2 * i);
                *p++ = (uint8_t)(128 + 100 * sin(x / 14.0 + i / 6.0) * cos(y / 11.0));
            }
    return (xd_film){ pixels, n, w, h, fps, NULL };
}

/* Four flat colours, blocks of 8 pixels. */
static xd_film draw_flat(int n, int w, int h, double fps)
{
    static const uint8_t colours[4][3] = {
        { 255, 0, 0 }, { 0, 255, 7 }, { 3, 4, 252 }, { 255, 255, 255 }
    };
    for (int i = 0; i < n * w * h; i++) {
        int x = i % w, y = i / w % h, t = i / w / h;
        memcpy(pixels + 3 * i, colours[(x / 8 + y / 8 + t) % 4], 3);
    }
    return (xd_film){ pixels, n, w, h, fps, NULL };
}

static void write_it(const char *name, const xd_film *f)
{
    xd_err e = { 0 };
    if (xd_video_write(in_scratch(name), f, texts, &e) != XD_OK)
        fail_msg("%s: %s", name, e.msg);
}

static uint8_t *bytes_of(const char *name, size_t *len)
{
    char  *data;
    xd_err e = { 0 };
    if (xd_file_read(in_scratch(name), 1 << 26, &data, len, &e) != XD_OK)
        fail_msg("%s", e.msg);
    return (uint8_t *)data;
}

/* ---- formats of our own -------------------------------------------------------------------- */

static void rates_are_fractions(void **state)
{
    static const struct {
        double fps;
        int    num, den;
    } rates[] = {
        { 8, 8, 1 },
        { 16, 16, 1 },
        { 24, 24, 1 },
        { 30, 30, 1 },
        { 29.97, 30000, 1001 },
        { 30000.0 / 1001, 30000, 1001 },
        { 23.976, 24000, 1001 },
        { 59.94, 60000, 1001 },
        { 12.5, 12500, 1000 },
        { 0.01, 10, 1000 },
        { 0.5, 500, 1000 },
        { 1000, 1000, 1 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        int num = 0, den = 0;
        xd_video_rate(rates[i].fps, &num, &den);
        if (num != rates[i].num || den != rates[i].den)
            fail_msg("%g is %d/%d", rates[i].fps, num, den);
    }
}

static void raw_is_the_pixels(void **state)
{
    (void)state;
    xd_film f = generate(3, 7, 5, 8);
    size_t  len;
    write_it("a.rgb", &f);
    uint8_t *data = bytes_of("a.rgb", &len);
    assert_int_equal(len, 3 * 7 * 5 * 3);
    assert_memory_equal(data, pixels, len);
    free(data);
    assert_int_equal(scratch_clean(), 1);
}

/* ---- sound --------------------------------------------------------------------------------- */

static void wav_has_integers(void **state)
{
    static const float   samples[] = { 0, -0.5f, 1, -1, 2, -3, 0.25f, 1e-5f };
    static const int16_t want[] = { 0, -16383, 32767, -32767, 32767, -32767, 8191, 0 };
    const xd_sound       sound = { samples, 4, 2, 24000 };
    xd_err               e = { 0 };
    size_t               len;
    (void)state;
    assert_int_equal(xd_wav_write(in_scratch("a.wav"), &sound, &e), XD_OK);
    uint8_t *p = bytes_of("a.wav", &len);
    assert_int_equal(len, 44 + sizeof want);
    assert_memory_equal(p, "RIFF\x34\0\0\0WAVEfmt \x10\0\0\0\1\0\2\0\xc0\x5d\0\0", 28);
    assert_memory_equal(p + 28, "\x00\x77\1\0\4\0\x10\0data\x10\0\0\0", 16);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        assert_int_equal((int16_t)(p[44 + 2 * i] | p[45 + 2 * i] << 8), want[i]);
    free(p);
    assert_int_equal(xd_wav_write(in_scratch("none/a.wav"), &sound, &e), XD_EIO);
    assert_true(xd_wav_known("a.WAV") && !xd_wav_known("wav"));
    assert_int_equal(scratch_clean(), 1);
}

/* ---- GIF ----------------------------------------------------------------------------------- */

typedef struct gif { int w, h, colours, frames, delay, least, most, loops, notes; } gif;

static size_t past_blocks(const uint8_t *p, size_t len, size_t at)
{
    while (at < len && p[at])
        at += 1u + p[at];
    return at + 1;
}

/* Walks over all blocks of a GIF; fails where one is out of place. */
static gif gif_blocks(const char *name)
{
    size_t   len, at = 13;
    gif      g = { .least = 1 << 20 };
    uint8_t *p = bytes_of(name, &len);
    assert_memory_equal(p, "GIF89a", 6);
    g.w = p[6] | p[7] << 8, g.h = p[8] | p[9] << 8;
    g.colours = 2 << (p[10] & 7);
    assert_int_equal(p[10] & 0xf0, 0xf0);
    at += 3 * (size_t)g.colours;
    while (at < len && p[at] != ';') {
        if (p[at] == ',') {
            g.frames++;
            assert_memory_equal(p + at + 5, p + 6, 4); /* the whole screen */
            at = past_blocks(p, len, at + 11);
            continue;
        }
        assert_int_equal(p[at], '!');
        g.loops += p[at + 1] == 0xff && !memcmp(p + at + 3, "NETSCAPE2.0\3\1\0\0", 15);
        g.notes += p[at + 1] == 0xfe;
        if (p[at + 1] == 0xf9) {
            int d = p[at + 4] | p[at + 5] << 8;
            g.delay += d;
            g.least = d < g.least ? d : g.least, g.most = d > g.most ? d : g.most;
        }
        at = past_blocks(p, len, at + 2);
    }
    assert_int_equal(at, len - 1);
    free(p);
    return g;
}

static void gifs_have_frames_and_delays(void **state)
{
    static const struct {
        double fps;
        int    total, least, most;
    } rates[] = {
        { 8, 250, 12, 13 },  { 24, 83, 4, 5 },  { 10, 200, 10, 10 },
        { 29.97, 67, 3, 4 }, { 100, 40, 2, 2 }, { 0.5, 4000, 200, 200 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        xd_film f = generate(N, 21, 11, rates[i].fps);
        write_it("a.gif", &f);
        gif g = gif_blocks("a.gif");
        if (g.w != 21 || g.h != 11 || g.frames != N || g.loops != 1 || g.notes != 1 ||
            g.colours != 256)
            fail_msg("%dx%d, %d frames, %d loops, %d notes", g.w, g.h, g.frames, g.loops, g.notes);
        if (g.delay != rates[i].total || g.least != rates[i].least || g.most != rates[i].most)
            fail_msg("%g a second: %d to %d hundredths, %d in all", rates[i].fps, g.least, g.most,
                     g.delay);
    }
    xd_film f = draw_flat(2, 9, 9, 5);
    write_it("a.gif", &f);
    assert_int_equal(gif_blocks("a.gif").colours, 4);
    assert_int_equal(scratch_clean(), 1);
}

static void bad_requests_are_refused(void **state)
{
    static const struct {
        const char *name, *why;
        int         n, w, h;
        double      fps;
        xd_status   code;
    } bad[] = {
        { "x.png", "has no video extension", 1, 4, 4, 8, XD_EINVAL },
        { "x", "has no video extension", 1, 4, 4, 8, XD_EINVAL },
        { "x.gif", "not 0 frames of 4x4", 0, 4, 4, 8, XD_EINVAL },
        { "x.gif", "sides of 1 to 65535 pixels", 1, 70000, 1, 8, XD_EINVAL },
        { "x.rgb", "not 1 frames of 4x0", 1, 4, 0, 8, XD_EINVAL },
        { "x.gif", "fps is 0", 1, 4, 4, 0, XD_EINVAL },
        { "x.gif", "fps is nan", 1, 4, 4, NAN, XD_EINVAL },
        { "none/x.gif", "none/x.gif", 1, 4, 4, 8, XD_EIO },
#ifdef XD_WITH_VIDEO
        { "x.mp4", "sides of 1 to 16384 pixels", 1, 20000, 1, 8, XD_EINVAL },
        { "none/x.mp4", "none/x.mp4", 1, 4, 4, 8, XD_EIO },
#else
        { "x.mp4", "has no FFmpeg and cannot write", 1, 4, 4, 8, XD_EUNSUPPORTED },
#endif
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        xd_film f = { pixels, bad[i].n, bad[i].w, bad[i].h, bad[i].fps, NULL };
        xd_err  e = { 0 };
        assert_int_equal(xd_video_write(in_scratch(bad[i].name), &f, NULL, &e), bad[i].code);
        if (!strstr(e.msg, bad[i].why))
            fail_msg("%s: \"%s\" does not say \"%s\"", bad[i].name, e.msg, bad[i].why);
    }
    assert_int_equal(scratch_clean(), 0);
    assert_true(xd_video_known("a.mp4") && xd_video_known("b/a.GIF") && xd_video_known("a.x.rgb"));
    assert_false(xd_video_known("a.png") || xd_video_known("mp4") || xd_video_known("a.mp4/b"));
}

/* In a process of its own: files may have 4096 bytes there, and no name is left. 0: as it should
 * be. */
static int write_too_much(const char *name)
{
    xd_film f = generate(N, W, H, 8);
    xd_err  e = { 0 };
    srand(1);
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(rand() >> 8);
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 4096, 4096 });
    xd_status st = xd_video_write(in_scratch(name), &f, texts, &e);
    if (st != XD_EIO || !strstr(e.msg, "cannot write") || !strstr(e.msg, "File too large")) {
        fprintf(stderr, "# %s: %d, \"%s\"\n", name, (int)st, e.msg);
        return 1;
    }
    return 0;
}

static void full_disks_leave_nothing(void **state)
{
    static const char *const names[] = {
        "x.gif", "x.rgb",
#ifdef XD_WITH_VIDEO
        "x.mp4", "x.mov", "x.mkv", "x.webm",
#endif
    };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int   status = 0;
        pid_t pid = fork();
        if (pid == 0)
            _exit(write_too_much(names[i]));
        waitpid(pid, &status, 0);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        assert_int_equal(scratch_clean(), 0);
    }
}

/* ---- what FFmpeg reads --------------------------------------------------------------------- */

#ifdef XD_WITH_VIDEO

#include "io/av.h"

static int has(const uint8_t *data, size_t len, const char *what, size_t n)
{
    for (size_t i = 0; i + n <= len; i++)
        if (!memcmp(data + i, what, n))
            return 1;
    return 0;
}

typedef struct reading {
    AVFormatContext   *file;
    AVCodecContext    *coder;
    struct SwsContext *sws;
    AVFrame           *frame;
    uint8_t           *rgb; /* a frame as it comes, width x height */
    int                frames;
    double             error; /* sum of squares */
} reading;

static void open_reading(reading *r, const char *name)
{
    *r = (reading){ .frame = av_frame_alloc() };
    assert_int_equal(avformat_open_input(&r->file, in_scratch(name), NULL, NULL), 0);
    assert_true(avformat_find_stream_info(r->file, NULL) >= 0);
    assert_int_equal(r->file->nb_streams, 1);
    const AVCodecParameters *p = r->file->streams[0]->codecpar;
    r->coder = avcodec_alloc_context3(avcodec_find_decoder(p->codec_id));
    assert_non_null(r->coder);
    avcodec_parameters_to_context(r->coder, p);
    assert_int_equal(avcodec_open2(r->coder, NULL, NULL), 0);
    r->rgb = malloc((size_t)p->width * (size_t)p->height * 3 + 64);
    r->sws = sws_getContext(p->width, p->height, p->format, p->width, p->height, AV_PIX_FMT_RGB24,
                            SWS_BICUBIC | SWS_FULL_CHR_H_INT | SWS_ACCURATE_RND, NULL, NULL, NULL);
    assert_non_null(r->sws);
}

/* Compares every frame that is ready with the one of the film at its time. */
static void take_frames(reading *r, const xd_film *f)
{
    while (avcodec_receive_frame(r->coder, r->frame) >= 0) {
        const int *table = sws_getCoefficients((int)r->frame->colorspace);
        int        full = r->frame->color_range == AVCOL_RANGE_JPEG;
        sws_setColorspaceDetails(r->sws, table, full, table, 1, 0, 1 << 16, 1 << 16);
        sws_scale(r->sws, (const uint8_t *const *)r->frame->data, r->frame->linesize, 0,
                  r->frame->height, (uint8_t *[]){ r->rgb, NULL, NULL, NULL },
                  (int[]){ 3 * r->frame->width, 0, 0, 0 });
        double s = (double)r->frame->best_effort_timestamp * av_q2d(r->file->streams[0]->time_base);
        if (fabs(s * f->fps - r->frames) > 0.2)
            fail_msg("frame %d is shown at %g s", r->frames, s);
        for (int64_t y = 0; y < f->h && r->frames < f->n; y++)
            for (int64_t x = 0; x < f->w * 3; x++) {
                double d = r->rgb[y * 3 * r->frame->width + x] -
                           f->rgb[(r->frames * f->h + y) * f->w * 3 + x];
                r->error += d * d;
            }
        r->frames++;
    }
}

static double read_frames(reading *r, const xd_film *f)
{
    AVPacket *p = av_packet_alloc();
    while (av_read_frame(r->file, p) >= 0) {
        assert_true(avcodec_send_packet(r->coder, p) >= 0);
        av_packet_unref(p);
        take_frames(r, f);
    }
    avcodec_send_packet(r->coder, NULL);
    take_frames(r, f);
    av_packet_free(&p);
    assert_int_equal(r->frames, f->n);
    double mean = r->error / (double)(f->n * f->w * f->h * 3);
    return mean > 0 ? 10 * log10(255 * 255 / mean) : INFINITY;
}

static void close_reading(reading *r)
{
    sws_freeContext(r->sws);
    av_frame_free(&r->frame);
    avcodec_free_context(&r->coder);
    avformat_close_input(&r->file);
    free(r->rgb);
}

static const char *tag(const reading *r, const char *key)
{
    const AVDictionaryEntry *t = av_dict_get(r->file->metadata, key, NULL, 0);
    return t ? t->value : "";
}

static void check_film(const char *name, const char *codec, const xd_film *f, double db)
{
    reading    r;
    AVRational rate;
    int        num, den;
    write_it(name, f);
    open_reading(&r, name);
    const AVCodecParameters *p = r.file->streams[0]->codecpar;
    assert_string_equal(avcodec_get_name(p->codec_id), codec);
    assert_int_equal(p->width, f->w + f->w % 2);
    assert_int_equal(p->height, f->h + f->h % 2);
    assert_int_equal(p->format, AV_PIX_FMT_YUV420P);
    assert_int_equal(p->color_space, AVCOL_SPC_BT709);
    assert_int_equal(p->color_range, AVCOL_RANGE_MPEG);
    xd_video_rate(f->fps, &num, &den);
    rate = r.file->streams[0]->avg_frame_rate;
    if (fabs(av_q2d(rate) / ((double)num / den) - 1) > 1e-3)
        fail_msg("%s: %d/%d frames a second, not %d/%d", name, rate.num, rate.den, num, den);
    double s = (double)r.file->duration / AV_TIME_BASE;
    if (fabs(s - (double)f->n / f->fps) > 0.002 + 0.02 / f->fps)
        fail_msg("%s lasts %g s", name, s);
    assert_string_equal(tag(&r, "comment"), texts[0].value);
    assert_string_equal(tag(&r, "description"), texts[1].value);
    double got = read_frames(&r, f);
    if (!(got > db))
        fail_msg("%s of %dx%d: %.1f dB", name, (int)f->w, (int)f->h, got);
    print_message("# %s, %dx%d, %g a second: %.1f dB\n", name, (int)f->w, (int)f->h, f->fps, got);
    close_reading(&r);
}

static void films_come_back(void **state)
{
    static const struct {
        const char *name, *codec;
    } kinds[] = {
        { "a.mp4", "h264" }, { "a.MOV", "h264" }, { "a.mkv", "h264" }, { "a.webm", "vp9" }
    };
    (void)state;
    for (int i = 0; i < 4; i++) {
        xd_film f = generate(N, W, H, 8);
        check_film(kinds[i].name, kinds[i].codec, &f, 38);
    }
    assert_int_equal(scratch_clean(), 4);
}

static void rates_and_odd_sides(void **state)
{
    static const double rates[] = { 16, 24, 29.97, 30, 12.5 };
    static const int    sides[][2] = { { 33, 17 }, { 16, 15 }, { 1, 1 }, { 3, 48 } };
    (void)state;
    for (int i = 0; i < 5; i++) {
        xd_film f = generate(N, 48, 32, rates[i]);
        check_film("a.mp4", "h264", &f, 38);
    }
    for (int i = 0; i < 4; i++) {
        xd_film f = generate(5, sides[i][0], sides[i][1], 8);
        check_film("a.mp4", "h264", &f, 33);
    }
    xd_film f = generate(1, W, H, 24);
    check_film("a.mp4", "h264", &f, 38);
    assert_int_equal(scratch_clean(), 1);
}

/* The index of an MP4 stands before its frames, and boxes fill the file. */
static void index_comes_first(void **state)
{
    size_t  len, at = 0;
    char    order[64] = "";
    xd_film f = generate(N, W, H, 24);
    (void)state;
    write_it("a.mp4", &f);
    uint8_t *p = bytes_of("a.mp4", &len);
    while (at + 8 <= len && strlen(order) < 40) {
        size_t n = (size_t)p[at] << 24 | (size_t)p[at + 1] << 16 | (size_t)p[at + 2] << 8 |
                   p[at + 3];
        assert_true(n >= 8);
        strncat(order, (const char *)p + at + 4, 4);
        at += n;
    }
    assert_int_equal(at, len);
    assert_string_equal(order, "ftypmoovfreemdat");
    assert_true(has(p, len, "avc1", 4) && has(p, len, "nclx\0\1\0\1\0\1", 10));
    free(p);
    scratch_clean();
}

static void gifs_come_back(void **state)
{
    reading r;
    (void)state;
    for (int flat = 0; flat < 2; flat++) {
        xd_film f = flat ? draw_flat(N, W, H, 10) : generate(N, W, H, 10);
        write_it("a.gif", &f);
        open_reading(&r, "a.gif");
        double db = read_frames(&r, &f);
        print_message("# a.gif: %.1f dB\n", db);
        assert_true(flat ? isinf(db) : db > 27);
        close_reading(&r);
    }
    srand(2); /* noise fills the table of codes many times over */
    xd_film f = { pixels, 2, W, H, 10, NULL };
    for (size_t i = 0; i < 3 * 2 * W * H; i++)
        pixels[i] = (uint8_t)(rand() >> 8);
    write_it("a.gif", &f);
    open_reading(&r, "a.gif");
    assert_true(read_frames(&r, &f) > 20);
    close_reading(&r);
    scratch_clean();
}

/* Returns the RMS of the first channel of the sound in a file, whose decoder gives an array of
 * floats for each channel. Checks that there are two channels and about `seconds` of sound. */
static double loudness(const char *name, double seconds)
{
    AVFormatContext *in = NULL;
    AVPacket        *packet = av_packet_alloc();
    AVFrame         *frame = av_frame_alloc();
    double           sum = 0, n = 0;
    assert_true(avformat_open_input(&in, in_scratch(name), NULL, NULL) >= 0);
    assert_true(avformat_find_stream_info(in, NULL) >= 0);
    int track = av_find_best_stream(in, AVMEDIA_TYPE_AUDIO, -1, -1, NULL, 0);
    assert_true(track >= 0);
    const AVCodecParameters *as = in->streams[track]->codecpar;
    AVCodecContext          *c = avcodec_alloc_context3(avcodec_find_decoder(as->codec_id));
    assert_true(avcodec_parameters_to_context(c, as) >= 0);
    assert_true(avcodec_open2(c, c->codec, NULL) >= 0);
    assert_int_equal(c->sample_fmt, AV_SAMPLE_FMT_FLTP);
    for (int more = 1; more;) {
        more = av_read_frame(in, packet) >= 0;
        if (more && packet->stream_index == track)
            avcodec_send_packet(c, packet);
        else if (!more)
            avcodec_send_packet(c, NULL);
        av_packet_unref(packet);
        for (; avcodec_receive_frame(c, frame) >= 0; n += frame->nb_samples)
            for (int i = 0; i < frame->nb_samples; i++) {
                float v = ((const float *)(const void *)frame->data[0])[i];
                sum += (double)v * (double)v;
            }
    }
    assert_int_equal(c->ch_layout.nb_channels, 2);
    assert_true(fabs(n / c->sample_rate - seconds) < 0.1);
    avcodec_free_context(&c);
    avformat_close_input(&in);
    av_frame_free(&frame);
    av_packet_free(&packet);
    return sqrt(sum / n);
}

/* A tone of 440 Hz in the first channel has the same loudness behind the encoder, within 0.02. */
static void sound_comes_back(void **state)
{
    static const char *const name[] = { "a.mp4", "a.mov", "a.mkv", "a.webm" };
    enum { RATE = 24000 };
    static float samples[2 * 2 * RATE];
    xd_sound     sound = { samples, 2 * RATE, 2, RATE };
    (void)state;
    for (int i = 0; i < 2 * RATE; i++)
        samples[2 * i] = (float)(0.5 * sin(2 * 3.14159265358979 * 440 * i / RATE));
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        xd_film f = generate(N, W, H, 10);
        f.sound = &sound;
        write_it(name[i], &f);
        double rms = loudness(name[i], 2);
        print_message("# %s: %.3f\n", name[i], rms);
        assert_true(fabs(rms - 0.5 / sqrt(2)) < 0.02);
    }
    scratch_clean();
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_are_fractions),      cmocka_unit_test(raw_is_the_pixels),
        cmocka_unit_test(wav_has_integers),         cmocka_unit_test(gifs_have_frames_and_delays),
        cmocka_unit_test(bad_requests_are_refused), cmocka_unit_test(full_disks_leave_nothing),
#ifdef XD_WITH_VIDEO
        cmocka_unit_test(films_come_back),          cmocka_unit_test(rates_and_odd_sides),
        cmocka_unit_test(index_comes_first),        cmocka_unit_test(gifs_come_back),
        cmocka_unit_test(sound_comes_back),
#endif
    };
    return cmocka_run_group_tests_name("io_video", tests, scratch_set_up, scratch_tear_down);
}
