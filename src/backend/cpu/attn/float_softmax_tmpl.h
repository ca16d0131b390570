/* float_softmax_tmpl.h - turns f32 scores into probabilities; defines the softmax_state and
 * softmax_next that values_tmpl.h requires.
 *
 * The including file defines the v_ functions of flash_tmpl.h, LANES, PAIRS and put_probs, and has
 * included plan.h. */
#ifndef XD_BACKEND_CPU_ATTN_FLOAT_SOFTMAX_TMPL_H
#define XD_BACKEND_CPU_ATTN_FLOAT_SOFTMAX_TMPL_H

/* Progress of the softmax of a few rows of scores, which are processed row by row, 2 LANES scores
 * in each step. */
typedef struct softmax_state {
    float       *row; /* first row of scores; rows are XD_ATTN_LDS floats apart */
    const float *low; /* for each row, the number that is added to its scaled scores */
    float       *sum; /* for each row, LANES partial sums of its probabilities */
    float        scale;
    /* first key of the next step; number of keys of a row, rounded up to full steps */
    int64_t      at, width;
    int64_t      left; /* number of remaining softmax steps */
} softmax_state;

static inline void softmax_next(softmax_state *s)
{
    float   *from = s->row + s->at, *to = s->row + s->at / (1 + PAIRS);
    const vf c = v_set(s->scale), low = v_set(*s->low);
    const vf x = v_exp2(v_fma(v_load(from), c, low));
    const vf y = v_exp2(v_fma(v_load(from + LANES), c, low));
    v_store(s->sum, v_add(v_add(v_load(s->sum), x), y));
    put_probs(to, x, y);
    s->at += 2 * LANES;
    if (s->at == s->width) {
        s->at = 0;
        s->row += XD_ATTN_LDS;
        s->low++;
        s->sum += LANES;
    }
    s->left--;
}

#endif
