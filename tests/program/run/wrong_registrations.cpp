// Linked into the program's library: mistakes that contributors may make in their own files.
#include "gputrain/models/model.hpp"

namespace gputrain::models {
namespace {

struct OneKeySpec {
  bool on = false;
  static void describe(config::Description<OneKeySpec>& d) { d.key("on", &OneKeySpec::on, "a key"); }
};

struct SameKeyTwiceSpec {
  bool on = false;
  static void describe(config::Description<SameKeyTwiceSpec>& d) {
    d.key("on", &SameKeyTwiceSpec::on, "a key");
    d.key("on", &SameKeyTwiceSpec::on, "the same key");
  }
};

template <class Spec>
class Same final : public Model {
 public:
  Same(const Spec&, const nn::Context& context, const DataFacts&) : Model(context) {}
  at::Tensor forward(const at::Tensor& inputs) override { return inputs; }
  std::vector<Unit> units() override { return {}; }
};

const config::Registered<Same<OneKeySpec>, OneKeySpec> registered_mlp{catalog(), "mlp", "a name that is taken"};
const config::Registered<Same<SameKeyTwiceSpec>, SameKeyTwiceSpec> registered_own{catalog(), "own", "a key, twice"};

}  // namespace
}  // namespace gputrain::models
