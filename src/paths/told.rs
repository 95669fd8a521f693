//! Where things are, in words: what the help and the manual of both programs say of it.
//!
//! A block of such a text is a line that ends in a colon, and what is indented by two columns below it: names, each with
//! words that are indented by four, and sentences.

/// The variables that both programs read for that.
pub const VARIABLES: &str = "
  SESSIOND_HOME
    One folder that everything is under, as --home names it
  SESSIOND_SOCKET
    The daemon's socket, as --socket names it. Each option goes before its variable, and --home before both
  XDG_CONFIG_HOME, XDG_DATA_HOME, XDG_RUNTIME_DIR
    The folders in place of ~/.config and ~/.local/share, and the one for sockets";

/// The files and folders, where no option and no variable names others.
pub const FILES: &str = "
  ~/.config/sessiond/config.toml
    The configuration, read when the daemon starts. It need not exist
  ~/.local/share/sessiond
    The daemon's data: journal.jsonl and bodies, which are what it knows; store, which is made of them; kept, copies of \
    the agents' transcripts; exports, bundles
  ~/.local/share/sessiond/sessiond.lock
    Who runs, as JSON: pid and socket
  ~/.local/share/sessiond/log/sessiond.log
    The log of a daemon that sessionctl started
  $XDG_RUNTIME_DIR/sessiond/sessiond.sock
    The socket. Where that variable is not set it is run/sessiond.sock in the folder of the data
  Below the one folder of --home these are config/config.toml, data, log/sessiond.log and run/sessiond.sock. On macOS \
  configuration and data are in ~/Library/Application Support/sessiond.";
