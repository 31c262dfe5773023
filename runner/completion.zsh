#compdef collrun
# SPDX-License-Identifier: Apache-2.0
# Completion of collrun, by `collrun completion zsh`.
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
