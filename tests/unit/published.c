/* published.c - see published.h */
#include "published.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"

const char *published_folder(void)
{
    const char *folder = getenv("XDIT_TEST_HF");
    return folder && *folder ? folder : "../shared/hf";
}

void published_absent(const char *what)
{
    /* cmocka's skip() is "not ok" in TAP. */
    printf("# skipped: needs %s of the published configs (XDIT_TEST_HF)\n", what);
}

const char *published_path(const char *name)
{
    static char path[8][1024];
    static int  at;
    at = (at + 1) % 8;
    snprintf(path[at], sizeof path[at], "%s/%s", published_folder(), name);
    if (xd_file_exists(path[at]) || xd_file_is_dir(path[at]))
        return path[at];
    published_absent(name);
    return NULL;
}
