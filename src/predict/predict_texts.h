/* predict_texts.h - groups the prompts of a request by the numbers of rows of their embeddings */
#ifndef XD_PREDICT_PREDICT_TEXTS_H
#define XD_PREDICT_PREDICT_TEXTS_H

#include "pipeline/text_encode.h"
#include "predict/predict.h"

/* Groups the prompts in f->text (all fields except the steps) and sets f->texts, the number of
 * groups; writes the index of each prompt's group to text_of[prompts]. If `known` is 0, the lengths
 * of the prompts are unknown, and all prompts form one group. Call xd_predict_texts after f->rounds
 * is set. */
void xd_predict_texts(xd_prediction *f, const xd_prompts *w, const xd_job *j, int known,
                      int *text_of);

#endif
