/* fuzz_gguf.c - any bytes as a GGUF file, or as the second shard behind a good one.
 *
 * The last byte decides, where there are 64 or more. Besides not crashing: every byte of every
 * tensor that is handed out can be read and decoded, and no tensor is larger than the file. */
#define _XOPEN_SOURCE 700       /* P_tmpdir */
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "io/safetensors.h"

enum { SHARD = 0xa5, FIRST_BYTES = 128, LONGEST_KEY = 1 << 16 };
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
    unlink(in_dir("input.gguf"));
    unlink(in_dir("x-00001-of-00002.gguf"));
    unlink(in_dir("x-00002-of-00002.gguf"));
    rmdir(dir);
}

/* A shard of two with one tensor, "a" of 2 x 2. */
static void put_first_shard(void)
{
    static const char head[] = "GGUF\3\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0"
                               "\13\0\0\0\0\0\0\0split.count\2\0\0\0\2\0"
                               "\1\0\0\0\0\0\0\0a\2\0\0\0\2\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0"
                               "\0\0\0\0\0\0\0\0\0\0\0\0";
    char              file[FIRST_BYTES] = "";
    memcpy(file, head, sizeof head - 1);
    put("x-00001-of-00002.gguf", file, sizeof file);
}

static void set_up(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/xdit-fuzz-XXXXXX", base && *base ? base : P_tmpdir);
    MUST(mkdtemp(dir));
    atexit(clean);
    put_first_shard();
}

/* Elements in turn, in pieces that begin and end within blocks. */
static void decode(xd_tensor t)
{
    enum { PIECE = 300 };
    float x[PIECE];
    for (int64_t i = 0, n = xd_count(t); i < n; i += PIECE)
        xd_convert_at(x, XD_F32, t.p, t.type, i, n - i < PIECE ? n - i : PIECE);
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
    if (t.type != XD_I8 && t.type != XD_I16 && t.type != XD_I32 && t.type != XD_I64)
        decode(t);
    xd_st_done(s, i);
}

/* A key is not found that no file can have. Others the fuzzer writes into its files as soon as
 * they are looked up. */
static void use_keys(const xd_st *s)
{
    static char longest[LONGEST_KEY + 2];
    memset(longest, 'k', sizeof longest - 1);
    MUST(!xd_st_meta(s, longest));
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
    MUST(xd_st_mapped(s) && xd_st_is_gguf(s) && xd_st_path(s)[0]);
    for (int64_t i = 0; i < xd_st_count(s); i++) {
        MUST(!i || strcmp(xd_st_name(s, i - 1), xd_st_name(s, i)) < 0);
        MUST(xd_st_find(s, xd_st_name(s, i)) == i);
        use_tensor(s, i, size);
        bytes += xd_bytes(xd_st_shape(s, i));
    }
    MUST(bytes == xd_st_bytes(s) && bytes <= size);
    MUST(xd_st_hash(s) == xd_st_hash(s));
    use_keys(s);
    xd_st_close(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!dir[0])
        set_up();
    if (size < 4 || memcmp(data, "GGUF", 4) != 0) /* other formats have their own target */
        return 0;
    if (size >= 64 && data[size - 1] == SHARD) {
        put("x-00002-of-00002.gguf", data, size);
        use(in_dir("x-00002-of-00002.gguf"), size + FIRST_BYTES);
    } else {
        put("input.gguf", data, size);
        use(in_dir("input.gguf"), size);
    }
    return 0;
}
