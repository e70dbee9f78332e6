#include "upload.hpp"

#include <memory>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace gputrain::data {
namespace {

/// One for all loaders, of which every evaluation makes its own: what the allocator keeps for a stream is of use to
/// that one alone, and after some more the pool would hand out the stream that computes.
c10::Stream copy_stream(at::Device device) {
  static const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  return stream;
}

}  // namespace

Uploader::Uploader(at::Device device) : stream_(copy_stream(device)) {}

Batch Uploader::start(const Batch& host) const {
  const c10::StreamGuard guard(stream_);
  Batch batch = host;
  batch.inputs = host.inputs.to(stream_.device(), host.inputs.scalar_type(), /*non_blocking=*/true);
  batch.targets = host.targets.to(stream_.device(), at::kLong, /*non_blocking=*/true);
  auto arrival = std::make_shared<c10::Event>(stream_.device_type());
  arrival->record(stream_);
  batch.arrival = std::move(arrival);
  return batch;
}

void await(const Batch& batch) {
  if (batch.arrival == nullptr) return;
  const at::Device device = batch.inputs.device();
  const c10::Stream current = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  batch.arrival->block(current);
  // The allocator gives their memory to the next upload once this stream, too, is done with it.
  batch.inputs.record_stream(current);
  batch.targets.record_stream(current);
}

}  // namespace gputrain::data
