// The sections of the probe, one file each. Every function runs on the current device.
#pragma once

#include "report.hpp"

namespace probe {

void probe_device(Report& report);       // properties, as cuDNN's deviceless mode needs them
void probe_memory(Report& report);       // copies, pinned and overlapped, launch gaps, the allocator
void probe_kernels(Report& report);      // bandwidth of elementwise and row-wise kernels
void probe_gemm(Report& report);         // cuBLASLt: the models' shapes with epilogues, best algorithm
void probe_attention(Report& report);    // SDPA by back end
void probe_convolution(Report& report);  // ResNet-50's convolutions
void probe_numerics(Report& report);     // 16-bit and TF32 GEMMs, result types under autocast
void probe_optimizers(Report& report);   // fused optimizers: accepted types, exactness, time over an arena
void probe_graphs(Report& report);       // a whole training step captured: dropout, exactness, launch savings
void probe_nccl(Report& report);         // one rank: start, reduce, capture, abort, restart
void probe_profiler(Report& report);     // whether CUPTI sees kernels

}  // namespace probe
