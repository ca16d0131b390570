/* launches.cc - kernels of the simulated GPUs and their launches */
#include "tests/sim/sim.h"

#include <dlfcn.h>
#include <sys/mman.h>

using namespace sim;

/* The file is a shared library of kernels for the CPU. */
API CUresult cuModuleLoad(CUmodule *m, const char *path)
{
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        fprintf(stderr, "simulated GPU: %s\n", dlerror());
        return XD_CU_FILE_NOT_FOUND;
    }
    *m = (CUmodule) new CUmod_st { lib, (launch_fn *)dlsym(lib, "gpu_cpu_launch"), {} };
    return ((CUmod_st *)*m)->launch ? XD_CU_SUCCESS : XD_CU_INVALID_IMAGE;
}
/* Code for a GPU cannot run here. With XDIT_SIM_VERSION below 13000 the answer is that of a driver
 * older than the code. */
API CUresult cuModuleLoadData(CUmodule *, const void *)
{
    int version = 0;
    cuDriverGetVersion(&version);
    return version < 13000 ? XD_CU_INVALID_IMAGE : XD_CU_NO_BINARY_FOR_GPU;
}
API CUresult cuModuleUnload(CUmodule m)
{
    for (CUfunc_st *f : ((CUmod_st *)m)->functions)
        delete f;
    delete (CUmod_st *)m;
    return XD_CU_SUCCESS;
}
API CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name)
{
    auto *k = (const gpu_kernel *)dlsym(((CUmod_st *)m)->lib, name);
    if (!k)
        return XD_CU_NOT_FOUND;
    ((CUmod_st *)m)->functions.push_back(new CUfunc_st { k, (CUmod_st *)m });
    *f = (CUfunction)((CUmod_st *)m)->functions.back();
    return XD_CU_SUCCESS;
}
API CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v)
{
    if (a != XD_CU_FUNCTION_SHARED_MEMORY || v > SHARED)
        return XD_CU_INVALID_VALUE;
    ((CUfunc_st *)f)->shared = v;
    return XD_CU_SUCCESS;
}
/* Has the current GPU failed, as XDIT_SIM_FAIL says? */
static int is_broken()
{
    enum { ILLEGAL_ADDRESS = 700 };
    static const char *fail = getenv("XDIT_SIM_FAIL");
    static long calls;
    int gpu = -1;
    long from = 0;
    if (!fail || sscanf(fail, "%d:%ld", &gpu, &from) != 2 || current != &gpus[gpu])
        return 0;
    return ++calls >= from ? ILLEGAL_ADDRESS : 0;
}
API CUresult cuLaunchKernel(CUfunction f_, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                            unsigned by, unsigned bz, unsigned shared, CUstream s, void **params,
                            void **)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    CUfunc_st *f = (CUfunc_st *)f_;
    if (!gx || !gy || !gz || !bx || !by || !bz || gx > 2147483647u || gy > 65535 || gz > 65535 ||
        bx * by * bz > f->k->threads || shared > (unsigned)f->shared)
        return XD_CU_INVALID_VALUE;
    if (int r = is_broken())
        return (CUresult)r;
    std::vector<char> args((char *)params[0], (char *)params[0] + f->k->size);
    /* AddressSanitizer has memory where two ints in one word may point. */
    for (size_t at = 0; at + 8 <= args.size(); at += 8) {
        uintptr_t word;
        unsigned char there;
        memcpy(&word, &args[at], 8);
        if (!SIM_ASAN && word >= 65536 && word < (uintptr_t)1 << 47 && !in_far((char *)word) &&
            mincore((void *)(word & ~(uintptr_t)(PAGE - 1)), 1, &there) == 0) {
            fprintf(stderr, "simulated GPU: kernel %s is given memory of others: word %zu is %p\n",
                    f->k->name, at / 8, (void *)word);
            abort();
        }
    }
    uint64_t number = (uint64_t)++counts.launches;
    item i;
    i.run = [=] {
        unsigned grid[3] = { gx, gy, gz }, block[3] = { bx, by, bz };
        f->mod->launch(f->k, grid, block, shared, args.data(), seed + number);
    };
    return add(s, std::move(i));
}
