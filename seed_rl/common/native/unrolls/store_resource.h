// Shared by the ops on InferenceStore: the resource, and the conversion of tensors to rows.

#ifndef SEED_RL_COMMON_NATIVE_UNROLLS_STORE_RESOURCE_H_
#define SEED_RL_COMMON_NATIVE_UNROLLS_STORE_RESOURCE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "seed_rl/common/native/unrolls/inference_store.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"

namespace seed_rl {

namespace tf = tensorflow;

// Type and shape of one row of a field.
struct Field {
  tf::DataType dtype;
  tf::TensorShape shape;
  size_t row_bytes() const { return shape.num_elements() * tf::DataTypeSize(dtype); }
};
using Fields = std::vector<Field>;

// Reads the attributes NAME_dtypes and NAME_shapes.
absl::Status GetFields(tf::OpKernelConstruction* ctx, const std::string& name, Fields* fields);

std::vector<size_t> RowBytes(const Fields& fields);

const uint8_t* Bytes(const tf::Tensor& tensor);
uint8_t* MutableBytes(tf::Tensor* tensor);

// The store, with the types and shapes of its fields.
class StoreResource : public tf::ResourceBase {
 public:
  StoreResource(StoreOptions options, Fields actions, Fields states, Fields steps,
                std::vector<std::vector<uint8_t>> initial_state)
      : actions(std::move(actions)),
        states(std::move(states)),
        steps(std::move(steps)),
        store(std::move(options), std::move(initial_state)) {}

  std::string DebugString() const override { return "SeedInferenceStore"; }

  const Fields actions, states, steps;
  InferenceStore store;
};

// The store whose handle is the op's first input.
absl::Status Lookup(tf::OpKernelContext* ctx, tf::core::RefCountPtr<StoreResource>* resource);

absl::Status ToStatus(const StoreError& error);

// Checks that each tensor of an input list is [batch, *row shape], and returns their bytes.
absl::Status GetRows(const tf::OpInputList& inputs, const Fields& fields, int64_t batch,
                     const char* what, InferenceStore::Rows* rows);

// Checks a vector input of `batch` elements.
absl::Status CheckVector(const tf::Tensor& tensor, const char* name, int64_t batch);

}  // namespace seed_rl

#endif  // SEED_RL_COMMON_NATIVE_UNROLLS_STORE_RESOURCE_H_
