/* all.cu - includes all kernels in one translation unit, so that the fatbin has one image, and
 * therefore one module, for each GPU architecture */
#include "backend/cuda/kernels/attention.cu"
#include "backend/cuda/kernels/conv.cu"
#include "backend/cuda/kernels/copies.cu"
#include "backend/cuda/kernels/elementwise.cu"
#include "backend/cuda/kernels/groupnorm.cu"
#include "backend/cuda/kernels/linattn.cu"
#include "backend/cuda/kernels/norm.cu"
#include "backend/cuda/kernels/qknorm.cu"
#include "backend/cuda/kernels/quantize.cu"
#include "backend/cuda/kernels/softmax.cu"
