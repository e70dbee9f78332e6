#include <execinfo.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

#include "fake_cuda.hpp"

namespace gputrain::fake_cuda {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

std::FILE* report() {
  static std::FILE* const file = [] {
    const char* name = std::getenv("PRETEND_GPU_REPORT");
    std::FILE* opened = name == nullptr ? nullptr : std::fopen((name + ("." + std::to_string(getpid()))).c_str(), "w");
    return opened == nullptr ? stderr : opened;
  }();
  return file;
}

std::map<std::string, int64_t>& counts() {
  static auto* const all = new std::map<std::string, int64_t>;
  return *all;
}

struct AtTheEnd {
  ~AtTheEnd() {
    const std::lock_guard lock(mutex());
    for (const auto& [what, number] : counts())
      std::fprintf(report(), "COUNT %lld %s\n", static_cast<long long>(number), what.c_str());
    if (!counts().empty()) std::fflush(report());
  }
} at_the_end;

}  // namespace

std::recursive_mutex& mutex() {
  static auto* const one = new std::recursive_mutex;
  return *one;
}

cudaError_t fail(cudaError_t error) {
  last_error = error;
  return error;
}

cudaError_t refuse(cudaError_t error, const std::string& what) {
  const std::lock_guard lock(mutex());
  void* calls[32];
  const int depth = backtrace(calls, 32);
  std::fprintf(report(), "REFUSED %s\n", what.c_str());
  std::fflush(report());
  backtrace_symbols_fd(calls, depth, fileno(report()));
  return fail(error);
}

void count(const std::string& what, size_t number) {
  const std::lock_guard lock(mutex());
  counts()[what] += static_cast<int64_t>(number);
}

size_t setting(const char* name, size_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

}  // namespace gputrain::fake_cuda

using gputrain::fake_cuda::last_error;

FAKE_CUDA cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
FAKE_CUDA cudaError_t cudaPeekAtLastError() { return last_error; }
FAKE_CUDA const char* cudaGetErrorName(cudaError_t) { return "pretended error"; }
FAKE_CUDA const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "refused by the pretend GPU";
}
