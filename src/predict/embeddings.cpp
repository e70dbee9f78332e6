#include <bit>
#include <cstring>

#include <ATen/ops/stack.h>

#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "outputs.hpp"

namespace gputrain::app {

at::Tensor embeddings_of(trained::Model& model, const TextsToRead& texts) {
  return at::stack(outputs_of(model, texts, Target::pairs).outputs).contiguous();
}

void write_npy(const at::Tensor& values, const std::string& path) {
  GPUTRAIN_ASSERT(values.scalar_type() == at::kFloat && values.is_cpu() && values.is_contiguous(), "float32 values");
  static_assert(std::endian::native == std::endian::little, "the header says so");
  std::string shape;
  for (const int64_t size : values.sizes()) shape += std::to_string(size) + (values.dim() == 1 ? "," : ", ");
  if (values.dim() > 1) shape.resize(shape.size() - 2);
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + shape + "), }";
  constexpr size_t kAlignment = 64, kPreamble = 10;  // magic, version, and the header's size in two bytes
  while ((kPreamble + header.size() + 1) % kAlignment != 0) header += ' ';
  header += '\n';
  const auto size = static_cast<uint16_t>(header.size());
  char preamble[kPreamble] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, 0, 0};
  std::memcpy(preamble + 8, &size, sizeof(size));
  AtomicFile file(path, ExitCode::environment);
  file.write(preamble, kPreamble);
  file.write(header);
  file.write(values.const_data_ptr(), values.nbytes());
  file.commit();
}

}  // namespace gputrain::app
