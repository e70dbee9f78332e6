#include "gputrain/device/out_of_memory.hpp"

#include <new>
#include <stdexcept>
#include <system_error>

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "gputrain/device/host_allocator.hpp"

namespace gputrain::device {
namespace {

TEST(Shortage, HasRequestOfHostAllocator) {
  install_host_allocator();
  constexpr int64_t kMoreThanAnyMachineHas = int64_t{1} << 56;
  try {
    at::empty({kMoreThanAnyMachineHas}, at::kByte);
    FAIL() << "that much memory was had";
  } catch (const std::exception& failure) {
    ASSERT_TRUE(shortage_of(failure));
    EXPECT_EQ(shortage_of(failure)->requested_bytes, kMoreThanAnyMachineHas);
    EXPECT_FALSE(shortage_of(failure)->on_gpu);
  }
}

TEST(Shortage, HasRequestOfGpu) {
  const auto requested = [](const std::string& size) {
    const c10::OutOfMemoryError failure(
        {__func__, __FILE__, __LINE__},
        "CUDA out of memory. Tried to allocate " + size + ". GPU 0 has a total capacity of 139.72 GiB");
    EXPECT_TRUE(shortage_of(failure)->on_gpu);
    return shortage_of(failure)->requested_bytes;
  };
  EXPECT_EQ(requested("2.50 GiB"), int64_t{5} << 29);
  EXPECT_EQ(requested("20.00 MiB"), int64_t{20} << 20);
  EXPECT_EQ(requested("nothing"), 0);
}

TEST(Shortage, IsRecognisedFromLibraries) {
  EXPECT_TRUE(shortage_of(std::bad_alloc()));
  EXPECT_TRUE(
      shortage_of(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again), "thread")));
  EXPECT_TRUE(shortage_of(
      c10::Error({__func__, __FILE__, __LINE__},
                 "[enforce fail at alloc_cpu.cpp:113] err == 0. DefaultCPUAllocator: can't allocate memory")));
}

TEST(Shortage, IsRecognisedFromCudaLibraries) {
  const c10::SourceLocation here{__func__, __FILE__, __LINE__};
  EXPECT_TRUE(shortage_of(c10::AcceleratorError(here, 2, "CUDA error: out of memory")));
  EXPECT_FALSE(shortage_of(c10::AcceleratorError(here, 700, "CUDA error: an illegal memory access was encountered")));
  EXPECT_TRUE(
      shortage_of(c10::Error(here, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")));
  EXPECT_TRUE(shortage_of(c10::Error(here, "cuDNN error: CUDNN_STATUS_ALLOC_FAILED")));
  EXPECT_FALSE(shortage_of(c10::Error(here, "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED")));
}

TEST(Shortage, IsRecognisedFromNccl) {
  const auto told = [](const std::string& last) {
    return shortage_of(
        c10::DistBackendError({__func__, __FILE__, __LINE__},
                              "NCCL error in: ProcessGroupNCCL.cpp:3923, unhandled cuda error (run with "
                              "NCCL_DEBUG=INFO for details), NCCL version 2.28.9\nncclUnhandledCudaError: "
                              "Call to CUDA function failed.\nLast error:\n" +
                                  last));
  };
  for (const char* last : {"Cuda failure 2 'out of memory'", "Cuda failure 'out of memory'",
                           "Failed to CUDA calloc async 608 bytes", "Failed to CUDA malloc 4194304 bytes"}) {
    ASSERT_TRUE(told(last)) << last;
    EXPECT_TRUE(told(last)->on_gpu);
  }
  EXPECT_FALSE(told("Cuda failure 700 'an illegal memory access was encountered'"));
  EXPECT_FALSE(told("NET/IB : Unable to open device mlx5_0"));
}

TEST(Shortage, ExcludesOtherFailures) {
  EXPECT_FALSE(shortage_of(std::runtime_error("out of memory, it says")));
  EXPECT_FALSE(shortage_of(std::system_error(std::make_error_code(std::errc::no_such_file_or_directory))));
  EXPECT_FALSE(shortage_of(c10::Error({__func__, __FILE__, __LINE__}, "sizes do not match")));
}

}  // namespace
}  // namespace gputrain::device
