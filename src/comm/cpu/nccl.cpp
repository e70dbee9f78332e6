#include "../nccl.hpp"

#include "gputrain/core/error.hpp"

namespace gputrain::comm {

c10::intrusive_ptr<c10d::Backend> connect_nccl(const c10::intrusive_ptr<c10d::Store>&, const NcclParams&) {
  GPUTRAIN_ASSERT(false, "a build without CUDA never chooses a GPU");
}
std::string nccl_name() { return {}; }
void check_nccl(Connection&) {}
void release_nccl(Connection&) noexcept {}

}  // namespace gputrain::comm
