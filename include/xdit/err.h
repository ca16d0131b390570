/* err.h - declares the types that all other headers need: status codes, the error record, the
 * levels of log lines, and the callback that receives facts. xdit.h includes this header and
 * documents errors. */
#ifndef XDIT_ERR_H
#define XDIT_ERR_H

typedef enum xd_status {
    XD_OK = 0,
    XD_ENOMEM,                  /* not enough memory, as measured or predicted                */
    XD_EINVAL,                  /* the request or an argument is wrong                       */
    XD_EIO,                     /* a file or directory cannot be read or written             */
    XD_EFORMAT,                 /* the content of a file is wrong                            */
    XD_EUNSUPPORTED,            /* a valid argument that this library or machine does not support */
    XD_ECOMM,                   /* messages between ranks failed                             */
    XD_EDEVICE,                 /* a device failed                                           */
    XD_ECANCELLED               /* xd_cancel was called                                      */
} xd_status;

typedef struct xd_err { /* record of the first failure; initialize with {0}; its size never
                           changes */
    xd_status code;
    int       rank;             /* rank that failed; -1: not all ranks know which one         */
    char      msg[4096]; /* one sentence with the failure, the file or field, and the values */
} xd_err;

/* Levels of log lines. A program that sets a log_level also receives the lines of all levels listed
 * before this level. */
enum { XD_LOG_ERROR, XD_LOG_WARN, XD_LOG_INFO, XD_LOG_DEBUG };

/* A callback of the program. xd_about (tools.h) passes to the callback the name and the value of a
 * fact; both texts are valid during the call. */
typedef void xd_fact(void *cookie, const char *name, const char *value);

#endif
