/* test_mods.c - modulations of several steps at once: the numbers of one step at a time, computed
 * once, in the memory that was taken for them */
#include "models.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dit/dual.h"

enum { STEPS = XD_MOD_STEPS + 3 };

static const xd_dit *real;  /* of FLUX.1 */
static int           asked; /* times for which `active` was computed */

static xd_tensor active(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept)
{
    asked++;
    return real->active(x, n, in, kept);
}

typedef struct scene {
    part     p;
    bench    b;
    xd_exec  x;
    xd_dit   dit;
    xd_mods  m;
    float    pooled[4096];
    xd_cond  text;
    xd_input in;
} scene;

static void open_scene(scene *c, int first, int last)
{
    xd_dit_info info;
    xd_decl     d;
    memset(c, 0, sizeof *c);
    open_config(&c->p, "tests/golden/flux/transformer");
    open_bench(&c->b, XD_F32, 0);
    visit(&c->p, c->b.dev, c->b.type, XD_VISIT_RANDOM, &d);
    xd_exec_init(&c->x, c->b.dev, &c->b.tmp, c->b.type);
    real = c->p.dit;
    c->dit = *real;
    c->dit.active = active;
    c->dit.info(c->p.net.cfg, &info);
    for (int i = 0; i < info.pooled_dim; i++)
        c->pooled[i] = sinf((float)i);
    c->text.pooled = xd_view(c->pooled, XD_F32, 2, (int64_t[]){ 1, info.pooled_dim });
    c->in = (xd_input){ .cond = &c->text, .guidance = 3.5 };
    c->p.net.first = first;
    c->p.net.last = last;
    asked = 0;
    xd_mods_open(&c->m, &c->x, &c->dit, &c->p.net);
    assert_true(xd_ok(&c->x));
}

static void close_scene(scene *c)
{
    assert_true(xd_ok(&c->x));
    xd_mods_close(&c->m);
    close_part(&c->p);
    close_bench(&c->b);
}

/* The vectors of `w` at time t, without the store. */
static xd_tensor alone(scene *c, double t, const xd_lin *w, int k)
{
    xd_input in = c->in;
    in.t = t;
    c->x.mods = NULL;
    xd_tensor out = xd_mod_rows(&c->x, real->active(&c->x, &c->p.net, &in, NULL), w, k);
    c->x.mods = &c->m;
    return out;
}

static int is_inside(xd_tensor t, xd_tensor of)
{
    const char *p = t.p, *q = of.p;
    return p >= q && p + xd_count(t) * 4 <= q + xd_count(of) * 4;
}

/* Every step has the vectors of its own time, whichever step has computed them. */
static void steps_have_their_numbers(void **state)
{
    scene               c;
    double              time[STEPS];
    const double *const times[2] = { time, time };
    (void)state;
    open_scene(&c, 0, 1);
    const xd_pair *w = xd_net_layer(&c.x, &c.p.net, 0);
    for (int i = 0; i < STEPS; i++)
        time[i] = 1000.0 - 90.0 * i;
    for (int i = 0; i < STEPS; i++) {
        xd_mods_step(&c.m, &c.x, &c.dit, &c.p.net, &c.in, NULL, times, i, STEPS);
        assert_int_equal(asked, i < XD_MOD_STEPS ? XD_MOD_STEPS : STEPS);
        for (int turn = 0; turn < 2; turn++) {
            const xd_lin *lin = turn ? &w->img.mod : &w->txt.mod;
            xd_tensor     row = xd_mods_input(&c.x, &c.p.net, &c.in, NULL, active);
            xd_tensor     got = xd_mod_rows(&c.x, row, lin, 6), want = alone(&c, time[i], lin, 6);
            assert_true(is_inside(got, c.m.all));
            assert_int_equal(got.d[0], 6);
            near("modulations", got.p, want.p, xd_count(want), 2e-4);
        }
        assert_int_equal(c.m.known, 2);
    }
    close_scene(&c);
}

/* The rows of two timesteps, of the image and of audio. */
static xd_tensor active_of_two(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept)
{
    xd_input  audio = *in;
    xd_tensor a = real->active(x, n, in, kept), out = xd_new(x, 2, a.d[1]);
    audio.t = in->audio_t;
    xd_copy_to(x, xd_rows(out, 0, 1), a);
    xd_copy_to(x, xd_rows(out, 1, 1), real->active(x, n, &audio, kept));
    return out;
}

/* With two input rows per step, each set has the numbers of its own timestep. */
static void two_rows_a_step(void **state)
{
    scene               c;
    double              time[STEPS], audio[STEPS];
    const double *const times[2] = { time, audio };
    (void)state;
    open_scene(&c, 0, 1);
    xd_mods_close(&c.m);
    c.dit.active = active_of_two, c.dit.active_rows = 2;
    xd_mods_open(&c.m, &c.x, &c.dit, &c.p.net);
    const xd_lin *lin = &((const xd_pair *)xd_net_layer(&c.x, &c.p.net, 0))->img.mod;
    for (int i = 0; i < STEPS; i++)
        time[i] = 1000.0 - 90.0 * i, audio[i] = 900.0 - 70.0 * i;
    for (int i = 0; i < STEPS; i++) {
        xd_tensor got[2];
        xd_mods_step(&c.m, &c.x, &c.dit, &c.p.net, &c.in, NULL, times, i, STEPS);
        xd_mod_sets(&c.x, xd_mods_input(&c.x, &c.p.net, &c.in, NULL, active_of_two), lin, 6, got);
        for (int k = 0; k < 2; k++) {
            xd_tensor want = alone(&c, times[k][i], lin, 6);
            assert_true(is_inside(got[k], c.m.all));
            near("modulations", got[k].p, want.p, xd_count(want), 2e-4);
        }
    }
    close_scene(&c);
}

/* A matrix for which no columns were taken, and a row of another time, are multiplied as ever. */
static void what_does_not_belong(void **state)
{
    scene               c;
    const double        time[] = { 700, 300 };
    const double *const times[2] = { time, time };
    (void)state;
    open_scene(&c, 0, 1);
    xd_net all = c.p.net;
    all.last = 2;
    const xd_pair *w = xd_net_layer(&c.x, &all, 0), *more = xd_net_layer(&c.x, &all, 1);
    xd_mods_step(&c.m, &c.x, &c.dit, &c.p.net, &c.in, NULL, times, 0, 2);
    xd_tensor row = xd_mods_input(&c.x, &c.p.net, &c.in, NULL, active);
    xd_mod_rows(&c.x, row, &w->img.mod, 6);
    xd_mod_rows(&c.x, row, &w->txt.mod, 6);
    xd_tensor got = xd_mod_rows(&c.x, row, &more->img.mod, 6);
    xd_tensor want = alone(&c, 700, &more->img.mod, 6);
    assert_false(is_inside(got, c.m.all));
    near("a matrix of another stage", got.p, want.p, xd_count(want), 2e-4);
    xd_input in = c.in;
    in.t = 500;
    got = xd_mod_rows(&c.x, real->active(&c.x, &c.p.net, &in, NULL), &w->img.mod, 6);
    want = alone(&c, 500, &w->img.mod, 6);
    assert_false(is_inside(got, c.m.all));
    near("another time", got.p, want.p, xd_count(want), 2e-4);
    close_scene(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_have_their_numbers),
        cmocka_unit_test(two_rows_a_step),
        cmocka_unit_test(what_does_not_belong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
