// GPUs that CUDA_VISIBLE_DEVICES hides.
#include "gputrain/core/numbers.hpp"
#include "gputrain/doctor/checks.hpp"

namespace gputrain::doctor {

Findings check_visible_gpus(const Machine& machine) {
  const auto all = static_cast<int>(machine.gpus.gpus.size());
  const auto choice = machine.variable("CUDA_VISIBLE_DEVICES");
  if (all == 0 || machine.software.cuda == 0) return {};
  const int usable = machine.software.usable_gpus;
  const std::string hidden = choice ? "CUDA_VISIBLE_DEVICES=" + *choice : "nothing hides any";
  if (usable == all) return {{.check = "visible", .text = counted(all, "GPU") + " can be used, " + hidden}};
  return {{.check = "visible",
           .verdict = usable == 0 ? Verdict::bad : Verdict::warn,
           .text = std::to_string(usable) + " of " + counted(all, "GPU") + " can be used" +
                   (choice ? ": " + hidden : std::string()),
           .fix = choice ? "unset CUDA_VISIBLE_DEVICES" : "nvidia-smi shows whether one is lost or in exclusive mode"}};
}

}  // namespace gputrain::doctor
