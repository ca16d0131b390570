/* output.c - names of the files that pictures are written to */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "io/image.h"
#include "xdit/xdit.h"

/* The conversion in a name: position and length of one %d or %0Nd; 0 none, -1 something else. */
static int find_number(const char *path, size_t *at, size_t *len, int *width)
{
    int found = 0;
    for (size_t i = 0; path[i]; i++) {
        if (path[i] != '%')
            continue;
        size_t k = i + 1;
        int    w = 0;
        while (path[k] >= '0' && path[k] <= '9' && w < 100)
            w = w * 10 + (path[k++] - '0');
        if (path[k] != 'd' || found || w > 18)
            return -1;
        *at = i, *len = k + 1 - i, *width = w;
        found = 1;
        i = k;
    }
    return found;
}

/* Where the extension starts: the last dot after the last slash, or the end. */
static size_t stem_of(const char *path)
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    return dot && dot != path && dot[-1] != '/' ? (size_t)(dot - path) : strlen(path);
}

xd_status xd_output_name(const char *path, int i, int images, char *name, size_t size, xd_err *e)
{
    size_t at = 0, len = 0;
    int    width = 0, n, has = find_number(path, &at, &len, &width);
    if (has < 0)
        return xd_fail(e, XD_EINVAL, "the output name %s may have one %%d (or %%04d) and no other %%",
                       path);
    if (has)
        n = snprintf(name, size, "%.*s%0*d%s", (int)at, path, width, i + 1, path + at + len);
    else if (images > 1)
        n = snprintf(name, size, "%.*s_%04d%s", (int)stem_of(path), path, i + 1,
                     path + stem_of(path));
    else
        n = snprintf(name, size, "%s", path);
    if (n < 0 || (size_t)n >= size)
        return xd_fail(e, XD_EINVAL, "the output name is longer than %zu bytes", size - 1);
    return XD_OK;
}

static int is_latents(const char *path)
{
    return strcmp(path + stem_of(path), ".safetensors") == 0;
}

xd_status xd_output_check(const char *path, int images, xd_err *e)
{
    char name[4096];
    if (!path || !*path)
        return xd_fail(e, XD_EINVAL, "the output name is empty");
    xd_status s = xd_output_name(path, 0, images, name, sizeof name, e);
    if (s != XD_OK)
        return s;
    if (!is_latents(name) && !xd_image_known(name))
        return xd_fail(e, XD_EINVAL, "the output name %s must end in .png, .jpg, .jpeg, .webp, .ppm "
                       "or .safetensors (latents)", path);
    return xd_file_writable(name, e);
}

void xd_output_sweep(void)
{
    xd_out_sweep();
}
