/* test_text_encode.c - what a recipe asks of its text encoder: hidden states by their number,
 * padding on either side, blocks that are left out.
 *
 * The model has random weights and a language model as its encoder; its recipe is replaced. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/par.h"
#include "engine/engine.h"
#include "families/recipe.h"
#include "pipeline/job.h"
#include "pipeline/prompt_images.h"
#include "pipeline/text_cache.h"

enum { E = 24, PAD = 33, L = 3 }; /* width and layers of tests/parity/text-lm */

static const char     *prompt[] = { "a small cyan square" };
static const char     *negative; /* NULL: none */
static const xd_image *shown;    /* what the encoder sees beside the prompt; NULL: nothing */

static void ok(xd_status s, const xd_err *e)
{
    if (s != XD_OK)
        fail_msg("%s", e->msg);
}

static void open_model(xd_engine **g, xd_recipe *mine, const char *dir)
{
    xd_err       e = { 0 };
    xd_open_args a = { .size = sizeof a, .model = dir, .dtype = "f32", .threads = 1, .keep = 1 };
    ok(xd_open_with(g, &a, 0, &e), &e);
    *mine = *(*g)->ctx.model.recipe;
    (*g)->ctx.model.recipe = mine;
}

typedef struct encoded {
    float  *v;
    int64_t rows, cols, real;
} encoded;

static encoded copy_of(const xd_cond *c)
{
    encoded out = { .rows = c->tok.d[0], .cols = c->tok.d[1], .real = c->real[0] };
    out.v = malloc(xd_bytes(c->tok));
    assert_non_null(out.v);
    if (xd_bytes(c->tok)) /* a text may have no rows */
        memcpy(out.v, c->tok.p, xd_bytes(c->tok));
    return out;
}

/* The embeddings of the prompt and, if there is one, of the negative one, malloc'ed. */
static void encode_both(xd_engine *g, encoded out[2])
{
    xd_request r;
    xd_job     j;
    xd_prompts w;
    xd_err     e = { 0 };
    size_t     bytes;
    xd_request_init(&r);
    r.prompts = prompt, r.nprompts = 1, r.negative_prompt = negative;
    r.guidance.true_cfg_scale = negative ? 2 : 0;
    r.images.image_pixels = shown, r.output.max_area = shown ? 4096 : 0;
    g->ctx.model.dit_info.text_dim = xd_model_text_width(&g->ctx.model, 0);
    ok(xd_model_choose_blocks(&g->ctx.model, 0, &e), &e);
    ok(xd_job_open(&j, &g->ctx, &r, &e), &e);
    ok(xd_prompts_tokenize(&w, &j, &e), &e);
    int64_t len[] = { w.text[0].ids[0].n, w.text[1].ids[0].n };
    ok(xd_prompts_count(&j, 0, len, 2, &bytes, &e), &e);
    ok(xd_prompts_encode(&w, &j, bytes, &e), &e); /* in exactly what was counted */
    for (int i = 0; i < 1 + (negative != NULL); i++)
        out[i] = copy_of(&w.text[i].cond);
    xd_prompts_close(&w, &g->ctx);
    xd_job_close(&j);
}

static encoded encode(xd_engine *g)
{
    encoded out[2];
    encode_both(g, out);
    return out[0];
}

/* n rows and cols of a from (ra, ca) on are those of b from (rb, cb) on. */
static void same(const encoded *a, int64_t ra, int64_t ca, const encoded *b, int64_t rb, int64_t cb,
                 int64_t n, int64_t cols)
{
    double top = 0, most = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < cols; k++) {
            double x = (double)a->v[(ra + i) * a->cols + ca + k];
            double y = (double)b->v[(rb + i) * b->cols + cb + k];
            top = fmax(top, fabs(x));
            most = fmax(most, fabs(x - y));
        }
    if (!(top > 0) || !(most <= 1e-5 * top))
        fail_msg("rows from %d and %d, columns from %d and %d: off by %g of %g", (int)ra, (int)rb,
                 (int)ca, (int)cb, most, top);
}

