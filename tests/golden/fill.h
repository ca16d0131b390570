/* fill.h - for tests: weights for model directories that have configurations only
 *
 * Numbers follow from the names of tensors, so that a reference can be computed elsewhere with the
 * same weights and none are kept; tools/golden/fill.py has the same rules. */
#ifndef XD_TESTS_FILL_H
#define XD_TESTS_FILL_H

#include "tensor/tensor.h"

/* Makes the directory `to` from the model directory `from`: its files are copied, and components
 * without weights get all that they declare, stored as `type` (F32, F16 or BF16). `to` may be there
 * and is written over. The process ends with a message when that fails. */
void fill_model(const char *from, const char *to, xd_dtype type);

/* Copies tests/golden to the directory `to`, and fills the models whose golden.json names a type
 * of weights. `target` is touched at the end; the file `notes` says for make which files it
 * depends on. */
void fill_all(const char *from, const char *to, const char *notes, const char *target);

/* "f32", "f16", "bf16"; the process ends with a message at another name. */
xd_dtype fill_type(const char *name);

#endif
