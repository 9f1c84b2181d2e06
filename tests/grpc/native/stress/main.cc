// Stress of the transport alone, to be built with a sanitizer.
//
// Usage: stress service|batcher ROUNDS

#include <cstdlib>
#include <string>

#include "tests/grpc/native/stress/stress.h"
#include "tests/helpers/check.h"

int main(int argc, char** argv) {
  CHECK(argc == 3);
  const int rounds = std::atoi(argv[2]);
  if (std::string(argv[1]) == "service") {
    seed_rl::transport::StressService(rounds);
  } else {
    seed_rl::transport::StressBatchers(rounds);
  }
  return 0;
}
