// A folder of the test's own, removed at its end.
#ifndef GPULAYER_TESTS_SUPPORT_TEMP_DIR_H_
#define GPULAYER_TESTS_SUPPORT_TEMP_DIR_H_

#include <string>

#include "base/fs.h"

namespace gpulayer::testing {

class TempDir {
 public:
  TempDir() : path_(*MakeTempDir(TempRoot(), "gltest-")) {}
  ~TempDir() { IgnoreError(RemoveTree(path_), "a left folder is seen by the leak check"); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return JoinPath(path_, name); }

 private:
  std::string path_;
};

}  // namespace gpulayer::testing

#endif  // GPULAYER_TESTS_SUPPORT_TEMP_DIR_H_
