/* prompts.c - see prompts.h */
#include "prompts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "scratch.h"

xd_tok *must_open(open_tok *open, const char *dir)
{
    xd_tok *t = NULL;
    xd_err  e = { 0 };
    if (open(&t, dir, &e) != XD_OK)
        fail_msg("%s", e.msg);
    assert_non_null(t);
    return t;
}

prompt       prompts[PROMPTS];
static char *prompt_file;

size_t unescape(char *s, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned v;
        if (s[i] == '\\' && i + 3 < len && sscanf(s + i, "\\x%2x", &v) == 1) {
            s[n++] = (char)v;
            i += 3;
        } else {
            s[n++] = s[i];
        }
    }
    return n;
}

static int read_texts(const char *file)
{
    size_t len;
    if (xd_file_read(file, MAX_FILE, &prompt_file, &len, NULL) != XD_OK)
        return -1;
    char *p = prompt_file;
    for (int i = 0; i < PROMPTS; i++) {
        char *end = strchr(p, '\n');
        if (!end)
            return -1;
        prompts[i] = (prompt){ p, unescape(p, (size_t)(end - p)) };
        p = end + 1;
    }
    return 0;
}

int read_prompts(void **state)
{
    (void)state;
    return read_texts(GOLDEN "prompts.txt");
}

int read_lm_texts(void **state)
{
    (void)state;
    return read_texts(GOLDEN_LM "texts.txt");
}

int forget_prompts(void **state)
{
    (void)state;
    free(prompt_file);
    return 0;
}

int32_t *ids_of(const xd_tok *t, const char *s, size_t len, int64_t max, int64_t *n)
{
    int32_t *ids = NULL;
    xd_err   e = { 0 };
    if (xd_tok_ids(t, s, len, max, &ids, n, &e) != XD_OK)
        fail_msg("%s", e.msg);
    return ids;
}

static uint64_t fnv(const int32_t *ids, int64_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (int64_t i = 0; i < n; i++)
        for (int b = 0; b < 32; b += 8)
            h = (h ^ ((uint32_t)ids[i] >> b & 0xff)) * 0x100000001b3u;
    return h;
}

void check_hashes(const xd_tok *t, const char *file)
{
    char  *text;
    size_t len;
    int    bad = 0, at = 0, took;
    assert_int_equal(xd_file_read(file, MAX_FILE, &text, &len, NULL), XD_OK);
    for (int i = 0; i < PROMPTS; i++) {
        long long          want;
        unsigned long long hash;
        int64_t            n;
        int32_t           *ids = ids_of(t, prompts[i].text, prompts[i].len, 0, &n);
        assert_int_equal(sscanf(text + at, "%lld %llx%n", &want, &hash, &took), 2);
        at += took;
        if (n != want || fnv(ids, n) != hash) {
            bad++;
            print_message("# prompt %d: %lld ids, %lld wanted\n", i, (long long)n, want);
        }
        free(ids);
    }
    free(text);
    assert_int_equal(bad, 0);
}

void cut_all(const xd_tok *t, int left, int32_t first, int32_t last)
{
    static const int64_t limits[] = { 1, 2, 3, 20, 77 };
    for (int i = 0; i < PROMPTS; i++) {
        int64_t  whole, n;
        int32_t *all = ids_of(t, prompts[i].text, prompts[i].len, 0, &whole);
        for (size_t k = 0; k < sizeof limits / sizeof *limits; k++) {
            int32_t *ids = ids_of(t, prompts[i].text, prompts[i].len, limits[k], &n);
            assert_int_equal(n, whole < limits[k] ? whole : limits[k]);
            assert_int_equal(ids[0], first);
            if (n > 1)
                assert_int_equal(ids[n - 1], last);
            if (n > 2)
                assert_memory_equal(ids + 1, all + (left ? whole - n + 1 : 1),
                                    (size_t)(n - 2) * sizeof *ids);
            free(ids);
        }
        free(all);
    }
}

int equal(const xd_tok *t, const char *a, const char *b)
{
    int64_t  n, m;
    int32_t *x = ids_of(t, a, strlen(a), 0, &n), *y = ids_of(t, b, strlen(b), 0, &m);
    int      same = n == m && !memcmp(x, y, (size_t)n * sizeof *x);
    free(x);
    free(y);
    return same;
}

void copy_file(const char *dir, const char *name)
{
    char  *path = xd_path_join(dir, name), *data;
    size_t len;
    assert_int_equal(xd_file_read(path, MAX_FILE, &data, &len, NULL), XD_OK);
    scratch_put(name, data, len);
    free(path);
    free(data);
}

void says(const char *what, xd_status code)
{
    xd_tok *t = NULL;
    xd_err  e = { 0 };
    if (xd_tok_open(&t, scratch, &e) != code || !strstr(e.msg, what))
        fail_msg("'%s' does not say '%s'", e.msg, what);
    assert_null(t);
}

void same_ids(const xd_tok *t, const char *a, size_t alen, const char *b, size_t blen)
{
    int64_t  n, m;
    int32_t *x = ids_of(t, a, alen, 0, &n), *y = ids_of(t, b, blen, 0, &m);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, (size_t)n * sizeof *x);
    free(x);
    free(y);
}
