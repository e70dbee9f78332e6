#include "upload.hpp"

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "gputrain/data/preprocess.hpp"

namespace gputrain::data {
namespace {

/// Returns one copy stream for all loaders: the allocator caches memory per stream, and every evaluation makes a loader
/// of its own. With one stream each, the stream pool would at some point return the compute stream.
c10::Stream copy_stream(at::Device device) {
  static const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  return stream;
}

/// Batch that the device may still read.
struct InUse {
  std::vector<BatchField> fields;
  std::optional<c10::Event> end;  // end of the work that reads it; empty: not all of it is queued
};

/// Keeps the memory of a batch until the device is done with it. Tensor::record_stream() would do the same in the
/// tensor's destructor, where a GPU that has failed ends the process before the failure can be reported.
void keep_while_in_use(const Batch& batch, const c10::Stream& stream) {
  thread_local auto& in_use = *new std::deque<InUse>;  // never destroyed: CUDA may be gone by then
  if (!in_use.empty()) in_use.back().end.emplace(stream.device_type()).record(stream);
  while (!in_use.empty() && in_use.front().end->query()) in_use.pop_front();
  in_use.push_back({batch.fields, std::nullopt});
}

}  // namespace

Uploader::Uploader(at::Device device) : stream_(copy_stream(device)) {}

Batch Uploader::start(const Batch& host) const {
  const c10::StreamGuard guard(stream_);
  Batch batch = host;
  const auto copy = [&](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.to(stream_.device(), tensor.scalar_type(), /*non_blocking=*/true) : tensor;
  };
  for (BatchField& field : batch.fields) {
    field.values = copy(field.values);
    field.counts = copy(field.counts);
  }
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
  keep_while_in_use(batch, current);
}

}  // namespace gputrain::data