static void states_side_by_side(void **state)
{
    static const int all[] = { 1, -1, 2, -3 }, one[] = { 2 };
    xd_engine       *g;
    xd_recipe        mine;
    (void)state;
    open_model(&g, &mine, "tests/parity/text-lm");
    encoded last = encode(g);
    assert_int_equal(last.cols, E);
    mine.text[0].layers = all, mine.text[0].nlayers = 4;
    encoded four = encode(g);
    assert_int_equal(four.cols, 4 * E);
    same(&four, 0, E, &last, 0, 0, last.rows, E);
    same(&four, 0, 0, &four, 0, 3 * E, last.rows, E); /* -3 of 3 layers is 1 */
    mine.text[0].layers = one, mine.text[0].nlayers = 1;
    g->ctx.keep = 0;
    xd_component_drop(&g->ctx.model.text[0]);
    encoded two = encode(g);
    same(&two, 0, 0, &four, 0, 2 * E, last.rows, E);
    assert_int_equal(g->ctx.model.text[0].w->net.last, 2);
    xd_context fork; /* a prediction has the same blocks */
    assert_int_equal(xd_context_fork(&fork, &g->ctx, NULL), XD_OK);
    assert_int_equal(fork.model.text[0].w->net.last, 2);
    xd_context_fork_close(&fork, &g->ctx);
    free(last.v), free(four.v), free(two.v);
    xd_close(&g);
}

/* Text does not see its padding, whichever side it is on, and only differences of positions
 * matter. Rows of padding before it get no attention. */
static void padding_on_either_side(void **state)
{
    xd_engine *g;
    xd_recipe  mine;
    (void)state;
    open_model(&g, &mine, "tests/parity/text-lm");
    encoded plain = encode(g);
    int64_t n = plain.rows;
    assert_true(n > 3 && n < PAD);
    mine.text[0].pad = PAD, mine.text[0].masked = 1;
    encoded right = encode(g);
    assert_true(right.rows == PAD && right.real == n);
    same(&plain, 0, 0, &right, 0, 0, n, E);
    mine.text[0].left = 1;
    encoded left = encode(g);
    assert_true(left.rows == PAD && left.real == n);
    same(&plain, 0, 0, &left, PAD - n, 0, n, E);
    same(&left, 0, 0, &left, 1, 0, PAD - n - 1, E); /* all padding is alike */
    free(plain.v), free(right.v), free(left.v);
    xd_close(&g);
}

/* The rows before the prompt are read, and are not handed out. */
static void rows_in_front_dropped(void **state)
{
    enum { MOST = 9 };
    static const char *const frame = "a red circle {} and a star";
    xd_engine               *g;
    xd_recipe                mine;
    int32_t                 *ids;
    int64_t                  before, whole;
    xd_err                   e = { 0 };
    (void)state;
    open_model(&g, &mine, "tests/parity/text-lm");
    ok(xd_model_tokenizers(&g->ctx.model, &e), &e);
    ok(xd_tok_cut_plain(g->ctx.model.tok[0], frame, strlen("a red circle "), 0, 1, &ids, &before,
                        &whole, &e),
       &e);
    free(ids);
    assert_true(before > 2);
    mine.text[0].frame = frame;
    encoded plain = encode(g);
    mine.text[0].drop = (int)before;
    encoded some = encode(g);
    assert_int_equal(some.rows, plain.rows - before);
    same(&plain, before, 0, &some, 0, 0, some.rows, E);
    g->ctx.model.usual.max_text = MOST; /* counts what is handed out */
    encoded less = encode(g);
    assert_true(less.rows == MOST && MOST < some.rows);
    same(&some, 0, 0, &less, 0, 0, MOST, E);
    g->ctx.model.usual.max_text = PAD;
    mine.text[0].pad = PAD, mine.text[0].masked = 1;
    encoded padded = encode(g);
    assert_true(padded.rows == PAD && padded.real == some.rows);
    same(&some, 0, 0, &padded, 0, 0, some.rows, E);
    free(plain.v), free(some.v), free(less.v), free(padded.v);
    xd_close(&g);
}

