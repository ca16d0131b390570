/* xdit_rules.c - the rules of xDiT: finds the first error that xDiT would report for a command
 * line.
 *
 * The rules are applied in the order in which xDiT checks: the flags, the process groups and
 * degrees, the script, the loaded model, the pipeline's call, the first attention layer. Error
 * messages have the words of xDiT, so that users can search for them. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "from_xdit/xdit_line.h"

typedef struct judge {
    const xd_line *l;
    xd_verdict    *v;
    int            dp, cfg, uly, ring, sp, tp, pp, dit, height, width;
} judge;

/* Records an error, unless an earlier error was recorded: xDiT prints only the first error. */
XD_PRINTF(4, 5)
static void add_error(judge *j, const char *when, const char *because, const char *fmt, ...)
{
    va_list ap;
    if (j->v->when)
        return;
    j->v->when = when;
    snprintf(j->v->because, sizeof j->v->because, "%s", because);
    va_start(ap, fmt);
    vsnprintf(j->v->error, sizeof j->v->error, fmt, ap);
    va_end(ap);
}

XD_PRINTF(2, 3) static void add_note(judge *j, const char *fmt, ...)
{
    va_list ap;
    if (j->v->nnotes == (int)(sizeof j->v->note / sizeof *j->v->note))
        return;
    va_start(ap, fmt);
    vsnprintf(j->v->note[j->v->nnotes++], sizeof *j->v->note, fmt, ap);
    va_end(ap);
}

static int has_capability(const judge *j, unsigned what)
{
    return !j->l->model || (j->l->model->can & what) == what;
}

/* Returns the integer value of a flag, limited so that products do not overflow. */
static int int_of(const xd_line *l, const char *flag, int none)
{
    int n = xd_line_int(l, flag, none);
    return n > 20000 ? 20000 : n < -20000 ? -20000 : n;
}

static const char at_flags[] = "when its flags are read, in every process";
static const char at_start[] = "at the start, in every process, after the process groups are made";
static const char at_load[] = "when the whole model has been loaded, in every process";
static const char at_call[] = "when the request begins, after loading";
static const char at_step[] = "in the first step";

/* ---- degrees --------------------------------------------------------------------------------- */

/* Describes the product of the parallel degrees and the number of processes: "cfg 2 x ulysses 2 = 4
 * and there are 2 processes". */
static void sum_up(const judge *j, char *text, size_t size)
{
    const struct {
        const char *name;
        int         n;
    } part[] = {
        { "data", j->dp },   { "cfg", j->cfg },   { "ulysses", j->uly },
        { "ring", j->ring }, { "tensor", j->tp }, { "pipefusion", j->pp },
    };
    size_t at = 0;
    text[0] = 0;
    for (size_t i = 0; i < sizeof part / sizeof *part && at < size; i++)
        if (part[i].n != 1)
            at += (size_t)snprintf(text + at, size - at, "%s%s %d", at ? " x " : "", part[i].name,
                                   part[i].n);
    if (at < size)
        snprintf(text + at, size - at, "%s%d and there %s %d process%s%s",
                 at ? " = " : "the degrees make ", xd_line_product(j->l),
                 j->dit == 1 ? "is" : "are", j->dit, j->dit == 1 ? "" : "es",
                 j->cfg == 2 ? " (--use_cfg_parallel doubles)" : "");
}

static void check_sizes(judge *j)
{
    const xd_line *l = j->l;
    int asked = int_of(l, "dit_parallel_size", 0), vae = int_of(l, "vae_parallel_size", 0);
    j->dit = asked;
    if (!asked && (!xd_line_on(l, "use_parallel_vae") || !vae))
        j->dit = l->world;
    if (j->dit + vae != l->world)
        add_error(j, at_start,
                  "--dit_parallel_size and --vae_parallel_size must add up to the processes",
                  "DIT parallel size %d and VAE parallel size %d must sum to world size %d", j->dit,
                  vae, l->world);
}

