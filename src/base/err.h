/* err.h - status codes and the one error record.
 *
 * Functions at the edges (files, devices, requests) return xd_status and fill the caller's
 * xd_err; who detects a failure writes one sentence with the numbers, who passes it on adds
 * nothing. Inside the loop the error is sticky on the context (exec/exec.h). */
#ifndef XD_BASE_ERR_H
#define XD_BASE_ERR_H

#include <stdarg.h>
#include <stddef.h>

#include "xdit/xdit.h"          /* xd_status and xd_err are public */

#if defined(__GNUC__)
#define XD_PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define XD_PRINTF(a, b)
#endif

/* Records a failure and returns `code`. The first failure wins: a record that already holds
 * one is left as it is. `e` may be NULL. */
xd_status xd_fail(xd_err *e, xd_status code, const char *fmt, ...) XD_PRINTF(3, 4);
xd_status xd_vfail(xd_err *e, xd_status code, const char *fmt, va_list ap) XD_PRINTF(3, 0);

/* Says which file or directory a failure is about: puts "PATH: " before the sentence, unless the
 * sentence has the path. Whoever opens a component calls it once, behind all that can fail.
 * Failures that are about no file (a bad request, a lost message) stay as they are. Returns `code`.
 */
xd_status xd_fail_at(xd_err *e, xd_status code, const char *path);

/* Bytes of the UTF-8 character at s; 0 when there is none: a stray byte, an overlong form, a
 * surrogate, or past U+10FFFF. */
size_t xd_utf8_bytes(const char *s);
/* Puts ? for control characters, C1 too, but those in `keep`, and for bytes that are not UTF-8:
 * what a file says of itself, such as a tensor's name, may begin new lines or colour a terminal. */
void xd_clean(char *text, const char *keep);
/* The same, new lines too. Failures and log lines have gone through it. */
void xd_one_line(char *text);

/* Short name of a status: "out of memory", "wrong format". Never NULL. */
const char *xd_status_name(xd_status s);

/* "2.51 GB", "73 MB", "0 kB": for a sentence, xd_size_text(bytes).s. */
typedef struct xd_size { char s[16]; } xd_size;
xd_size xd_size_text(double bytes);

/* Makes a record fresh again. */
void xd_err_clear(xd_err *e);

#endif
