#include "gputrain/device/offload.hpp"

#include <algorithm>
#include <exception>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/accumulate.h>

#include "../flat_zeros.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/device/runtime.hpp"

namespace gputrain::device {
namespace {

/// Returns uninitialised bytes. After the first refusal, which it warns about once, they are in ordinary memory.
at::Tensor host_bytes(int64_t bytes, at::Device device) {
  static std::once_flag refused;
  if (!device.is_cpu() && bytes > 0) {
    if (at::Tensor locked = page_locked_bytes(bytes); locked.defined()) return locked;
    std::call_once(refused, [] {
      log::warning(
          "no page-locked memory for train.offload: using ordinary memory, from which copies are slow and stall "
          "training; check ulimit -l and the free memory");
    });
  }
  return flat_zeros(bytes, at::TensorOptions().dtype(at::kByte));
}

/// Blocks of memory on the host, kept for reuse: locking pages is slow.
class HostBlocks {
 public:
  /// Returns the smallest kept block that is large enough. If there is none, a new one takes the place of the largest.
  at::Tensor take(int64_t bytes, at::Device device) {
    const std::lock_guard lock(mutex_);
    if (const auto found = kept_.lower_bound(bytes); found != kept_.end()) {
      at::Tensor block = std::move(found->second);
      kept_.erase(found);
      return block;
    }
    if (!kept_.empty()) {
      synchronize(device);  // copies to it may be under way
      held_ -= kept_.rbegin()->first;
      kept_.erase(std::prev(kept_.end()));
    }
    at::Tensor block = host_bytes(bytes, device);
    held_ += block.numel();
    return block;
  }

  void give_back(at::Tensor block) {
    const std::lock_guard lock(mutex_);
    const int64_t bytes = block.numel();
    kept_.emplace(bytes, std::move(block));
  }

  void give_back_kept() {
    const std::lock_guard lock(mutex_);
    for (const auto& [bytes, block] : kept_) held_ -= bytes;
    kept_.clear();
  }

  int64_t held() {
    const std::lock_guard lock(mutex_);
    return held_;
  }

 private:
  std::mutex mutex_;
  std::multimap<int64_t, at::Tensor> kept_;  // by bytes
  int64_t held_ = 0;
};

HostBlocks& blocks() {
  static auto* const all = new HostBlocks;  // never destroyed: CUDA may be gone by then
  return *all;
}

/// Returns one stream for each direction, for all tensors: the allocator caches memory per stream, and with more the
/// stream pool would at some point return the compute stream.
c10::Stream lane(at::Device device, bool is_to_host) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  static const std::pair lanes{guard.getStreamFromGlobalPool(device), guard.getStreamFromGlobalPool(device)};
  return is_to_host ? lanes.first : lanes.second;
}

c10::Stream current_stream(at::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

}  // namespace

at::Tensor host_zeros(int64_t numel, at::ScalarType type, at::Device device) {
  const auto bytes = numel * static_cast<int64_t>(c10::elementSize(type));
  if (device.is_cpu()) return flat_zeros(numel, at::TensorOptions().dtype(type));
  return host_bytes(std::max<int64_t>(bytes, 1), device).zero_().narrow(0, 0, bytes).view(type);
}

Transfer::Transfer(const at::Tensor& to, const at::Tensor& from, const Transfer& earlier) {
  const at::NoGradGuard no_grad;
  const at::Device device = to.is_cpu() ? from.device() : to.device();
  if (device.is_cpu()) {
    to.copy_(from);
    return;
  }
  const c10::Stream stream = lane(device, /*is_to_host=*/to.is_cpu());
  c10::Event begin(device.type());
  begin.record(current_stream(device));
  begin.block(stream);
  if (earlier.end_) earlier.end_->block(stream);
  {
    const c10::StreamGuard on_lane(stream);
    to.copy_(from, /*non_blocking=*/true);
  }
  end_.emplace(device.type()).record(stream);
}

void Transfer::await() const {
  if (end_) end_->block(current_stream({end_->device_type(), end_->device_index()}));
}

OffloadedTensor::OffloadedTensor(const at::Tensor& tensor)
    : on_device_(tensor.detach()),
      options_(tensor.options()),
      sizes_(tensor.sizes().vec()),
      strides_(tensor.strides().vec()) {
  const auto bytes = static_cast<int64_t>(tensor.nbytes());
  if (bytes == 0 || !tensor.is_non_overlapping_and_dense()) return;
  block_ = blocks().take(bytes, tensor.device());
  transfer_ = Transfer(on_host(), on_device_);
}

OffloadedTensor::~OffloadedTensor() {
  if (!block_.defined()) return;
  try {
    transfer_.await();
    blocks().give_back(std::move(block_));
  } catch (const std::exception&) {
    // Ignored: the device has failed, which whoever uses it next reports.
  }
}

at::Tensor OffloadedTensor::on_host() const {
  const auto bytes = static_cast<int64_t>(options_.dtype().itemsize()) * c10::multiply_integers(sizes_);
  return at::as_strided(block_.narrow(0, 0, bytes).view(options_.dtype().toScalarType()), sizes_, strides_);
}

void OffloadedTensor::leave_device() {
  if (!block_.defined() || !on_device_.defined()) return;
  transfer_.await();  // the allocator may give the memory to the next tensor of this stream
  on_device_.reset();
}

void OffloadedTensor::fetch() {
  if (on_device_.defined()) return;
  GPUTRAIN_ASSERT(block_.defined(), "an offloaded tensor is needed twice");
  // Allocated for the current stream, which reads it: the copy begins after what that stream did with the memory.
  on_device_ = at::empty_strided(sizes_, strides_, options_);
  transfer_ = Transfer(on_device_, on_host());
}

at::Tensor OffloadedTensor::take() {
  fetch();
  transfer_.await();
  if (block_.defined()) blocks().give_back(std::exchange(block_, {}));
  return std::exchange(on_device_, {});
}

int64_t offload_bytes() { return blocks().held(); }
void give_back_offload_memory() { blocks().give_back_kept(); }

}  // namespace gputrain::device
