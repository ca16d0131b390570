/* models.h - what the tests of text encoders, transformers and videos' autoencoders share.
 *
 * Declared tensors are compared with listings of published checkpoints (published.h), stages and
 * blocks with tests/golden, which tools/golden wrote with diffusers. Tolerances are parts of
 * the largest reference value: 2e-4 in f32, 3e-2 in bf16. What fails, fails the test that runs. */
#ifndef XD_TESTS_UNIT_MODELS_H
#define XD_TESTS_UNIT_MODELS_H

#include <stddef.h>
#include <stdint.h>

#include "audio/audio.h"
#include "base/json.h"
#include "dit/dit.h"
#include "exec/op.h"
#include "io/safetensors.h"
#include "text/text.h"
#include "upsample/upsample.h"
#include "vae/vae.h"

enum { ALPHA, MICRO, SIGMA, BINS, DEMO, NGOLDEN };
typedef struct golden_model {
    const char *name, *model;
    int         dit_blocks;
} golden_model;
extern const golden_model golden[NGOLDEN];

void ok(xd_status s, const xd_err *e);

/* ---- a component -------------------------------------------------------------------------- */

typedef struct part {
    xd_json            *config;
    xd_st              *st;
    const xd_text      *text;
    const xd_dit       *dit;
    const xd_vae       *vae;
    const xd_upsampler *upsampler;
    const xd_audio     *audio;
    xd_net              net;
    xd_store           *store;
    xd_source           src;
    xd_dtype            blocks; /* of matrices that may be quantised; XD_F32: as the others */
} part;

/* The network of a class, as a definition; fills p->text, p->dit, p->vae, p->upsampler
 * or p->audio. */
const xd_net_def *find(part *p, const char *name);
/* Opens the config of a directory, and then its weights. */
void              open_config(part *p, const char *dir);
void              open_files(part *p, const char *dir);
void              visit(part *p, xd_dev *dev, xd_dtype type, xd_visit how, xd_decl *out);
void              close_part(part *p);

/* Calls `seen` with the state behind every block. One part at a time. */
typedef void (*seen_fn)(void *cookie, xd_exec *x, int layer, xd_state *s);
void         watch(part *p, seen_fn seen, void *cookie);

/* ---- a device and room -------------------------------------------------------------------- */

typedef struct bench {
    xd_dev  *real, *dev;
    xd_arena tmp;
    void    *mem;
    xd_dtype type;
} bench;

/* With `counts` the device only counts. */
void open_bench(bench *b, xd_dtype want, int counts);
void close_bench(bench *b);

/* ---- reference values --------------------------------------------------------------------- */

/* A tensor of the golden file, malloc'ed: f32, or i32 as it is. `shape` may be NULL. */
float *reference(xd_st *g, const char *name, xd_tensor *shape);
/* Compares n values; `tol` is a part of the largest one wanted. */
void   near(const char *what, const float *got, const float *want, int64_t n, double tol);

/* The state behind a block against the tensor PREFIX.LAYER; for watch(). */
typedef struct watcher {
    xd_st      *g;
    const char *prefix;
    double      tol;
    int         seen;
} watcher;
void compare_block(void *cookie, xd_exec *x, int layer, xd_state *s);

/* A tensor of the golden file in the arena; none where the file has none of this name. */
xd_tensor given(xd_exec *x, xd_st *st, const char *name);
/* A transformer of random weights and its golden file, tests/golden/FORMS/NAME, and what runs
 * it. */
xd_st    *open_form(const char *forms, const char *name, xd_dtype want, part *p, bench *b,
                    xd_dit_info *info, xd_exec *x);

/* The transformers of videos against the forms "FOLDER/NAME" of tests/golden, in f32 or bf16. Reads
 * what a form has of: latents, extra, text, grid, time, step, held, scales, fps, real, face.
 * `seen`, if not NULL, gets the state behind the last block, and how many rows of text it begins
 * with. */
void run_forms(const char *const *forms, size_t n, xd_dtype want,
               void (*seen)(xd_exec *x, xd_tensor h, int64_t ntxt));

/* ---- what is declared, what is refused ---------------------------------------------------- */

/* Compares what is declared with the listings of published models, where they are. */
void published(const char *const *dirs, size_t n);
/* Every tensor that the models in the tree need is in their files, and nothing is left over. */
void check_tree(const char *room);
/* A config declares so many tensors, with so many numbers in all. */
void declares(const char *class_name, const char *config, int tensors, int64_t numbers);
/* A config is refused with this status, and the sentence holds `word`. */
void refuses(const char *class_name, const char *config, xd_status code, const char *word);

#endif
