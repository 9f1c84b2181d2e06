// Conversion between TensorFlow's and the transport's tensors.

#ifndef SEED_RL_GRPC_NATIVE_OPS_TENSORS_H_
#define SEED_RL_GRPC_NATIVE_OPS_TENSORS_H_

#include <string>

#include "seed_rl/grpc/native/transport/transport.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/types.h"

namespace seed_rl {

absl::Status ToDType(tensorflow::DataType type, transport::DType* dtype);
tensorflow::DataType FromDType(transport::DType dtype);

absl::Status ToStatus(const transport::Status& status);
transport::Status FromStatus(const absl::Status& status);

transport::Spec ToSpec(transport::DType dtype, const tensorflow::PartialTensorShape& shape);

// Shares the memory (strings are copied). `tensor` must be in host memory.
absl::Status ToTransport(const tensorflow::Tensor& tensor, transport::Tensor* result);
// Takes over the memory, which must be aligned for TensorFlow (strings are copied).
absl::Status FromTransport(transport::Tensor tensor, tensorflow::Tensor* result);

}  // namespace seed_rl

#endif  // SEED_RL_GRPC_NATIVE_OPS_TENSORS_H_
