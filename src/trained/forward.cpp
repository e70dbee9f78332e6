#include "gputrain/nn/recompute.hpp"
#include "gputrain/trained/model.hpp"

namespace gputrain::trained {

at::Tensor outputs_of(models::Model& model, const Batch& batch) {
  const models::Model::LastLayer last = model.last_layer(batch);
  const at::Tensor outputs = last.head.logits ? last.head.logits(last.features) : last.features;
  return outputs.size(-1) == last.classes ? outputs : outputs.narrow(-1, 0, last.classes);
}

Forward::Forward(Model& model) : model_(model), weights_(model.built.arena->working_copy()) {
  if (model.job.spec().eval.hflip && !model.signature.reads_texts()) mirrored_.emplace(*model.built.model);
}

at::Tensor Forward::operator()(const Batch& batch) {
  const nn::ForwardPass pass;
  return outputs_of(mirrored_ ? *mirrored_ : *model_.built.model, batch);
}

at::Tensor with_names(const at::Tensor& outputs, const std::vector<std::string>& names) {
  return outputs.narrow(-1, 0, std::min(outputs.size(-1), std::ssize(names)));
}

}  // namespace gputrain::trained
