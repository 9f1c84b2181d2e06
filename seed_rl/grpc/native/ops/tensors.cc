#include "seed_rl/grpc/native/ops/tensors.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tensorflow/core/common_runtime/dma_helper.h"
#include "tensorflow/core/framework/allocation_description.pb.h"
#include "tensorflow/core/platform/refcount.h"
#include "tensorflow/core/platform/tstring.h"

namespace seed_rl {
namespace {

using tensorflow::DataType;
using transport::DType;

constexpr DataType kTypes[transport::kNumDTypes] = {
    tensorflow::DT_BOOL,   tensorflow::DT_UINT8,  tensorflow::DT_INT8,     tensorflow::DT_UINT16,
    tensorflow::DT_INT16,  tensorflow::DT_UINT32, tensorflow::DT_INT32,    tensorflow::DT_UINT64,
    tensorflow::DT_INT64,  tensorflow::DT_HALF,   tensorflow::DT_BFLOAT16, tensorflow::DT_FLOAT,
    tensorflow::DT_DOUBLE, tensorflow::DT_STRING,
};

// Memory of the transport, from the start of a tensor. For accounting, its size is that of all
// memory that stays allocated while the tensor lives; some of it may lie before the tensor.
class ReceivedMemory : public tensorflow::TensorBuffer {
 public:
  explicit ReceivedMemory(transport::Tensor tensor)
      : TensorBuffer(const_cast<char*>(tensor.data)),
        bytes_(std::max(tensor.bytes, tensor.owner_bytes)),
        owner_(std::move(tensor.owner)) {}

  size_t size() const override { return bytes_; }
  TensorBuffer* root_buffer() override { return this; }
  void FillAllocationDescription(tensorflow::AllocationDescription* proto) const override {
    proto->set_requested_bytes(bytes_);
    proto->set_allocator_name("seed_rl_transport");
  }

 private:
  const size_t bytes_;
  const std::shared_ptr<const void> owner_;
};

// A tensor in that memory. TensorFlow takes a buffer's size for that of its tensor, for instance
// when it copies the tensor to a GPU or serializes it.
class ReceivedBuffer : public tensorflow::TensorBuffer {
 public:
  ReceivedBuffer(tensorflow::core::RefCountPtr<ReceivedMemory> memory, size_t bytes)
      : TensorBuffer(memory->data()), bytes_(bytes), memory_(std::move(memory)) {}

  size_t size() const override { return bytes_; }
  TensorBuffer* root_buffer() override { return memory_.get(); }
  void FillAllocationDescription(tensorflow::AllocationDescription* proto) const override {
    memory_->FillAllocationDescription(proto);
  }

 private:
  const size_t bytes_;
  const tensorflow::core::RefCountPtr<ReceivedMemory> memory_;
};

// Strips what TensorFlow adds to a message: "{{function_node f}} " before it, and lines with its
// place in the graph after it.
std::string PlainMessage(absl::string_view message) {
  constexpr absl::string_view kFunction = "{{function_node ", kEnd = "}} ";
  while (absl::StartsWith(message, kFunction)) {
    const size_t end = message.find(kEnd);
    if (end == absl::string_view::npos) break;
    message.remove_prefix(end + kEnd.size());
  }
  message = message.substr(0, message.find("\n\t [["));
  return std::string(message);
}

}  // namespace

absl::Status ToDType(DataType type, DType* dtype) {
  for (uint8_t i = 0; i < transport::kNumDTypes; ++i) {
    if (kTypes[i] == type) {
      *dtype = static_cast<DType>(i);
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("Tensors of ", tensorflow::DataTypeString(type), " cannot be sent"));
}

DataType FromDType(DType dtype) { return kTypes[static_cast<size_t>(dtype)]; }

absl::Status ToStatus(const transport::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.code), status.message);
}

transport::Status FromStatus(const absl::Status& status) {
  return {static_cast<transport::Code>(status.code()), PlainMessage(status.message())};
}

transport::Spec ToSpec(DType dtype, const tensorflow::PartialTensorShape& shape) {
  transport::Spec spec;
  spec.dtype = dtype;
  spec.rank_known = !shape.unknown_rank();
  for (int i = 0; i < shape.dims(); ++i) spec.dims.push_back(shape.dim_size(i));
  return spec;
}

absl::Status ToTransport(const tensorflow::Tensor& tensor, transport::Tensor* result) {
  TF_RETURN_IF_ERROR(ToDType(tensor.dtype(), &result->dtype));
  if (tensor.dims() > static_cast<int>(transport::kMaxRank)) {
    return absl::InvalidArgumentError("Tensors of more than 16 dimensions cannot be sent");
  }
  for (int i = 0; i < tensor.dims(); ++i) result->dims.push_back(tensor.dim_size(i));
  if (tensor.dtype() == tensorflow::DT_STRING) {
    const auto elements = tensor.unaligned_flat<tensorflow::tstring>();
    result->strings.reserve(elements.size());
    for (int64_t i = 0; i < elements.size(); ++i) {
      result->strings.emplace_back(elements(i).data(), elements(i).size());
    }
    return absl::OkStatus();
  }
  auto owner = std::make_shared<tensorflow::Tensor>(tensor);
  // The tensor may be a slice of a larger one.
  if (tensorflow::TensorBuffer* buffer = tensorflow::DMAHelper::buffer(owner.get())) {
    result->owner_bytes = buffer->root_buffer()->size();
  }
  result->data = owner->tensor_data().data();
  result->bytes = owner->tensor_data().size();
  result->owner = std::move(owner);
  return absl::OkStatus();
}

absl::Status FromTransport(transport::Tensor tensor, tensorflow::Tensor* result) {
  tensorflow::TensorShape shape;
  TF_RETURN_IF_ERROR(tensorflow::TensorShape::BuildTensorShape(tensor.dims, &shape));
  if (tensor.dtype == DType::kString) {
    *result = tensorflow::Tensor(tensorflow::DT_STRING, shape);
    auto elements = result->flat<tensorflow::tstring>();
    for (int64_t i = 0; i < elements.size(); ++i) elements(i) = tensor.strings[i];
    return absl::OkStatus();
  }
  const DataType type = FromDType(tensor.dtype);
  const size_t bytes = tensor.bytes;
  tensorflow::core::RefCountPtr<ReceivedMemory> memory(new ReceivedMemory(std::move(tensor)));
  tensorflow::core::RefCountPtr<tensorflow::TensorBuffer> buffer(
      new ReceivedBuffer(std::move(memory), bytes));
  *result = tensorflow::Tensor(type, std::move(shape), std::move(buffer));
  return absl::OkStatus();
}

}  // namespace seed_rl
