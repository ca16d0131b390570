/* ask_plans.c - whether the real cuDNN compiles the attention of every family, and convolutions of
 * autoencoders, for a GPU that is not there (check_plans.py)
 *
 * usage: ask_plans LIBRARY PROPERTIES: the file of libcudnn.so.9, and the properties of a GPU as
 * JSON. Prints a line for each shape. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cudnn_plan.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/library.h"

static const xd_symbol symbols[] = {
#define ROW(ret, name, args) { #name, offsetof(xd_cudnn, name) },
    XD_CUDNN_FUNCTIONS(ROW)
#undef ROW
};

/* row: elements between the rows of q, k and v; heads lie side by side in them. */
typedef struct question {
    const char *name;
    int         takes, B, H, Hk, D, n, m, row, type, lengths, lse;
} question;

static const question all[] = {
    { "FLUX.1 1024 x 1024, fused q, k, v", 1, 1, 24, 24, 128, 4608, 4608, 9216, XD_BF16, 0, 0 },
    { "a ring's part of its queries", 1, 1, 24, 24, 128, 1537, 4608, 9216, XD_BF16, 0, 1 },
    { "SD3, an odd number of rows", 1, 2, 24, 24, 64, 4429, 4429, 4608, XD_BF16, 0, 1 },
    { "PixArt, text of two lengths", 1, 2, 16, 16, 72, 4096, 300, 1152, XD_BF16, 1, 0 },
    { "HunyuanDiT in f16", 1, 2, 16, 16, 88, 4096, 4096, 4224, XD_F16, 0, 0 },
    { "CogVideoX-5b", 1, 1, 48, 48, 64, 17776, 17776, 9216, XD_BF16, 0, 0 },
    { "Wan 2.1 14B, text", 1, 1, 40, 40, 128, 32760, 512, 5120, XD_BF16, 0, 0 },
    { "grouped heads", 1, 1, 32, 8, 128, 2048, 2048, 4096, XD_BF16, 1, 1 },
    { "one head of 256 elements", 1, 1, 1, 1, 256, 2000, 2000, 256, XD_BF16, 0, 0 },
    { "heads of 8 elements", 1, 1, 3, 3, 8, 2000, 2000, 72, XD_BF16, 0, 1 },
    { "heads of 12 elements", 0, 1, 2, 2, 12, 2000, 2000, 24, XD_BF16, 0, 0 },
};

static xd_cudnn_shape shape_of(const question *q)
{
    const int64_t      own = q->H * q->D;
    xd_cudnn_shape     shape;
    xd_cudnn_attention s;
    memset(&shape, 0, sizeof shape);
    memset(&s, 0, sizeof s);
    s.n = q->n, s.m = q->m, s.B = q->B, s.H = q->H, s.Hk = q->Hk, s.D = q->D;
    s.type = q->type, s.lengths = q->lengths;
    s.q[0] = (int64_t)q->n * q->row, s.k[0] = s.v[0] = (int64_t)q->m * q->row;
    s.q[1] = s.k[1] = s.v[1] = q->row;
    s.q[2] = s.k[2] = s.v[2] = s.out[2] = q->D;
    s.out[0] = q->n * own, s.out[1] = own;
    if (q->lse)
        s.lse[0] = (int64_t)q->n * q->H, s.lse[1] = q->H, s.lse[2] = 1;
    shape.op = XD_OP_ATTN;
    memcpy(&shape.of.attention, &s, sizeof s);
    return shape;
}

/* A window of `size` at each of 2 or 3 axes; before and after are the zeros around h and w. */
typedef struct conv_question {
    const char *name;
    int         takes, axes, T, H, W, C, O, size, stride, before, after, bias, residual, gap;
} conv_question;

static const conv_question convs[] = {
    { "FLUX.1's decoder, bias and residual", 1, 2, 1, 128, 128, 512, 512, 3, 1, 1, 1, 2, 1, 0 },
    { "the same with a bias of f32", 1, 2, 1, 512, 512, 256, 256, 3, 1, 1, 1, 1, 1, 0 },
    { "a bias alone", 1, 2, 1, 1024, 1024, 128, 128, 3, 1, 1, 1, 2, 0, 0 },
    { "the first band of an image", 1, 2, 1, 64, 1024, 128, 128, 3, 1, 1, 1, 2, 1, 0 },
    { "an encoder's stride, zeros after", 1, 2, 1, 512, 512, 128, 128, 3, 2, 0, 1, 2, 0, 0 },
    { "a shortcut of one tap", 1, 2, 1, 512, 512, 512, 256, 1, 1, 0, 0, 2, 0, 0 },
    { "four frames", 1, 2, 4, 60, 90, 384, 384, 3, 1, 1, 1, 2, 1, 0 },
    { "a video's volume, zeros before time", 1, 3, 6, 60, 104, 384, 384, 3, 1, 1, 1, 2, 1, 0 },
    { "rows that lie apart", 1, 2, 1, 128, 128, 256, 256, 3, 1, 1, 1, 2, 1, 64 },
};