static void check_schedules(judge *j)
{
    const xd_line *l = j->l;
    const char    *low = xd_line_text(l, "hybrid_attn_low_precision_backend");
    const char    *high = xd_line_text(l, "hybrid_attn_high_precision_backend");
    if (xd_line_on(l, "use_hybrid_attn_schedule")) {
        if (xd_line_text(l, "attention_backend"))
            add_error(j, at_start, "",
                      "When use_hybrid_attn_schedule is True, attention_backend must not be set.");
        if (xd_line_text(l, "hybrid_attn_schedule") && (low || high))
            add_error(
                j, at_start, "",
                "When an explicit hybrid attention schedule is provided, neither "
                "hybrid_attn_low_precision_backend nor hybrid_attn_high_precision_backend may be "
                "set.");
        if (!xd_line_text(l, "hybrid_attn_schedule") && !(low && high))
            add_error(
                j, at_start, "",
                "When use_hybrid_attn_schedule is True, both hybrid_attn_low_precision_backend "
                "and hybrid_attn_high_precision_backend must be set.");
    }
    if (xd_line_on(l, "use_hybrid_gemm_schedule") && !xd_line_on(l, "use_fp4_gemms"))
        add_error(j, at_start, "",
                  "When use_hybrid_gemm_schedule is True, use_fp4_gemms must be set.");
    if ((xd_line_text(l, "fp8_precision_override_prefix_patterns") ||
         xd_line_text(l, "fp8_precision_override_suffix_patterns")) &&
        !xd_line_on(l, "use_fp4_gemms"))
        add_error(j, at_start, "",
                  "FP8 precision override patterns require --use_fp4_gemms: overrides apply when "
                  "quantizing linear layers for FP4 GEMMs.");
}

static void check_stages(judge *j)
{
    const xd_given *list = xd_line_given(j->l, "attn_layer_num_for_pp");
    int             patches = xd_line_int(j->l, "num_pipeline_patch", 0);
    if (j->pp < 1)
        add_error(j, at_start, "",
                  "pipefusion_degree must be set and greater than 1 to use pipefusion");
    if (j->pp > j->dit)
        add_error(j, at_start, "",
                  "pipefusion_degree must be less than or equal to dit_parallel_size");
    if (list && list->count && list->count != j->pp)
        add_error(j, at_start, "--attn_layer_num_for_pp has one number a stage",
                  "attn_layer_num_for_pp must have the same length as pp_degree if not None");
    if (j->pp == 1 && patches > 1)
        add_note(j, "without stages --num_pipeline_patch is ignored, with a warning");
}

static void check_degrees(judge *j)
{
    char text[256];
    int  fs = xd_line_int(j->l, "fully_shard_degree", 1);
    sum_up(j, text, sizeof text);
    if (j->dp < 1)
        add_error(j, at_start, "", "dp_degree must greater than or equal to 1");
    if (j->dp * j->cfg > j->dit)
        add_error(
            j, at_start, text,
            "dp_degree * cfg_degree must be less than or equal to dit_parallel_size because of "
            "classifier free guidance");
    if (j->dp >= 1 && j->dit % (j->dp * j->cfg))
        add_error(j, at_start, text,
                  "dit_parallel_size must be divisible by dp_degree * cfg_degree");
    if (j->tp < 1)
        add_error(j, at_start, "", "tp_degree must be greater than or equal to 1");
    if (j->tp > j->dit)
        add_error(j, at_start, text, "tp_degree must be less than or equal to dit_parallel_size");
    check_stages(j);
    if (fs < 1)
        add_error(j, at_start, "", "fully_shard_degree must be greater than or equal to 1");
    if (fs > j->dit)
        add_error(j, at_start, "",
                  "fully_shard_degree must be less than or equal to dit_parallel_size");
    if (j->uly < 1 || j->ring < 1)
        add_error(j, at_start, "a degree below 1",
                  "parallel_world_size %d must be equal to dit_parallel_size %d",
                  xd_line_product(j->l), j->dit);
    if (xd_line_product(j->l) != j->dit)
        add_error(j, at_start, text, "parallel_world_size %d must be equal to dit_parallel_size %d",
                  xd_line_product(j->l), j->dit);
    if (xd_line_int(j->l, "n_calib", 8) <= 0)
        add_error(j, at_start, "", "n_calib must be greater than 0");
    if (xd_line_real(j->l, "threshold", 0.5) <= 0)
        add_error(j, at_start, "", "threshold must be greater than 0");
    if (xd_line_on(j->l, "use_fast_attn") && j->dit != j->dp)
        add_error(j, at_start, "DiTFastAttn works with data parallelism alone",
                  "dit_parallel_size must be equal to dp_degree when using DiTFastAttn");
}

