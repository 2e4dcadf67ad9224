// The private server of `gpulayer run`, as the real program.
#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "gpulayer/v1/workers.grpc.pb.h"
#include "model/records.h"
#include "support/eventually.h"
#include "support/process.h"
#include "support/temp_dir.h"

namespace gpulayer::testing {
namespace {

TEST(EphemeralTest, ItsWorkerIsThereWhenItSaysThatItIsReady) {
  TempDir dir;
  const std::string input = dir / "in";
  ASSERT_EQ(mkfifo(input.c_str(), 0600), 0);
  UniqueFd held(open(input.c_str(), O_RDWR | O_CLOEXEC));  // its end is the program's end
  auto program = Process::Start({.argv = {GPULAYER_SERVER_PROGRAM, "--ephemeral"},
                                 .env = {"TMPDIR=" + dir.path()},
                                 .stdout_file = dir / "out",
                                 .stderr_file = dir / "err",
                                 .stdin_file = input});
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  std::string line;
  ASSERT_TRUE(Eventually([&] {
    line = ReadFile(dir / "out").value_or("");
    return line.ends_with("\n");
  })) << ReadFile(dir / "err").value_or("");
  const auto ready = nlohmann::json::parse(line, nullptr, false);
  ASSERT_TRUE(ready.is_object() && ready.contains("socket")) << line;

  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  auto workers = v1::Workers::NewStub(grpc::CreateCustomChannel(
      "unix:" + ready["socket"].get<std::string>(), grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  v1::ListWorkersReply reply;
  const grpc::Status status = workers->List(&context, {}, &reply);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(reply.workers_size(), 1);
  EXPECT_EQ(reply.workers(0).state(), static_cast<int>(WorkerState::kOnline));

  held = UniqueFd();
  EXPECT_EQ(program->Wait(), 0);
}

}  // namespace
}  // namespace gpulayer::testing
