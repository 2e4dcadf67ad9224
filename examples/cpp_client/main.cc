// Runs a command on a worker and shows its output: cpp_client [PROGRAM [ARG...]]
//
// The server is that of GPULAYER_TARGET, the login in use, or the one `gpulayer up` started here.
#include <gpulayer/client.h>

#include <iostream>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  gpulayer::Result<gpulayer::Client> client = gpulayer::Client::Connect({});
  if (!client.ok()) {
    std::cerr << client.status().message() << "\n";
    return 125;
  }

  gpulayer::JobSpec spec;
  spec.name = "cpp-client";
  spec.command = argc > 1 ? std::vector<std::string>(argv + 1, argv + argc)
                          : std::vector<std::string>{"echo", "hello from a worker"};
  gpulayer::Result<gpulayer::Job> job = client->Submit(spec);
  if (!job.ok()) {
    std::cerr << job.status().message() << "\n";
    return 125;
  }

  gpulayer::Status streamed = job->StreamLogs([](const gpulayer::LogChunk& chunk) {
    std::ostream& out = chunk.stream == gpulayer::LogStream::kOut ? std::cout : std::cerr;
    out.write(chunk.data.data(), static_cast<std::streamsize>(chunk.data.size()));
    return true;
  });
  gpulayer::Result<gpulayer::JobResult> done = job->Wait();
  if (!streamed.ok() || !done.ok()) {
    std::cerr << (streamed.ok() ? done.status() : streamed).message() << "\n";
    return 125;
  }
  std::cerr << "job " << job->id() << " " << gpulayer::ToString(done->state) << ", exit code "
            << done->shell_exit_code;
  if (!done->cause_text.empty()) std::cerr << ": " << done->cause_text;
  std::cerr << "\n";
  return done->shell_exit_code;
}
