/* prompts.c - prompts from a file; see prompts.h */
#include "cli/prompts.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum { MAXFILE = 1 << 26 };

static xd_status add(xd_opt_texts *list, const char *line, xd_err *e)
{
    const char **more = realloc(list->v, (size_t)(list->n + 1) * sizeof *more);
    if (!more)
        return xd_fail(e, XD_ENOMEM, "no memory for %d prompts", list->n + 1);
    list->v = more;
    more[list->n++] = line;
    return XD_OK;
}

xd_status xd_prompts_read(xd_opt_texts *list, const char *path, char **text, xd_err *e)
{
    size_t    len = 0;
    int       before = list->n;
    xd_status s = xd_file_read(path, MAXFILE, text, &len, e);
    if (s != XD_OK)
        return s;
    if (memchr(*text, 0, len))
        return xd_fail(e, XD_EINVAL, "%s is no text: it holds a byte 0", path);
    char *p = *text + (strncmp(*text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0);
    while (s == XD_OK && *p) {
        size_t n = strcspn(p, "\r\n");
        int    more = p[n] != 0;
        p[n] = 0;
        if (p[strspn(p, " \t")])
            s = add(list, p, e);
        p += n + (size_t)more;
    }
    if (s == XD_OK && list->n == before)
        return xd_fail(e, XD_EINVAL, "%s holds no prompt: it has one a line", path);
    return s;
}