/* ---- rules about the request and the script -------------------------------------------------- */

static void check_inputs(judge *j)
{
    const xd_given *p = xd_line_given(j->l, "prompt"), *n = xd_line_given(j->l, "negative_prompt");
    const char     *type = xd_line_text(j->l, "output_type");
    int             prompts = p ? p->count : 0;
    if (n && n->count > 1 && n->count != prompts)
        add_error(
            j, at_start, "",
            "prompts and negative_prompts must have the same quantities or negative_prompt must "
            "be a single string");
    if (type && strcmp(type, "pil") && strcmp(type, "latent") && strcmp(type, "pt"))
        add_error(j, at_start, "", "output_pil must be either 'pil' or 'latent'");
    if (j->l->runner && !prompts && !xd_line_text(j->l, "dataset_path"))
        add_error(j, at_load, "", "Either 'prompt' or 'dataset_path' must be provided");
    if (j->l->runner && xd_line_text(j->l, "dataset_path") && !xd_line_text(j->l, "batch_size"))
        add_error(j, at_start, "", "Dataset path specified without batch size");
    if (j->l->runner && prompts && prompts < j->dp)
        add_error(j, at_call, "",
                  "Number of prompts (%d) is less than data_parallel_world_size (%d).", prompts,
                  j->dp);
    int slice = j->dp > 1 && prompts ? (prompts + j->dp - 1) / j->dp : 0;
    if (!j->l->runner && slice && slice * (j->dp - 1) >= prompts)
        add_note(j, "%d prompts in %d groups: the last group gets none and fails", prompts, j->dp);
}

/* Checks, as xDiT's runner does, whether the model supports the parallel degrees. xDiT's runner
 * never refuses a switch, that is a flag without a value. */
static void check_capabilities(judge *j)
{
    const char *name = xd_line_text(j->l, "model");
    if (!j->l->model) {
        if (j->l->runner && name && !j->v->when)
            add_error(j, at_start, "the runner looks for the name in its registry",
                      "Model %.100s not found in registry", name);
        return;
    }
    const struct {
        const char *key;
        int         n;
        unsigned    need;
    } row[] = {
        { "ulysses_degree", j->uly, XD_CAN_SP },
        { "ring_degree", j->ring, XD_CAN_RING },
        { "pipefusion_parallel_degree", j->pp, XD_CAN_PP },
        { "tensor_parallel_degree", j->tp, XD_CAN_TP },
        { "fully_shard_degree", xd_line_int(j->l, "fully_shard_degree", 1), XD_CAN_FSDP },
    };
    for (size_t i = 0; j->l->runner && i < sizeof row / sizeof *row; i++)
        if (row[i].n > 1 && !has_capability(j, row[i].need))
            add_error(j, at_start, "", "Model %.100s does not support %s.", name, row[i].key);
    if (j->l->runner && j->cfg == 2 && !has_capability(j, XD_CAN_CFG))
        add_note(j,
                 "the model has no cfg parallelism: half of the processes repeat the work of the "
                 "others");
}