/* A tokenizer that makes another number of ids of the text before the prompt is not refused. */
static void wrong_front(void **state)
{
    xd_engine *g;
    xd_recipe  mine;
    xd_err     e = { 0 };
    (void)state;
    open_model(&g, &mine, "tests/parity/text-lm");
    mine.text[0].frame = "a red circle {}", mine.text[0].drop = 34;
    assert_int_equal(xd_model_tokenizers(&g->ctx.model, &e), XD_OK);
    encoded none = encode(g);
    assert_int_equal(none.rows, 0);
    free(none.v);
    xd_close(&g);
}

static void wrong_numbers(void **state)
{
    static const int beyond[] = { 1, L + 1 }, before[] = { -L - 2 };
    xd_engine       *g;
    xd_recipe        mine;
    xd_err           e = { 0 };
    (void)state;
    open_model(&g, &mine, "tests/parity/text-lm");
    mine.text[0].layers = beyond, mine.text[0].nlayers = 2;
    assert_int_equal(xd_model_choose_blocks(&g->ctx.model, 0, &e), XD_EFORMAT);
    assert_non_null(strstr(e.msg, "hidden state 4, but num_hidden_layers is 3"));
    mine.text[0].layers = before, mine.text[0].nlayers = 1;
    xd_err_clear(&e);
    assert_int_equal(xd_model_choose_blocks(&g->ctx.model, 0, &e), XD_EFORMAT);
    assert_non_null(strstr(e.msg, "hidden state -5"));
    xd_close(&g);
    open_model(&g, &mine, "tests/parity/model");
    mine.text[0].layers = before, mine.text[0].nlayers = 1;
    xd_err_clear(&e);
    assert_int_equal(xd_model_choose_blocks(&g->ctx.model, 0, &e), XD_EFORMAT);
    assert_non_null(strstr(e.msg, "T5EncoderModel"));
    xd_close(&g);
}

/* ---- embeddings that are kept -------------------------------------------------------------- */

/* A prompt that is repeated is not encoded again: the encoder, dropped meanwhile, is not loaded. */
static void repeated_prompts(void **state)
{
    static const char *const prompts[] = { "a small cyan square", "a red star", "a red star",
                                           "a small cyan square" };
    xd_engine               *g;
    xd_recipe                mine;
    encoded                  first[2], again;
    (void)state;
    open_model(&g, &mine, "tests/parity/text-lm");
    for (int i = 0; i < 4; i++) {
        prompt[0] = prompts[i];
        encoded *to = i < 2 ? &first[i] : &again;
        *to = encode(g);
        assert_int_equal(g->ctx.model.text[0].w->store != NULL, i < 2);
        xd_component_drop(&g->ctx.model.text[0]);
        if (i < 2)
            continue;
        encoded *old = &first[i == 2];
        assert_int_equal(again.rows, old->rows);
        assert_memory_equal(again.v, old->v, (size_t)(old->rows * old->cols) * sizeof(float));
        free(again.v);
    }
    g->ctx.keep = 0; /* an engine that keeps nothing encodes each time */
    again = encode(g);
    assert_memory_equal(again.v, first[0].v, (size_t)(again.rows * again.cols) * sizeof(float));
    assert_non_null(g->caches.embeddings);
    g->ctx.keep = 1;
    mine.text[0].pad = PAD; /* other ids */
    xd_component_drop(&g->ctx.model.text[0]);
    free(again.v);
    again = encode(g);
    assert_non_null(g->ctx.model.text[0].w->store);
    free(again.v), free(first[0].v), free(first[1].v);
    prompt[0] = prompts[0];
    xd_close(&g);
}

/* ---- images --------------------------------------------------------------------------------- */

enum { WIDTH = 48, HEIGHT = 40 };

static uint8_t pixels[2][WIDTH * HEIGHT * 3];

