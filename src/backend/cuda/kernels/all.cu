/* all.cu - every kernel in one file: a GPU's code is one image of a fatbin, and so one module */
#include "backend/cuda/kernels/attention.cu"
#include "backend/cuda/kernels/conv.cu"
#include "backend/cuda/kernels/copies.cu"
#include "backend/cuda/kernels/elementwise.cu"
#include "backend/cuda/kernels/groupnorm.cu"
#include "backend/cuda/kernels/norm.cu"
#include "backend/cuda/kernels/qknorm.cu"
#include "backend/cuda/kernels/quantize.cu"