static void check_script(judge *j)
{
    const char *refuses = j->l->model ? j->l->model->refuses : NULL;
    if (j->l->runner || !j->l->model)
        return;
    if (refuses && j->pp != 1)
        add_error(j, at_start, "", "This script does not support PipeFusion.");
    if (refuses && xd_line_on(j->l, "use_parallel_vae"))
        add_error(j, at_start, "", "parallel VAE not implemented for %s", refuses);
    if (j->l->model->whole_vae && xd_line_on(j->l, "use_parallel_vae"))
        add_error(j, at_load, "", "%s pipeline does not support vae parallel.",
                  j->l->model->whole_vae);
    if ((j->l->model->can & XD_IS_UNET) &&
        (xd_line_product(j->l) != 1 && (j->cfg != 2 || xd_line_product(j->l) != 2))) {
        add_error(j, at_load, "", "UnetRuntimeState only supports 2 GPUs with CFG Parallel");
        if (j->uly > 1 || j->ring > 1 || j->pp > 1 || j->tp > 1)
            add_note(j, "xdit does not split a U-Net either: use --use_cfg_parallel, and "
                        "--data_parallel_degree for several images");
    }
    if (j->tp > 1 && !has_capability(j, XD_CAN_TP))
        add_note(
            j, "xDiT has no tensor parallelism for this model: the processes repeat the same work");
}

/* ---- rules about the model ------------------------------------------------------------------- */

static void check_blocks(judge *j)
{
    const xd_given *list = xd_line_given(j->l, "attn_layer_num_for_pp");
    const char     *bad;
    int             n = j->l->blocks, each = j->pp > 0 ? (n + j->pp - 1) / j->pp : 0;
    int64_t         sum = xd_line_sum(list, &bad);
    if (!n || j->pp < 2)
        return;
    if (list && list->count && sum != n)
        add_error(
            j, at_load, "the blocks of the stages must add up to the model's",
            "Sum of attn_layer_num_for_pp should be equal to the number of all the transformer "
            "blocks");
    if (!(list && list->count) && each * (j->pp - 1) >= n)
        add_note(j, "%d blocks in %d stages of %d: the last stage is empty", n, j->pp, each);
    if (j->l->model && (j->l->model->can & XD_HAS_PAIRS) && (j->pp % 2 || n % j->pp))
        add_note(
            j, "block i feeds block %d - i: %d stages of unequal size wait for each other for ever",
            n - 1, j->pp);
}

static void check_heads(judge *j)
{
    char why[128];
    int  h = j->l->heads, c = j->l->cross;
    snprintf(why, sizeof why, "%s%d heads",
             j->l->from_config ? "the model's config has " : "the model has ", h);
    if (!h || j->uly < 2 || (j->l->model && (j->l->model->can & XD_HAS_PADDED_HEADS)))
        return;
    if (h % j->uly)
        add_error(j, at_load, why,
                  "transformer backbone has %d heads, which is not divisible by or smaller than "
                  "ulysses_degree %d.",
                  h, j->uly);
    if (c && c % j->uly)
        add_error(j, at_step, "its cross-attention has fewer heads", "%d must be divisible by %d",
                  c, j->uly);
}

static void check_attention(judge *j)
{
    static const char no_ring[] =
        " SDPA SDPA_MATH FLASH_4 FLASH_4_FP4 AITER_FP8 AITER_MLA AITER_SPARSE_SAGE "
        "AITER_SPARSE_SAGE_V2 AITER_SPARGE AITER_SPARGE_V2 AITER_FLYDSL FLEX_BLOCK_ATTN "
        "FLEX_BLOCK_SPARGE ";
    const char *name = xd_line_text(j->l, "attention_backend");
    char        word[64];
    snprintf(word, sizeof word, " %.40s ", name ? name : "-");
    for (char *p = word; *p; p++)
        *p = *p >= 'a' && *p <= 'z' ? (char)(*p - 32) : *p;
    if (j->ring < 2)
        return;
    if (strstr(no_ring, word))
        add_error(j, at_load, "", "Selected attention backend does not support ring parallelism.");
    if (!name)
        add_note(j,
                 "ring needs a suitable attention backend: if FLASH_4 or only SDPA is installed, "
                 "ring is "
                 "refused until --attention_backend names another");
}

static void check_supported(judge *j)
{
    if (!j->l->model || j->l->runner)
        return;
    if (j->cfg == 2 && !has_capability(j, XD_CAN_CFG))
        add_error(j, at_call, "guidance of this model is distilled, or there is none",
                  "CFG parallelism is not supported by the model");
    if (j->sp > 1 && !has_capability(j, XD_CAN_SP))
        add_error(j, at_call, "", "Sequence parallelism is not supported by the model");
    if (j->pp > 1 && !has_capability(j, XD_CAN_PP))
        add_error(j, at_call, "", "Pipefusion parallelism is not supported by the model");
}

