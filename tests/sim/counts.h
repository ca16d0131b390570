/* counts.h - what the stand-in for the driver has counted since the process began */
#ifndef XD_TESTS_SIM_COUNTS_H
#define XD_TESTS_SIM_COUNTS_H

typedef struct sim_counts {
    long waits;  /* calls in which the host waited for work */
    long memory; /* calls that took or gave back memory of the GPU or pinned one */
    long uploads, launches, graphs; /* graphs: those that were launched */
    long queues;                    /* of a GPU, for streams: CUDA_DEVICE_MAX_CONNECTIONS */
} sim_counts;

/* Exported by libcuda.so.1 of this folder as "simgpu_counts". */
typedef void sim_counts_fn(sim_counts *out);

#endif
