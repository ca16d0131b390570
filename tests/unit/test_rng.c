/* test_rng.c - noise against literals of torch 2, Philox against its published vectors. */
#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* torch.randn(n, generator=torch.Generator("cpu").manual_seed(seed)): below 16 values, 16, not a
 * multiple of 16, a negative seed and one above 32 bits. */
static const float n5[] = {
    1.54099607f, -0.293428898f, -2.17878938f, 0.568431258f, -1.08452237f,
};
static const float n15[] = {
    -0.146795094f, 0.786141276f,  0.94682163f,  -1.114344f,   1.69079018f,
    -0.894827902f, -0.355625033f, 1.23238575f,  0.138172656f, -1.68219852f,
    0.317678303f,  0.132806972f,  0.137324095f, 0.240546122f, 1.39545083f,
};
static const float n16[] = {
    1.92691529f,    1.48728406f,   0.900717199f,  -2.10552096f, 0.678418458f,  -1.23454487f,
    -0.0430674776f, -1.60466695f,  -0.752135277f, 1.64872301f,  -0.392478645f, -1.40360713f,
    -0.727881312f,  -0.559430182f, -0.768838882f, 0.76244539f,
};
static const float n19[] = {
    -0.312222302f, -0.496578783f, 0.111823097f,   -0.749153376f, 0.669074833f,
    1.52893245f,   1.8194896f,    -0.839518309f,  -1.02473366f,  1.32375228f,
    -1.1704601f,   -0.736491442f, -0.0137176421f, -1.20012295f,  1.55235279f,
    -3.68943906f,  0.652630627f,  0.101756021f,   1.31300819f,
};
static const float n40[] = {
    -0.51079756f,  1.02827179f,   -0.35315159f,  0.122991316f,    -0.181554466f, -1.49722815f,
    0.142104536f,  -0.524282455f, -0.248737112f, -0.52523762f,    2.89221358f,   -0.59471339f,
    1.31183314f,   0.352179378f,  -1.31512427f,  -0.00799220521f, 0.247880027f,  1.57270348f,
    -1.6394645f,   -1.59253228f,  -0.154625118f, -1.09643877f,    1.36659765f,   0.68928194f,
    -0.724457979f, 0.769076586f,  -1.13963807f,  -0.134665698f,   -0.687115669f, -0.800039828f,
    -1.36922145f,  -0.324503303f, -0.430130541f, 1.77983487f,     0.0572894178f, -0.641932011f,
    0.186399981f,  1.0097872f,    0.145862922f,  -0.638827741f,
};
static const struct {
    const float *want;
    int64_t      n, seed;
} torch_cases[] = {
    { n5, 5, 0 },
    { n15, 15, 7 },
    { n16, 16, 42 },
    { n19, 19, -3 },
    { n40, 40, (INT64_C(1) << 40) + 11 },
};

static const double tol = 1e-6; /* absolute: torch's own log and sine are f32 */

static void equal_torch(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof torch_cases / sizeof *torch_cases; c++) {
        float got[41];
        got[torch_cases[c].n] = 77;
        xd_noise_torch(got, torch_cases[c].n, torch_cases[c].seed, 0);
        for (int64_t i = 0; i < torch_cases[c].n; i++)
            if (!(fabs((double)got[i] - (double)torch_cases[c].want[i]) <= tol))
                fail_msg("case %zu, value %lld: %.9g, torch has %.9g", c, (long long)i,
                         (double)got[i], (double)torch_cases[c].want[i]);
        assert_true(got[torch_cases[c].n] == 77);
    }
}

static void equal_torch_large(void **state)
{
    static const struct {
        int64_t at;
        double  want;
    } some[] = {
        { 0, -0.1117185652256012 },     { 1, -0.49659010767936707 },
        { 777, 1.3578860759735107 },    { 50000, 1.8074027299880981 },
        { 99983, 0.5155075788497925 },  { 99986, 1.1382883787155151 },
        { 99987, 0.999052107334137 },   { 100000, -0.7698737382888794 },
        { 100002, 1.8145391941070557 },
    };
    enum { N = 100003 };
    float *v = malloc(N * sizeof *v);
    (void)state;
    assert_non_null(v);
    xd_noise_torch(v, N, 1234, 0);
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += (double)v[i];
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        assert_true(fabs((double)v[some[i].at] - some[i].want) <= tol);
    assert_true(fabs(sum - 363.40882636390324) <= 1e-3);
    free(v);
}

