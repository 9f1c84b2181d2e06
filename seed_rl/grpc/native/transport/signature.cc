#include "seed_rl/grpc/native/transport/signature.h"

#include <algorithm>
#include <string>

namespace seed_rl::transport {
namespace {

// Limits a dynamic batch. The memory of an argument is allocated at full size, but unused pages are
// never touched.
constexpr size_t kMaxArgumentBytes = size_t{1} << 30;

// Maximum number of strings in a call: they are checked and copied one by one, on a network thread,
// and take 32 bytes besides their text. This many take some milliseconds.
constexpr size_t kMaxStrings = size_t{1} << 18;

Status Invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

std::string Argument(size_t i) { return "arg[" + std::to_string(i) + "]"; }

}  // namespace

Signature::Signature(const Binding& binding, int64_t max_batch_size)
    : batch_(binding.batch), arguments_(binding.arguments), num_results_(binding.num_results) {
  if (!batched()) return;
  capacity_ = dynamic() ? std::max<int64_t>(1, max_batch_size) : batch_;
  for (size_t i = 0; i < arguments_.size(); ++i) {
    size_t elements = 1;
    for (size_t d = 1; d < arguments_[i].dims.size(); ++d) elements *= arguments_[i].dims[d];
    row_elements_.push_back(elements);
    if (dynamic() && row_bytes(i) > 0) {
      capacity_ = std::clamp<int64_t>(kMaxArgumentBytes / row_bytes(i), 1, capacity_);
    }
  }
}

Status Signature::CheckCall(const Frame& frame, int64_t* rows, bool* leading) const {
  const std::vector<TensorView>& tensors = frame.tensors();
  *rows = 1;
  *leading = false;
  if (tensors.size() != arguments_.size()) {
    return Invalid("Expects " + std::to_string(arguments_.size()) + " arguments, but " +
                   std::to_string(tensors.size()) + " is provided");
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].dtype != arguments_[i].dtype) {
      return Invalid("Expects " + Argument(i) + " to be " + DTypeName(arguments_[i].dtype) +
                     " but " + DTypeName(tensors[i].dtype) + " is provided");
    }
  }
  if (batched()) {
    *leading = tensors[0].rank == arguments_[0].dims.size();
    if (*leading) *rows = tensors[0].dims[0];
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    Status status = CheckShape(tensors, i, batched() && !*leading ? 1 : 0);
    if (!status.ok()) return status;
  }
  if (batched() && (*rows < 1 || *rows > capacity_)) {
    return Invalid("Expects a leading dimension from 1 to " + std::to_string(capacity_) +
                   ", but it is " + std::to_string(*rows));
  }
  size_t strings = 0;
  for (const TensorView& tensor : tensors) {
    if (tensor.dtype == DType::kString) strings += tensor.elements;
  }
  if (strings > kMaxStrings) {
    return Invalid("Expects at most " + std::to_string(kMaxStrings) + " strings in a call, but " +
                   std::to_string(strings) + " are provided");
  }
  return frame.CheckStrings();
}

Status Signature::CheckShape(const std::vector<TensorView>& tensors, size_t i, size_t skip) const {
  const Spec& spec = arguments_[i];
  const TensorView& tensor = tensors[i];
  if (!spec.rank_known) return {};
  if (tensor.rank != spec.dims.size() - skip) {
    return Invalid("Expects " + Argument(i) + " to have shape with " +
                   std::to_string(spec.dims.size()) + " dimension(s), but had shape " +
                   ShapeString(tensor.dims, tensor.rank));
  }
  const size_t first = batched() && skip == 0 ? 1 : 0;
  for (size_t d = first; d < tensor.rank; ++d) {
    if (spec.dims[d + skip] >= 0 && spec.dims[d + skip] != tensor.dims[d]) {
      const size_t prefix = batched() ? 1 : 0;
      return Invalid("Expects " + Argument(i) + " to have shape " +
                     (batched() ? "with suffix " : "") +
                     ShapeString(spec.dims.data() + prefix, spec.dims.size() - prefix) +
                     ", but had shape " + ShapeString(tensor.dims, tensor.rank));
    }
  }
  if (first == 1 && tensor.dims[0] != tensors[0].dims[0]) {
    return Invalid("Expects all arguments to have the same leading dimension, but arg[0] has " +
                   std::to_string(tensors[0].dims[0]) + " and " + Argument(i) + " has " +
                   std::to_string(tensor.dims[0]));
  }
  return {};
}

Status Signature::CheckResults(const std::vector<Tensor>& results, int64_t rows) const {
  if (results.size() != num_results_) {
    return {Code::kInternal, "The function returned " + std::to_string(results.size()) +
                                 " tensors, not " + std::to_string(num_results_)};
  }
  if (!batched()) return {};
  for (const Tensor& result : results) {
    if (result.dims.empty()) {
      return Invalid("Output must be at least rank 1 when batching is enabled");
    }
    if (result.dims[0] != rows) {
      return Invalid("Output must have the leading dimension " + std::to_string(rows) +
                     " of the arguments when batching is enabled, but had shape " +
                     ShapeString(result.dims.data(), result.dims.size()));
    }
  }
  return {};
}

}  // namespace seed_rl::transport
