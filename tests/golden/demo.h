/* demo.h - what the tests of the demo models share: they generate the prompts of a plan, and see in
 * the pixels what came out. A plan is a JSON document of tools/demo_reference.py or of
 * tools/demo_video_reference.py. */
#ifndef XD_TESTS_DEMO_H
#define XD_TESTS_DEMO_H

#include "golden.h"

/* Generates the prompt and seed of `p` with the plan's size, steps and guidance_scale. The caller
 * frees. NULL: a failed check was printed. */
xd_result *demo_generate(xd_engine *g, const xd_json *plan, const xd_json *p);

/* Cell (row, column) of a sheet of square cells of `side` pixels as a reference image, which the
 * caller frees. rgb: the sheet, 8 bits, w pixels across. */
ref demo_cell(const uint8_t *rgb, int64_t w, int64_t side, int64_t row, int64_t column);

/* Median of n bytes, which are sorted: the mean of the two middle ones when n is even, -1 when n
 * is 0. */
double demo_median(uint8_t *v, int64_t n);

/* Name of the colour of the plan's table nearest to rgb, in levels of 0 to 255. */
const char *demo_colour(const xd_json *plan, const double *rgb);

#endif