static void show(xd_image *image, int k)
{
    for (size_t i = 0; i < sizeof pixels[k]; i++)
        pixels[k][i] = (uint8_t)(i * 7 % 251);
    pixels[1][777] = 200;
    xd_image_init(image);
    image->data = pixels[k];
    image->width = WIDTH, image->height = HEIGHT;
    shown = image;
}

static double counted_gemms(const xd_job *j, const int64_t *n, int texts)
{
    xd_counts c;
    xd_err    e = { 0 };
    size_t    bytes;
    xd_dev_counts(j->ctx->count, &c, 1);
    ok(xd_prompts_count(j, 0, n, texts, &bytes, &e), &e);
    xd_dev_counts(j->ctx->count, &c, 1);
    return c.gemm_flops;
}

static double number_of(const xd_engine *g, const char *key)
{
    double         v = 0;
    const xd_json *config = xd_json_get(g->ctx.model.text[0].config, "vision_config");
    assert_true(xd_json_number(xd_json_get(config, key), &v));
    return v;
}

/* Multiply-adds of the vision tower for so many tokens, times two. */
static double tower_gemms(const xd_engine *g, double tokens)
{
    double D = number_of(g, "hidden_size"), F = number_of(g, "intermediate_size");
    double patch = number_of(g, "patch_size"), merge = number_of(g, "spatial_merge_size");
    double unit = merge * merge, wide = unit * D, out = number_of(g, "out_hidden_size");
    double in = 3 * number_of(g, "temporal_patch_size") * patch * patch;
    return 2 * tokens *
           (unit * D * (in + number_of(g, "depth") * (4 * D + 3 * F)) + wide * (wide + out));
}

/* However many prompts there are, the tower runs once. */
static void images_seen_once(void **state)
{
    xd_engine *g;
    xd_recipe  mine;
    xd_request r;
    xd_job     j;
    xd_prompts w;
    xd_image   image;
    xd_err     e = { 0 };
    (void)state;
    open_model(&g, &mine, "tests/golden/qwen-edit");
    show(&image, 0);
    xd_request_init(&r);
    r.prompts = prompt, r.nprompts = 1, r.negative_prompt = "a blurry image";
    r.images.image_pixels = shown, r.output.max_area = 4096;
    ok(xd_model_choose_blocks(&g->ctx.model, 0, &e), &e);
    ok(xd_job_open(&j, &g->ctx, &r, &e), &e);
    ok(xd_prompts_tokenize(&w, &j, &e), &e);
    int64_t len[] = { w.text[0].ids[0].n, w.text[1].ids[0].n };
    assert_true(len[0] != len[1]);
    double both = counted_gemms(&j, len, 2), tower = counted_gemms(&j, NULL, 0);
    double one[] = { counted_gemms(&j, len, 1), counted_gemms(&j, len + 1, 1) };
    double tokens = (double)(xd_prompt_images_more_ids(&j, 0) + 1);
    if (tower != tower_gemms(g, tokens) || both != one[0] + one[1] - tower)
        fail_msg("the tower multiplies %g times, not %g; both prompts %g times, one by one %g and "
                 "%g",
                 tower, tower_gemms(g, tokens), both, one[0], one[1]);
    xd_prompts_close(&w, &g->ctx);
    xd_job_close(&j);
    shown = NULL;
    xd_close(&g);
}

/* Prompt and negative prompt see the same: exchanged, they have each other's bits. */
static void seen_by_both(void **state)
{
    static const char *const text[] = { "a small cyan square", "a red star, blurry" };
    xd_engine               *g;
    xd_recipe                mine;
    xd_image                 image;
    encoded                  got[2][2];
    (void)state;
    open_model(&g, &mine, "tests/golden/qwen-edit");
    g->ctx.keep = 0;
    show(&image, 0);
    for (int i = 0; i < 2; i++) {
        prompt[0] = text[i], negative = text[!i];
        encode_both(g, got[i]);
    }
    for (int i = 0; i < 2; i++) {
        const encoded *a = &got[0][i], *b = &got[1][!i];
        assert_int_equal(a->rows, b->rows);
        assert_memory_equal(a->v, b->v, (size_t)(a->rows * a->cols) * sizeof(float));
    }
    assert_int_not_equal(got[0][0].rows, got[0][1].rows);
    for (int i = 0; i < 4; i++)
        free(got[i / 2][i % 2].v);
    prompt[0] = text[0], negative = NULL, shown = NULL;
    xd_close(&g);
}

