#!/bin/sh
# Removes what install.sh installed. Conversations, configuration and the agents' transcripts stay.
set -eu

usage() {
    echo "Usage: packaging/uninstall.sh [--prefix DIR]"
}

fail() {
    echo "uninstall.sh: $1" >&2
    exit "${2:-1}"
}

# misused WORDS: how it is used, and what was wrong.
misused() {
    usage >&2
    fail "$1" 2
}

prefix="${HOME:+$HOME/.local}"
while [ $# -gt 0 ]; do
    case "$1" in
        --prefix)
            # As install.sh takes it.
            case "${2:-}" in
                "" | -*) misused "--prefix needs a folder" ;;
            esac
            prefix="$2"
            shift
            ;;
        -h | --help) usage; exit 0 ;;
        *) misused "unknown argument: \"$1\"" ;;
    esac
    shift
done
case "$prefix" in
    /*) ;;
    "") fail "HOME is not set; name the folder with --prefix DIR" 2 ;;
    *) fail "--prefix takes an absolute path, not \"$prefix\"" 2 ;;
esac
prefix="${prefix%/}"
installed="$prefix/share/session-bridge/installed"
is_installed=
[ ! -f "$installed" ] || is_installed=yes
real="$(cd "$prefix" 2>/dev/null && pwd -P || echo "$prefix")"
units="${XDG_CONFIG_HOME:-${HOME:-}/.config}/systemd/user"

# Whether a path by which systemd knows a unit, or the link there, leads to what was installed in this prefix, be it gone or not.
is_ours() {
    unit="share/systemd/user/${1##*/}"
    # A unit without that list is not this script's.
    [ -n "$is_installed" ] || [ ! -e "$prefix/$unit" ] || return 1
    [ "$1" -ef "$prefix/$unit" ] && return
    case "$(readlink "$1" || echo "$1")" in
        "$prefix/$unit" | "$real/$unit") ;;
        *) return 1 ;;
    esac
}

reload=
known=
case "$(uname -s)" in
    Linux)
        # Of several that are installed, only this one. That of another prefix is told as the link to it.
        command -v systemctl >/dev/null &&
            known="$(systemctl --user show --property FragmentPath --value sessiond.socket 2>/dev/null)" || true
        if [ -n "$known" ] && is_ours "$known"; then
            systemctl --user stop sessiond.socket sessiond.service ||
                echo "uninstall.sh: cannot stop the service. To see why: systemctl --user status sessiond" >&2
            # What links it leaves, as those of a unit that is gone, are looked for below.
            systemctl --user disable sessiond.socket sessiond.service || true
            reload=yes
        fi
        ;;
    Darwin) [ -z "$is_installed" ] || launchctl bootout "gui/$(id -u)/io.session-bridge.sessiond" 2>/dev/null || true ;;
esac
# A file, and the folders above it that are empty then, up to the prefix.
remove() {
    rm -f "$1"
    folder="${1%/*}"
    while case "$folder" in "$prefix"/*) rmdir "$folder" 2>/dev/null ;; *) false ;; esac; do
        folder="${folder%/*}"
    done
}
if [ -n "$is_installed" ]; then
    # Turns that run are cancelled, as with every stop. There may be no daemon, or one of another program.
    pid="$("$prefix/bin/sessionctl" --json --no-start status 2>/dev/null | sed -n 's/.*"pid":\([0-9]*\).*/\1/p')"
    case "$(readlink "/proc/${pid:-none}/exe" || echo unknown)" in
        "$prefix"/bin/* | "$real"/bin/* | unknown) "$prefix/bin/sessionctl" --no-start stop >/dev/null 2>&1 || true ;;
    esac
    while IFS= read -r file; do
        remove "$file"
    done <"$installed"
    remove "$installed"
fi
# Links that now lead nowhere, where no manager ran that would have taken them away, or the units were gone before.
for link in "$units"/*.wants/sessiond.* "$units"/sessiond.*; do
    if [ -L "$link" ] && [ ! -e "$link" ] && is_ours "$link"; then
        # systemd may know no file of theirs any more, and has them run all the same.
        [ -n "$known" ] || [ -n "$reload" ] || systemctl --user stop sessiond.socket sessiond.service 2>/dev/null || true
        rm -f "$link"
        # The folder of those that are enabled is systemd's, and goes with the last of them.
        case "$link" in *.wants/*) rmdir "${link%/*}" 2>/dev/null || true ;; esac
        reload=yes
    fi
done
[ -z "$reload" ] || systemctl --user daemon-reload 2>/dev/null || true
if [ -n "$is_installed" ]; then
    echo "removed from $prefix; conversations and configuration were kept"
else
    echo "nothing is installed in $prefix"
fi
