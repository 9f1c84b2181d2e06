#include "seed_rl/common/native/unrolls/store_resource.h"

namespace seed_rl {

absl::Status GetFields(tf::OpKernelConstruction* ctx, const std::string& name, Fields* fields) {
  std::vector<tf::DataType> dtypes;
  std::vector<tf::TensorShape> shapes;
  TF_RETURN_IF_ERROR(ctx->GetAttr(name + "_dtypes", &dtypes));
  TF_RETURN_IF_ERROR(ctx->GetAttr(name + "_shapes", &shapes));
  if (dtypes.size() != shapes.size()) {
    return absl::InvalidArgumentError(name + ": the numbers of dtypes and shapes differ.");
  }
  for (size_t i = 0; i < dtypes.size(); ++i) {
    if (!tf::DataTypeCanUseMemcpy(dtypes[i])) {
      return absl::InvalidArgumentError(name + ": fields of type " + tf::DataTypeString(dtypes[i]) +
                                        " cannot be stored.");
    }
    fields->push_back({dtypes[i], shapes[i]});
  }
  return absl::OkStatus();
}

std::vector<size_t> RowBytes(const Fields& fields) {
  std::vector<size_t> bytes;
  for (const Field& field : fields) bytes.push_back(field.row_bytes());
  return bytes;
}

const uint8_t* Bytes(const tf::Tensor& tensor) {
  return reinterpret_cast<const uint8_t*>(tensor.tensor_data().data());
}
uint8_t* MutableBytes(tf::Tensor* tensor) { return const_cast<uint8_t*>(Bytes(*tensor)); }

absl::Status Lookup(tf::OpKernelContext* ctx, tf::core::RefCountPtr<StoreResource>* resource) {
  return tf::LookupResource(ctx, tf::HandleFromInput(ctx, 0), resource);
}

absl::Status ToStatus(const StoreError& error) {
  switch (error.code) {
    case StoreError::kOk:
      return absl::OkStatus();
    case StoreError::kInvalidArgument:
      return absl::InvalidArgumentError(error.message);
    case StoreError::kFailedPrecondition:
      return absl::FailedPreconditionError(error.message);
  }
  return absl::InternalError(error.message);
}

absl::Status GetRows(const tf::OpInputList& inputs, const Fields& fields, int64_t batch,
                     const char* what, InferenceStore::Rows* rows) {
  for (int i = 0; i < inputs.size(); ++i) {
    tf::TensorShape expected = fields[i].shape;
    expected.InsertDim(0, batch);
    if (inputs[i].dtype() != fields[i].dtype || inputs[i].shape() != expected) {
      return absl::InvalidArgumentError(
          std::string(what) + "[" + std::to_string(i) + "] should be " +
          tf::DataTypeString(fields[i].dtype) + expected.DebugString() + " but is " +
          tf::DataTypeString(inputs[i].dtype()) + inputs[i].shape().DebugString());
    }
    rows->push_back(Bytes(inputs[i]));
  }
  return absl::OkStatus();
}

absl::Status CheckVector(const tf::Tensor& tensor, const char* name, int64_t batch) {
  if (tensor.dims() == 1 && tensor.dim_size(0) == batch) return absl::OkStatus();
  return absl::InvalidArgumentError(std::string(name) + " should have shape [" +
                                    std::to_string(batch) + "] but has " +
                                    tensor.shape().DebugString());
}

}  // namespace seed_rl