/* Of one prompt with two images each has its own rows. */
static void repeated_images(void **state)
{
    xd_engine *g;
    xd_recipe  mine;
    encoded    got[4];
    xd_image   image[2];
    (void)state;
    open_model(&g, &mine, "tests/golden/qwen-edit");
    for (int i = 0; i < 4; i++) {
        show(&image[i % 2], i % 2);
        got[i] = encode(g);
        assert_int_equal(g->ctx.model.text[0].w->store != NULL, i < 2);
        xd_component_drop(&g->ctx.model.text[0]);
    }
    shown = NULL;
    size_t bytes = (size_t)(got[0].rows * got[0].cols) * sizeof(float);
    assert_int_equal(got[0].rows, got[1].rows);
    assert_memory_not_equal(got[0].v, got[1].v, bytes);
    for (int i = 0; i < 2; i++)
        assert_memory_equal(got[i].v, got[2 + i].v, bytes);
    for (int i = 0; i < 4; i++)
        free(got[i].v);
    xd_close(&g);
}

/* Adds the key { a, b } with `bytes` bytes of a; what is found must hold them. */
static void keep_bytes(xd_text_cache *c, int64_t a, int64_t b, size_t bytes)
{
    char *p = xd_text_cache_add(c, (xd_text_key){ (int64_t[]){ a, b }, 2 }, bytes);
    assert_non_null(p);
    memset(p, (int)a, bytes);
}

static int holds(xd_text_cache *c, int64_t a, int64_t b, size_t bytes)
{
    const char *p = xd_text_cache_find(c, (xd_text_key){ (int64_t[]){ a, b }, 2 }, bytes);
    for (size_t i = 0; p && i < bytes; i++)
        assert_int_equal(p[i], (char)a);
    return p != NULL;
}

/* The entry that was not found for the longest time leaves; the bytes stay below the limit. */
static void bounded_cache(void **state)
{
    xd_text_cache *c = xd_text_cache_open(900);
    (void)state;
    assert_non_null(c);
    assert_false(holds(c, 1, 0, 200));
    keep_bytes(c, 1, 0, 200);
    keep_bytes(c, 2, 0, 200);
    keep_bytes(c, 3, 0, 200);
    assert_true(holds(c, 1, 0, 200) && holds(c, 2, 0, 200) && holds(c, 3, 0, 200));
    assert_false(holds(c, 1, 1, 200) || holds(c, 1, 0, 201));
    assert_true(holds(c, 1, 0, 200));
    keep_bytes(c, 4, 0, 200);
    assert_true(holds(c, 1, 0, 200) && holds(c, 3, 0, 200) && holds(c, 4, 0, 200));
    assert_false(holds(c, 2, 0, 200));
    assert_true(xd_text_cache_bytes(c) > 600 && xd_text_cache_bytes(c) <= 900);
    assert_null(xd_text_cache_add(c, (xd_text_key){ (int64_t[]){ 5 }, 1 }, 900));
    assert_true(holds(c, 4, 0, 200)); /* what cannot be kept drops nothing */
    keep_bytes(c, 6, 0, 800);
    assert_true(holds(c, 6, 0, 800) && !holds(c, 4, 0, 200));
    xd_text_cache_close(&c);
    assert_null(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_side_by_side),   cmocka_unit_test(padding_on_either_side),
        cmocka_unit_test(rows_in_front_dropped), cmocka_unit_test(wrong_front),
        cmocka_unit_test(wrong_numbers),         cmocka_unit_test(repeated_prompts),
        cmocka_unit_test(images_seen_once),      cmocka_unit_test(seen_by_both),
        cmocka_unit_test(repeated_images),       cmocka_unit_test(bounded_cache),
    };
    xd_par_set(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
