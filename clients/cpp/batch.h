// k environments as one, with the learner's episode protocol (docs/wire_actor.md).

#ifndef SEED_RL_CLIENTS_CPP_BATCH_H_
#define SEED_RL_CLIENTS_CPP_BATCH_H_

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "clients/cpp/environment.h"
#include "seed_rl/grpc/native/transport/transport.h"

namespace seed_rl {

// What an environment threw.
struct EnvironmentFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// An array [k, ...].
class Column {
 public:
  // Throws std::invalid_argument if there is no such type.
  Column(const Spec& row, size_t k);

  template <typename T>
  void Set(size_t row, T value) {
    reinterpret_cast<T*>(data_.data())[row] = value;
  }
  Arrays::Array Row(size_t row);
  // Of the whole array, valid until it changes.
  transport::Tensor AsTensor() const;
  // Copies a tensor; false if it has another type or shape.
  bool CopyFrom(const transport::Tensor& tensor);

 private:
  transport::DType dtype_;
  std::vector<int64_t> dims_;
  size_t row_elements_ = 1;
  std::vector<char> data_;
};

class Batch {
 public:
  Batch(const Spaces& spaces, const CreateEnvironment& create, const std::vector<int>& env_ids);

  // The numbers of the environments for the learner.
  const std::vector<int>& ids() const { return ids_; }
  void SetIds(const std::vector<int>& env_ids);

  // Resets the environments that have stepped: the beginning of a life. Throws EnvironmentFailure.
  void Reset();
  // The arguments of the learner's `inference`, valid until the next change.
  std::vector<transport::Tensor> Arguments(int64_t run_id);
  // Sets type and shape of an environment's actions.
  void ExpectActions(const std::vector<Spec>& parts);
  // Copies the actions of all environments; false if they are not as expected.
  bool TakeActions(const std::vector<transport::Tensor>& results);
  // Applies them. Throws EnvironmentFailure.
  void Apply();

 private:
  size_t size() const { return environments_.size(); }
  void Begin(size_t row);
  void ApplyTo(size_t row);

  std::vector<int> ids_;
  std::vector<std::unique_ptr<Environment>> environments_;
  Column env_ids_, run_ids_, reward_, done_, abandoned_, episode_step_, raw_reward_, success_;
  std::vector<Column> observation_, action_;            // By part.
  std::vector<Arrays> observation_rows_, action_rows_;  // Their rows, by environment.
  std::vector<int> steps_;                              // Of the episode; -1: never reset.
  std::vector<bool> truncated_;                         // By the last step: the next one resets.
};

}  // namespace seed_rl

#endif  // SEED_RL_CLIENTS_CPP_BATCH_H_
