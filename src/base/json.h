/* json.h - reads JSON documents (parsed by cJSON), fills C structs from them by a table, and writes
 * JSON texts.
 *
 * A component's config.json becomes a C struct. For this, the component defines a table of xd_field
 * with one row for each key of the config. Unknown keys are logged at debug level; values of a
 * wrong type are refused. */
#ifndef XD_BASE_JSON_H
#define XD_BASE_JSON_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct xd_json xd_json; /* value inside a JSON document; borrowed */

/* Parses a JSON text. what: name of the text in errors. The caller owns the document *j. Deep
 * nesting and text after the JSON value are refused. NaN, Infinity and -Infinity without quotes are
 * accepted, because Python writes them. */
xd_status xd_json_parse(xd_json **j, const char *text, size_t len, const char *what, xd_err *e);
/* Reads and parses a JSON file. */
xd_status xd_json_read(xd_json **j, const char *path, xd_err *e);
void      xd_json_free(xd_json **j);

/* Returns the value of a key, or NULL if `j` is not an object or does not contain the key. */
const xd_json *xd_json_get(const xd_json *j, const char *key);
/* Returns the number of members of an object or array. */
int            xd_json_size(const xd_json *j);
/* Returns the i-th member of an object or array in constant time, or NULL if there are fewer
 * members. */
const xd_json *xd_json_at(const xd_json *j, int i);
const xd_json *xd_json_first(const xd_json *j); /* returns the first member, or NULL */
const xd_json *xd_json_next(const xd_json *v);  /* returns the member after v, or NULL */
/* Returns the key of a member of an object, or NULL. */
const char    *xd_json_key(const xd_json *v);
/* Returns the text of a string, or NULL if `j` is not a string. */
const char    *xd_json_text(const xd_json *j);
/* If `j` is a number, sets *v to it and returns 1; else returns 0. */
int            xd_json_number(const xd_json *j, double *v);
/* If `j` is true or false, sets *v to 1 or 0 and returns 1; else returns 0. */
int            xd_json_bool(const xd_json *j, int *v);
/* Returns 1 if j is NULL or the value is null. */
int            xd_json_null(const xd_json *j);
int            xd_json_is_object(const xd_json *j);
int            xd_json_is_list(const xd_json *j);

/* A row of the table that describes a config: one key of the config. Kinds and the C type at `off`:
 *   'i' int 'l' int64_t 'f' float 'd' double 'b' int (true, false) 's' char[XD_FIELD_TEXT] 'L'
 *   xd_ints 'S' xd_names '-' known, ignored 'B' xd_ints of true (1) and false (0) 'D' xd_reals 'N'
 *   xd_ints; an integer is a list of one 'T' xd_names; a string is a list of one 'G' xd_ints of
 *   lists of numbers 1 to 63, each '=' only the default is supported list as a number to the base
 *   64, last first '>' an object ("text_config") whose keys are used if the config itself lacks
 *   them; one row
 * 'f' and 'd' also accept the strings "Infinity", "-Infinity", "NaN". 'i' and 'l' refuse fractions
 * and accept a list of equal numbers as that number. A null value in a config means the default.
 * The default of a field is `def` for numbers and bools, `text` for strings, and the empty list for
 * lists. The key of a field may be a path into nested objects: "rope_scaling.factor". Each key of a
 * path except the last must be an object or absent. A config key may occur in several rows. Rows
 * with the same `off` are aliases: the C field gets the value of the first alias whose key is
 * present in the config. If no alias is present, the C field gets the first alias's default. */
typedef struct xd_field {
    const char *json;
    size_t      off;
    char        kind;
    double      def;
    const char *text;
} xd_field;

enum { XD_FIELD_TEXT = 64, XD_FIELD_LIST = 64 };
typedef struct xd_ints {
    int     n;
    int64_t v[XD_FIELD_LIST];
} xd_ints;
typedef struct xd_reals {
    int    n;
    double v[XD_FIELD_LIST];
} xd_reals;
typedef struct xd_names {
    int  n;
    char v[XD_FIELD_LIST][XD_FIELD_TEXT];
} xd_names;

/* First sets all fields of the struct `out` to the defaults of a table, then sets the fields for
 * which the JSON object `obj` has values. If `obj` is NULL, all fields have the defaults. The table
 * ends with a row whose json is NULL. `what` names the file in errors and in the debug log. */
xd_status xd_fields_read(const xd_field *fields, void *out, const xd_json *obj, const char *what,
                         xd_err *e);

/* A text buffer that grows as text is appended. `failed` is 1 if the buffer ran out of memory. */
typedef struct xd_text_buf {
    char  *p;
    size_t len, cap;
    int    failed;
} xd_text_buf;
void xd_buf_add(xd_text_buf *b, const char *fmt, ...) XD_PRINTF(2, 3);
void xd_buf_vadd(xd_text_buf *b, const char *fmt, va_list ap) XD_PRINTF(2, 0);
/* Appends any text as UTF-8: each byte that is not valid becomes U+FFFD. */
void xd_buf_utf8(xd_text_buf *b, const char *s);
void xd_buf_json_string(xd_text_buf *b, const char *s); /* appends s as a quoted, escaped string */
/* Appends a JSON value with all its members, without spaces. Numbers in the JSON value must be
 * finite. */
void xd_buf_json(xd_text_buf *b, const xd_json *v);
void xd_buf_free(xd_text_buf *b);

void xd_json_about(xd_fact *fact, void *cookie); /* reports the version of cJSON */

#endif