static xd_cudnn_shape conv_shape_of(const conv_question *q)
{
    const int64_t  width[2] = { q->C + q->gap, q->O };
    xd_cudnn_shape shape;
    xd_cudnn_conv  s;
    memset(&shape, 0, sizeof shape);
    memset(&s, 0, sizeof s);
    const int size[3] = { q->T, q->H, q->W };
    for (int i = 0; i < 3; i++) {
        const int spans = i > 0 || q->axes == 3;
        s.kernel[i] = spans ? q->size : 1, s.stride[i] = spans ? q->stride : 1;
        s.lo[i] = i ? q->before : q->axes == 3 ? q->size - 1 : 0, s.hi[i] = i ? q->after : 0;
        s.in[i] = size[i];
        s.out[i] = (size[i] + s.lo[i] + s.hi[i] - s.kernel[i]) / s.stride[i] + 1;
    }
    for (int i = 2; i >= 0; i--) {
        s.s_in[i] = i == 2 ? width[0] : s.s_in[i + 1] * s.in[i + 1];
        s.s_out[i] = i == 2 ? width[1] : s.s_out[i + 1] * s.out[i + 1];
        s.s_residual[i] = q->residual ? s.s_out[i] : 0;
    }
    s.axes = q->axes, s.C = q->C, s.O = q->O, s.type = XD_BF16;
    s.bias = q->bias, s.residual = q->residual;
    shape.op = XD_OP_CONV;
    memcpy(&shape.of.conv, &s, sizeof s);
    return shape;
}

/* Of the plan, then of its text. */
static int ask(const xd_cudnn *lib, cudnnBackendDescriptor_t gpu, const xd_cudnn_shape *s,
               const char *name, int takes)
{
    xd_cudnn_plan p, again;
    xd_err        e = { 0 };
    const double  before = xd_now_s();
    if (xd_cudnn_plan_make(lib, gpu, s, &p, &e) != XD_OK) {
        printf("%s %s: %s\n", takes ? "FAILED" : "ok", name, e.msg);
        return takes;
    }
    const double made = xd_now_s() - before;
    char        *text = xd_cudnn_plan_text(lib, &p);
    int          bad = !takes || !text || p.workspace > 32 << 20 ||
                       xd_cudnn_plan_read(lib, gpu, text, &again, &e) != XD_OK ||
                       again.workspace != p.workspace;
    printf("%s %s: %.0f ms, text of %zu bytes, %.1f ms again, workspace %lld%s%s\n",
           bad ? "FAILED" : "ok", name, made * 1e3, text ? strlen(text) : 0,
           (xd_now_s() - before - made) * 1e3, (long long)p.workspace, e.code ? ", " : "", e.msg);
    fflush(stdout);
    free(text);
    xd_cudnn_plan_drop(lib, &p);
    return bad;
}

int main(int argc, char **argv)
{
    xd_cudnn lib;
    xd_err   e = { 0 };
    char    *json = NULL;
    size_t   n = 0;
    int      bad = 0;
    void    *so = argc == 3 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!so || xd_library_find(so, symbols, sizeof symbols / sizeof *symbols, &lib) ||
        xd_file_read(argv[2], 1 << 20, &json, &n, &e) != XD_OK) {
        fprintf(stderr, "%s\n", so ? e.msg : dlerror());
        return 2;
    }
    cudnnBackendDescriptor_t gpu = xd_cudnn_device(&lib, 0, json);
    printf("cuDNN %zu\n", lib.cudnnGetVersion());
    for (size_t i = 0; i < sizeof all / sizeof *all && gpu; i++) {
        const xd_cudnn_shape s = shape_of(&all[i]);
        bad += ask(&lib, gpu, &s, all[i].name, all[i].takes);
    }
    for (size_t i = 0; i < sizeof convs / sizeof *convs && gpu; i++) {
        const xd_cudnn_shape s = conv_shape_of(&convs[i]);
        bad += ask(&lib, gpu, &s, convs[i].name, convs[i].takes);
    }
    if (!gpu)
        printf("FAILED: the properties are refused\n");
    free(json);
    return bad || !gpu;
}
