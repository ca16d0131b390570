/* err.h - defines the status codes and the error record xd_err.
 *
 * Functions that handle files, devices and requests return xd_status and fill the caller's xd_err.
 * The function that detects a failure writes the error message: one sentence that includes the
 * wrong values. Callers that return the error to their own callers add nothing to the message.
 * While a network computes, the first error is kept in the execution context (exec/exec.h). */
#ifndef XD_BASE_ERR_H
#define XD_BASE_ERR_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "xdit/err.h" /* declares the public types xd_status and xd_err */

#if defined(__GNUC__)
#define XD_PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define XD_PRINTF(a, b)
#endif

/* Records a failure and returns `code`. Only the first failure is recorded: a later failure does
 * not change an error record. The error record `e` may be NULL. */
xd_status xd_fail(xd_err *e, xd_status code, const char *fmt, ...) XD_PRINTF(3, 4);
xd_status xd_vfail(xd_err *e, xd_status code, const char *fmt, va_list ap) XD_PRINTF(3, 0);

/* Adds the path of a file or directory to an error message: puts "PATH: " before the message,
 * unless the message already contains the path. A function that opens a component calls xd_fail_at
 * only once, at the end of the function. Messages of errors that concern no file (a bad request, a
 * lost message) do not change. Returns `code`. */
xd_status xd_fail_at(xd_err *e, xd_status code, const char *path);

/* Returns the number of bytes of the UTF-8 character at s. Returns 0 if the bytes at s are not a
 * valid character, for example a lone continuation byte, an overlong form, a surrogate or a value
 * above U+10FFFF. */
size_t xd_utf8_bytes(const char *s);
/* Returns the offset of the first byte that is not valid UTF-8, or the length of the text. */
size_t xd_utf8_invalid_at(const char *s);
/* Replaces with '?' each byte that is not UTF-8 and each control character (C0 and C1) that is not
 * in `keep`. If a text from a file, such as a tensor's name, were printed without xd_clean, it
 * could start new lines or send escape sequences to a terminal. */
void   xd_clean(char *text, const char *keep);
/* Replaces with '?' every byte that xd_clean can replace, including new lines. All error messages
 * and log lines pass through xd_one_line. */
void   xd_one_line(char *text);

/* Returns the short name of a status code: "out of memory", "wrong format". The returned name is
 * never NULL. */
const char *xd_status_name(xd_status s);

/* A size in bytes as text, for messages: "2.51 GB", "73 MB", "0 kB". xd_size_text returns a struct
 * whose field `s` is such a text. */
typedef struct xd_size { char s[16]; } xd_size;
xd_size   xd_size_text(double bytes);
/* Reads a size from text: "12GB", "11.5 GiB", "800MB", "64kB" or a number of bytes. Returns
 * XD_EINVAL if the text is not a size; the error message contains the option `name`. */
xd_status xd_size_read(const char *text, const char *name, int64_t *bytes, xd_err *e);

/* Clears an error record, so that it records the next failure. */
void xd_err_clear(xd_err *e);

#endif
