/* machine.c - reads the description of a machine from a file or makes it from a name, and writes
 * it */
#include "predict/machine.h"

#include <math.h>
#include <string.h>

/* ---- reading files ------------------------------------------------------------------------ */

#define AT(type, member) offsetof(type, member)

static const xd_field rate_fields[] = {
    { "gemm_flops", AT(xd_rates, gemm), 'd', 0, NULL },
    { "gemm_half_rows", AT(xd_rates, gemm_rows), 'd', 0, NULL },
    { "attention_flops_64", AT(xd_rates, attn[0]), 'd', 0, NULL },
    { "attention_flops_128", AT(xd_rates, attn[1]), 'd', 0, NULL },
    { "attention_half_keys", AT(xd_rates, attn_keys), 'd', 0, NULL },
    { "convolution_flops", AT(xd_rates, conv), 'd', 0, NULL },
    { "memory_bandwidth", AT(xd_rates, bytes), 'd', 0, NULL },
    { "call_seconds", AT(xd_rates, call_s), 'd', 0, NULL },
    { "norm_bandwidth", AT(xd_rates, norm), 'd', 0, NULL },
    { "group_norm_bandwidth", AT(xd_rates, gnorm), 'd', 0, NULL },
    { "activation_bandwidth", AT(xd_rates, act), 'd', 0, NULL },
    { "weight_bandwidth", AT(xd_rates, weights), 'd', 0, NULL },
    { "attention_half_queries", AT(xd_rates, attn_rows), 'd', 0, NULL },
    { "int8_speedup", AT(xd_rates, int8), 'd', 0, NULL },
    { "fp8_speedup", AT(xd_rates, fp8), 'd', 0, NULL },
    { "fp8_gemm_speedup", AT(xd_rates, fp8_gemm), 'd', 0, NULL },
    { "convolution_3d_flops", AT(xd_rates, conv_3d), 'd', 0, NULL },
    { "convolution_half_rows", AT(xd_rates, conv_rows), 'd', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

static const xd_field wire_fields[] = {
    { "latency_seconds", AT(xd_wire, latency_s), 'd', 0, NULL },
    { "bandwidth", AT(xd_wire, bytes), 'd', 0, NULL },
    { "overlap", AT(xd_wire, overlap), 'd', 0, NULL },
    { "shared_bandwidth", AT(xd_wire, shared), 'd', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

static const xd_field fields[] = {
    { "name", AT(xd_machine, name), 's', 0, "cluster" },
    { "device", AT(xd_machine, device), 's', 0, "" },
    { "hosts", AT(xd_machine, hosts), 'i', 1, NULL },
    { "ranks_per_host", AT(xd_machine, ranks), 'i', 1, NULL },
    { "threads_per_rank", AT(xd_machine, threads), 'i', 0, NULL },
    { "memory", AT(xd_machine, memory), 'd', 0, NULL },
    { "shared_weights", AT(xd_machine, shares), 'b', 0, NULL },
    { "weight_cache", AT(xd_machine, cache), 'd', 0, NULL },
    { "read_bytes_per_second", AT(xd_machine, read), 'd', 0, NULL },
    { "upload_bytes_per_second", AT(xd_machine, upload), 'd', 0, NULL },
    { "download_bytes_per_second", AT(xd_machine, download), 'd', 0, NULL },
    { "alone_speedup", AT(xd_machine, alone), 'd', 1, NULL },
    { "f32", 0, '-', 0, NULL },
    { "bf16", 0, '-', 0, NULL },
    { "inside", 0, '-', 0, NULL },
    { "between", 0, '-', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

static xd_status check_positive(double v, const char *what, const char *key, const char *in,
                                xd_err *e)
{
    if (v > 0 && isfinite(v))
        return XD_OK;
    return xd_fail(e, XD_EFORMAT, "%s: %s%s%s is %g; it must be above 0", what, in, *in ? "." : "",
                   key, v);
}

static xd_status check_rates(const xd_rates *r, const char *what, const char *in, xd_err *e)
{
    xd_status s = check_positive(r->gemm, what, "gemm_flops", in, e);
    for (int i = 0; i < 2 && s == XD_OK; i++)
        s = check_positive(r->attn[i], what, i ? "attention_flops_128" : "attention_flops_64", in,
                           e);
    if (s == XD_OK)
        s = check_positive(r->conv, what, "convolution_flops", in, e);
    if (s == XD_OK)
        s = check_positive(r->bytes, what, "memory_bandwidth", in, e);
    if (s == XD_OK &&
        !(r->gemm_rows >= 0 && r->attn_keys >= 0 && r->call_s >= 0 && r->call_s < 1 &&
          r->norm >= 0 && r->gnorm >= 0 && r->act >= 0 && r->weights >= 0 && r->attn_rows >= 0 &&
          r->int8 >= 0 && r->fp8 >= 0 && r->fp8_gemm >= 0 && r->conv_3d >= 0 && r->conv_rows >= 0))
        s = xd_fail(e, XD_EFORMAT,
                    "%s: %s has an invalid gemm_half_rows, attention_half_keys, call_seconds, "
                    "bandwidth, speedup or convolution; they must be at least 0",
                    what, in);
    return s;
}

static xd_status check_wire(const xd_wire *w, const char *what, const char *in, xd_err *e)
{
    xd_status s = check_positive(w->bytes, what, "bandwidth", in, e);
    if (s == XD_OK && !(w->latency_s >= 0 && w->latency_s < 10 && w->overlap >= 0 &&
                        w->overlap <= 1 && w->shared >= 0 && isfinite(w->shared)))
        s = xd_fail(e, XD_EFORMAT,
                    "%s: %s.latency_seconds is %g, overlap %g and shared_bandwidth %g; the first "
                    "and the last must be at least 0, the second from 0 to 1",
                    what, in, w->latency_s, w->overlap, w->shared);
    return s;
}

xd_status xd_machine_check(const xd_machine *m, const char *what, xd_err *e)
{
    if (m->hosts < 1 || m->ranks < 1 || m->hosts > 65536 || m->ranks > 65536)
        return xd_fail(e, XD_EFORMAT, "%s: hosts is %d and ranks %d; both must be from 1 to 65536",
                       what, m->hosts, m->ranks);
    xd_status s = check_positive(m->memory, what, "memory", "", e);
    if (s == XD_OK)
        s = check_positive(m->alone, what, "alone_speedup", "", e);
    if (s == XD_OK && !(m->read >= 0 && isfinite(m->read)))
        s = xd_fail(e, XD_EFORMAT,
                    "%s: read_bytes_per_second is %g; it must be 0 (unknown) or more", what,
                    m->read);
    if (s == XD_OK &&
        !(m->upload >= 0 && isfinite(m->upload) && m->download >= 0 && isfinite(m->download)))
        s = xd_fail(e, XD_EFORMAT,
                    "%s: upload_bytes_per_second is %g and download_bytes_per_second %g; both must "
                    "be 0 (unknown) or more",
                    what, m->upload, m->download);
    if (s == XD_OK)
        s = check_rates(&m->f32, what, "f32", e);
    if (s == XD_OK)
        s = check_rates(&m->bf16, what, "bf16", e);
    if (s == XD_OK)
        s = check_wire(&m->inside, what, "inside", e);
    return s == XD_OK ? check_wire(&m->between, what, "between", e) : s;
}

/* Reads the rates and links of a machine. If the file has the rates of only one compute type, or
 * only one link, the other compute type or link gets the same values. */
static xd_status read_parts(xd_machine *m, const xd_json *j, const char *path, xd_err *e)
{
    static const char *const names[] = { "f32", "bf16", "inside", "between" };
    void *const              at[] = { &m->f32, &m->bf16, &m->inside, &m->between };
    for (int i = 0; i < 4; i++) {
        const xd_json *v = xd_json_get(j, names[i]);
        const xd_json *other = xd_json_get(j, names[i ^ 1]);
        if (!v && !other)
            return xd_fail(e, XD_EFORMAT, "%s: %s or %s is required", path, names[i], names[i ^ 1]);
        v = v ? v : other;
        if (!xd_json_is_object(v))
            return xd_fail(e, XD_EFORMAT, "%s: %s must be a JSON object", path,
                           names[v == other ? i ^ 1 : i]);
        xd_status s = xd_fields_read(i < 2 ? rate_fields : wire_fields, at[i], v, path, e);
        if (s != XD_OK)
            return s;
    }
    return XD_OK;
}

static xd_status no_such(const char *name, xd_err *e)
{
    xd_text_buf b = { 0 };
    for (int i = 0; xd_machine_device(i); i++)
        xd_buf_add(&b, "%s%s", i ? ", " : "", xd_machine_device(i));
    xd_status s = xd_fail(e, XD_EINVAL,
                          "unknown cluster %s; use a name as H100, 8xH100 or 2x8xL40 "
                          "(2 hosts), or a file of `xdit probe`; known devices: %s",
                          name, b.p ? b.p : "");
    xd_buf_free(&b);
    return s;
}

xd_status xd_machine_read(xd_machine *m, const char *name, xd_err *e)
{
    xd_json *j = NULL;
    memset(m, 0, sizeof *m);
    if (xd_machine_known(m, name))
        return XD_OK;
    if (!strchr(name, '/') && !strchr(name, '.'))
        return no_such(name, e);
    xd_status s = xd_json_read(&j, name, e);
    if (s == XD_OK && !xd_json_is_object(j))
        s = xd_fail(e, XD_EFORMAT, "%s: it is no object", name);
    if (s == XD_OK)
        s = xd_fields_read(fields, m, j, name, e);
    if (s == XD_OK)
        s = read_parts(m, j, name, e);
    if (s == XD_OK)
        s = xd_machine_check(m, name, e);
    xd_json_free(&j);
    return s;
}

/* ---- writing files ------------------------------------------------------------------------ */

static void write_object(xd_text_buf *out, const char *key, const xd_field *f, const void *v)
{
    xd_buf_add(out, ",\n  \"%s\": {", key);
    for (int i = 0; f[i].json; i++)
        xd_buf_add(out, "%s\"%s\": %.6g",
                   i == 0  ? " "
                   : i % 4 ? ", "
                           : ",\n    ",
                   f[i].json, *(const double *)(const void *)((const char *)v + f[i].off));
    xd_buf_add(out, " }");
}

void xd_machine_write(const xd_machine *m, xd_text_buf *out)
{
    xd_buf_add(out, "{\n  \"name\": ");
    xd_buf_json_string(out, m->name);
    if (m->device[0]) {
        xd_buf_add(out, ",\n  \"device\": ");
        xd_buf_json_string(out, m->device);
    }
    xd_buf_add(out,
               ",\n  \"hosts\": %d, \"ranks_per_host\": %d, \"threads_per_rank\": %d,\n"
               "  \"memory\": %.0f, \"shared_weights\": %s, \"weight_cache\": %.0f, "
               "\"alone_speedup\": %.4g,\n"
               "  \"read_bytes_per_second\": %.0f",
               m->hosts, m->ranks, m->threads, m->memory, m->shares ? "true" : "false", m->cache,
               m->alone, m->read);
    if (m->upload > 0 || m->download > 0)
        xd_buf_add(out,
                   ",\n  \"upload_bytes_per_second\": %.0f, \"download_bytes_per_second\": %.0f",
                   m->upload, m->download);
    write_object(out, "f32", rate_fields, &m->f32);
    write_object(out, "bf16", rate_fields, &m->bf16);
    write_object(out, "inside", wire_fields, &m->inside);
    write_object(out, "between", wire_fields, &m->between);
    xd_buf_add(out, "\n}\n");
}
