// Tensors that wait in the host's memory. They are copied on streams of their own, beside the computing; on a CPU,
// which has no other memory, at once and in the same order.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

namespace gputrain::device {

/// Returns [numel] zeros on the host for copies of tensors of `device`: beside a GPU page-locked if the system allows
/// it, and no larger than asked for.
at::Tensor host_zeros(int64_t numel, at::ScalarType type, at::Device device);

/// A copy between a GPU and the host. The host does not wait for it.
class Transfer {
 public:
  Transfer() = default;
  /// Copies after all work that the current stream has been given, and after `earlier`. Both tensors must live until
  /// then.
  Transfer(const at::Tensor& to, const at::Tensor& from, const Transfer& earlier = {});

  /// Makes the current stream wait for its end.
  void await() const;

 private:
  std::optional<c10::Event> end_;  // none on a CPU
};

/// A tensor that is copied to the host, and back when it is needed. One that has gaps or overlaps stays where it is.
class OffloadedTensor {
 public:
  /// Begins to copy it out. Nobody may write it from now on.
  explicit OffloadedTensor(const at::Tensor& tensor);
  OffloadedTensor(const OffloadedTensor&) = delete;
  OffloadedTensor& operator=(const OffloadedTensor&) = delete;
  ~OffloadedTensor();

  /// Lets go of its memory on the device. The current stream waits until it is copied.
  void leave_device();
  /// Begins to copy it back, unless it is on the device.
  void fetch();
  /// Returns it on the device, for the current stream, and lets go of its memory on the host. Call it once.
  at::Tensor take();

 private:
  at::Tensor on_host() const;

  at::Tensor on_device_;  // undefined: it has left
  at::Tensor block_;      // on the host; undefined: none
  at::TensorOptions options_;
  std::vector<int64_t> sizes_, strides_;
  Transfer transfer_;  // the last one
};

/// Returns the bytes of the host's memory that offloaded tensors have, or have had and that is kept for the next ones.
int64_t offload_bytes();
/// Gives back what is kept. The device must be idle.
void give_back_offload_memory();

}  // namespace gputrain::device
