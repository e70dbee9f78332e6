// Device memory, page-locked memory, copies and memsets.
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>

#include "fake_cuda.hpp"

namespace gputrain::fake_cuda {
namespace {

/// Allocations by their start address.
using Pieces = std::map<uintptr_t, size_t>;

Pieces& on_device() {
  static auto* const all = new Pieces;
  return *all;
}

Pieces& page_locked() {
  static auto* const all = new Pieces;
  return *all;
}

size_t taken = 0;  // device memory in use

uintptr_t address_of(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

bool lies_in(const Pieces& pieces, const void* begin, size_t bytes) {
  const std::lock_guard lock(mutex());
  auto after = pieces.upper_bound(address_of(begin));
  if (after == pieces.begin()) return false;
  --after;
  return address_of(begin) + bytes <= after->first + after->second;
}

/// Maps pages that use no memory until they are written.
cudaError_t take(Pieces& pieces, void** pointer, size_t bytes) {
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return fail(cudaErrorMemoryAllocation);
  const std::lock_guard lock(mutex());
  pieces[address_of(pages)] = bytes;
  *pointer = pages;
  return cudaSuccess;
}

cudaError_t give_back(Pieces& pieces, void* pointer, const char* call) {
  const std::lock_guard lock(mutex());
  const auto found = pieces.find(address_of(pointer));
  if (found == pieces.end()) return refuse(cudaErrorInvalidValue, std::string(call) + " of what was not allocated");
  munmap(pointer, found->second);
  if (&pieces == &on_device()) taken -= found->second;
  pieces.erase(found);
  return cudaSuccess;
}

bool is_from_device(cudaMemcpyKind kind) { return kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice; }
bool is_to_device(cudaMemcpyKind kind) { return kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice; }

/// Skips larger copies and fills within the device: they cost time, and nothing reads the values.
constexpr size_t kMostBytesMoved = 1 << 20;

cudaError_t check_copy(const void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (bytes == 0 || kind == cudaMemcpyDefault) return cudaSuccess;
  if (is_device_memory(to, bytes) != is_to_device(kind) || is_device_memory(from, bytes) != is_from_device(kind))
    return refuse(cudaErrorInvalidValue, "a copy whose memory is not where it says");
  return cudaSuccess;
}

}  // namespace

bool is_device_memory(const void* begin, size_t bytes) { return lies_in(on_device(), begin, bytes); }

}  // namespace gputrain::fake_cuda

using namespace gputrain::fake_cuda;

FAKE_CUDA cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  count("cudaMalloc");
  if (const cudaError_t refusal = may_wait("cudaMalloc")) return refusal;
  const std::lock_guard lock(mutex());
  *pointer = nullptr;
  if (taken + bytes > setting("PRETEND_GPU_MEMORY", size_t{141} << 30)) return fail(cudaErrorMemoryAllocation);
  taken += bytes;
  return take(on_device(), pointer, bytes);
}

FAKE_CUDA cudaError_t cudaFree(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  if (const cudaError_t refusal = may_wait("cudaFree")) return refusal;
  return give_back(on_device(), pointer, "cudaFree");
}

FAKE_CUDA cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  count("cudaHostAlloc");
  count("page-locked bytes", bytes);
  if (const cudaError_t refusal = may_wait("cudaHostAlloc")) return refusal;
  if (bytes > setting("PRETEND_MOST_LOCKED", SIZE_MAX)) return fail(cudaErrorMemoryAllocation);
  return take(page_locked(), pointer, bytes);
}

FAKE_CUDA cudaError_t cudaFreeHost(void* pointer) {
  if (const cudaError_t refusal = may_wait("cudaFreeHost")) return refusal;
  return give_back(page_locked(), pointer, "cudaFreeHost");
}

FAKE_CUDA cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const std::lock_guard lock(mutex());
  *total = setting("PRETEND_GPU_MEMORY", size_t{141} << 30);
  *free = *total - taken;
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  *attributes = {};
  const bool is_here = is_device_memory(pointer, 1), is_locked = lies_in(page_locked(), pointer, 1);
  attributes->type = is_here ? cudaMemoryTypeDevice : is_locked ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
  if (is_here || is_locked) attributes->devicePointer = const_cast<void*>(pointer);
  if (!is_here) attributes->hostPointer = const_cast<void*>(pointer);
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                      cudaStream_t stream) {
  if (const cudaError_t refusal = check_copy(to, from, bytes, kind)) return refusal;
  const void* host = kind == cudaMemcpyHostToDevice ? from : kind == cudaMemcpyDeviceToHost ? to : nullptr;
  const bool is_pageable = host != nullptr && !lies_in(page_locked(), host, bytes);
  if (is_pageable && is_captured(stream))
    return refuse(cudaErrorStreamCaptureUnsupported, "a copy of pageable memory is captured");
  if (is_pageable && kind == cudaMemcpyDeviceToHost) count("waits: copy to pageable memory");
  return enqueue(stream, kind == cudaMemcpyDeviceToHost ? "copy to host" : "copy",
                 [=] {
                   // A single byte is a bool that no kernel has computed (an error flag): copy 0. So that a ledger is
                   // always the same, also a single number, as the error that a trial finds.
                   if (kind == cudaMemcpyDeviceToHost && (bytes == 1 || (keeps_ledger() && bytes <= sizeof(double)))) {
                     std::memset(to, 0, bytes);
                   } else if (kind != cudaMemcpyDeviceToDevice || bytes <= kMostBytesMoved) {
                     std::memmove(to, from, bytes);
                   }
                 },
                 {.kind = "copy", .bytes = static_cast<double>(bytes) * (kind == cudaMemcpyDeviceToDevice ? 2 : 0)});
}

FAKE_CUDA cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  count("waits: cudaMemcpy");
  if (const cudaError_t refusal = may_wait("cudaMemcpy")) return refusal;
  if (const cudaError_t refusal = check_copy(to, from, bytes, kind)) return refusal;
  std::memmove(to, from, bytes);
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

FAKE_CUDA cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  if (bytes > 0 && !is_device_memory(to, bytes))
    return refuse(cudaErrorInvalidValue, "a fill of memory that is not there");
  return enqueue(stream, "fill", [=] { std::memset(to, value, std::min(bytes, kMostBytesMoved)); },
                 {.kind = "fill", .bytes = static_cast<double>(bytes)});
}

FAKE_CUDA cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  if (const cudaError_t refusal = may_wait("cudaMemset")) return refusal;
  std::memset(to, value, bytes);
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaMemcpyToSymbol(const void*, const void*, size_t, size_t, cudaMemcpyKind) {
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaGetSymbolAddress(void** pointer, const void*) {
  static void* room = nullptr;
  const cudaError_t error = room == nullptr ? cudaMalloc(&room, 1 << 20) : cudaSuccess;
  *pointer = room;
  return error;
}
