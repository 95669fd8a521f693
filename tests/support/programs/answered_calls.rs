//! Becomes another program, and lets the test answer some of its system calls: see
//! `tests/support/failing_calls.rs`.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::thread::set_no_new_privs;

/// `SOCKET NUMBER,… PROGRAM ARGUMENT…`: sends the listener for these calls over the socket, then executes the
/// program.
pub(crate) fn run(arguments: &[String]) {
    let [socket, calls, program, rest @ ..] = arguments else {
        panic!("SOCKET NUMBER,… PROGRAM ARGUMENT…")
    };
    let calls: Vec<u32> = calls.split(',').map(|call| call.parse().unwrap()).collect();
    let socket = UnixStream::connect(socket).unwrap();
    let listener = listen(&calls);
    let listeners = [listener.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    assert!(message.push(SendAncillaryMessage::ScmRights(&listeners)));
    sendmsg(&socket, &[IoSlice::new(b"x")], &mut message, SendFlags::empty()).unwrap();
    // Both descriptors are closed here, before the program runs.
    panic!("{}", Command::new(program).args(rest).exec());
}

/// Makes these system calls of this process and its children wait for an answer from the returned listener.
#[allow(unsafe_code, reason = "no crate of this package installs filters")]
fn listen(calls: &[u32]) -> OwnedFd {
    let statement = |code: u32, k: u32| libc::sock_filter {
        code: code.try_into().unwrap(),
        jt: 0,
        jf: 0,
        k,
    };
    // The number of the call is the first member of the data that a filter reads.
    let mut filter = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    for call in calls {
        filter.push(libc::sock_filter {
            jf: 1,
            ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, *call)
        });
        filter.push(statement(
            libc::BPF_RET | libc::BPF_K,
            libc::SECCOMP_RET_USER_NOTIF,
        ));
    }
    filter.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog {
        len: filter.len().try_into().unwrap(),
        filter: filter.as_mut_ptr(),
    };
    set_no_new_privs(true).unwrap();
    // SAFETY: the kernel copies the program, which lives until the call returns; the result of a success is a
    // new descriptor.
    unsafe {
        let listener = libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        );
        assert!(listener >= 0, "{}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(listener.try_into().unwrap())
    }
}
