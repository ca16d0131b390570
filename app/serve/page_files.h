/* page_files.h - declares the files of the web page, which tools/embed_files.py embeds in the
 * program */
#ifndef XD_SERVE_PAGE_FILES_H
#define XD_SERVE_PAGE_FILES_H

#include <stddef.h>

typedef struct xd_page_file {
    const char          *name, *type; /* file name and media type: "page.css", "text/css;
                                   charset=utf-8" */
    const char          *tag;         /* ETag of the file's content, with its quotes */
    const unsigned char *data;
    size_t               bytes;
} xd_page_file;

extern const xd_page_file xd_page_files[]; /* all files; the last row has no name */

#endif
