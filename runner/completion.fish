# SPDX-License-Identifier: Apache-2.0
# Completion of collrun, by `collrun completion fish`.
set -g __collrun_commands @NAMES@
complete -c collrun -f
complete -c collrun -n 'contains -- -- (commandline -opc)' -F -a '(test (commandline -opc)[-1] = --; and __fish_complete_command)'
# @COMMANDS@
complete -c collrun -n '__fish_seen_subcommand_from @OF_JOBS@; or not __fish_seen_subcommand_from $__collrun_commands' -a '(__fish_complete_path (commandline -ct) | string match -r "^[^\t]*(?:/|\.ya?ml)(?:\t.*)?\$")'
complete -c collrun -n '__fish_seen_subcommand_from @OF_FOLDERS@' -a '(__fish_complete_directories)'
complete -c collrun -n '__fish_seen_subcommand_from @OF_PLUGINS@' -F -a '(collrun completion plugins)'
complete -c collrun -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'
# @OPTIONS@
