#include <ATen/cuda/CUDAContext.h>
#include <cublasLt.h>
#include <cudnn.h>
#include <nccl.h>

#include "sections.hpp"

namespace probe {

void probe_device(Report& report) {
  report.attempt("device", {}, [](Record& record) {
    const cudaDeviceProp& p = *at::cuda::getCurrentDeviceProperties();
    int driver = 0, sm_clock = 0, memory_clock = 0, reserved = 0, nccl = 0;
    cudaDriverGetVersion(&driver);
    cudaDeviceGetAttribute(&sm_clock, cudaDevAttrClockRate, 0);
    cudaDeviceGetAttribute(&memory_clock, cudaDevAttrMemoryClockRate, 0);
    cudaDeviceGetAttribute(&reserved, cudaDevAttrReservedSharedMemoryPerBlock, 0);
    ncclGetVersion(&nccl);
    record.set("deviceName", p.name).set("deviceVer", p.major * 100 + p.minor * 10).set("driverVer", driver);
    record.set("multiProcessorCount", p.multiProcessorCount).set("warpSize", p.warpSize);
    record.set("maxThreadsPerBlock", p.maxThreadsPerBlock).set("maxThreadsPerSM", p.maxThreadsPerMultiProcessor);
    record.set("maxCtasPerSM", p.maxBlocksPerMultiProcessor).set("regsPerBlock", p.regsPerBlock);
    record.set("maxRegistersPerSM", p.regsPerMultiprocessor).set("l2CacheSize", p.l2CacheSize);
    record.set("maxSharedMemoryPerBlock", static_cast<int64_t>(p.sharedMemPerBlock));
    record.set("maxSharedMemoryPerBlockOptin", static_cast<int64_t>(p.sharedMemPerBlockOptin));
    record.set("reservedSharedMemoryPerBlock", reserved);
    record.set("totalGlobalMem", static_cast<int64_t>(p.totalGlobalMem));
    record.set("smClockRateKHz", sm_clock).set("memClockRateKHz", memory_clock);
    record.set("maxBlockX", p.maxThreadsDim[0])
        .set("maxBlockY", p.maxThreadsDim[1])
        .set("maxBlockZ", p.maxThreadsDim[2]);
    record.set("maxGridX", p.maxGridSize[0]).set("maxGridY", p.maxGridSize[1]).set("maxGridZ", p.maxGridSize[2]);
    record.set("cublaslt", static_cast<int64_t>(cublasLtGetVersion()));
    record.set("cudnn", static_cast<int64_t>(cudnnGetVersion())).set("nccl", nccl);
  });
}

}  // namespace probe
