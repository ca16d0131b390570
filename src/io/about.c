/* about.c - reports the image and video libraries and their versions */
#include "io/image.h"

#include <stdio.h>

#include <jpeglib.h>
#include <png.h>
#include <webp/decode.h>

#include "io/av.h"

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

/* Returns the version of libjpeg as text. The version comes from libjpeg's header, because libjpeg
 * has no function that returns it. */
static const char *jpeg_text(void)
{
#ifdef LIBJPEG_TURBO_VERSION
    return "libjpeg-turbo " TEXT(LIBJPEG_TURBO_VERSION);
#else
    return "libjpeg " TEXT(JPEG_LIB_VERSION);
#endif
}

/* Reports FFmpeg's version. FFmpeg is loaded by the same code that loads it to write a video. */
static void video_about(xd_fact *fact, void *cookie)
{
#ifdef XD_WITH_VIDEO
    const xd_av *av;
    xd_err       e = { 0 };
    char         text[64];
    snprintf(text, sizeof text, "FFmpeg's libavcodec %d.%d", LIBAVCODEC_VERSION_MAJOR,
             LIBAVCODEC_VERSION_MINOR);
    if (xd_av_load(&av, &e) == XD_OK)
        fact(cookie, "video", text);
    else
        fact(cookie, "video_error", e.msg);
#else
    fact(cookie, "video_error",
         "FFmpeg is not built in: videos can be .gif, .rgb, or a .png for "
         "each frame");
#endif
}

void xd_image_about(xd_fact *fact, void *cookie)
{
    char text[64];
    int  w = WebPGetDecoderVersion();
    snprintf(text, sizeof text, "libpng %s", png_get_libpng_ver(NULL));
    fact(cookie, "library", text);
    fact(cookie, "library", jpeg_text());
    snprintf(text, sizeof text, "libwebp %d.%d.%d", w >> 16, w >> 8 & 255, w & 255);
    fact(cookie, "library", text);
    video_about(fact, cookie);
}
