// The two kinds of stress. Each ends the process if an answer is wrong or missing.

#ifndef TESTS_GRPC_NATIVE_STRESS_STRESS_H_
#define TESTS_GRPC_NATIVE_STRESS_STRESS_H_

namespace seed_rl::transport {

void StressService(int rounds);
void StressBatchers(int rounds);

}  // namespace seed_rl::transport

#endif  // TESTS_GRPC_NATIVE_STRESS_STRESS_H_
