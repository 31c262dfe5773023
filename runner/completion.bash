# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Completion of collrun, by `collrun completion bash`.
_collrun() {
    local current=${COMP_WORDS[COMP_CWORD]} command='' words='' files='' word
    local program=${COMP_WORDS[0]/#\~/$HOME}
    COMPREPLY=()
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        if [ "$word" = -- ]; then # a program, and its arguments
            local kind=-f
            [ "${COMP_WORDS[COMP_CWORD-1]}" != -- ] || kind=-c
            mapfile -t COMPREPLY < <(compgen "$kind" -- "$current" | sort -u)
            compopt -o filenames 2>/dev/null
            return
        fi
        case $word in @PATTERN@) command=${command:-$word} ;; esac
    done
    case ${COMP_WORDS[COMP_CWORD-1]} in
    # @VALUES@
    esac
    [ -n "$files" ] || case ${command:-run} in
    # @OPTIONS@
    esac
    case $current in -*) files='' ;; *) words='' ;; esac
    if [ "$command" = completion ]; then words='bash zsh fish'; fi
    if [ "$command" = describe ] && [[ $current != -* ]]; then
        words=$("$program" completion plugins 2>/dev/null)
    fi
    if [ -z "$command" ] && [ "$COMP_CWORD" = 1 ] && [[ $current != -* ]]; then words='@NAMES@'; fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current"
        case $files in
        yaml) compgen -d -- "$current"
            compgen -f -- "$current" | grep -E '\.ya?ml$' ;;
        -?) compgen "$files" -- "$current" ;;
        esac)
    [ -z "$files" ] || compopt -o filenames 2>/dev/null
}
complete -F _collrun collrun
