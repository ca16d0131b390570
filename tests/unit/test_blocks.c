/* test_blocks.c - block types of GGUF: sizes, and the numbers that the package gguf decodes */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tensor/tensor.h"

#include "gguf_blocks.h"

enum { CASES = sizeof cases / sizeof *cases };

static void types_have_blocks(void **state)
{
    (void)state;
    assert_int_equal(CASES, XD_NDTYPES - XD_Q8_0);
    for (int i = 0; i < CASES; i++) {
        xd_dtype t = cases[i].type;
        assert_int_equal(cases[i].n % xd_dtype_block(t), 0);
        assert_int_equal(xd_dtype_bytes(t, cases[i].n), cases[i].size);
        assert_int_equal(xd_dtype_block_bytes(t) * 2, cases[i].size);
        assert_int_equal(xd_dtype_size(t), 0);
    }
    assert_int_equal(xd_dtype_block(XD_BF16), 1);
    assert_int_equal(xd_dtype_block_bytes(XD_BF16), 2);
    assert_int_equal(xd_dtype_bytes(XD_BF16, 7), 14);
    assert_string_equal(xd_dtype_name(XD_Q4_K), "q4_k");
    assert_string_equal(xd_dtype_name(XD_IQ4_XS), "iq4_xs");
}

static void views_of_blocks(void **state)
{
    (void)state;
    char      bytes[3 * 2 * 34];
    xd_tensor t = xd_view2(bytes, XD_Q8_0, 3, 64);
    assert_int_equal(xd_bytes(t), sizeof bytes);
    t = xd_rows(t, 2, 1);
    assert_ptr_equal(t.p, bytes + 2 * 68);
    assert_int_equal(xd_bytes(t), 68);
}

/* Two blocks of each type, read from an odd address. */
static void shown_blocks_decode(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        char     at[2 * 256 + 1];
        float    got[2 * 256];
        uint16_t half[2 * 256];
        int64_t  n = cases[i].n;
        memcpy(at + 1, cases[i].bytes, cases[i].size);
        xd_convert(got, XD_F32, at + 1, cases[i].type, n);
        assert_memory_equal(got, cases[i].bits, (size_t)n * 4);
        xd_convert(half, XD_BF16, at + 1, cases[i].type, n);
        for (int64_t k = 0; k < n; k++)
            assert_int_equal(half[k], xd_f32_bf16(got[k]));
    }
}

static uint64_t fnv(const void *p, size_t n)
{
    const uint8_t *b = p;
    uint64_t       h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++)
        h = (h ^ b[i]) * UINT64_C(0x100000001b3);
    return h;
}

/* The generator of tools/gguf_blocks.py. */
static void make_blocks(uint8_t *p, size_t size, const int half[2])
{
    uint32_t x = 1;
    for (size_t i = 0; i < BLOCKS * size; i++) {
        x = x * 1664525u + 1013904223u;
        p[i] = (uint8_t)(x >> 24);
    }
    for (int h = 0; h < 2; h++)
        for (size_t b = 0; half[h] >= 0 && b < BLOCKS; b++)
            p[b * size + (size_t)half[h] + 1] &= 0xbf;
}

static void many_blocks_decode(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        size_t    size = cases[i].size / 2;
        int64_t   n = BLOCKS * cases[i].n / 2;
        uint8_t  *p = malloc(BLOCKS * size);
        float    *got = malloc((size_t)n * 4);
        uint16_t *half = malloc((size_t)n * 2);
        assert_true(p && got && half);
        make_blocks(p, size, cases[i].half);
        assert_memory_equal(p, cases[i].bytes, cases[i].size);
        xd_convert(got, XD_F32, p, cases[i].type, n);
        assert_true(fnv(got, (size_t)n * 4) == cases[i].hash);
        xd_convert(half, XD_F16, p, cases[i].type, n); /* more than one piece */
        for (int64_t k = 0; k < n; k++)
            assert_int_equal(half[k], xd_f32_f16(got[k]));
        free(p);
        free(got);
        free(half);
    }
}

/* Elements that begin and end anywhere, of blocks and of plain types. */
static void parts_of_blocks_decode(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        const float *all = (const float *)(const void *)cases[i].bits;
        int64_t      n = cases[i].n;
        float        got[2 * 256];
        for (int64_t first = 0; first < n; first += 7)
            for (int64_t m = 0; first + m <= n; m += 1 + m / 3) {
                got[m < n ? m : 0] = 12345;
                xd_convert_at(got, XD_F32, cases[i].bytes, cases[i].type, first, m);
                assert_memory_equal(got, all + first, (size_t)m * 4);
                assert_true(m == n || got[m] == 12345);
            }
    }
    uint16_t half[3];
    xd_convert_at(half, XD_BF16, (float[]){ 1, 2, 3, 4 }, XD_F32, 1, 3);
    assert_true(xd_bf16_f32(half[0]) == 2 && xd_bf16_f32(half[2]) == 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_have_blocks),      cmocka_unit_test(views_of_blocks),
        cmocka_unit_test(shown_blocks_decode),    cmocka_unit_test(many_blocks_decode),
        cmocka_unit_test(parts_of_blocks_decode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
