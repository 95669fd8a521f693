//! Notifies the program that started the daemon that the sockets are listening.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;

/// The message to a waiting `sessionctl`.
const READY: &[u8] = b"ready\n";

/// Notifies a service manager that requested it, with `sd_notify`'s protocol: one datagram to `$NOTIFY_SOCKET`.
///
/// # Errors
/// If the manager's socket cannot be written to.
pub fn notify_service_manager(state: &str) -> io::Result<()> {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else {
        return Ok(());
    };
    let datagram = UnixDatagram::unbound()?;
    let name = socket.to_string_lossy();
    if let Some(_abstract_name) = name.strip_prefix('@') {
        #[cfg(target_os = "linux")]
        {
            use std::os::linux::net::SocketAddrExt;
            let address = std::os::unix::net::SocketAddr::from_abstract_name(_abstract_name)?;
            datagram.send_to_addr(state.as_bytes(), &address)?;
        }
        return Ok(());
    }
    datagram.send_to(state.as_bytes(), std::path::Path::new(&socket))?;
    Ok(())
}

/// Notifies the `sessionctl` that started this daemon, through the pipe that it passed as standard input. Closes the
/// pipe afterwards.
///
/// # Errors
/// If the pipe cannot be written to, because `sessionctl` no longer waits.
pub fn notify_starter() -> io::Result<()> {
    let written = rustix::io::write(io::stdin().as_fd(), READY);
    let nothing = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    written?;
    Ok(())
}
