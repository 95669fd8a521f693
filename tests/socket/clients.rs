//! The Rust client, a client of another user, and one that counts how fast it is served.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use bridge_protocol::client::{self, ConnectError};
use jsonrpsee::core::client::{ClientT, SubscriptionClientT};
use jsonrpsee::core::params::ObjectParams;
use jsonrpsee::rpc_params;
use serde_json::{Value, json};
use session_bridge::server::SocketLimits;

use super::support::{DEADLINE, request, start, within};

#[tokio::test]
async fn the_rust_client_calls_and_subscribes() {
    let server = start(SocketLimits::default());
    let client = client::connect(&server.path).await.unwrap();
    let mut params = ObjectParams::new();
    params.insert("count", 3).unwrap();
    let mut subscription = within(client.subscribe::<u64, _>("test/subscribe", params, "test/unsubscribe"))
        .await
        .unwrap();
    for expected in 0..3 {
        assert_eq!(within(subscription.next()).await.unwrap().unwrap(), expected);
    }
    server.live_is(1).await;
    subscription.unsubscribe().await.unwrap();
    server.live_is(0).await;
    let mut params = ObjectParams::new();
    params.insert("bytes", 20 * 1024 * 1024).unwrap();
    let large: String = within(client.request("test/large", params)).await.unwrap();
    assert_eq!(large.len(), 20 * 1024 * 1024);
    let error = within(client.request::<Value, _>("test/echo", rpc_params![1]))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("-32602") || error.to_string().contains("InvalidParams"),
        "{error}"
    );
    server.stop.cancel();
    within(server.task).await.unwrap();
    assert!(
        within(client.request::<Value, _>("test/echo", ObjectParams::new()))
            .await
            .is_err()
    );
}

#[tokio::test]
async fn the_rust_client_tells_no_daemon_from_a_dead_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.sock");
    assert!(matches!(
        client::connect(&path).await,
        Err(ConnectError::NotFound { .. })
    ));
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(matches!(
        client::connect(&path).await,
        Err(ConnectError::Refused { .. })
    ));
    let long = folder.path().join("x".repeat(200));
    let error = client::connect(&long).await.unwrap_err();
    assert!(error.to_string().contains("xxx"), "{error}");
}

/// The environment in which [`a_foreign_client`] finds the socket to connect to.
const FOREIGN_SOCKET: &str = "SESSIOND_TEST_FOREIGN_SOCKET";

#[tokio::test]
async fn a_connection_of_another_user_is_closed_without_an_answer() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can connect as another user");
        return;
    }
    let server = start(SocketLimits::default());
    // Wide open, so that the check of the peer is all that is left; and a copy of this program where others may run it.
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("foreign");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let opened = [
        folder.path(),
        &program,
        server.path.parent().unwrap(),
        server.path.parent().unwrap().parent().unwrap(),
    ];
    for path in opened {
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(&server.path, Permissions::from_mode(0o666)).unwrap();
    let run_as = |uid: u32| {
        let mut command = Command::new(&program);
        command.args([
            "--exact",
            "socket::clients::a_foreign_client",
            "--ignored",
            "--nocapture",
        ]);
        command
            .env(FOREIGN_SOCKET, &server.path)
            .uid(uid)
            .gid(uid)
            .current_dir("/");
        tokio::task::spawn_blocking(move || command.output().unwrap())
    };
    for (uid, expected) in [(65534, "received 0 bytes"), (0, r#""id":1"#)] {
        let output = within(run_as(uid)).await.unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            text.contains(expected),
            "uid {uid}: {text} {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// The other side of the test above, run by it in a process of another user.
#[test]
#[ignore = "is run by a_connection_of_another_user_is_closed_without_an_answer"]
fn a_foreign_client() {
    use std::io::{Read, Write};
    let Some(path) = std::env::var_os(FOREIGN_SOCKET) else {
        return;
    };
    let mut stream = std::os::unix::net::UnixStream::connect(Path::new(&path)).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    // Refused clients may find the socket closed already.
    if stream
        .write_all(request(1, "test/echo", json!({})).as_bytes())
        .is_ok()
    {
        stream.shutdown(std::net::Shutdown::Write).ok();
    }
    let mut received = Vec::new();
    match stream.read_to_end(&mut received) {
        Ok(_) => println!(
            "received {} bytes: {}",
            received.len(),
            String::from_utf8_lossy(&received)
        ),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
            println!("received {} bytes, reset", received.len());
        }
        Err(error) => panic!("{error}"),
    }
}
