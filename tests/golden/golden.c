/* golden.c - TAP lines, and readers of reference files */
#include "golden.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/tensor.h"

/* ---- TAP ------------------------------------------------------------------------------------ */

static int checks, failures;

int tap(int ok, const char *fmt, ...)
{
    va_list ap;
    checks++;
    failures += !ok;
    printf("%sok %d - ", ok ? "" : "not ", checks);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
    fflush(stdout);
    return ok;
}

void tap_note(const char *fmt, ...)
{
    va_list ap;
    printf("# ");
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
    fflush(stdout);
}

int tap_end(void)
{
    printf("1..%d\n", checks);
    return failures || !checks;
}

int tap_skip_isa(void)
{
    const char *isa = getenv("XDIT_ISA");
    int         has = 1;
#if defined(__x86_64__) && defined(__GNUC__)
    if (isa && strcmp(isa, "avx2") == 0)
        has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    else if (isa && strcmp(isa, "avx512") == 0)
        has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
    has = !isa || strcmp(isa, "c") == 0;
#endif
    if (!has)
        printf("1..0 # SKIP this processor has no %s\n", isa);
    return !has;
}

int tap_only_bf16(void)
{
    const char *how = getenv("XDIT_BF16");
    return how && strcmp(how, "emulate") == 0;
}

const char *tap_dtype(const xd_result *r, const char *asked)
{
    xd_json    *j = NULL;
    xd_err      e = { 0 };
    const char *text = xd_result_json(r, 0);
    must(xd_json_parse(&j, text, strlen(text), "the image's JSON", &e), &e, "parameters");
    const char *is = js_text(j, "dtype");
    const char *used = strcmp(is, "bf16") == 0 ? "bf16" : strcmp(is, "f16") == 0 ? "f16" : "f32";
    xd_json_free(&j);
    if (strcmp(used, asked) != 0 && tap_only_bf16())
        tap(0, "XDIT_BF16=emulate: %s was asked for, %s was used", asked, used);
    else if (strcmp(used, asked) != 0)
        tap_note("%s was asked for; with these kernels it is computed in %s", asked, used);
    return used;
}

/* ---- references ------------------------------------------------------------------------------ */

void must(xd_status s, const xd_err *e, const char *what)
{
    if (s == XD_OK)
        return;
    printf("Bail out! %s: %s\n", what, e->msg);
    exit(1);
}

/* One element of a number type that the reference files use. */
static float element(const void *p, xd_dtype t, int64_t i)
{
    if (t == XD_U8)
        return ((const uint8_t *)p)[i];
    if (t == XD_I32) {
        int32_t v;
        memcpy(&v, (const char *)p + i * (int64_t)sizeof v, sizeof v);
        return (float)v;
    }
    float f;
    memcpy(&f, (const char *)p + i * (int64_t)sizeof f, sizeof f);
    return f;
}

ref ref_get(xd_st *st, const char *fmt, ...)
{
    char      name[128];
    va_list   ap;
    ref       r = { 0 };
    xd_tensor t;
    xd_err    e = { 0 };
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    int64_t at = xd_st_find(st, name);
    if (at < 0)
        return r;
    must(xd_st_get(st, at, &t, &e), &e, name);
    if (t.type != XD_F32 && t.type != XD_U8 && t.type != XD_I32) {
        printf("Bail out! %s has type %s\n", name, xd_dtype_name(t.type));
        exit(1);
    }
    r.n = xd_count(t);
    r.nd = t.nd;
    memcpy(r.d, t.d, sizeof r.d);
    r.v = malloc((size_t)r.n * sizeof *r.v + 1);
    for (int64_t i = 0; r.v && i < r.n; i++) {
        r.v[i] = element(t.p, t.type, i);
        r.most = fmaxf(r.most, fabsf(r.v[i]));
    }
    xd_st_done(st, at);
    return r;
}

void ref_free(ref *r)
{
    free(r->v);
    r->v = NULL;
}

double ref_apart(const float *a, int nd, const int64_t *d, const ref *b)
{
    double worst = 0;
    if (!b->v || nd != b->nd)
        return INFINITY;
    for (int i = 0; i < nd; i++)
        if (d[i] != b->d[i])
            return INFINITY;
    for (int64_t i = 0; i < b->n; i++) {
        if (!isfinite(a[i]))
            return INFINITY;
        worst = fmax(worst, fabs((double)a[i] - (double)b->v[i]));
    }
    return worst / (b->most > 0 ? (double)b->most : 1);
}

int levels_apart(const uint8_t *a, int64_t h, int64_t w, const ref *b)
{
    int worst = 0;
    if (!a || !b->v || b->nd != 3 || b->d[0] != h || b->d[1] != w || b->d[2] != 3)
        return 256;
    for (int64_t i = 0; i < b->n; i++) {
        int gap = abs((int)a[i] - (int)b->v[i]);
        worst = gap > worst ? gap : worst;
    }
    return worst;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void absent(const char *key)
{
    printf("Bail out! the reference has no usable \"%s\"\n", key);
    exit(1);
}

double js_num(const xd_json *j, const char *key)
{
    double v = 0;
    if (!xd_json_number(xd_json_get(j, key), &v))
        absent(key);
    return v;
}

double js_maybe(const xd_json *j, const char *key)
{
    double v = 0;
    int    on = 0;
    if (xd_json_bool(xd_json_get(j, key), &on))
        return on;
    xd_json_number(xd_json_get(j, key), &v);
    return v;
}

const char *js_text(const xd_json *j, const char *key)
{
    const xd_json *v = xd_json_get(j, key);
    if (!v || (!xd_json_null(v) && !xd_json_text(v)))
        absent(key);
    return xd_json_text(v);
}

int js_flag(const xd_json *j, const char *key)
{
    int v = 0;
    if (!xd_json_bool(xd_json_get(j, key), &v))
        absent(key);
    return v;
}

const xd_json *js_list(const xd_json *j, const char *key)
{
    const xd_json *v = xd_json_get(j, key);
    if (!v || xd_json_size(v) < 1)
        absent(key);
    return v;
}

xd_json *js_open(const char *path)
{
    xd_json *j = NULL;
    xd_err   e = { 0 };
    must(xd_json_read(&j, path, &e), &e, path);
    return j;
}
