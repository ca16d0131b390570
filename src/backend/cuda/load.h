/* load.h - loads the CUDA libraries and looks up their functions */
#ifndef XD_BACKEND_CUDA_LOAD_H
#define XD_BACKEND_CUDA_LOAD_H

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/cudnn.h"
#include "backend/cuda/nccl.h"
#include "base/err.h"

/* Loads the driver once for each process, initialises it and returns its functions.
 * XD_EUNSUPPORTED: there is no driver, or it is too old. XD_EDEVICE: it does not start. The message
 * has the reason. */
xd_status xd_cuda_load_driver(const xd_cuda_driver **cu, xd_err *e);
/* Returns the functions of cuBLASLt. XD_EUNSUPPORTED: it is not installed. */
xd_status xd_cuda_load_cublaslt(const xd_cublaslt **lt, xd_err *e);
/* The version of cuBLASLt, 130002 for 13.0.2, once it is loaded; 0: unknown. */
size_t    xd_cuda_cublaslt_version(void);
/* Returns the functions of cuDNN. XD_EUNSUPPORTED: it is not installed, or older than 9.15. */
xd_status xd_cuda_load_cudnn(const xd_cudnn **dnn, xd_err *e);
/* Returns the functions of NCCL. XD_EUNSUPPORTED: it is not installed. */
xd_status xd_cuda_load_nccl(const xd_nccl **nccl, xd_err *e);
/* The CUDA version that the driver supports, 12080 for 12.8; 0: unknown. */
int       xd_cuda_driver_version(const xd_cuda_driver *cu);
/* The fatbin of this build; *release: the CUDA version of the nvcc that made it (0: unknown, or
 * that of another build). NULL: built without kernels. */
const unsigned char *xd_cuda_fatbin(int *release);
/* Writes the path of the file `name` in XDIT_CUDA_DIR; returns 0 if that is not set. */
int       xd_cuda_stand_in(char *path, size_t size, const char *name);
/* The status of a result: XD_OK, XD_ENOMEM when memory is short, else XD_EDEVICE. */
xd_status xd_cuda_status(CUresult r);
/* As xd_cuda_status, and logs the first error of a process, except a lack of memory: its number,
 * its name and `call`, which returned it. */
xd_status xd_cuda_check(const char *call, CUresult r);
/* 1: XDIT_CUDA_SYNC=1 is set: the host waits after each kernel and each product. */
int       xd_cuda_waits(void);
/* The driver's message for a result. Never NULL. */
const char *xd_cuda_words(const xd_cuda_driver *cu, CUresult r);

#endif
