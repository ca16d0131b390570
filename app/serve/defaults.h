/* defaults.h - stores the server's defaults for options that a request does not set */
#ifndef XD_SERVE_DEFAULTS_H
#define XD_SERVE_DEFAULTS_H

#include <stddef.h>

#include "xdit/tools.h"

typedef struct xd_defaults { /* list of default options as arguments such as
                                "--num_inference_steps=4" */
    int    n, failed;        /* failed: 1 if memory was exhausted */
    char **v;                /* [n] arguments, owned */
} xd_defaults;

/* Returns the options for which a server can have default values: the rows of xd_request_options,
 * except options whose value is the name of a file. */
const xd_option *xd_defaults_rows(int *n);
/* Returns nonzero if a request that sets the option `given` must not use the server's default of
 * the option `other`. For example, a request with "num_frames" ignores the default of "seconds",
 * because both set the length of a video. */
int              xd_option_overrides(const char *given, const char *other);
/* xd_default_name copies the name in an argument "--name=value" to `name`; xd_default_value returns
 * the value in such an argument. */
const char      *xd_default_name(const char *text, char *name, size_t size);
const char      *xd_default_value(const char *text);
/* Appends an option with its value to the list; a value NULL means "true". */
void             xd_defaults_add(xd_defaults *d, const char *name, const char *value);
/* Appends the defaults in `common` to `d`, except for options that `d` sets or overrides. */
void             xd_defaults_merge(xd_defaults *d, const xd_defaults *common);
void             xd_defaults_free(xd_defaults *d);

#endif
