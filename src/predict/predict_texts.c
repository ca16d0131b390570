/* predict_texts.c - groups the prompts of a request by the numbers of rows of their embeddings; see
 * predict_texts.h */
#include "predict/predict_texts.h"

#include <string.h>

#include "base/minmax.h"
#include "plan/plan.h"

/* Returns the rows of all passes of a prompt. */
static int64_t length_of(const xd_prompts *w, const xd_job *j, int prompt)
{
    return xd_prompts_rows(w, j, prompt, 0) +
           (xd_job_has_negative(j) ? xd_prompts_rows(w, j, prompt, 1) : 0);
}

/* Returns 1 if two prompts have the same numbers of rows after rounding up to a multiple of
 * `step`. */
static int is_alike(const xd_prompts *w, const xd_job *j, int a, int b, int64_t step)
{
    int alike = 1;
    for (int i = 0; i < 1 + xd_job_has_negative(j); i++)
        alike &= xd_ceil_div(xd_prompts_rows(w, j, a, i), step) ==
                 xd_ceil_div(xd_prompts_rows(w, j, b, i), step);
    return alike;
}

/* Groups the prompts by their numbers of rows, rounded up to a multiple of `step`. The longest
 * prompt of a group represents the group. Returns 0 if there are too many groups. */
static int group(xd_prediction *f, const xd_prompts *w, const xd_job *j, int64_t step)
{
    f->texts = 0;
    for (int i = 0; i < w->prompts; i++) {
        int k = 0;
        while (k < f->texts && !is_alike(w, j, f->text[k].prompt, i, step))
            k++;
        if (k == XD_PREDICTED_TEXTS)
            return 0;
        if (k == f->texts)
            f->text[f->texts++].prompt = i;
        else if (length_of(w, j, i) > length_of(w, j, f->text[k].prompt))
            f->text[k].prompt = i;
    }
    return 1;
}

static void sort(xd_prediction *f, const xd_prompts *w, const xd_job *j)
{
    for (int i = 1; i < f->texts; i++) {
        int prompt = f->text[i].prompt, k = i;
        for (; k > 0 && length_of(w, j, f->text[k - 1].prompt) > length_of(w, j, prompt); k--)
            f->text[k].prompt = f->text[k - 1].prompt;
        f->text[k].prompt = prompt;
    }
}

void xd_predict_texts(xd_prediction *f, const xd_prompts *w, const xd_job *j, int known,
                      int *text_of)
{
    int     D = f->plan.deg.n[XD_DATA];
    int64_t step = 1;
    f->texts = 1;
    memset(f->text, 0, sizeof f->text);
    while (known && !group(f, w, j, step))
        step *= 2;
    sort(f, w, j);
    for (int i = 0; i < w->prompts; i++) {
        text_of[i] = 0;
        while (known && !is_alike(w, j, f->text[text_of[i]].prompt, i, step))
            text_of[i]++;
    }
    for (int i = 0; i < f->rounds; i++) {
        int longest = 0;
        for (int k = i * D; k < (i + 1) * D && k < j->images; k++)
            longest = (int)xd_max(longest, text_of[k / j->r->num_images_per_prompt]);
        f->text[longest].rounds++;
    }
}