static void seeds_wrap_like_torch(void **state)
{
    float a[20], b[20];
    (void)state;
    xd_noise_torch(a, 20, -1, 0); /* torch takes the low 32 bits of the seed */
    xd_noise_torch(b, 20, INT64_C(0xffffffff), 0);
    assert_memory_equal(a, b, sizeof a);
    xd_noise_torch(b, 20, 1, 0);
    assert_true(memcmp(a, b, sizeof a) != 0);
}

/* Random123's known answers for Philox 4x32-10: counter and key of zeros give
 * 6627e8d5 e169c58d bc57ac4c 9b00dbd8. */
static void philox_words(void **state)
{
    static const double u[] = { 0x6627e8d5p0, 0xe169c58dp0, 0xbc57ac4cp0, 0x9b00dbd8p0 };
    float               got[4];
    (void)state;
    xd_noise_philox(got, 0, 4, 0);
    for (int i = 0; i < 4; i += 2) {
        double r = sqrt(-2 * log((u[i] + 0.5) / 4294967296.0));
        double a = 6.283185307179586 * u[i + 1] / 4294967296.0;
        assert_true(fabs((double)got[i] - r * cos(a)) < 1e-6);
        assert_true(fabs((double)got[i + 1] - r * sin(a)) < 1e-6);
    }
}

static void philox_ranges(void **state)
{
    enum { N = 203 };
    float whole[N], part[N];
    (void)state;
    for (int far = 0; far < 2; far++) {
        int64_t base = far ? (INT64_C(1) << 36) + 3 : 0; /* above 32 bits of counter */
        xd_noise_philox(whole, base, N, -99);
        for (int first = 0; first < 9; first++)
            for (int n = 0; n <= N - first; n += 1 + n / 7) {
                part[n < N ? n : N - 1] = 77;
                xd_noise_philox(part, base + first, n, -99);
                assert_memory_equal(part, whole + first, (size_t)n * sizeof *part);
                if (n < N)
                    assert_true(part[n] == 77);
            }
    }
}

/* Mean, variance, skewness, kurtosis and the share beyond two deviations of 2^18 values: each
 * bound is more than four standard errors wide; also no correlation of neighbours or seeds. */
static void philox_is_normal(void **state)
{
    enum { N = 1 << 18 };
    float *v = malloc(N * sizeof *v), *w = malloc(N * sizeof *w);
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0, tail = 0, near = 0, seeds = 0;
    (void)state;
    assert_non_null(v);
    assert_non_null(w);
    xd_noise_philox(v, 0, N, 5);
    xd_noise_philox(w, 0, N, 6);
    for (int i = 0; i < N; i++) {
        double a = (double)v[i], b = (double)v[(i + 1) % N];
        assert_true(isfinite(a));
        m1 += a / N, m2 += a * a / N, m3 += a * a * a / N, m4 += a * a * a * a / N;
        tail += fabs(a) > 2 ? 1.0 / N : 0;
        near += a * b / N;
        seeds += a * (double)w[i] / N;
    }
    assert_true(fabs(m1) < 0.009 && fabs(m2 - 1) < 0.012);
    assert_true(fabs(m3) < 0.035 && fabs(m4 - 3) < 0.09);
    assert_true(fabs(tail - 0.0455) < 0.002);
    assert_true(fabs(near) < 0.009 && fabs(seeds) < 0.009);
    free(v);
    free(w);
}

static void hashes(void **state)
{
    (void)state;
    assert_true(xd_hash_text("a.weight") == xd_hash_text("a.weight"));
    assert_true(xd_hash_text("a.weight") != xd_hash_text("a.bias"));
    assert_true(xd_hash_text("") != xd_hash_text("a"));
    int ones = 0; /* each bit is set in about half of the values */
    for (uint64_t i = 0; i < 4096; i++)
        for (uint64_t h = xd_hash_mix(7, i); h; h &= h - 1)
            ones++;
    assert_true(abs(ones - 4096 * 32) < 1100);
    assert_true(xd_hash_mix(7, 1) != xd_hash_mix(8, 1) && xd_hash_mix(7, 1) != xd_hash_mix(7, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_torch),
        cmocka_unit_test(equal_torch_large),
        cmocka_unit_test(seeds_wrap_like_torch),
        cmocka_unit_test(philox_words),
        cmocka_unit_test(philox_ranges),
        cmocka_unit_test(philox_is_normal),
        cmocka_unit_test(hashes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
