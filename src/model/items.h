// What a task of a job with items runs.
#ifndef GPULAYER_MODEL_ITEMS_H_
#define GPULAYER_MODEL_ITEMS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/job.h"

namespace gpulayer {

// Each "{}" within a word becomes the item. No shell is involved: one word stays one word. CheckItems
// keeps it out of the script of `sh -c`, where the item would be read as a part of it.
std::vector<std::string> WithItem(std::vector<std::string> command, std::string_view item);

// Whether each of the lines can become an argument and GPULAYER_ITEM. RESOURCE_EXHAUSTED: no kernel
// starts that. INVALID_ARGUMENT: no program could receive it, or a shell would read it as its script. `longest`:
// bytes of the longest line.
Status CheckItems(const JobSpec& spec, std::int64_t lines, std::int64_t longest, bool has_nul);

}  // namespace gpulayer

#endif  // GPULAYER_MODEL_ITEMS_H_
