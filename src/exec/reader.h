/* reader.h - reads tensors of a weight source as f32, with the same scales and added terms (LoRA)
 * as a model that loads them. The functions of reader.h are for programs that write weight
 * files. */
#ifndef XD_EXEC_READER_H
#define XD_EXEC_READER_H

#include "exec/weight.h"

typedef struct xd_reader { /* state of a reader, which reads one tensor */
    const xd_source *src;  /* weight source that has the tensor; borrowed */
    char             name[512];
    xd_tensor        t; /* the tensor as stored; valid until the reader is closed */
    /* rows: the tensor's first extent; cols: product of its other extents */
    int64_t          rows, cols;
    float            scale;
    xd_coding        codes; /* tells how to decode the tensor, if it is stored as codes */
    void            *sum;   /* LoRA terms to add to the rows (xd_source_sums); NULL: none */
} xd_reader;

/* Opens a reader for the tensor `name` of the weight source. Call xd_reader_close also after a
 * failure. */
xd_status xd_reader_open(xd_reader *r, const xd_source *src, const char *name, xd_err *e);
void      xd_reader_close(xd_reader *r);
/* Returns 1 if the reader returns the stored values unchanged: the tensor has no scale, no
 * quantized codes and no added terms. */
int       xd_reader_plain(const xd_reader *r);
/* Reads rows [row, row + n) of the tensor as f32. xd_reader_rows may be called by any thread.
 * thread: index of the calling thread, below the value of xd_par_threads() at xd_reader_open. */
void      xd_reader_rows(const xd_reader *r, int64_t row, int64_t n, float *to, int thread);
/* Tells the weight source that rows [row, row + n) will not be read again, so that their pages may
 * be unmapped. */
void      xd_reader_past(const xd_reader *r, int64_t row, int64_t n);

/* Returns 1 if the tensor is stored in the format of packed matrices: with elements of this type
 * (I8, F8E4M3) and a scale per row or per tensor. After xd_reader_rows has read a row x of a tensor
 * that is stored in this format, xd_reader_codes converts x back to the stored 8-bit elements and
 * returns the row's scale. */
int   xd_reader_keeps(const xd_reader *r, xd_dtype type);
float xd_reader_codes(const xd_reader *r, int64_t row, const float *x, void *to);
/* Returns 1 if the tensor is stored as Q4_0 blocks whose rows were rotated in groups of `rotate`
 * columns. Sets *at to the address of the tensor's first block. */
int   xd_reader_fours(const xd_reader *r, int64_t rotate, const void **at);

/* Quantizes a row of n values to type I8 or F8E4M3 on the host, bit-identical to the devices'
 * quantization (backend/backend.h). Returns the scale of the quantized row. */
float   xd_quantize_row(xd_dtype type, const float *x, int64_t n, void *to);
/* Quantizes a complete row of n values to XD_Q4_0 blocks. If `rotate` is not 0, the row is first
 * rotated in groups of `rotate` values (xd_rotation). Rotating the row changes the array x. */
void    xd_quantize_fours(float *x, int64_t n, int64_t rotate, void *to);
/* Returns the group size in which rows with `in` columns are rotated, or 0 if they are not
 * rotated. */
int64_t xd_four_rotation(int64_t in);

#endif
