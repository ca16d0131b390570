/* all.cu - all kernels in one translation unit, so that the code for a GPU is one image of the
 * fatbin and therefore one module */
#include "backend/cuda/kernels/attention.cu"
#include "backend/cuda/kernels/conv.cu"
#include "backend/cuda/kernels/copies.cu"
#include "backend/cuda/kernels/elementwise.cu"
#include "backend/cuda/kernels/groupnorm.cu"
#include "backend/cuda/kernels/norm.cu"
#include "backend/cuda/kernels/qknorm.cu"
#include "backend/cuda/kernels/quantize.cu"
#include "backend/cuda/kernels/softmax.cu"
