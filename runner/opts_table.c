/* SPDX-License-Identifier: Apache-2.0 */
#include "opts_table.h"

#define FOR OPTS_FOR
#define JOBS                                                                                       \
    (FOR(OPTS_RUN) | FOR(OPTS_CHECK) | FOR(OPTS_PLAN) | FOR(OPTS_BACKENDS) | FOR(OPTS_DOCTOR))
#define EVERY (FOR(OPTS_NCOMMANDS) - 1)

const struct opts_command_row opts_commands[OPTS_NCOMMANDS] = {
    [OPTS_RUN] = {"run", "[run] JOB.yaml", "run the job", OPTS_JOB_REQUIRED,
                  "collrun job.yaml\n"
                  "collrun job.yaml -n 8 --set groups.world.backend=tcp\n"
                  "collrun -n 8 -- python3 train.py --lr 0.1\n"
                  "collrun -n 8 --hosts node1,node2 --gpus 1 -- python3 train.py\n"
                  "collrun job.yaml --run-dir runs/first\n"},
    [OPTS_CHECK] = {"check", "check JOB.yaml", "report every error in the job; start nothing",
                    OPTS_JOB_REQUIRED,
                    "collrun check job.yaml\n"
                    "collrun check job.yaml --set processes.count=64\n"
                    "collrun check -n 8 --hosts hosts.txt -- python3 train.py\n"},
    [OPTS_PLAN] = {"plan", "plan JOB.yaml [--hosts] [--json]",
                   "show ranks, hosts, cpus, groups and workloads; start nothing",
                   OPTS_JOB_REQUIRED,
                   "collrun plan job.yaml\n"
                   "collrun plan job.yaml --hosts\n"
                   "collrun plan job.yaml --profile debug --resolved\n"
                   "collrun plan -n 8 --hosts node1,node2 -- python3 train.py\n"
                   "collrun plan job.yaml --json | jq .ranks\n"},
    [OPTS_BACKENDS] = {"backends", "backends [JOB.yaml] [--json]", "list the available backends",
                       OPTS_JOB_OPTIONAL,
                       "collrun backends\n"
                       "collrun backends job.yaml --json\n"},
    [OPTS_DOCTOR] = {"doctor", "doctor [JOB.yaml]", "examine hosts, backends and plugins",
                     OPTS_JOB_OPTIONAL,
                     "collrun doctor\n"
                     "collrun doctor job.yaml\n"},
    [OPTS_DESCRIBE] = {"describe", "describe PLUGIN [--json]",
                       "show the parameters or options of a plugin", OPTS_PLUGIN_REQUIRED,
                       "collrun describe allreduce\n"
                       "collrun describe ./libmine.so\n"
                       "collrun describe gloo --json\n"},
    [OPTS_DIAG] = {"diag", "diag RUN_DIR [--json]", "repeat the verdict on a saved run",
                   OPTS_FOLDER_REQUIRED,
                   "collrun diag runs/first\n"
                   "collrun diag runs/first --json\n"},
    [OPTS_TOP] = {"top", "top RUN_DIR [--json]", "show a running job until it ends",
                  OPTS_FOLDER_REQUIRED, "collrun top runs/first\n"},
    [OPTS_REPORT] = {"report", "report RUN_DIR [-o FILE]", "write one HTML page about a saved run",
                     OPTS_FOLDER_REQUIRED,
                     "collrun report runs/first\n"
                     "collrun report runs/first -o page.html\n"
                     "collrun report runs/first --compare runs/second\n"},
    [OPTS_NEW] = {"new", "new [DIR] [--python]", "write a job file and a workload to start from",
                  OPTS_FOLDER_OPTIONAL,
                  "collrun new first && make -C first run\n"
                  "collrun new first --python && collrun first/job.yaml\n"},
    [OPTS_SCHEMA] = {"schema", "schema", "print the JSON Schema of job.yaml, for editors",
                     OPTS_WORD_NONE, "collrun schema >collrun.schema.json\n"},
    [OPTS_COMPLETION] = {"completion", "completion SHELL",
                         "print the completion script of bash, zsh or fish", OPTS_SHELL_REQUIRED,
                         "eval \"$(collrun completion bash)\"\n"
                         "collrun completion fish >~/.config/fish/completions/collrun.fish\n"},
};

