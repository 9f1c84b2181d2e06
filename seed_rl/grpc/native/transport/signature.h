// Arguments and results of a binding's functions, and how their calls are batched.

#ifndef SEED_RL_GRPC_NATIVE_TRANSPORT_SIGNATURE_H_
#define SEED_RL_GRPC_NATIVE_TRANSPORT_SIGNATURE_H_

#include <vector>

#include "seed_rl/grpc/native/transport/transport.h"
#include "seed_rl/grpc/native/transport/wire.h"

namespace seed_rl::transport {

class Signature {
 public:
  Signature(const Binding& binding, int64_t max_batch_size);

  bool batched() const { return batch_ != kUnbatched; }
  bool dynamic() const { return batch_ == kDynamicBatch; }
  // Maximum (if dynamic) or exact number of rows in a batch.
  int64_t capacity() const { return capacity_; }
  const std::vector<Spec>& arguments() const { return arguments_; }
  // Size of a row of argument `i`, if batched; 0 bytes for strings.
  size_t row_elements(size_t i) const { return row_elements_[i]; }
  size_t row_bytes(size_t i) const { return row_elements_[i] * ItemSize(arguments_[i].dtype); }

  // Checks the tensors of a call. Determines their number of rows, and whether they have the
  // leading dimension; 1 and false if not batched.
  Status CheckCall(const Frame& frame, int64_t* rows, bool* leading) const;
  // Checks what a function returned for `rows` rows.
  Status CheckResults(const std::vector<Tensor>& results, int64_t rows) const;

 private:
  // Ignores the first `skip` dimensions of the spec.
  Status CheckShape(const std::vector<TensorView>& tensors, size_t i, size_t skip) const;

  const int64_t batch_;
  const std::vector<Spec> arguments_;
  const size_t num_results_;
  int64_t capacity_ = 1;
  std::vector<size_t> row_elements_;
};

}  // namespace seed_rl::transport

#endif  // SEED_RL_GRPC_NATIVE_TRANSPORT_SIGNATURE_H_
