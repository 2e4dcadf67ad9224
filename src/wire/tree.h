// A Tree as the bytes of its manifest, whose SHA-256 is its name.
#ifndef GPULAYER_WIRE_TREE_H_
#define GPULAYER_WIRE_TREE_H_

#include <string>
#include <string_view>

#include "base/status.h"
#include "model/tree.h"

namespace gpulayer::wire {

// The same tree gives the same bytes. REQUIRES: entries sorted by path.
std::string SerializeTree(const Tree& tree);
// INVALID_ARGUMENT: not a manifest, or entries out of order. What the paths may be is the tree
// room's check.
Result<Tree> ParseTree(std::string_view bytes);

}  // namespace gpulayer::wire

#endif  // GPULAYER_WIRE_TREE_H_
