#include "seed_rl/common/native/replay/sum_tree.h"

namespace seed_rl {

SumTree::SumTree(int64_t capacity) {
  while (num_leaves_ < capacity) num_leaves_ *= 2;
  nodes_.assign(static_cast<size_t>(2 * num_leaves_), 0.0);
}

void SumTree::Set(int64_t leaf, double value) {
  int64_t node = num_leaves_ + leaf;
  nodes_[node] = value;
  for (node /= 2; node >= 1; node /= 2) nodes_[node] = nodes_[2 * node] + nodes_[2 * node + 1];
}

void SumTree::Rebuild() {
  for (int64_t node = num_leaves_ - 1; node >= 1; --node) {
    nodes_[node] = nodes_[2 * node] + nodes_[2 * node + 1];
  }
}

int64_t SumTree::Find(double fraction) const {
  double rest = fraction * total();
  int64_t node = 1;
  while (node < num_leaves_) {
    const double left = nodes_[2 * node];
    const double right = nodes_[2 * node + 1];
    // Rounding may leave `rest` at or past the end of a subtree; the tests against 0 then keep the
    // walk away from leaves that must never be drawn.
    if (right <= 0.0 || (left > 0.0 && rest < left)) {
      node = 2 * node;
    } else {
      rest -= left;
      node = 2 * node + 1;
    }
  }
  return node - num_leaves_;
}

}  // namespace seed_rl
