/* fuzz_image.c - any bytes as an image that a client sends: its size, then its pixels.
 *
 * Besides not crashing: an image that is decoded has the size that its header told, and a refusal
 * has a sentence. */
#include <unistd.h>

#include "fuzz.h"
#include "xdit/tools.h"

static char path[80];

static void remove_file(void)
{
    unlink(path);
}

static void write_file(const uint8_t *data, size_t size)
{
    const char *tmp = getenv("TMPDIR");
    if (!path[0]) {
        snprintf(path, sizeof path, "%.40s/xd-fuzz-%d.png", tmp && *tmp ? tmp : "/tmp",
                 (int)getpid());
        atexit(remove_file);
    }
    FILE *f = fopen(path, "wb");
    MUST(f);
    MUST(fwrite(data, 1, size, f) == size);
    MUST(fclose(f) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t  w = 0, h = 0;
    xd_err   e = { 0 };
    xd_image im;
    uint8_t *pixels = NULL;
    write_file(data, size);
    if (xd_image_file_size(path, &w, &h, &e) != XD_OK) {
        MUST(e.msg[0]);
        return 0;
    }
    MUST(w > 0 && h > 0);
    if (w > (1 << 22) / h)
        return 0;
    if (xd_image_file_load(path, &im, &pixels, &e) == XD_OK)
        MUST(im.width == w && im.height == h && pixels);
    else
        MUST(e.msg[0] && !pixels);
    free(pixels);
    return 0;
}
