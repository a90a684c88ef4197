// Lets plain functions be called on the device when nvcc compiles them, and stay plain C++ elsewhere.
#pragma once

#if defined(__CUDACC__)
#define FLASHDMA_HOST_DEVICE __host__ __device__
#else
#define FLASHDMA_HOST_DEVICE
#endif
