#include "clients/cpp/batch.h"

#include <exception>
#include <limits>
#include <utility>

#include "seed_rl/grpc/native/transport/wire.h"

namespace seed_rl {
namespace {

constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();

transport::DType TypeOf(const std::string& name) {
  for (uint8_t code = 0; code < transport::kNumDTypes; ++code) {
    const auto dtype = static_cast<transport::DType>(code);
    if (dtype != transport::DType::kString && name == transport::DTypeName(dtype)) return dtype;
  }
  throw std::invalid_argument("There are no arrays of type " + name + " here.");
}

// Calls an environment.
template <typename Call>
auto OfEnvironment(int env_id, Call call) {
  try {
    return call();
  } catch (const std::exception& error) {
    throw EnvironmentFailure("Environment " + std::to_string(env_id) + " failed: " + error.what());
  }
}

// The rows of columns, by environment.
std::vector<Arrays> RowsOf(std::vector<Column>* columns, size_t k) {
  std::vector<Arrays> rows;
  for (size_t row = 0; row < k; ++row) {
    std::vector<Arrays::Array> arrays;
    for (Column& column : *columns) arrays.push_back(column.Row(row));
    rows.emplace_back(std::move(arrays));
  }
  return rows;
}

}  // namespace

std::string Spec::Text() const {
  std::string text = dtype + "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

Column::Column(const Spec& row, size_t k) : dtype_(TypeOf(row.dtype)), dims_(row.shape) {
  for (const int64_t dimension : row.shape) row_elements_ *= dimension;
  dims_.insert(dims_.begin(), static_cast<int64_t>(k));
  data_.resize(k * row_elements_ * transport::ItemSize(dtype_));
}

Arrays::Array Column::Row(size_t row) {
  const size_t element_bytes = transport::ItemSize(dtype_);
  return {data_.data() + row * row_elements_ * element_bytes, row_elements_, element_bytes};
}

transport::Tensor Column::AsTensor() const {
  transport::Tensor tensor;
  tensor.dtype = dtype_;
  tensor.dims = dims_;
  tensor.data = data_.data();
  tensor.bytes = data_.size();
  return tensor;
}

bool Column::CopyFrom(const transport::Tensor& tensor) {
  if (tensor.dtype != dtype_ || tensor.dims != dims_) return false;
  data_.assign(tensor.data, tensor.data + tensor.bytes);
  return true;
}

Batch::Batch(const Spaces& spaces, const CreateEnvironment& create, const std::vector<int>& env_ids)
    : env_ids_({"int32", {}}, env_ids.size()),
      run_ids_({"int64", {}}, env_ids.size()),
      reward_({"float32", {}}, env_ids.size()),
      done_({"bool", {}}, env_ids.size()),
      abandoned_({"bool", {}}, env_ids.size()),
      episode_step_({"int32", {}}, env_ids.size()),
      raw_reward_({"float32", {}}, env_ids.size()),
      success_({"float32", {}}, env_ids.size()),
      steps_(env_ids.size(), -1),
      truncated_(env_ids.size(), false) {
  for (const Spec& part : spaces.observation) observation_.emplace_back(part, env_ids.size());
  observation_rows_ = RowsOf(&observation_, env_ids.size());
  for (const int env_id : env_ids) {
    environments_.push_back(OfEnvironment(env_id, [&] { return create(env_id); }));
  }
  SetIds(env_ids);
}

void Batch::SetIds(const std::vector<int>& env_ids) {
  ids_ = env_ids;
  for (size_t row = 0; row < size(); ++row) env_ids_.Set<int32_t>(row, ids_[row]);
}

void Batch::Reset() {
  for (size_t row = 0; row < size(); ++row) {
    reward_.Set<float>(row, 0);
    raw_reward_.Set<float>(row, 0);
    success_.Set<float>(row, kUnknown);
    done_.Set<bool>(row, false);
    abandoned_.Set<bool>(row, false);
    if (steps_[row] != 0) Begin(row);
  }
}

std::vector<transport::Tensor> Batch::Arguments(int64_t run_id) {
  for (size_t row = 0; row < size(); ++row) {
    run_ids_.Set<int64_t>(row, run_id);
    episode_step_.Set<int32_t>(row, steps_[row]);
  }
  std::vector<transport::Tensor> arguments;
  for (const Column* column : {&env_ids_, &run_ids_, &reward_, &done_}) {
    arguments.push_back(column->AsTensor());
  }
  for (const Column& part : observation_) arguments.push_back(part.AsTensor());
  for (const Column* column : {&abandoned_, &episode_step_, &raw_reward_, &success_}) {
    arguments.push_back(column->AsTensor());
  }
  return arguments;
}

void Batch::ExpectActions(const std::vector<Spec>& parts) {
  action_.clear();
  for (const Spec& part : parts) action_.emplace_back(part, size());
  action_rows_ = RowsOf(&action_, size());
}

bool Batch::TakeActions(const std::vector<transport::Tensor>& results) {
  if (results.size() != action_.size()) return false;
  for (size_t i = 0; i < action_.size(); ++i) {
    if (!action_[i].CopyFrom(results[i])) return false;
  }
  return true;
}

void Batch::Apply() {
  for (size_t row = 0; row < size(); ++row) ApplyTo(row);
}

void Batch::ApplyTo(size_t row) {
  Step step;
  const bool abandoned = truncated_[row];  // The action was for an episode that is over.
  if (!abandoned) {
    step = OfEnvironment(ids_[row], [&] {
      return environments_[row]->Apply(action_rows_[row], observation_rows_[row]);
    });
    ++steps_[row];
  }
  reward_.Set<float>(row, step.reward);
  raw_reward_.Set<float>(row, step.raw_reward.value_or(step.reward));
  // Of a truncated episode, the learner reads it in the second call.
  if (!abandoned) success_.Set<float>(row, step.success ? float(*step.success) : kUnknown);
  done_.Set<bool>(row, abandoned || step.terminated || step.part_ended);
  abandoned_.Set<bool>(row, abandoned);
  truncated_[row] = step.truncated && !step.terminated;
  if (abandoned || step.terminated) Begin(row);
}

void Batch::Begin(size_t row) {
  OfEnvironment(ids_[row], [&] { environments_[row]->Reset(observation_rows_[row]); });
  steps_[row] = 0;
  truncated_[row] = false;
}

}  // namespace seed_rl
