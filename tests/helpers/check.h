// Ends the process with the place of a condition that does not hold.

#ifndef TESTS_HELPERS_CHECK_H_
#define TESTS_HELPERS_CHECK_H_

#include <cstdio>
#include <cstdlib>

#define CHECK(condition)                                                   \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                        \
    }                                                                      \
  } while (false)

#endif  // TESTS_HELPERS_CHECK_H_
