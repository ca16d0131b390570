/* fuzz_base64.c - any text as base64, as it stands in data URLs, and any bytes as what is written.
 *
 * Besides not crashing: no more bytes come out than the digits hold, and what is read, written
 * and read again is the same. */
#include <string.h>

#include "fuzz.h"
#include "serve/base64.h"

static void check_written(const char *data, size_t bytes)
{
    xd_text_buf b = { 0 };
    size_t      again;
    xd_base64_add(&b, (const unsigned char *)data, bytes);
    MUST(!b.failed && b.len == (bytes + 2) / 3 * 4);
    char *back = xd_base64_read(b.p ? b.p : "", b.len, &again);
    MUST(back && again == bytes && memcmp(back, data, bytes) == 0);
    free(back);
    xd_buf_free(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t bytes;
    char  *text = malloc(size + 1), *read;
    MUST(text);
    if (size)
        memcpy(text, data, size);
    text[size] = 0;
    read = xd_base64_read(text, size, &bytes);
    if (read) {
        MUST(bytes <= size / 4 * 3 + 3);
        check_written(read, bytes);
    }
    check_written(text, size);
    free(read);
    free(text);
    return 0;
}
