//! The socket that a service manager listens on for the daemon, which it starts with the first client.
//!
//! Owns what is taken for one: the first descriptor that was passed to this very process, by systemd's protocol
//! (`sd_listen_fds`). Whose the socket is and where it has to be is the room `server`'s.

use std::os::unix::net::UnixListener;

use listenfd::ListenFd;

/// The listening socket that was passed; none when none was. No process that is started afterwards inherits it.
///
/// # Errors
/// When something was passed that is no listening Unix socket.
pub(super) fn listener() -> std::io::Result<Option<UnixListener>> {
    // What an ancestor was given is not for this process, although its environment tells of it.
    let is_for_us = std::env::var("LISTEN_PID").is_ok_and(|pid| pid == std::process::id().to_string());
    if !is_for_us {
        return Ok(None);
    }
    ListenFd::from_env().take_unix_listener(0)
}
