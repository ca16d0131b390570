/* defaults.h - the server's defaults for options that a request does not set */
#ifndef XD_SERVE_DEFAULTS_H
#define XD_SERVE_DEFAULTS_H

#include <stddef.h>

#include "xdit/tools.h"

typedef struct xd_defaults {    /* a list of arguments "--num_inference_steps=4"                */
    int    n, failed;           /* failed: out of memory                                       */
    char **v;                   /* [n], owned                                                  */
} xd_defaults;

/* Options that may have a default: the rows of xd_request_options except those of files. */
const xd_option *xd_defaults_rows(int *n);
/* Nonzero if a request that sets the option `given` does not get the default of `other`, such as
 * "num_frames" and "seconds", which both set the length of a video. */
int        xd_option_overrides(const char *given, const char *other);
/* Return the name and the value of an argument "--name=value". */
const char *xd_default_name(const char *text, char *name, size_t size);
const char *xd_default_value(const char *text);
/* Appends an option with its value; NULL: "true". */
void       xd_defaults_add(xd_defaults *d, const char *name, const char *value);
/* Appends those of `common` that no option in d overrides. */
void       xd_defaults_merge(xd_defaults *d, const xd_defaults *common);
void       xd_defaults_free(xd_defaults *d);

#endif
