/* load.h - loads the CUDA libraries (driver, cuBLASLt, cuDNN, NCCL) and looks up their functions */
#ifndef XD_BACKEND_CUDA_LOAD_H
#define XD_BACKEND_CUDA_LOAD_H

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/cudnn.h"
#include "backend/cuda/nccl.h"
#include "base/err.h"

/* Loads the driver once for each process, initialises it and returns its functions. Returns
 * XD_EUNSUPPORTED if there is no driver or the driver is too old, and XD_EDEVICE if the driver does
 * not start. On failure, the message in e tells the reason. */
xd_status            xd_cuda_load_driver(const xd_cuda_driver **cu, xd_err *e);
/* Returns a table of pointers to the functions of cuBLASLt. Returns XD_EUNSUPPORTED if cuBLASLt is
 * not installed. */
xd_status            xd_cuda_load_cublaslt(const xd_cublaslt **lt, xd_err *e);
/* Returns the version of the loaded cuBLASLt, for example 130002 for 13.0.2, or 0 if the version is
 * unknown. */
size_t               xd_cuda_cublaslt_version(void);
/* Returns a table of pointers to the functions of cuDNN. Returns XD_EUNSUPPORTED if cuDNN is not
 * installed or older than 9.15. */
xd_status            xd_cuda_load_cudnn(const xd_cudnn **dnn, xd_err *e);
/* Returns a table of pointers to the functions of NCCL. Returns XD_EUNSUPPORTED if NCCL is not
 * installed. */
xd_status            xd_cuda_load_nccl(const xd_nccl **nccl, xd_err *e);
/* Returns the CUDA version that the driver supports, for example 12080 for 12.8, or 0 if the
 * version is unknown. */
int                  xd_cuda_driver_version(const xd_cuda_driver *cu);
/* Returns the fatbin of this build, or NULL if it was built without kernels. *release is the CUDA
 * version of the nvcc that compiled the fatbin (0 if the version is unknown, or the fatbin is from
 * another build). */
const unsigned char *xd_cuda_fatbin(int *release);
/* Writes the path of the file `name` in XDIT_CUDA_DIR. Returns 0 if XDIT_CUDA_DIR is not set. */
int                  xd_cuda_stand_in(char *path, size_t size, const char *name);
/* Converts the result of a driver call to a status: returns XD_OK on success, XD_ENOMEM if the
 * device is out of memory, and XD_EDEVICE for any other error. */
xd_status            xd_cuda_status(CUresult r);
/* Converts the result r of the driver function `call` to a status, as xd_cuda_status does. For the
 * first CUDA error of the process, xd_cuda_check also logs the error's number and name, and `call`.
 * Out-of-memory errors are not logged. */
xd_status            xd_cuda_check(const char *call, CUresult r);
/* Returns 1 if XDIT_CUDA_SYNC=1 is set: the host then waits after each kernel and each GEMM of a
 * library. */
int                  xd_cuda_waits(void);
/* Returns the driver's message for the result r of a driver call. xd_cuda_words never returns
 * NULL. */
const char          *xd_cuda_words(const xd_cuda_driver *cu, CUresult r);

#endif
