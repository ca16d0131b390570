/* fuzz_safetensors.c - any bytes as a safetensors file, or as the index of two good shards.
 *
 * The 8th byte decides: it is 0 in any header length that can be. Besides not crashing: every
 * byte of every tensor that is handed out can be read, and no tensor is larger than the file. */
#define _XOPEN_SOURCE 700       /* P_tmpdir */
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "io/safetensors.h"

static char dir[512];

static const char *in_dir(const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void put(const char *name, const void *data, size_t n)
{
    FILE *f = fopen(in_dir(name), "wb");
    MUST(f && fwrite(data, 1, n, f) == n);
    MUST(fclose(f) == 0);
}

static void clean(void)
{
    unlink(in_dir("input.safetensors"));
    unlink(in_dir("input.safetensors.index.json"));
    unlink(in_dir("a.safetensors"));
    unlink(in_dir("b.safetensors"));
    rmdir(dir);
}

static void set_up(void)
{
    static float x[6] = { 1, 2, 3, 4, 5, 6 };
    xd_st_item   one = { "x", xd_view2(x, XD_F32, 2, 3) };
    xd_st_item   two[] = { { "y", xd_view2(x, XD_F32, 1, 2) }, { "z", xd_view2(x, XD_F32, 3, 1) } };
    const char  *base = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/xdit-fuzz-XXXXXX", base && *base ? base : P_tmpdir);
    MUST(mkdtemp(dir));
    atexit(clean);
    MUST(xd_st_write(in_dir("a.safetensors"), &one, 1, 1, NULL, NULL) == XD_OK);
    MUST(xd_st_write(in_dir("b.safetensors"), two, 2, 1, NULL, NULL) == XD_OK);
}

static void use_tensor(xd_st *s, int64_t i, size_t size)
{
    xd_tensor shape = xd_st_shape(s, i), t;
    xd_err    e = { 0 };
    unsigned  sum = 0;
    MUST(shape.nd >= 0 && shape.nd <= XD_MAXDIM && !shape.p && xd_st_dtype(s, i));
    if (xd_st_get(s, i, &t, &e) != XD_OK) {
        MUST(e.code == XD_EUNSUPPORTED && strstr(e.msg, "tensor "));
        return;
    }
    MUST(t.type == shape.type && xd_bytes(t) <= size && xd_contiguous(t));
    for (size_t k = 0; k < xd_bytes(t); k++)
        sum += ((const unsigned char *)t.p)[k];
    MUST(sum <= 255 * size);
    xd_st_done(s, i);
}

static void use(const char *path, size_t size)
{
    xd_st *s;
    xd_err e = { 0 };
    size_t bytes = 0;
    if (xd_st_open(&s, path, "input", &e) != XD_OK) {
        MUST(!s && e.code != XD_OK && e.msg[0]);
        return;
    }
    MUST(xd_st_mapped(s));
    for (int64_t i = 0; i < xd_st_count(s); i++) {
        MUST(!i || strcmp(xd_st_name(s, i - 1), xd_st_name(s, i)) < 0);
        MUST(xd_st_find(s, xd_st_name(s, i)) == i);
        use_tensor(s, i, size);
        bytes += xd_bytes(xd_st_shape(s, i)) * !strcmp(xd_st_dtype(s, i), "F32");
    }
    MUST(bytes <= xd_st_bytes(s) && xd_st_bytes(s) <= size);
    MUST(xd_st_hash(s) == xd_st_hash(s));
    xd_st_close(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!dir[0])
        set_up();
    if (size < 8 || !data[7]) {
        put("input.safetensors", data, size);
        use(in_dir("input.safetensors"), size);
    } else {
        unlink(in_dir("input.safetensors"));
        put("input.safetensors.index.json", data, size);
        use(dir, 6 * 4 + 5 * 4);
    }
    return 0;
}
