/* more.h - a function of the driver that the stand-in has and the engine does not call. Declared as
 * in backend/cuda/driver.h. */
#ifndef XD_TESTS_SIM_MORE_H
#define XD_TESTS_SIM_MORE_H

#include "backend/cuda/driver.h"

#define SIM_MORE_FUNCTIONS(X) X(cuCtxSynchronize, (void))

/* The prototypes of all functions; not where <cuda.h> has declared them. */
#ifndef XD_CUDA_TYPES_GIVEN
#ifdef __cplusplus
extern "C" {
#endif
#define SIM_PROTOTYPE(name, args) CUresult name args;
XD_CUDA_FUNCTIONS(SIM_PROTOTYPE)
SIM_MORE_FUNCTIONS(SIM_PROTOTYPE)
#undef SIM_PROTOTYPE
#ifdef __cplusplus
}
#endif
#endif

#endif
