/* prompts.c - reads prompts from a file; see prompts.h */
#define _GNU_SOURCE /* memfd_create */
#include "cli/prompts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"

static const char BLANKS[] = " \t";
enum { MAXFILE = 1 << 26 };

/* Refuses text that is not UTF-8; the message names the line and the invalid byte. */
static xd_status check_utf8(const char *text, const char *path, xd_err *e)
{
    size_t at = xd_utf8_invalid_at(text), line = 1, from = 0;
    if (!text[at])
        return XD_OK;
    for (size_t i = 0; i < at; i++)
        if (text[i] == '\n')
            line++, from = i + 1;
    return xd_fail(e, XD_EINVAL,
                   "%s is not UTF-8: byte %zu of line %zu is 0x%02X; convert it, "
                   "such as by iconv -f latin1 -t utf-8 FILE",
                   path, at - from + 1, line, (unsigned)(unsigned char)text[at]);
}

static xd_status add_prompt(xd_opt_texts *list, const char *line, xd_err *e)
{
    const char **more = realloc(list->v, (size_t)(list->n + 1) * sizeof *more);
    if (!more)
        return xd_fail(e, XD_ENOMEM, "no memory for %d prompts", list->n + 1);
    list->v = more;
    more[list->n++] = line;
    return XD_OK;
}

/* ---- CSV ------------------------------------------------------------------------------------- */

static int is_csv(const char *path)
{
    size_t n = strlen(path);
    return n > 4 && strcasecmp(path + n - 4, ".csv") == 0;
}

/* Reads the next field of CSV (RFC 4180) at *p, which moves behind the field and the comma or line
 * break after it. The quotes of the CSV field are removed in place; line breaks inside the field
 * become spaces. *last becomes 1 if the field is the last field of its row. Returns NULL if a
 * quoted field has no closing quote. */
static char *next_field(char **p, int *last)
{
    char *from = *p, *to = from, *field = from;
    int   quoted = *from == '"';
    for (from += quoted; *from && (quoted || !strchr(",\r\n", *from)); from++) {
        if (quoted && *from == '"' && from[1] != '"') {
            quoted = 0;
            continue;
        }
        from += quoted && *from == '"';
        *to++ = *from == '\n' || *from == '\r' ? ' ' : *from;
    }
    if (quoted)
        return NULL;
    *last = *from != ',';
    from += from[0] == '\r' && from[1] == '\n';
    *p = from + (*from != 0);
    *to = 0;
    return field;
}

/* Adds the prompts in the column `prompt` of a CSV file, whose first row names the columns. Other
 * columns, and rows without a prompt, are skipped. */
static xd_status read_csv(xd_opt_texts *list, char *p, const char *path, xd_err *e)
{
    xd_status s = XD_OK;
    int       column = -1, row = 0;
    while (s == XD_OK && *p) {
        for (int i = 0, last = 0; !last && s == XD_OK; i++) {
            char *field = next_field(&p, &last);
            if (!field)
                return xd_fail(e, XD_EINVAL, "%s: a quoted field of row %d has no closing quote",
                               path, row + 1);
            if (row == 0 && strcmp(field, "prompt") == 0)
                column = i;
            else if (row > 0 && i == column && field[strspn(field, BLANKS)])
                s = add_prompt(list, field, e);
        }
        if (row++ == 0 && column < 0)
            return xd_fail(e, XD_EINVAL,
                           "%s has no column named prompt; name the columns in the first row",
                           path);
    }
    return s;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Returns 1 if the line is a comment: it begins with # and a space, or is only #. For example,
 * "#hashtag" is a prompt and not a comment. */
static int is_comment(const char *line)
{
    return line[0] == '#' && (!line[1] || strchr(BLANKS, line[1]));
}

static xd_status read_lines(xd_opt_texts *list, char *p, xd_err *e)
{
    xd_status s = XD_OK;
    while (s == XD_OK && *p) {
        size_t n = strcspn(p, "\r\n");
        int    more = p[n] != 0;
        char  *end = p + n, *line = p + strspn(p, BLANKS);
        p[n] = 0;
        while (end > line && strchr(BLANKS, end[-1]))
            *--end = 0;
        if (*line && !is_comment(line))
            s = add_prompt(list, line, e);
        p += n + (size_t)more;
    }
    return s;
}

xd_status xd_prompts_read(xd_opt_texts *list, const char *path, char **text, xd_err *e)
{
    size_t    len = 0;
    int       before = list->n;
    xd_status s = xd_file_read_any(path, MAXFILE, text, &len, e);
    if (s != XD_OK)
        return s;
    if (strcmp(path, "-") == 0)
        path = "standard input";
    if (memchr(*text, 0, len))
        return xd_fail(e, XD_EINVAL, "%s is not a text file: it contains a byte 0", path);
    if ((s = check_utf8(*text, path, e)) != XD_OK)
        return s;
    char *p = *text + (strncmp(*text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0);
    s = is_csv(path) ? read_csv(list, p, path, e) : read_lines(list, p, e);
    if (s == XD_OK && list->n == before)
        return xd_fail(e, XD_EINVAL, "%s contains no prompt; write one per line", path);
    return s;
}

int xd_prompts_is_stream(const char *path)
{
    return path && (strcmp(path, "-") == 0 || xd_file_is_stream(path));
}

xd_status xd_prompts_copy(const xd_opt_texts *list, int first, char path[64], int *fd, xd_err *e)
{
    FILE *f = NULL;
#ifdef MFD_CLOEXEC
    int copy = memfd_create("prompts", MFD_CLOEXEC);
    if (copy >= 0)
        f = fdopen(dup(copy), "wb");
#else
    int copy = -1;
#endif
    for (int i = first; f && i < list->n; i++)
        fprintf(f, "%s\n", list->v[i]);
    *fd = copy;
    if (!f || fclose(f) != 0)
        return xd_fail(
            e, XD_EIO,
            "cannot copy the prompts of a pipe for several ranks (%s): give --prompts a file",
            strerror(errno));
    snprintf(path, 64, "/proc/%ld/fd/%d", (long)getpid(), copy);
    return XD_OK;
}
