#include "cli/args.h"
#include "cli/parser.h"
#include "cli/verbs.h"

namespace gpulayer::cli {

Parsed Parse(int argc, char** argv) {
  Parser parser("GPUlayer: run commands on other machines, and bring their outputs home.",
                "gpulayer submit --source . -- python train.py");
  AddHostVerbs(parser);
  AddLoginVerbs(parser);
  AddSubmitVerbs(parser);
  AddJobVerbs(parser);
  AddWorkerVerbs(parser);
  AddTokenVerbs(parser);
  AddOtherVerbs(parser);
  return parser.Run(argc, argv);
}

}  // namespace gpulayer::cli
