/* test_serve_head.c - where requests end in the bytes of a client, however these are cut */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "serve/http_head.h"

#define GET "GET / HTTP/1.1\r\nHost: a\r\n"
#define POST "POST / HTTP/1.1\r\nHOST: a\r\n"
#define CHUNKS POST "Transfer-Encoding: chunked\r\n\r\n"

typedef struct row {
    const char *text;
    int         status; /* of the refusal; 0: all is read, and ends with a request */
    const char *behind; /* the byte that is refused begins this; NULL: the last one */
} row;

static const row rows[] = {
    { GET "\r\n", 0, NULL },
    { "\r\n" GET "A: b\r\nC:\r\nD: \t e f \r\n\r\n" GET "\r\n", 0, NULL },
    { "GET /\r\n\r\n", 0, NULL },
    { "GET / HTTP/1.0\r\n\r\n", 0, NULL },
    { "GET / HTTP/1.1\r\n\r\n", 400, "\n" },
    { "GET / HTTP/1.1\r\nHosts: a\r\n\r\n", 400, "\n" },
    { GET "host: b\r\n\r\n", 400, "\n" },
    { POST "Content-Length: 5\r\n\r\nab\ncd" GET "\r\n", 0, NULL },
    { POST "content-length:\t005 \t\r\n\r\n\r\n\r\nd" GET "\r\n", 0, NULL },
    { POST "Content-Length: 0\r\n\r\n" GET "\r\n", 0, NULL },
    { CHUNKS "5\r\nab\ncd\r\n0A\r\n0123456789\r\n0\r\n\r\n" GET "\r\n", 0, NULL },
    { POST "transfer-encoding:CHUNKED\r\n\r\n000\r\nA: b\r\nContent-Length: 9\r\n\r\n" GET "\r\n",
      0, NULL },
    { GET "Content-Length : 5\r\n", 400, " :" },
    { GET "A\t: 5\r\n", 400, "\t:" },
    { GET ": 5\r\n", 400, ":" },
    { GET "A: 5\r\n b\r\n", 400, " b" },
    { GET " A: 5\r\n", 400, " A" },
    { GET "A: b\nC: d\r\n", 400, "\nC" },
    { GET "A: b\rC: d\r\n", 400, "C:" },
    { GET "A: \x01\r\n", 400, "\x01" },
    { GET "A: \x7f\r\n", 400, "\x7f" },
    { GET "no colon\r\n", 400, " colon" },
    { GET "colon\r\n", 400, "\r\n" },
    { "GET / HTTP/1.1\nA", 400, "\nA" },
    { "\n", 400, "\n" },
    { "\r\r\n", 400, "\r\n" },
    { POST "Content-Length: 5, 5\r\n", 400, "\n" },
    { POST "Content-Length: +5\r\n", 400, "\n" },
    { POST "Content-Length: 0x5\r\n", 400, "\n" },
    { POST "Content-Length:\r\n", 400, "\n" },
    { POST "Content-Length: 18446744073709551621\r\n", 400, "\n" },
    { POST "Content-Length: 5\r\nContent-Length: 5\r\n", 400, "\n" },
    { POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400, "\n" },
    { POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", 400, "\n" },
    { POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400, "\n" },
    { "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n", 400, "\n" },
    { POST "Transfer-Encoding: gzip, chunked\r\n", 501, "\n" },
    { POST "Transfer-Encoding: identity\r\n", 501, "\n" },
    { POST "Transfer-Encoding: \"chunked\"\r\n", 501, "\n" },
    { CHUNKS "-5\r\n", 400, "-5" },
    { CHUNKS "\r\n", 400, "\r\n" },
    { CHUNKS "5 \r\n", 400, " \r\n" },
    { CHUNKS "5\nhello", 400, "\nhello" },
    { CHUNKS "3\r\nhello\r\n", 400, "lo\r\n" },
    { CHUNKS "ffffffffffffffff\r\n", 400, "f\r\n" },
    { CHUNKS "0\r\nA : b\r\n", 400, " : b" },
};

/* Where the last request that was refused is to end. */
static size_t length_of(const row *r)
{
    size_t n = strlen(r->text), tail = r->behind ? strlen(r->behind) : 0;
    for (size_t at = n; r->behind && at-- > 0;)
        if (strncmp(r->text + at, r->behind, tail) == 0)
            return at;
    return n;
}

static void read_in_pieces(const row *r, size_t piece)
{
    xd_head h = { 0 };
    size_t  n = strlen(r->text), at = 0;
    char    bytes[400];
    assert_true(n < sizeof bytes);
    memcpy(bytes, r->text, n);
    while (at < n && !h.status) {
        size_t k = piece < n - at ? piece : n - at, got = xd_head_read(&h, bytes + at, k);
        at += got;
        assert_true(got == k || h.status);
    }
    assert_memory_equal(bytes, r->text, at);
    if (h.status != r->status || at != length_of(r))
        print_error("%s: %d at %zu of %zu\n", r->text, h.status, at, n);
    assert_int_equal(h.status, r->status);
    assert_int_equal(at, length_of(r));
    if (!r->status)
        assert_int_equal(h.state + h.in_body, 0);
}

static void requests(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t piece = 1; piece <= strlen(rows[i].text); piece++)
            read_in_pieces(&rows[i], piece);
}

/* Whoever reads behind us gets chunks without them. */
static void extensions(void **state)
{
    static const char sent[] = CHUNKS "6;\r\na;b\ncd\r\n0A;x=y; \t\"z\"\r\n01234;6789\r\n"
                                      "0;e\r\nA: b;c\r\n\r\n" GET "\r\n";
    static const char passed[] = CHUNKS "6\r\na;b\ncd\r\n0A\r\n01234;6789\r\n"
                                        "0\r\nA: b;c\r\n\r\n" GET "\r\n";
    (void)state;
    for (size_t piece = 1; piece < sizeof sent; piece++) {
        char    bytes[sizeof sent], got[sizeof sent];
        xd_head h = { 0 };
        size_t  n = 0;
        memcpy(bytes, sent, sizeof sent);
        for (size_t at = 0; at < sizeof sent - 1; at += piece) {
            size_t left = sizeof sent - 1 - at;
            size_t k = xd_head_read(&h, bytes + at, piece < left ? piece : left);
            memcpy(got + n, bytes + at, k);
            n += k;
        }
        assert_int_equal(h.status, 0);
        assert_int_equal(n, sizeof passed - 1);
        assert_memory_equal(got, passed, n);
    }
}

static void zero_bytes(void **state)
{
    static const char in_value[] = GET "A: b\0c\r\n\r\n", in_name[] = GET "A\0: b\r\n\r\n",
                      in_size[] = CHUNKS "5\0\r\n";
    static const struct {
        const char *text;
        size_t      n;
    } all[] = {
        { in_value, sizeof in_value - 1 },
        { in_name, sizeof in_name - 1 },
        { in_size, sizeof in_size - 1 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        xd_head h = { 0 };
        char    bytes[100];
        memcpy(bytes, all[i].text, all[i].n);
        assert_int_equal(xd_head_read(&h, bytes, all[i].n), strlen(all[i].text));
        assert_int_equal(h.status, 400);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests),
        cmocka_unit_test(extensions),
        cmocka_unit_test(zero_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