/* ---- rules about rows of latents ------------------------------------------------------------- */

static int round_up(int n, int by)
{
    return (n + by - 1) / by * by;
}

static void check_rows(judge *j)
{
    const xd_xdit_model *m = j->l->model;
    int                  n = j->height / m->cell, unit = j->sp * m->patch,
                         asked = int_of(j->l, "num_pipeline_patch", 0);
    int                  patches = j->pp > 1 ? (asked > 0 ? asked : j->pp) : 1;
    char                 why[160];
    if (n < 1 || unit < 1 || patches < 1 || j->sp < 1)
        return;
    snprintf(why, sizeof why, "%d pixels are %d rows of tokens, which %d ranks must share evenly",
             j->height, n / m->patch, j->sp);
    if (n % j->sp)
        add_error(
            j, at_call, why,
            "The height of the input is not divisible by the number of sequence parallel devices");
    int band = round_up((n + patches - 1) / patches, unit), bands = (n + band - 1) / band,
        last = n - band * (bands - 1);
    if (bands != patches)
        add_note(j,
                 "Pipeline patches num changed from %d to %d due to input size and parallelisation "
                 "requirements",
                 patches, bands);
    if (last % unit)
        add_error(j, at_call, why,
                  "The height of the last pipeline patch is %d, which is not a multiple of "
                  "(patch_size * num_sp_patches): %d * %d",
                  last, m->patch, j->sp);
}

static void check_geometry(judge *j)
{
    const xd_xdit_model *m = j->l->model;
    if (!m)
        return;
    int divisor = !strncmp(m->title, "LTX-2", 5)       ? 64
                  : !strncmp(m->title, "CausalWan", 9) ? 16
                                                       : m->multiple;
    if (divisor && (j->height % divisor || j->width % divisor))
        add_error(j, at_call, "", "%s requires height and width to be divisible by %d", m->title,
                  divisor);
    if ((m->can & XD_HAS_ROWS) && (j->sp > 1 || j->pp > 1))
        check_rows(j);
    int64_t tokens = (int64_t)(j->height / 16) * (j->width / 16);
    if (m->bad_padding && j->sp > 1 && tokens % j->sp)
        add_error(j, at_step,
                  "the tokens are not divisible, and the call that pads them is misspelt",
                  "'%s' object has no attribute '_pad_to_sp_divisible'", m->bad_padding);
    if (m->unpadded && j->sp > 1 && tokens && tokens % j->sp)
        add_note(j, "ranks get parts of different sizes without padding: it hangs or fails in the "
                    "first "
                    "all-to-all");
}

/* ---- errors of xDiT that depend on the installation ------------------------------------------ */

XD_PRINTF(4, 5)
static void add_warning(judge *j, const char *when, const char *because, const char *fmt, ...)
{
    xd_possible *p = &j->v->possible[j->v->npossible];
    va_list      ap;
    if (j->v->npossible == (int)(sizeof j->v->possible / sizeof *j->v->possible))
        return;
    j->v->npossible++;
    p->when = when;
    snprintf(p->because, sizeof p->because, "%s", because);
    va_start(ap, fmt);
    vsnprintf(p->error, sizeof p->error, fmt, ap);
    va_end(ap);
}

/* Returns 1 if the model's name contains one of the words in `pieces`, separated by spaces. */
static int is_named(const judge *j, const char *pieces)
{
    const char *name = xd_line_text(j->l, "model");
    char        piece[32];
    for (const char *p = pieces; name && p && *p; p += strcspn(p, " "), p += *p == ' ') {
        snprintf(piece, sizeof piece, "%.*s", (int)strcspn(p, " "), p);
        if (strstr(name, piece))
            return 1;
    }
    return 0;
}

/* Returns the number of query tokens that a rank has in an attention layer over text and video; 0:
 * unknown. */