const struct opts_option_row opts_options[OPTS_NOPTIONS] = {
    [OPTION_SET] = {.name = "set",
                    .value = "PATH=VALUE",
                    .help =
                        "override a value of the job: --set groups.world.backend=gloo; repeatable",
                    .commands = JOBS},
    [OPTION_VAR] = {.name = "var",
                    .value = "NAME=VALUE",
                    .help = "set a variable of the job: --var model=large; repeatable",
                    .commands = JOBS},
    [OPTION_PROFILE] = {.name = "profile",
                        .value = "NAME",
                        .help = "merge a profile of the job over it; repeatable",
                        .commands = JOBS},
    [OPTION_COUNT] = {.letter = 'n',
                      .value = "N",
                      .help = "run N ranks; the same as --set processes.count=N",
                      .commands = JOBS},
    [OPTION_HOST_LIST] = {.name = "hosts",
                          .value = "LIST|FILE",
                          .help =
                              "hosts of a program: node1,node2:4,gpu[01-16], a host file, or slurm",
                          .commands = OPTS_PROGRAMS},
    [OPTION_GPUS] = {.name = "gpus",
                     .value = "K",
                     .help = "K GPUs for each rank of a program",
                     .commands = OPTS_PROGRAMS},
    [OPTION_RUN_DIR] = {.name = "run-dir",
                        .value = "DIR",
                        .help = "write results and output to DIR",
                        .commands = FOR(OPTS_RUN)},
    [OPTION_TRACE] = {.name = "trace",
                      .value = "FILE",
                      .help = "write a timeline of all operations to FILE, for Perfetto",
                      .commands = FOR(OPTS_RUN)},
    [OPTION_OUTPUT] = {.letter = 'o',
                       .value = "FILE",
                       .help = "write the page to FILE, - for stdout; default: RUN_DIR/report.html",
                       .commands = FOR(OPTS_REPORT)},
    [OPTION_COMPARE] = {.name = "compare",
                        .value = "DIR",
                        .help = "draw the measurements of bench of another run directory as well",
                        .commands = FOR(OPTS_REPORT)},
    [OPTION_ONLY] = {.name = "only",
                     .value = "AXIS=VALUE",
                     .help = "only combinations of the matrix with this value; repeatable",
                     .commands = OPTS_PROGRAMS},
    [OPTION_WRAP] = {.name = "wrap",
                     .value = "RANKS COMMAND...",
                     .help = "run the processes of RANKS under COMMAND; the last option",
                     .commands = FOR(OPTS_RUN)},
    [OPTION_JSON] = {.name = "json",
                     .help = "print JSON",
                     .commands = FOR(OPTS_PLAN) | FOR(OPTS_BACKENDS) | FOR(OPTS_DESCRIBE) |
                                 FOR(OPTS_DIAG) | FOR(OPTS_TOP)},
    [OPTION_HOSTS] = {.name = "hosts",
                      .help = "ask the hosts where the ranks would run now",
                      .commands = FOR(OPTS_PLAN)},
    [OPTION_PRINT_JOB] = {.name = "print-job",
                          .help = "print the job file of a program; start nothing",
                          .commands = OPTS_PROGRAMS},
    [OPTION_RESOLVED] = {.name = "resolved",
                         .help = "print the merged job, each line with its origin",
                         .commands = FOR(OPTS_PLAN)},
    [OPTION_RESUME] = {.name = "resume",
                       .help = "leave out combinations of the matrix whose run was ok",
                       .commands = FOR(OPTS_RUN)},
    [OPTION_YES] = {.name = "yes",
                    .help = "run a matrix of more than 1000 combinations",
                    .commands = FOR(OPTS_RUN)},
    [OPTION_MAN] = {.name = "man",
                    .help = "print the keys as the manual page shows them",
                    .commands = FOR(OPTS_SCHEMA)},
    [OPTION_PYTHON] = {.name = "python",
                       .help = "a program in Python instead of a workload in C",
                       .commands = FOR(OPTS_NEW)},
    [OPTION_QUIET] = {.name = "quiet",
                      .letter = 'q',
                      .help = "print errors only",
                      .commands = EVERY},
    [OPTION_VERBOSE] = {.name = "verbose",
                        .letter = 'v',
                        .help = "print more details",
                        .commands = EVERY},
    [OPTION_NO_COLOR] = {.name = "no-color",
                         .help = "no colors; also NO_COLOR in the environment",
                         .commands = EVERY},
    [OPTION_VERSION] = {.name = "version", .help = "print the version", .commands = EVERY},
    [OPTION_HELP] = {.name = "help", .letter = 'h', .help = "print this help", .commands = EVERY},
};
