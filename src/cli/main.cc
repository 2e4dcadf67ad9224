#include "cli/args.h"

int main(int argc, char** argv) {
  const gpulayer::cli::Parsed parsed = gpulayer::cli::Parse(argc, argv);
  return parsed.run ? parsed.run() : parsed.exit_code;
}
