#include "server/blob/sync_behind.h"

#include <gtest/gtest.h>

#include "support/temp_dir.h"

namespace gpulayer::internal {
namespace {

TEST(SyncBehindTest, AFailureStays) {
  SyncBehind sync;
  EXPECT_EQ(sync.Wait(), 0);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const UniqueFd in(ends[0]);
  UniqueFd out(ends[1]);
  sync.Start(out);  // a pipe cannot be synced
  out.Reset();
  EXPECT_EQ(sync.Wait(), EINVAL);

  const testing::TempDir dir;
  const UniqueFd file(open((dir / "file").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_TRUE(file.valid());
  sync.Start(file);
  EXPECT_EQ(sync.Wait(), EINVAL);
  EXPECT_FALSE(sync.busy());
}

}  // namespace
}  // namespace gpulayer::internal
