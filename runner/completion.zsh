#compdef collrun
# SPDX-License-Identifier: Apache-2.0
# Completion of collrun, by `collrun completion zsh`.
local dashes=$words[(i)--]
if (( dashes < CURRENT )); then # a program, and its arguments
    shift $dashes words
    (( CURRENT -= dashes ))
    _normal
    return
fi
local -a commands
commands=(
    # @COMMANDS@
)
if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then
    _describe command commands
    _files -g '*.y(|a)ml'
    return
fi
case $words[2] in
    # @ARGUMENTS@
esac
