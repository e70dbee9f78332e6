#include "product.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

namespace gputrain::ops::cuda {

void multiply(const Product& p) {
  at::Tensor out = p.out;
  if (p.adds) {
    at::addmm_out(out, out, p.a, p.b, out.scalar_type());
  } else {
    at::mm_out(out, p.a, p.b, out.scalar_type());
  }
}

}  // namespace gputrain::ops::cuda
