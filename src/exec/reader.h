/* reader.h - reads tensors of a source as f32, with scale and added terms, as a load would read
 * them. For programs that write weight files. */
#ifndef XD_EXEC_READER_H
#define XD_EXEC_READER_H

#include "exec/weight.h"

typedef struct xd_reader {      /* one tensor                                                  */
    const xd_source *src;       /* borrowed                                                    */
    char      name[512];
    xd_tensor t;                /* as stored; valid until the reader is closed                 */
    int64_t   rows, cols;       /* first extent, and elements per row                          */
    float     scale;
    xd_coding codes;            /* if the tensor is stored as codes                            */
    void     *sum;              /* terms to add; NULL: none                                    */
} xd_reader;

/* Opens a tensor of the source, with all its columns. Close it also after a failure. */
xd_status xd_reader_open(xd_reader *r, const xd_source *src, const char *name, xd_err *e);
void      xd_reader_close(xd_reader *r);
/* Returns 1 if the values are exactly the stored ones. */
int       xd_reader_plain(const xd_reader *r);
/* Reads rows [row, row + n) as f32. From any thread; thread: index below xd_par_threads() at
 * `open`. */
void      xd_reader_rows(const xd_reader *r, int64_t row, int64_t n, float *to, int thread);
/* Tells the source that these rows will not be read again: their pages may be unmapped. */
void      xd_reader_past(const xd_reader *r, int64_t row, int64_t n);

/* Returns 1 if the tensor has elements of this type (I8, F8E4M3) with a scale per row or tensor, as
 * matrices do. xd_reader_codes then converts a row x that was read to these elements, and returns
 * its scale. */
int       xd_reader_keeps(const xd_reader *r, xd_dtype type);
float     xd_reader_codes(const xd_reader *r, int64_t row, const float *x, void *to);
/* Returns 1 if the tensor has rows of Q4_0 blocks rotated in this group size. *at: first block. */
int       xd_reader_fours(const xd_reader *r, int64_t rotate, const void **at);

/* Quantizes a row of n values on the host, bit for bit as the devices do (backend/backend.h): type
 * I8 or F8E4M3. Returns the scale. */
float     xd_quantize_row(xd_dtype type, const float *x, int64_t n, void *to);
/* The same for complete rows as XD_Q4_0, rotated in groups unless `rotate` is 0; x is changed. */
void      xd_quantize_fours(float *x, int64_t n, int64_t rotate, void *to);
/* Returns the group size in which rows with this number of columns are rotated; 0: none. */
int64_t   xd_four_rotation(int64_t in);

#endif
