// The versions of this program and of what it was built with.
#include "../version_number.hpp"
#include "gputrain/doctor/checks.hpp"

namespace gputrain::doctor {

Findings check_software(const Machine& machine) {
  const Software& here = machine.software;
  std::string text = "gputrain " + here.gputrain + "  torch " + here.torch;
  text += here.cuda > 0 ? "  CUDA " + cuda_text(here.cuda) : "  built without CUDA";
  if (!here.cudnn.empty()) text += "  cuDNN " + here.cudnn;
  if (!here.nccl.empty()) text += "  NCCL " + here.nccl;
  return {{.check = "program",
           .text = text,
           .facts = {{"gputrain", here.gputrain},
                     {"build", here.build},
                     {"torch", here.torch},
                     {"CUDA", cuda_text(here.cuda)},
                     {"cuDNN", here.cudnn},
                     {"NCCL", here.nccl}}}};
}

}  // namespace gputrain::doctor
