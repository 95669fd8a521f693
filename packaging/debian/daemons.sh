#!/bin/sh
# The beginning of this package's scripts.
set -e

# The daemons that run from this package, of all users. Those of a container have another root. `sessionctl` starts a daemon as
# `sessionctl daemon`. The built-in agent is the same program too, and its daemon ends it.
daemons() {
    for process in /proc/[0-9]*; do
        [ "$process/root" -ef / ] || continue
        # It may have ended meanwhile.
        program="$(readlink "$process/exe" 2>/dev/null)" || continue
        word="$({ tr '\0' '\n' <"$process/cmdline" | sed -n 2p; } 2>/dev/null)"
        case "${program% (deleted)} $word" in
            "${DPKG_ROOT:-}/usr/bin/sessiond loopback-agent") ;;
            "${DPKG_ROOT:-}/usr/bin/sessiond "* | "${DPKG_ROOT:-}/usr/bin/sessionctl daemon") echo "${process#/proc/}" ;;
        esac
    done
}
