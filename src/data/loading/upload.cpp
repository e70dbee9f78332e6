#include "upload.hpp"

#include <memory>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "gputrain/data/preprocess.hpp"

namespace gputrain::data {
namespace {

/// One copy stream for all loaders: the allocator caches memory per stream, and every evaluation makes a loader of its
/// own. With one stream each, the stream pool would at some point return the compute stream.
c10::Stream copy_stream(at::Device device) {
  static const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  return stream;
}

}  // namespace

Uploader::Uploader(at::Device device) : stream_(copy_stream(device)) {}

Batch Uploader::start(const Batch& host) const {
  const c10::StreamGuard guard(stream_);
  Batch batch = host;
  const auto copy = [&](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.to(stream_.device(), tensor.scalar_type(), /*non_blocking=*/true) : tensor;
  };
  for (BatchField& field : batch.fields) field = {field.name, copy(field.values), copy(field.counts)};
  auto arrival = std::make_shared<c10::Event>(stream_.device_type());
  arrival->record(stream_);
  batch.arrival = std::move(arrival);
  return batch;
}

void await(const Batch& batch) {
  if (batch.arrival == nullptr) return;
  const at::Device device = batch.input().device();
  const c10::Stream current = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  batch.arrival->block(current);
  // The allocator must not reuse their memory before this stream is done with it.
  for (const BatchField& field : batch.fields) {
    field.values.record_stream(current);
    if (field.counts.defined()) field.counts.record_stream(current);
  }
}

}  // namespace gputrain::data