static int64_t query_count(const judge *j)
{
    const xd_xdit_model *m = j->l->model;
    int                  frames = int_of(j->l, "num_frames", 49), latent = (frames - 1) / 4 + 1;
    if (!m || !m->text_rows || frames < 1 || j->sp < 1)
        return 0;
    int text = int_of(j->l, "max_sequence_length", m->text_rows);
    if (is_named(j, m->frame_pairs))
        latent = (latent + 1) / 2;
    int64_t tokens = (int64_t)latent * (j->height / 16) * (j->width / 16);
    return tokens % j->sp ? 0 : (tokens / j->sp + (text == 256 ? m->text_rows : text)) * j->uly;
}

static void check_installation(judge *j)
{
    const char *backend = xd_line_text(j->l, "attention_backend");
    int64_t     q = query_count(j), padded = (q + 31) / 32 * 32,
                tokens = (int64_t)(j->height / 16) * (j->width / 16);
    int         asked = int_of(j->l, "num_pipeline_patch", 0), patches = asked > 0 ? asked : j->pp;
    char        text[160] = "6592) must match the size of tensor b (6572", parts[128] = "";
    char        why[256];
    size_t      at = 0;
    if (q > 0)
        snprintf(text, sizeof text, "%lld) must match the size of tensor b (%lld",
                 (long long)padded, (long long)q);
    if (j->ring > 1 && (!backend || !strncmp(backend, "sdpa_eff", 8)) && (!q || padded != q))
        add_warning(
            j, "in the first step where flash-attn is not installed",
            "torch's own kernel pads the sums of rows to a multiple of 32, and ring adds them "
            "to what is not padded"
            "; with flash-attn it runs",
            "RuntimeError: The size of tensor a (%s) at non-singleton dimension 2%s", text,
            q ? "" : ", or other numbers");
    if (!j->l->model || !j->l->model->old_packing || j->pp < 2 || patches < 1 || tokens < 1)
        return;
    for (int i = 0; i < patches && at < sizeof parts - 16; i++)
        at += (size_t)snprintf(parts + at, sizeof parts - at, "%s%lld", i ? ", " : "",
                               (long long)(4 * tokens / patches));
    snprintf(why, sizeof why,
             "from 0.32 on a pixel of %s's latents is 8 pixels wide, not 16, so xDiT counts four "
             "times the tokens; hosts of a run with several versions of diffusers fail the same "
             "way",
             j->l->model->old_packing);
    add_warning(
        j, "when the request begins with diffusers 0.32 or newer and xDiT 0.4.0 or older", why,
        "RuntimeError: split_with_sizes "
        "expects split_sizes to sum exactly to %lld (input tensor's size at dimension -2), but got "
        "split_sizes=[%s]",
        (long long)tokens, parts);
}

void xd_line_judge(const xd_line *l, xd_verdict *v)
{
    int   fixed = l->runner ? 0 : 1024;
    judge j = { .l = l,
                .v = v,
                .dp = int_of(l, "data_parallel_degree", 1),
                .cfg = xd_line_on(l, "use_cfg_parallel") ? 2 : 1,
                .uly = int_of(l, "ulysses_degree", 1),
                .ring = int_of(l, "ring_degree", 1),
                .tp = int_of(l, "tensor_parallel_degree", 1),
                .pp = int_of(l, "pipefusion_parallel_degree", 1),
                .height = int_of(l, "height", fixed),
                .width = int_of(l, "width", fixed) };
    *v = (xd_verdict){ 0 };
    j.sp = j.uly < 1 || j.ring < 1 ? 1 : j.uly * j.ring;
    if (l->refusal[0])
        add_error(&j, at_flags, l->why, "error: %s", l->refusal);
    check_sizes(&j);
    check_schedules(&j);
    check_capabilities(&j);
    check_degrees(&j);
    check_inputs(&j);
    check_script(&j);
    check_blocks(&j);
    check_heads(&j);
    check_attention(&j);
    check_supported(&j);
    check_geometry(&j);
    if (!v->when)
        check_installation(&j);
}
