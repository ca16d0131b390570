/* defaults.h - what the server takes for options that a request does not have */
#ifndef XD_SERVE_DEFAULTS_H
#define XD_SERVE_DEFAULTS_H

#include <stddef.h>

#include "xdit/tools.h"

typedef struct xd_defaults {    /* texts of its own, as arguments: "--num_inference_steps=4"    */
    int    n, failed;           /* failed: memory was short                                    */
    char **v;
} xd_defaults;

/* Options that may have a default: rows of xd_request_options, but those of files. */
const xd_option *xd_defaults_rows(int *n);
/* Does a request that has the one option leave out a default of the other? As "num_frames" and
 * "seconds", which are two lengths of one video. */
int        xd_default_is_over(const char *given, const char *other);
/* The name and the value of a text. */
const char *xd_default_name(const char *text, char *name, size_t size);
const char *xd_default_value(const char *text);
/* Appends an option with its value; NULL: "true". */
void       xd_defaults_add(xd_defaults *d, const char *name, const char *value);
/* Appends those of `common` that the ones before leave room for. */
void       xd_defaults_merge(xd_defaults *d, const xd_defaults *common);
void       xd_defaults_free(xd_defaults *d);

#endif
