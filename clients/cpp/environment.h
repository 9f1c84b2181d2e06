// What an environment is to the actor: the header for authors of environments.

#ifndef SEED_RL_CLIENTS_CPP_ENVIRONMENT_H_
#define SEED_RL_CLIENTS_CPP_ENVIRONMENT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace seed_rl {

// Type and shape of one array of one environment, without a batch dimension. Types have NumPy's
// names: "float32", "uint8", "bool", ...
struct Spec {
  std::string dtype;
  std::vector<int64_t> shape;

  bool operator==(const Spec& other) const { return dtype == other.dtype && shape == other.shape; }
  // Such as "uint8[84, 84, 1]".
  std::string Text() const;
};

struct Spaces {
  // The parts of an observation: one array, or the entries of a dictionary in the order of its
  // keys.
  std::vector<Spec> observation;
  // The action space as the learner names it, such as "2 choices from 0" (docs/wire_actor.md).
  std::string actions;
};

// The arrays of one environment: an observation to write or an action to read, in C order.
class Arrays {
 public:
  struct Array {
    char* data;
    size_t elements;
    size_t element_bytes;
  };

  explicit Arrays(std::vector<Array> arrays) : arrays_(std::move(arrays)) {}

  // The elements of a part. Choices are int64_t, a bool is a byte. Throws std::invalid_argument if
  // its elements have not the size of a T, std::out_of_range if there is no such part.
  template <typename T>
  T* Part(size_t i = 0) {
    return reinterpret_cast<T*>(Checked<T>(i).data);
  }
  template <typename T>
  const T* Part(size_t i = 0) const {
    return reinterpret_cast<const T*>(Checked<T>(i).data);
  }
  // The number of its elements.
  size_t Size(size_t i = 0) const { return arrays_.at(i).elements; }

 private:
  template <typename T>
  const Array& Checked(size_t i) const {
    const Array& array = arrays_.at(i);
    if (array.element_bytes != sizeof(T)) {
      throw std::invalid_argument("the elements of part " + std::to_string(i) + " have " +
                                  std::to_string(array.element_bytes) + " bytes, not " +
                                  std::to_string(sizeof(T)));
    }
    return array;
  }

  std::vector<Array> arrays_;
};

struct Step {
  float reward = 0;
  bool terminated = false;          // The episode is over.
  bool part_ended = false;          // A part of the game is over, such as one of several lives.
  bool truncated = false;           // It would have continued, but for a time limit.
  std::optional<float> raw_reward;  // The unshaped reward, if that differs.
  std::optional<bool> success;      // Whether the episode reached its goal.
};

// What its methods throw ends the actor with exit code 1.
class Environment {
 public:
  virtual ~Environment() = default;
  // Begins an episode and writes its first observation.
  virtual void Reset(Arrays& observation) = 0;
  // Applies an action and writes the observation after it.
  virtual Step Apply(const Arrays& action, Arrays& observation) = 0;
};

using CreateEnvironment = std::function<std::unique_ptr<Environment>(int env_id)>;

}  // namespace seed_rl

#endif  // SEED_RL_CLIENTS_CPP_ENVIRONMENT_H_
