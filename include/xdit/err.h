/* err.h - declares the types that all other headers need: status codes, the error record, the
 * levels of log lines, and the callback type xd_fact. xdit.h includes this header and documents
 * errors. */
#ifndef XDIT_ERR_H
#define XDIT_ERR_H

typedef enum xd_status {
    XD_OK = 0,
    XD_ENOMEM,       /* not enough memory, as measured or predicted */
    XD_EINVAL,       /* the request or an argument is wrong */
    XD_EIO,          /* a file or directory cannot be read or written */
    XD_EFORMAT,      /* the content of a file is wrong */
    XD_EUNSUPPORTED, /* a valid argument that this library or machine does not support */
    XD_ECOMM,        /* messages between ranks failed */
    XD_EDEVICE,      /* a device failed */
    XD_ECANCELLED    /* xd_cancel was called */
} xd_status;

/* Record of the first failure; initialize it with {0}. The size of xd_err is the same in all
 * versions of the library. */
typedef struct xd_err {
    xd_status code;
    int       rank;      /* rank that failed; -1 if some ranks do not know which rank failed */
    char      msg[4096]; /* one sentence with the failure, the file or field, and the values */
} xd_err;

/* Levels of log lines, ordered by increasing detail: a program that sets log_level also receives
 * the log lines of all less detailed levels. */
enum { XD_LOG_ERROR, XD_LOG_WARN, XD_LOG_INFO, XD_LOG_DEBUG };

/* Type of the callback that receives facts about library and machine. The function xd_about
 * (tools.h) describes the library and the machine by calling it with names and values, for example
 * "cores" and "16". The strings `name` and `value` are valid only during the call of the xd_fact
 * callback. */
typedef void xd_fact(void *cookie, const char *name, const char *value);

#endif
