/* golden.h - what the golden tests share: TAP lines, and readers of reference files */
#ifndef XD_TESTS_GOLDEN_H
#define XD_TESTS_GOLDEN_H

#include "base/json.h"
#include "io/safetensors.h"
#include "xdit/xdit.h"

/* ---- TAP: one line a check ------------------------------------------------------------------ */

/* Prints "ok N - ..." or "not ok N - ...". Returns ok. */
int  tap(int ok, const char *fmt, ...) XD_PRINTF(2, 3);
void tap_note(const char *fmt, ...) XD_PRINTF(1, 2); /* a comment line */
/* Prints the plan; returns the exit code: 0 when every check was well and there was one. */
int  tap_end(void);
/* Nonzero when this processor cannot do what XDIT_ISA asks for; then "skip all" is printed. */
int  tap_skip_isa(void);

/* Nonzero when XDIT_BF16=emulate: this run is about bf16 alone, on a processor without dot
 * products of bf16. */
int         tap_only_bf16(void);
/* What an image was computed in, "f32" or "bf16". Where bf16 was asked for and f32 taken, a
 * note says so, and under XDIT_BF16=emulate it is a failed check. */
const char *tap_dtype(const xd_result *r, const char *asked);

/* ---- references ------------------------------------------------------------------------------ */

typedef struct ref { /* a tensor of golden.safetensors, as f32 */
    float  *v;       /* malloc'ed; NULL: the file has none of this name */
    int64_t n;
    int     nd;
    int64_t d[XD_MAXDIM];
    float   most; /* the largest magnitude */
} ref;

ref  ref_get(xd_st *st, const char *fmt, ...) XD_PRINTF(2, 3);
void ref_free(ref *r);

/* The largest difference of a and b, as a share of b's largest magnitude; infinite when shapes
 * differ or a is not finite somewhere. */
double ref_apart(const float *a, int nd, const int64_t *d, const ref *b);
/* The largest difference of two images in levels; 256 when sizes differ. */
int    levels_apart(const uint8_t *a, int64_t h, int64_t w, const ref *b);

/* Members of an object that must be there: the process ends with a message when one is not. */
double         js_num(const xd_json *j, const char *key);
double         js_maybe(const xd_json *j, const char *key); /* 0 when absent; 1 when true */
const char    *js_text(const xd_json *j, const char *key);  /* NULL: null */
int            js_flag(const xd_json *j, const char *key);
const xd_json *js_list(const xd_json *j, const char *key);
/* A document; the process ends with a message when it cannot be read. */
xd_json       *js_open(const char *path);

/* Ends the process with a message when `s` is not XD_OK. */
void must(xd_status s, const xd_err *e, const char *what);

#endif
