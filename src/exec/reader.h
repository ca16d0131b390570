/* reader.h - tensors of a source as plain numbers: with their scale and with the terms that the
 * source adds, as a load would see them. For programs that write weights to files. */
#ifndef XD_EXEC_READER_H
#define XD_EXEC_READER_H

#include "exec/weight.h"

typedef struct xd_reader {      /* one tensor                                                  */
    const xd_source *src;       /* borrowed                                                    */
    char      name[512];
    xd_tensor t;                /* as it is stored; valid until the reader is closed           */
    int64_t   rows, cols;       /* of the first extent, and elements of each                   */
    float     scale;
    xd_coding codes;            /* of a tensor in codes                                        */
    void     *sum;              /* terms to add; NULL: none                                    */
} xd_reader;

/* Opens a tensor that the source has, with all its columns. Close it in any case. */
xd_status xd_reader_open(xd_reader *r, const xd_source *src, const char *name, xd_err *e);
void      xd_reader_close(xd_reader *r);
/* Are its numbers those that are stored, bit by bit? */
int       xd_reader_plain(const xd_reader *r);
/* Rows [row, row + n) as f32. From any thread; thread: its number, below xd_par_threads() at
 * `open`. */
void      xd_reader_rows(const xd_reader *r, int64_t row, int64_t n, float *to, int thread);
/* These rows will not be read again: their pages may be unmapped. */
void      xd_reader_past(const xd_reader *r, int64_t row, int64_t n);

/* Does it hold numbers of this type (I8, F8E4M3) with a scale a row or a tensor, which those of a
 * matrix can be? Then xd_reader_codes makes them of a row x that was read, and returns the
 * scale. */
int       xd_reader_keeps(const xd_reader *r, xd_dtype type);
float     xd_reader_codes(const xd_reader *r, int64_t row, const float *x, void *to);
/* Does it hold rows of Q4_0 blocks, rotated in these groups? *at: the first of them. */
int       xd_reader_fours(const xd_reader *r, int64_t rotate, const void **at);

/* Quantizes a row of n numbers in place of a device, with its integers or e4m3 numbers bit by bit
 * (backend/backend.h): type I8 or F8E4M3. Returns the scale. */
float     xd_quantize_row(xd_dtype type, const float *x, int64_t n, void *to);
/* The same of whole rows as XD_Q4_0, rotated in groups unless `rotate` is 0; x changes. */
void      xd_quantize_fours(float *x, int64_t n, int64_t rotate, void *to);
/* In which groups rows of so many columns are rotated; 0: they are not. */
int64_t   xd_four_rotation(int64_t in);

#endif
