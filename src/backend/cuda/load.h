/* load.h - loading the CUDA libraries and looking up their functions */
#ifndef XD_BACKEND_CUDA_LOAD_H
#define XD_BACKEND_CUDA_LOAD_H

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/cudnn.h"
#include "backend/cuda/nccl.h"
#include "base/err.h"

/* The functions of the driver, initialised; loaded once a process. XD_EUNSUPPORTED: there is no
 * driver, it is too old, or it fails to start; the sentence says which. */
xd_status xd_cuda_load_driver(const xd_cuda_driver **cu, xd_err *e);
/* The functions of cuBLASLt. XD_EUNSUPPORTED: it is not installed. */
xd_status xd_cuda_load_cublaslt(const xd_cublaslt **lt, xd_err *e);
/* As 130002 for 13.0.2, when it is loaded; 0: it is not told. */
size_t    xd_cuda_cublaslt_version(void);
/* The functions of cuDNN. XD_EUNSUPPORTED: it is not installed, or older than 9.15. */
xd_status xd_cuda_load_cudnn(const xd_cudnn **dnn, xd_err *e);
/* The functions of NCCL. XD_EUNSUPPORTED: it is not installed. */
xd_status xd_cuda_load_nccl(const xd_nccl **nccl, xd_err *e);
/* The CUDA version that the driver supports, as 12080 for 12.8; 0: it is not told. */
int       xd_cuda_driver_version(const xd_cuda_driver *cu);
/* The fatbin of this build, and the CUDA version of the nvcc that made it (0: unknown, it is that
 * of another build); NULL: it was built without. */
const unsigned char *xd_cuda_fatbin(int *release);
/* The file of that name in XDIT_CUDA_DIR, or 0 where that is not set. */
int       xd_cuda_stand_in(char *path, size_t size, const char *name);
/* XD_OK; XD_ENOMEM when memory is short; else XD_EDEVICE. */
xd_status xd_cuda_status(CUresult r);
/* The same. The first error of a process, other than a lack of memory, is logged: its number, its
 * name and `call`, which returned it. */
xd_status xd_cuda_check(const char *call, CUresult r);
/* XDIT_CUDA_SYNC=1: the host waits behind each kernel and each product. */
int       xd_cuda_waits(void);
/* The driver's words for a result. Never NULL. */
const char *xd_cuda_words(const xd_cuda_driver *cu, CUresult r);

#endif
