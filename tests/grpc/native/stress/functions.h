// The functions under stress: each adds one to its argument, or fails.

#ifndef TESTS_GRPC_NATIVE_STRESS_FUNCTIONS_H_
#define TESTS_GRPC_NATIVE_STRESS_FUNCTIONS_H_

#include <cstdint>
#include <vector>

#include "seed_rl/grpc/native/transport/transport.h"

namespace seed_rl::transport {

inline constexpr uint32_t kNumFunctions = 6;
inline constexpr int64_t kRowInts = 1500;  // 6,000 bytes: replies of several rows are borrowed.

// A tensor of one value.
Tensor Ints(std::vector<int64_t> dims, int32_t value);

// All functions. They answer at once, from another thread, or never.
std::vector<Binding> AllBindings();

}  // namespace seed_rl::transport

#endif  // TESTS_GRPC_NATIVE_STRESS_FUNCTIONS_H_
